#include "constraints/expression.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "constraints/interner.hpp"
#include "text/utf8.hpp"

namespace pumice {
namespace {

std::vector<std::string> texts_up_to(size_t length) {
  std::vector<std::string> texts{""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < length; ++i) {
    texts.push_back(texts[i] + "a");
    texts.push_back(texts[i] + "b");
  }
  return texts;
}

/// What an expression means, by the book.
struct Meaning {
  enum class Kind { kLetter, kConcat, kAny, kAll, kNot, kRepeat };
  Kind kind = Kind::kLetter;
  char letter = 'a';
  uint32_t min = 0, max = 0;
  std::vector<Meaning> parts = {};

  bool holds(std::string_view text) const {
    switch (kind) {
      case Kind::kLetter:
        return text.size() == 1 && text[0] == letter;
      case Kind::kConcat:
        for (size_t i = 0; i <= text.size(); ++i) {
          if (parts[0].holds(text.substr(0, i)) && parts[1].holds(text.substr(i))) return true;
        }
        return false;
      case Kind::kAny:
        return parts[0].holds(text) || parts[1].holds(text);
      case Kind::kAll:
        return parts[0].holds(text) && parts[1].holds(text);
      case Kind::kNot:
        return !parts[0].holds(text);
      case Kind::kRepeat:
        return repeats(text, 0);
    }
    return false;
  }
  bool repeats(std::string_view text, uint32_t times) const {
    if (text.empty() && (times >= min || parts[0].holds(""))) return true;
    if (times >= max) return false;
    for (size_t i = 1; i <= text.size(); ++i) {
      if (parts[0].holds(text.substr(0, i)) && repeats(text.substr(i), times + 1)) return true;
    }
    return false;
  }
  Expression make(ExpressionSet& set) const {
    std::vector<Expression> made;
    for (const Meaning& part : parts) made.push_back(part.make(set));
    switch (kind) {
      case Kind::kLetter:
        return set.literal(std::string(1, letter));
      case Kind::kConcat:
        return set.concat(made[0], made[1]);
      case Kind::kAny:
        return set.either(made[0], made[1]);
      case Kind::kAll:
        return set.both(made[0], made[1]);
      case Kind::kNot:
        return set.complement(made[0]);
      case Kind::kRepeat:
        return set.repeat(made[0], min, max);
    }
    return set.nothing();
  }
};

Meaning random_meaning(std::mt19937& random, int depth) {
  const auto below = [&](uint32_t n) {
    return std::uniform_int_distribution<uint32_t>(0, n - 1)(random);
  };
  Meaning made{.letter = below(2) == 0 ? 'a' : 'b'};
  made.kind = static_cast<Meaning::Kind>(depth == 0 ? 0 : below(6));
  if (made.kind == Meaning::Kind::kLetter) return made;
  const bool one = made.kind == Meaning::Kind::kNot || made.kind == Meaning::Kind::kRepeat;
  for (int i = 0; i < (one ? 1 : 2); ++i) made.parts.push_back(random_meaning(random, depth - 1));
  made.min = below(3);
  made.max = below(3) == 0 ? kUnbounded : made.min + below(3);
  return made;
}

TEST(Expression, RandomOnesMeanWhatTheBookSays) {
  std::mt19937 random(1);
  const std::vector<std::string> texts = texts_up_to(5);
  ExpressionSet set(1'000'000'000);
  for (int i = 0; i < 1500; ++i) {
    const Meaning meaning = random_meaning(random, 4);
    const Expression e = meaning.make(set);
    bool any = false;
    for (const std::string& text : texts) {
      ASSERT_EQ(set.matches(e, text), meaning.holds(text))
          << "expression " << i << " and \"" << text << '"';
      any |= meaning.holds(text);
    }
    EXPECT_FALSE(any && set.is_nothing(e)) << i;
  }
}

TEST(Expression, NothingIsFoundOutThroughTheAutomaton) {
  ExpressionSet set;
  const Expression a = set.literal("a"), b = set.literal("b");
  const Expression even = set.repeat(set.concat(a, a), 0), odd = set.concat(a, even);
  EXPECT_TRUE(set.disjoint(even, odd));
  EXPECT_FALSE(set.disjoint(set.repeat(a, 3), even));
  EXPECT_TRUE(set.is_nothing(set.both(set.repeat(a, 0), set.complement(set.either(even, odd)))));
  EXPECT_TRUE(set.is_nothing(set.concat(b, set.both(even, odd))));
  EXPECT_FALSE(set.is_nothing(set.both(set.repeat(set.character(), 5000), set.repeat(a, 0))));
}

TEST(Expression, ARepetitionIsOneNodeWhateverItsNumbers) {
  ExpressionSet set;
  const size_t before = set.memory_bytes();
  const Expression many = set.repeat(set.literal("a"), 5'000, 10'000'000);
  EXPECT_LT(set.memory_bytes() - before, 4096u);
  EXPECT_FALSE(set.matches(many, std::string(4'999, 'a')));
  EXPECT_TRUE(set.matches(many, std::string(5'000, 'a')));
}

TEST(Expression, CharactersAreUtf8sOwn) {
  ExpressionSet set;
  const CodePointRange ranges[] = {{0x41, 0x7FF}, {0x900, 0x10400}};
  const Expression e = set.code_points(ranges), any = set.character();
  for (char32_t c = 0; c <= 0x10FFFF; c += c < 0x1000 ? 1 : 61) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(c, text);
    EXPECT_EQ(set.matches(e, text), (c >= 0x41 && c <= 0x7FF) || (c >= 0x900 && c <= 0x10400))
        << uint32_t{c};
    EXPECT_TRUE(set.matches(any, text));
  }
  for (const char* malformed :
       {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "\x80", "\xC3"}) {
    EXPECT_FALSE(set.matches(any, malformed));
  }
}

TEST(Expression, FuelBoundsWhatAnExpressionMayCost) {
  ExpressionSet set(100'000);
  // (a|b)*a(a|b){20}: 2^20 states.
  const Expression letter = set.either(set.literal("a"), set.literal("b"));
  Expression tail = set.empty();
  for (int i = 0; i < 20; ++i) tail = set.concat(set.either(set.literal("ab"), letter), tail);
  const Expression e = set.concat({{set.repeat(letter, 0), set.literal("a"), tail}});
  std::mt19937 random(1);
  EXPECT_THROW(
      for (int i = 0; i < 1'000'000; ++i) {
        std::string text;
        for (int j = 0; j < 40; ++j) text += random() % 2 == 0 ? 'a' : 'b';
        set.matches(e, text);
      },
      OutOfFuel);
  EXPECT_LT(set.memory_bytes(), size_t{64} << 20);
}

TEST(WordInterner, EqualSequencesHaveOneNumber) {
  WordInterner interner;
  std::mt19937 random(1);
  std::vector<std::vector<uint32_t>> kept;
  for (int i = 0; i < 5000; ++i) {
    std::vector<uint32_t> words(random() % 4);
    for (uint32_t& word : words) word = random() % 7;
    const auto [number, is_new] = interner.intern(words);
    EXPECT_EQ(is_new, number == kept.size());
    if (is_new) kept.push_back(words);
    EXPECT_EQ(kept[number], words);
  }
  for (uint32_t i = 0; i < kept.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(interner[i], kept[i]));
    EXPECT_EQ(interner.intern(interner[i]).number, i);
  }
}

}  // namespace
}  // namespace pumice
