// Guesses of the prompt look-up, and how many of them are verified. No device.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "engine/draft_policy.hpp"
#include "engine/prompt_lookup.hpp"

namespace pumice {
namespace {

std::vector<TokenId> tokens_of(std::string_view text) { return {text.begin(), text.end()}; }

/// What it says after the text came token by token.
Guess guess(std::string_view text, uint32_t most) {
  PromptLookup lookup;
  Guess last;
  const std::vector<TokenId> tokens = tokens_of(text);
  for (size_t n = 1; n <= tokens.size(); ++n) last = lookup(std::span(tokens).first(n), most);
  return last;
}

TEST(PromptLookup, SaysWhatFollowedTheSameWordsBefore) {
  EXPECT_EQ(guess("the cat sat. the cat", 5).tokens, tokens_of(" sat."));
  EXPECT_EQ(guess("the cat sat. the cat", 2).tokens, tokens_of(" s"));
  EXPECT_TRUE(guess("the cat sat", 5).tokens.empty());
  EXPECT_TRUE(guess("", 5).tokens.empty());
}

TEST(PromptLookup, TakesTheLongestMatchAndOfEqualOnesTheLast) {
  EXPECT_EQ(guess("xabcd1 yabcd2 zabcd3 xabcd", 1).tokens, tokens_of("1"));
  EXPECT_EQ(guess("abcd1 abcd2 uabcd", 1).tokens, tokens_of("2"));
}

TEST(PromptLookup, GoesOnWithWhatRepeatsItself) {
  EXPECT_EQ(guess("abcabcabc", 7).tokens, tokens_of("abcabca"));
  EXPECT_EQ(guess("aaaaaa", 4).tokens, tokens_of("aaaa"));
}

TEST(PromptLookup, IsSurerOfLongerMatches) {
  EXPECT_EQ(guess("abc-abc", 1).kind, 0u);
  EXPECT_EQ(guess("abcdef-abcdef", 1).kind, 1u);
  EXPECT_EQ(guess("abcdefghijkl-abcdefghijkl", 1).kind, 2u);
}

TEST(PromptLookup, AddsALongTextByAndBy) {
  PromptLookup lookup;
  std::vector<TokenId> tokens(3 * PromptLookup::kMostAtOnce);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i % 1000);
  EXPECT_TRUE(lookup(tokens, 3).tokens.empty());
  EXPECT_TRUE(lookup(tokens, 3).tokens.empty());
  EXPECT_EQ(lookup(tokens, 1).tokens, std::vector<TokenId>(1, tokens.size() % 1000));
}

TEST(PromptLookup, BeginsAnewWithAnotherText) {
  PromptLookup lookup;
  const std::vector<TokenId> first = tokens_of("abcdef abcdef abc");
  EXPECT_FALSE(lookup(first, 3).tokens.empty());
  EXPECT_TRUE(lookup(tokens_of("xyz"), 3).tokens.empty());
  EXPECT_EQ(lookup(tokens_of("xyz xyz"), 1).tokens, tokens_of(" "));
}

/// What it says of an answer so far, of which it was asked at each token.
Guess guess_of_expected(std::string_view answer, uint32_t most) {
  const std::string prompt = "Change a word of it:";
  const Drafter drafter = prompt_lookup_drafter(tokens_of("the cat sat on the mat"), prompt.size());
  Guess last;
  for (size_t n = 0; n <= answer.size(); ++n) {
    last = drafter(tokens_of(prompt + std::string(answer.substr(0, n))), most);
  }
  return last;
}

TEST(PromptLookup, SaysAnExpectedTextFromItsBeginning) {
  EXPECT_EQ(guess_of_expected("", 5).tokens, tokens_of("the c"));
  EXPECT_EQ(guess_of_expected("t", 5).tokens, tokens_of("he ca"));
  EXPECT_EQ(guess_of_expected("the cat sat on the m", 5).tokens, tokens_of("at"));
  EXPECT_EQ(guess_of_expected("the cat", 1).kind, 2u);
  EXPECT_TRUE(guess_of_expected("the cat sat on the mat.", 5).tokens.empty());
}

TEST(PromptLookup, GoesOnWithAnExpectedTextBehindWhatDiffers) {
  EXPECT_TRUE(guess_of_expected("the dog", 5).tokens.empty());
  EXPECT_TRUE(guess_of_expected("the dog s", 5).tokens.empty());
  EXPECT_EQ(guess_of_expected("the dog sat", 5).tokens, tokens_of(" on t"));
}

/// Of random texts of few letters, in which ends of every length repeat.
TEST(PromptLookup, FindsTheLongestEndThatOccursTwiceInAnyText) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const uint32_t n_letters = 2 + random() % 4;
    PromptLookup lookup;
    std::vector<TokenId> text;
    for (size_t n = 1; n <= 60; ++n) {
      text.push_back(random() % n_letters);
      const Guess got = lookup(text, 1);
      size_t longest = 0;
      std::vector<TokenId> followers;  // of ends of that length
      for (size_t end = 1; end < n; ++end) {
        size_t length = 0;
        while (length < end && text[end - 1 - length] == text[n - 1 - length]) ++length;
        if (length < longest) continue;
        if (length > longest) followers.clear();
        longest = length;
        followers.push_back(text[end]);
      }
      ASSERT_EQ(lookup.n_matched(), longest);
      ASSERT_EQ(got.tokens.empty(), longest < PromptLookup::kLeastMatch);
      if (got.tokens.empty()) continue;
      ASSERT_TRUE(std::ranges::find(followers, got.tokens[0]) != followers.end());
    }
  }
}

/// A device in arithmetic: seconds of a step by its rows, and tokens that are guessed rightly with
/// a probability that may change.
struct Simulation {
  double per_row = 0;     ///< of a step of one row, what each further one costs
  double early = 0;       ///< how often a token is right at first
  double late = 0;        ///< and in every second stretch
  size_t stretch = 1000;  ///< tokens until that changes
  uint32_t n_requests = 1;
  double gap = 0.03;  ///< of a step of one row, what is lost where the next cannot be planned ahead

  /// Tokens a second as a multiple of those without guesses.
  double run(size_t n_tokens = 4000) const {
    std::mt19937 random(5);
    DraftPolicy policy;
    uint32_t measured = 0;
    const auto seconds = [&](uint32_t n) { return 1 + per_row * (n + n_requests - 1); };
    double time = 0;
    double plain = 0;
    for (size_t n = 0; n < n_tokens;) {
      const double right = n / stretch % 2 == 0 ? early : late;
      const std::vector<TokenId> guess(7, 1);
      std::vector<TokenId> text;
      for (size_t i = 0; i < guess.size(); ++i) {
        text.push_back(static_cast<double>(random() % 1000) < 1000 * right ? 1 : 0);
      }
      const uint32_t chosen = policy.choose(0, 7, n_requests, measured, seconds);
      measured = std::max(measured, chosen);
      policy.learn(0, guess, text);
      const auto agreed = static_cast<size_t>(
          std::ranges::find(text.begin(), text.begin() + chosen, TokenId{0}) - text.begin());
      if (chosen > 0) policy.verified(static_cast<uint32_t>(agreed));
      time += seconds(chosen) + (chosen > 0 ? gap : 0);
      n += 1 + agreed;
      plain += (1 + static_cast<double>(agreed)) * seconds(0);
    }
    return plain / time;
  }
};

TEST(DraftPolicy, IsNeverMuchSlowerThanWithoutGuesses) {
  for (const double per_row : {0.01, 0.1, 0.3, 0.6, 1.0}) {
    for (const double early : {0.0, 0.2, 0.5, 0.8, 0.95}) {
      for (const double late : {0.0, 0.5, 0.95}) {
        for (const size_t stretch : {10, 40, 1000}) {
          for (const uint32_t n_requests : {1u, 3u}) {
            const Simulation one{.per_row = per_row,
                                 .early = early,
                                 .late = late,
                                 .stretch = stretch,
                                 .n_requests = n_requests};
            EXPECT_GE(one.run(), 0.98)
                << per_row << ' ' << early << ' ' << late << ' ' << stretch << ' ' << n_requests;
          }
        }
      }
    }
  }
}

TEST(DraftPolicy, IsFastWhereGuessesAreRightAndRowsAreCheap) {
  EXPECT_GT((Simulation{.per_row = 0.02, .early = 0.95, .late = 0.95}.run()), 4.0);
  EXPECT_GT((Simulation{.per_row = 0.3, .early = 0.9, .late = 0.9}.run()), 1.5);
  EXPECT_GT((Simulation{.per_row = 0.02, .early = 0.5, .late = 0.5}.run()), 1.5);
}

TEST(DraftPolicy, LeavesStepsOfManyRequestsAlone) {
  DraftPolicy policy;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(policy.choose(2, 7, DraftPolicy::kMostRequests + 1, 7, [](uint32_t) { return 1; }),
              0u);
  }
}

TEST(DraftPolicy, TriesBeyondWhatIsKnownByAndByAndAgainAfterAWhile) {
  DraftPolicy policy;
  const auto dear_at_first = [](uint32_t n) { return 1.0 + 0.9 * n; };
  EXPECT_EQ(policy.choose(0, 7, 1, 0, dear_at_first), 1u);
  const auto free = [](uint32_t) { return 1.0; };
  EXPECT_EQ(policy.choose(0, 7, 1, 0, free), 1u);
  EXPECT_EQ(policy.choose(0, 7, 1, 1, free), 2u);
  EXPECT_EQ(policy.choose(0, 7, 1, 4, free), 7u);
  policy.verified(1);
  const auto dear = [](uint32_t n) { return 1.0 + n; };
  for (uint32_t i = 0; i < DraftPolicy::kProbeTokens; ++i) {
    EXPECT_EQ(policy.choose(0, 7, 1, 7, dear), 0u);
  }
  EXPECT_EQ(policy.choose(0, 7, 1, 7, dear), 1u);
  EXPECT_EQ(policy.choose(0, 7, 1, 7, dear), 1u) << "until one is verified";
  policy.verified(0);
  EXPECT_EQ(policy.choose(0, 7, 1, 7, dear), 0u);
  EXPECT_EQ(policy.choose(0, 7, 1, 7, [](uint32_t) { return 0.0; }), 0u) << "nothing is known";
}

}  // namespace
}  // namespace pumice
