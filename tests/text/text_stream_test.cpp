#include "text/text_stream.hpp"

#include <algorithm>
#include <random>

#include "tests/text/synthetic_vocabulary.hpp"

namespace pumice {
namespace {

using test::SyntheticVocabulary;
using Strings = std::vector<std::string>;

TokenId byte(char value) {
  return SyntheticVocabulary::kFirstByte + static_cast<unsigned char>(value);
}

/// What a naive reader says: the whole text, cut before the stop string that is complete first.
struct Naive {
  std::string text;
  bool stopped = false;
};
Naive naive(const std::string& text, const Strings& stop_strings) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stop_strings) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

class TextStreamTest : public ::testing::Test {
 protected:
  TextStream stream(const Strings& stop_strings) {
    return TextStream(std::make_shared<const Tokenizer>(synthetic_.tokenizer()), stop_strings);
  }
  /// What is given for each token, then on flushing.
  static Strings feed(TextStream& stream, const std::vector<TokenId>& tokens) {
    Strings given;
    for (const TokenId token : tokens) given.push_back(stream.feed(token));
    given.push_back(stream.flush());
    return given;
  }
  static Strings feed_bytes(TextStream& stream, std::string_view text) {
    std::vector<TokenId> tokens;
    for (const char c : text) tokens.push_back(byte(c));
    return feed(stream, tokens);
  }

  SyntheticVocabulary synthetic_;
};

TEST_F(TextStreamTest, WithoutStopStringsItIsTheDetokenizersText) {
  TextStream text = stream({});
  EXPECT_EQ(feed_bytes(text, "a\xC3\xA9\xFF\xE2"), (Strings{"a", "", "é", "\uFFFD", "", "\uFFFD"}));
  EXPECT_FALSE(text.stopped());
}

TEST_F(TextStreamTest, AStopStringIsNeverGivenNorWhatFollows) {
  TextStream text = stream({"END"});
  EXPECT_EQ(feed_bytes(text, "oENDo"), (Strings{"o", "", "", "", "", ""}));
  EXPECT_TRUE(text.stopped());
}

TEST_F(TextStreamTest, WhatMayBecomeAStopStringIsHeldBackUntilItCannot) {
  TextStream text = stream({"END"});
  EXPECT_EQ(feed_bytes(text, "ENENx"), (Strings{"", "", "EN", "", "ENx", ""}));
  EXPECT_FALSE(text.stopped());
}

TEST_F(TextStreamTest, WhatIsHeldBackIsGivenAtTheEnd) {
  TextStream text = stream({"END"});
  EXPECT_EQ(feed_bytes(text, "sEN"), (Strings{"s", "", "", "EN"}));
  EXPECT_FALSE(text.stopped());
}

TEST_F(TextStreamTest, AStopStringMayBeWithinATokenAndAcrossTokens) {
  const TokenId across = synthetic_.add("xE");
  const TokenId within = synthetic_.add("NDaENDb");
  const TokenId all = synthetic_.add("abEND");
  TextStream first = stream({"END"});
  EXPECT_EQ(feed(first, {across, within}), (Strings{"x", "", ""}));
  EXPECT_TRUE(first.stopped());
  TextStream second = stream({"END"});
  EXPECT_EQ(feed(second, {within, across}), (Strings{"NDa", "", ""}));
  EXPECT_TRUE(second.stopped());
  TextStream third = stream({"END"});
  EXPECT_EQ(feed(third, {all}), (Strings{"ab", ""}));
  EXPECT_TRUE(third.stopped());
}

TEST_F(TextStreamTest, AStopStringMayBeginTheText) {
  TextStream text = stream({"END"});
  EXPECT_EQ(feed_bytes(text, "END"), (Strings{"", "", "", ""}));
  EXPECT_TRUE(text.stopped());
}

TEST_F(TextStreamTest, AStartThatFailsMayHoldAnother) {
  TextStream text = stream({"aab"});
  EXPECT_EQ(feed_bytes(text, "aaab"), (Strings{"", "", "a", "", ""}));
  EXPECT_TRUE(text.stopped());
}

TEST_F(TextStreamTest, TheOneThatIsCompleteFirstEndsTheText) {
  TextStream shorter = stream({"abcd", "abc"});
  EXPECT_EQ(feed_bytes(shorter, "xabcd"), (Strings{"x", "", "", "", "", ""}));
  TextStream inner = stream({"abcd", "bc"});
  EXPECT_EQ(feed_bytes(inner, "xabcd"), (Strings{"x", "", "", "a", "", ""}));
  TextStream same_end = stream({"bc", "abc"});
  EXPECT_EQ(feed_bytes(same_end, "xabcd"), (Strings{"x", "", "", "", "", ""}));
}

TEST_F(TextStreamTest, CharactersOfAStopStringAreMatchedWhole) {
  TextStream text = stream({"né"});
  EXPECT_EQ(feed_bytes(text, "nèn\xC3\xA9!"), (Strings{"", "", "nè", "", "", "", "", ""}));
  EXPECT_TRUE(text.stopped());
}

TEST_F(TextStreamTest, AStopStringMayBeCompletedByTheEndOfTheStream) {
  TextStream text = stream({"a\uFFFD"});
  EXPECT_EQ(feed_bytes(text, "ba\xE2"), (Strings{"b", "", "", ""}));
  EXPECT_TRUE(text.stopped());
}

TEST_F(TextStreamTest, AMovedStreamGoesOn) {
  TextStream text = stream({"END"});
  EXPECT_EQ(text.feed(byte('E')), "");
  TextStream moved = std::move(text);
  EXPECT_EQ(moved.feed(byte('N')), "");
  EXPECT_EQ(moved.feed(byte('d')), "ENd");
}

// However the same text is cut into tokens, the same is given of it, as soon as it is certain.
TEST_F(TextStreamTest, RandomTextsEndWhereANaiveReaderEndsThem) {
  const Strings letters = {"a", "b", "é", "è"};
  std::mt19937 random(17);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto word = [&](size_t least, size_t most) {
    std::string text;
    for (size_t n = least + below(most - least + 1); n > 0; --n) text += letters[below(4)];
    return text;
  };
  std::vector<TokenId> pieces;
  for (int i = 0; i < 60; ++i) pieces.push_back(synthetic_.add(word(1, 6)));
  for (const char c : std::string_view("ab\xC3\xA9\xA8\xE2")) pieces.push_back(byte(c));
  const auto tokenizer = std::make_shared<const Tokenizer>(synthetic_.tokenizer());
  size_t n_stopped = 0;
  constexpr int kTexts = 3000;
  for (int i = 0; i < kTexts; ++i) {
    Strings stop_strings;
    for (size_t n = below(5); n > 0; --n) stop_strings.push_back(word(1, 7));
    TextStream stream(tokenizer, stop_strings);
    Detokenizer plain(*tokenizer);
    std::string text, given;
    for (size_t n = below(12); n > 0; --n) {
      const TokenId token = pieces[below(pieces.size())];
      text += plain.feed(token);
      given += stream.feed(token);
      const Naive expected = naive(text, stop_strings);
      ASSERT_EQ(stream.stopped(), expected.stopped);
      ASSERT_TRUE(expected.text.starts_with(given));
      // Held back is exactly the longest end that begins a stop string.
      size_t held = 0;
      for (const std::string& stop : stop_strings) {
        for (size_t prefix = 1; !expected.stopped && prefix < stop.size(); ++prefix) {
          if (text.ends_with(stop.substr(0, prefix))) held = std::max(held, prefix);
        }
      }
      ASSERT_EQ(given.size(), expected.text.size() - held) << text;
    }
    text += plain.flush();
    given += stream.flush();
    const Naive expected = naive(text, stop_strings);
    ASSERT_EQ(given, expected.text) << text;
    ASSERT_EQ(stream.stopped(), expected.stopped);
    n_stopped += stream.stopped() ? 1 : 0;
  }
  EXPECT_GT(n_stopped, kTexts / 4);
  EXPECT_LT(n_stopped, kTexts * 3 / 4);
}

TEST_F(TextStreamTest, LongTextsThatAlmostStopTakeLinearTime) {
  const Strings stop_strings = {std::string(kMaxStopBytes - 1, 'a') + "b"};
  const TokenId token = synthetic_.add(std::string(1024, 'a'));
  TextStream text = stream(stop_strings);
  const double start = test::cpu_seconds();
  size_t n_given = 0;
  for (int i = 0; i < 4096; ++i) n_given += text.feed(token).size();
  n_given += text.flush().size();
  EXPECT_EQ(n_given, size_t{4096} * 1024);
  EXPECT_LT(test::cpu_seconds() - start, test::kSlowSeconds);
}

TEST(StopStrings, WhatNoTextCanHaveOrAllTextsHaveIsAnError) {
  EXPECT_TRUE(validate_stop_strings({}).ok());
  EXPECT_TRUE(validate_stop_strings(Strings{"a", "\n", "é", std::string("\0", 1)}).ok());
  EXPECT_TRUE(validate_stop_strings(Strings{std::string(kMaxStopBytes, 'a')}).ok());
  EXPECT_TRUE(validate_stop_strings(Strings(kMaxStopStrings, "a")).ok());
  for (const Strings& wrong :
       {Strings{""}, Strings{"a", ""}, Strings{"\xC3"}, Strings{"a\xFF"}, Strings{"\xA9"},
        Strings{std::string(kMaxStopBytes + 1, 'a')}, Strings(kMaxStopStrings + 1, "a")}) {
    const Status status = validate_stop_strings(wrong);
    ASSERT_FALSE(status.ok()) << wrong.size();
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace pumice
