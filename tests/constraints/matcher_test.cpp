#include "constraints/matcher.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "tests/constraints/support.hpp"

namespace pumice::testing {
namespace {

const SmallVocabulary& vocabulary() {
  static const SmallVocabulary kVocabulary(small_texts());
  return kVocabulary;
}

Matcher matcher_of(GrammarBuilder builder, Symbol start, const ConstraintLimits& limits = {}) {
  Grammar grammar = std::move(builder).build(start).value();
  return Matcher(Constraint::create(std::move(grammar), vocabulary().trie, limits).value());
}

bool takes(Matcher matcher, std::string_view text) {
  for (const char c : text) {
    const std::optional<TokenId> token =
        vocabulary().tokenizer->vocabulary().find(std::string(1, c));
    if (!token || !matcher.accept(*token).ok()) return false;
  }
  return matcher.can_end().value();
}

/// Nothing where that takes too long.
std::optional<std::vector<TokenId>> expected(const Recogniser& recogniser) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocabulary().trie->n_tokens(); ++id) {
    const bool ends = id == SmallVocabulary::kEnd && recogniser.accepts();
    const Recogniser after = recogniser.after(*vocabulary().trie, id);
    if (after.gave_up()) return std::nullopt;
    if (ends || after.alive()) ids.push_back(id);
  }
  return ids;
}

TEST(Matcher, MasksOfRandomGrammarsAreThoseOfBruteForce) {
  std::mt19937 random(7);
  size_t n_states = 0;
  for (int round = 0; round < 600; ++round) {
    const Language language = random_language(random);
    const auto constraint = Constraint::create(language.grammar().value(), vocabulary().trie);
    ASSERT_TRUE(constraint.ok()) << constraint.error().message;
    for (int walk = 0; walk < 3; ++walk) {
      Matcher matcher(*constraint);
      Recogniser recogniser(language);
      for (int step = 0; step < 12; ++step, ++n_states) {
        const std::vector<TokenId> ids = allowed(matcher);
        const auto wanted = expected(recogniser);
        if (!wanted) break;
        ASSERT_EQ(ids, *wanted) << "round " << round << " walk " << walk << " step " << step;
        ASSERT_EQ(matcher.can_end().value(), recogniser.accepts());
        if (ids.empty()) break;
        const TokenId token = ids[random() % ids.size()];
        ASSERT_TRUE(matcher.accept(token).ok());
        if (token == SmallVocabulary::kEnd) {
          EXPECT_TRUE(allowed(matcher).empty());
          EXPECT_TRUE(matcher.is_complete().value());
          break;
        }
        recogniser = recogniser.after(*vocabulary().trie, token);
      }
    }
  }
  EXPECT_GT(n_states, 4000u);
}

TEST(Matcher, ALexemeMayEndWhereverItMayAndGoOnToo) {
  GrammarBuilder builder;
  ExpressionSet& set = builder.expressions();
  ByteSet letters;
  for (const char c : {'a', 'b', 'c'}) letters.set(static_cast<uint8_t>(c));
  const Symbol word = builder.lexeme(set.repeat(set.bytes(letters), 0));
  const Symbol recurs = builder.declare("recurs");  // keeps the two lexemes apart
  builder.define(
      recurs,
      builder.choice({builder.sequence({word, builder.literal("a")}),
                      builder.sequence({builder.literal("("), recurs, builder.literal(")")})}));
  Matcher matcher = matcher_of(std::move(builder), recurs);
  EXPECT_TRUE(takes(matcher, "a"));
  EXPECT_TRUE(takes(matcher, "aa"));
  EXPECT_TRUE(takes(matcher, "(aba)"));
  EXPECT_FALSE(takes(matcher, "ab"));
  EXPECT_FALSE(takes(matcher, "(a"));
}

TEST(Matcher, LeftAndRightRecursionAreOneLanguage) {
  const auto matcher = [](bool left) {
    GrammarBuilder builder;
    const Symbol item = builder.declare("item"), list = builder.declare("list");
    builder.define(
        item, builder.choice({builder.literal("a"), builder.sequence({builder.literal("("), list,
                                                                      builder.literal(")")})}));
    const Symbol comma = builder.literal(",");
    const Symbol more =
        left ? builder.sequence({list, comma, item}) : builder.sequence({item, comma, list});
    builder.define(list, builder.choice({item, more}));
    return matcher_of(std::move(builder), list);
  };
  Matcher left = matcher(true), right = matcher(false);
  std::mt19937 random(3);
  for (int step = 0; step < 300; ++step) {
    const std::vector<TokenId> ids = allowed(left);
    ASSERT_EQ(ids, allowed(right)) << step;
    const TokenId token = ids[random() % ids.size()];
    if (token == SmallVocabulary::kEnd) continue;
    ASSERT_TRUE(left.accept(token).ok() && right.accept(token).ok());
  }
}

TEST(Matcher, RollBackIsReplay) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    const Language language = random_language(random);
    const auto constraint =
        Constraint::create(language.grammar().value(), vocabulary().trie).value();
    Matcher matcher(constraint);
    for (int step = 0; step < 20; ++step) {
      const std::vector<TokenId> ids = allowed(matcher);
      if (ids.empty() || random() % 3 == 0) {
        matcher.rollback(random() % (matcher.n_tokens() + 1));
      } else {
        ASSERT_TRUE(matcher.accept(ids[random() % ids.size()]).ok());
      }
      Matcher replayed(constraint);
      for (const TokenId token : matcher.tokens()) ASSERT_TRUE(replayed.accept(token).ok());
      ASSERT_EQ(allowed(matcher), allowed(replayed));
      ASSERT_EQ(matcher.can_end().value(), replayed.can_end().value());
    }
  }
}

TEST(Matcher, AnAutomatonThatBeginsAnewChangesNothing) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const Language language = random_language(random);
    Matcher matcher(Constraint::create(language.grammar().value(), vocabulary().trie).value());
    Matcher forgetful(
        Constraint::create(language.grammar().value(), vocabulary().trie, {.memory_bytes = 0})
            .value());
    for (int step = 0; step < 12; ++step) {
      const std::vector<TokenId> ids = allowed(matcher);
      ASSERT_EQ(ids, allowed(forgetful));
      if (ids.empty()) break;
      const TokenId token = ids[random() % ids.size()];
      ASSERT_TRUE(matcher.accept(token).ok() && forgetful.accept(token).ok());
    }
  }
}

TEST(Matcher, ARefusedTokenChangesNothing) {
  GrammarBuilder builder;
  const Symbol start = builder.literal("ab");
  Matcher matcher = matcher_of(std::move(builder), start);
  const std::vector<TokenId> before = allowed(matcher);
  for (TokenId id = 0; id < vocabulary().trie->n_tokens() + 3; ++id) {
    if (std::ranges::binary_search(before, id)) continue;
    const Status refused = matcher.accept(id);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(matcher.n_tokens(), 0u);
  }
  EXPECT_EQ(allowed(matcher), before);
}

TEST(Matcher, WhatIsTheOnlyTextIsForced) {
  GrammarBuilder builder;
  const Symbol start = builder.sequence(
      {builder.literal("d"), builder.choice({builder.literal("a"), builder.literal("b")})});
  Matcher matcher = matcher_of(std::move(builder), start);
  const TokenId d = *vocabulary().tokenizer->vocabulary().find("d");
  const TokenId b = *vocabulary().tokenizer->vocabulary().find("b");
  EXPECT_EQ(matcher.forced().value(), d);
  ASSERT_TRUE(matcher.accept(d).ok());
  EXPECT_EQ(matcher.forced().value(), std::nullopt);
  EXPECT_FALSE(matcher.can_end().value());
  ASSERT_TRUE(matcher.accept(b).ok());
  EXPECT_EQ(matcher.forced().value(), TokenId{SmallVocabulary::kEnd});
  EXPECT_TRUE(matcher.is_complete().value());
}

TEST(Matcher, OfALongForcedTextTheFirstTokenIsTheTokenizersOwn) {
  GrammarBuilder builder;
  const Symbol start = builder.literal("abcddd");
  Matcher matcher = matcher_of(std::move(builder), start);
  std::string text;
  while (!matcher.is_complete().value()) {
    const auto token = matcher.forced().value();
    if (!token) {  // the last ones could be one token or two
      ASSERT_TRUE(matcher.accept(allowed(matcher).front()).ok());
      continue;
    }
    ASSERT_TRUE(matcher.accept(*token).ok());
  }
  const auto canonical = vocabulary().tokenizer->encode("abcddd", {.add_special = false}).value();
  EXPECT_EQ(matcher.tokens().front(), canonical.front());
}

TEST(Matcher, TenThousandTimesIsNotExpanded) {
  GrammarBuilder builder;
  const Symbol recurs = builder.declare("recurs");
  builder.define(
      recurs, builder.choice({builder.literal("a"), builder.sequence({builder.literal("("), recurs,
                                                                      builder.literal(")")})}));
  const Symbol start = builder.repeat(recurs, 3, 10'000);
  Matcher matcher = matcher_of(std::move(builder), start);
  EXPECT_FALSE(takes(matcher, "a(a)"));
  EXPECT_TRUE(takes(matcher, "a(a)((a))"));
  const TokenId many = *vocabulary().tokenizer->vocabulary().find(std::string(50, 'a'));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(matcher.accept(many).ok()) << i;
  EXPECT_FALSE(matcher.accept(many).ok());
  EXPECT_EQ(allowed(matcher), std::vector<TokenId>{SmallVocabulary::kEnd});
}

TEST(Matcher, MasksOfStringsWithExceptionsAreThoseOfDerivatives) {
  const SmallVocabulary small([] {
    std::vector<std::string> texts = small_texts();
    for (const char* more :
         {"\xE2\x80\xA8", "a\xE2\x80\xA9", "\xE2\x80\xA7", "\xE2\x82\xAC", "é€", "aaaa"})
      texts.emplace_back(more);
    return texts;
  }());
  const std::array<std::pair<uint32_t, uint32_t>, 6> lengths = {
      {{0, kUnbounded}, {3, kUnbounded}, {0, 3}, {2, 5}, {0, 12}, {4, 60}}};
  const std::array<std::vector<std::string>, 5> exceptions = {
      {{}, {"ab", "abc"}, {"abcabcabcabc"}, {"", "a", "aa", "aaa"}, {"é", "éa\""}}};
  const std::array<std::vector<CodePointRange>, 3> alphabets = {
      {{{0, 0x10FFFF}}, {{0x20, 0x2027}, {0x202A, 0x10FFFF}}, {{'a', 'd'}}}};
  std::mt19937 random(5);
  size_t n_masks = 0;
  for (const auto& [min, max] : lengths) {
    for (const std::vector<std::string>& names : exceptions) {
      for (const auto& alphabet : alphabets) {
        for (const bool with_endless : {false, true}) {
          GrammarBuilder builder;
          ExpressionSet& set = builder.expressions();
          std::vector<Expression> conditions{set.repeat(set.code_points(alphabet), min, max)};
          std::vector<Expression> excluded;
          for (const std::string& name : names) excluded.push_back(set.literal(name));
          if (!names.empty()) {  // short ones but "ab"
            excluded.push_back(set.both(set.repeat(set.code_points({{{'a', 'b'}}}), 2, 6),
                                        set.complement(set.literal("ab"))));
          }
          conditions.push_back(set.complement(set.any_of(excluded)));
          if (with_endless)
            conditions.push_back(set.complement(set.concat(set.literal("b"), set.everything())));
          Expression at = set.concat(set.all_of(conditions), set.literal("\""));
          ExpressionSet own = set;  // numbers mean the same in a copy
          const Symbol lexeme = builder.lexeme(at);
          Grammar grammar = std::move(builder).build(lexeme).value();
          const auto constraint = Constraint::create(std::move(grammar), small.trie);
          ASSERT_TRUE(constraint.ok()) << constraint.error().message;
          Matcher matcher(*constraint);
          const auto after = [&](TokenId id) {
            Expression e = at;
            for (const char c : small.trie->text(id))
              e = own.derivative(e, static_cast<uint8_t>(c));
            return e;
          };
          for (int step = 0; step < 14; ++step, ++n_masks) {
            std::vector<TokenId> wanted;
            for (TokenId id = 0; id < small.trie->n_tokens(); ++id) {
              const bool ends = id == SmallVocabulary::kEnd && own.nullable(at);
              const bool goes_on = !small.trie->text(id).empty() && !own.is_nothing(after(id));
              if (ends || goes_on) wanted.push_back(id);
            }
            ASSERT_EQ(allowed(matcher), wanted)
                << min << " to " << max << ", " << names.size() << " names, step " << step;
            std::erase(wanted, SmallVocabulary::kEnd);
            if (wanted.empty()) break;
            const TokenId token = wanted[random() % wanted.size()];
            at = after(token);
            ASSERT_TRUE(matcher.accept(token).ok());
          }
        }
      }
    }
  }
  EXPECT_GT(n_masks, 600u);
}

TEST(Matcher, ManyThreadsShareAConstraint) {
  std::mt19937 random(21);
  const Language language = random_language(random);
  const auto constraint =
      Constraint::create(language.grammar().value(), vocabulary().trie, {.memory_bytes = 100'000})
          .value();
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 own(seed);
      for (int walk = 0; walk < 20; ++walk) {
        Matcher matcher(constraint);
        Recogniser recogniser(language);
        for (int step = 0; step < 8; ++step) {
          const std::vector<TokenId> ids = allowed(matcher);
          EXPECT_EQ(ids, expected(recogniser));
          if (ids.empty() || !matcher.accept(ids[own() % ids.size()]).ok()) break;
          if (matcher.tokens().back() == SmallVocabulary::kEnd) break;
          recogniser = recogniser.after(*vocabulary().trie, matcher.tokens().back());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Constraint, AGrammarWithoutTextsIsRefused) {
  GrammarBuilder builder;
  const Symbol endless = builder.declare("endless");
  builder.define(endless, builder.sequence({builder.literal("a"), endless}));
  const auto made =
      Constraint::create(std::move(builder).build(endless).value(), vocabulary().trie);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
}

TEST(Constraint, TokensThatAreNotThereAreRefused) {
  GrammarBuilder builder;
  const Symbol start = builder.tokens({100'000});
  EXPECT_FALSE(Constraint::create(std::move(builder).build(start).value(), vocabulary().trie).ok());
}

TEST(GrammarBuilder, WhatIsNotDefinedIsNamed) {
  GrammarBuilder builder;
  const Symbol start = builder.sequence({builder.literal("a"), builder.declare("item")});
  const auto grammar = std::move(builder).build(start);
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().message, "item is used but not defined");
}

}  // namespace
}  // namespace pumice::testing
