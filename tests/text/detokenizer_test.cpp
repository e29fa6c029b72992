#include "text/detokenizer.hpp"

#include "tests/text/synthetic_vocabulary.hpp"

namespace pumice {
namespace {

using test::SyntheticVocabulary;

TokenId byte(uint8_t value) { return SyntheticVocabulary::kFirstByte + value; }

class DetokenizerTest : public ::testing::Test {
 protected:
  DetokenizerTest() {
    space_ = synthetic_.add("▁");
    hello_ = synthetic_.add("▁hello");
    comma_ = synthetic_.add(",");
    tool_ = synthetic_.add("<tool>", 0, TokenType::kUserDefined);
    unused_ = synthetic_.add("<unused0>", 0, TokenType::kUnused);
    tokenizer_.emplace(synthetic_.tokenizer());
  }
  SyntheticVocabulary synthetic_;
  TokenId space_, hello_, comma_, tool_, unused_;
  std::optional<Tokenizer> tokenizer_;
};

TEST_F(DetokenizerTest, ATextLosesItsPrefixSpaceAndAContinuationKeepsIt) {
  const std::vector<TokenId> ids = {hello_, comma_, hello_};
  EXPECT_EQ(detokenize(*tokenizer_, ids), "hello, hello");
  EXPECT_EQ(detokenize(*tokenizer_, ids, {.start = TextStart::kContinuation}), " hello, hello");
}

TEST_F(DetokenizerTest, OnlyOneSpaceIsLostAndBosDoesNotCount) {
  EXPECT_EQ(detokenize(*tokenizer_, std::vector<TokenId>{1, space_, hello_}), " hello");
  EXPECT_EQ(detokenize(*tokenizer_, std::vector<TokenId>{comma_, hello_}), ", hello");
}

TEST_F(DetokenizerTest, NothingIsLostWhereNoSpaceWasAdded) {
  VocabularyData data = synthetic_.data();
  data.add_space_prefix = false;
  const auto tokenizer = Tokenizer::create(data).value();
  EXPECT_EQ(detokenize(tokenizer, std::vector<TokenId>{hello_}), " hello");
}

TEST_F(DetokenizerTest, ControlTokensAreInvisibleUnlessAskedFor) {
  const std::vector<TokenId> ids = {comma_, 2, 0, unused_, tool_, 100000};
  EXPECT_EQ(detokenize(*tokenizer_, ids), ",<tool>");
  EXPECT_EQ(detokenize(*tokenizer_, ids, {.show_control = true}), ",</s><unk><tool>");
}

TEST_F(DetokenizerTest, ACharacterComesOutWithItsLastByte) {
  Detokenizer stream(*tokenizer_);
  EXPECT_EQ(stream.feed(byte(0xF0)), "");
  EXPECT_EQ(stream.feed(byte(0x9F)), "");
  EXPECT_EQ(stream.feed(2), "") << "a control token changes nothing";
  EXPECT_EQ(stream.feed(byte(0x98)), "");
  EXPECT_EQ(stream.feed(byte(0x80)), "😀");
  EXPECT_EQ(stream.flush(), "");
}

TEST_F(DetokenizerTest, WhatIsUnfinishedAtTheEndIsOneReplacementCharacter) {
  Detokenizer stream(*tokenizer_);
  EXPECT_EQ(stream.feed(byte(0xF0)), "");
  EXPECT_EQ(stream.feed(byte(0x9F)), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.feed(hello_), " hello") << "a new stream";
}

TEST_F(DetokenizerTest, MalformedBytesAreReplacedAsSoonAsTheyAreKnownToBe) {
  Detokenizer stream(*tokenizer_);
  EXPECT_EQ(stream.feed(byte(0xFF)), "\uFFFD");
  EXPECT_EQ(stream.feed(byte(0xC3)), "");
  EXPECT_EQ(stream.feed(comma_), "\uFFFD,");
  EXPECT_EQ(stream.feed(byte(0xE2)), "");
  EXPECT_EQ(stream.feed(byte(0xC3)), "\uFFFD");
  EXPECT_EQ(stream.feed(byte(0xA9)), "é");
}

TEST_F(DetokenizerTest, FlushBeginsANewText) {
  Detokenizer stream(*tokenizer_, {.start = TextStart::kBeginning});
  EXPECT_EQ(stream.feed(hello_), "hello");
  EXPECT_EQ(stream.feed(hello_), " hello");
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.feed(hello_), "hello");
}

}  // namespace
}  // namespace pumice
