#include "text/vocabulary.hpp"

#include <cmath>

#include "tests/text/synthetic_vocabulary.hpp"

namespace pumice {
namespace {

using test::SyntheticVocabulary;

std::string error_of(const VocabularyData& data) {
  const auto result = Tokenizer::create(data);
  if (result.ok()) return "no error";
  EXPECT_EQ(result.error().code, ErrorCode::kBadFile);
  return result.error().message;
}

TEST(Vocabulary, ErrorsNameTheField) {
  const SyntheticVocabulary synthetic;
  VocabularyData data = synthetic.data();
  data.scores.pop_back();
  EXPECT_EQ(error_of(data), "tokenizer.ggml.scores has 258 entries for 259 tokens");

  data = synthetic.data();
  data.scores[7] = std::nanf("");
  EXPECT_EQ(error_of(data), "tokenizer.ggml.scores[7] is not a number");

  data = synthetic.data();
  data.scores.clear();
  EXPECT_EQ(error_of(data), "tokenizer.ggml.scores is missing; tokenizer model 'llama' needs it");

  data = synthetic.data();
  data.types.push_back(1);
  EXPECT_EQ(error_of(data), "tokenizer.ggml.token_type has 260 entries for 259 tokens");

  data = synthetic.data();
  data.types[4] = 7;
  EXPECT_EQ(error_of(data), "tokenizer.ggml.token_type[4] is 7, expected 0 to 6");

  data = synthetic.data();
  data.types[0] = static_cast<int32_t>(TokenType::kByte);
  EXPECT_EQ(error_of(data),
            "tokenizer.ggml.tokens[0] has type byte but is not spelled <0x00> to <0xFF>");

  EXPECT_EQ(error_of({.model = "llama"}), "tokenizer.ggml.tokens is missing or empty");
}

TEST(Vocabulary, AnUnknownTokenizerModelIsAnErrorThatNamesIt) {
  const SyntheticVocabulary synthetic;
  VocabularyData data = synthetic.data();
  data.model = "rwkv";
  EXPECT_EQ(error_of(data),
            "tokenizer model 'rwkv' is not supported yet (tokenizer.ggml.model; supported: llama, "
            "gpt2, gemma4, bert, t5)");
  data.model = "a\nb";
  EXPECT_EQ(error_of(data).rfind("tokenizer model 'a\\x0ab' is not supported yet", 0), 0u);
  data.model = "";
  EXPECT_EQ(error_of(data), "tokenizer.ggml.model is missing; the file has no tokenizer");
}

TEST(Vocabulary, AByteWithoutATokenNeedsAnUnknownToken) {
  const std::string_view tokens[] = {"a", "b"};
  VocabularyData data{
      .model = "llama", .tokens = {tokens[0], tokens[1]}, .scores = {0, 0}, .types = {1, 1}};
  EXPECT_TRUE(Tokenizer::create(data).ok()) << "token 0 is the unknown token by default";

  SyntheticVocabulary synthetic;
  synthetic.tokens[SyntheticVocabulary::kFirstByte + 0x41].type = TokenType::kNormal;
  EXPECT_TRUE(Tokenizer::create(synthetic.data()).ok());
}

TEST(Vocabulary, SpecialIdsOfSentencePieceAreTheDefaults) {
  const auto tokenizer = SyntheticVocabulary().tokenizer();
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  EXPECT_EQ(vocabulary.unknown(), 0u);
  EXPECT_EQ(vocabulary.bos(), 1u);
  EXPECT_EQ(vocabulary.eos(), 2u);
  EXPECT_TRUE(vocabulary.add_bos());
  EXPECT_FALSE(vocabulary.add_eos());
  EXPECT_TRUE(vocabulary.add_space_prefix());
}

TEST(Vocabulary, BytesMayBeSpelledInLowerCase) {
  SyntheticVocabulary synthetic;
  for (int byte = 0; byte < 256; ++byte) {
    synthetic.tokens[SyntheticVocabulary::kFirstByte + static_cast<size_t>(byte)].text =
        fmt::format("<0x{:02x}>", byte);
  }
  const auto tokenizer = synthetic.tokenizer();
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(tokenizer.vocabulary().byte_token(static_cast<uint8_t>(byte)),
              SyntheticVocabulary::kFirstByte + static_cast<TokenId>(byte));
  }
}

TEST(Vocabulary, AnIdOutsideTheVocabularyCountsAsAbsent) {
  const SyntheticVocabulary synthetic;
  VocabularyData data = synthetic.data();
  data.eos_id = 0xFFFFFFFF;
  data.eot_id = 259;
  const auto tokenizer = Tokenizer::create(data).value();
  EXPECT_EQ(tokenizer.vocabulary().eos(), 2u);
  EXPECT_FALSE(tokenizer.vocabulary().eot().has_value());
}

TEST(Vocabulary, WhatAsksForAMiddleIsWhatTheFileSaysOrAllOfAKnownSpelling) {
  SyntheticVocabulary synthetic;
  const auto fill_tokens = [&](std::optional<uint32_t> middle_id = {}) {
    VocabularyData data = synthetic.data();
    if (middle_id) data.fill_prefix_id = 20, data.fill_suffix_id = 21;
    data.fill_middle_id = middle_id;
    return Tokenizer::create(data).value().vocabulary().fill_tokens();
  };
  EXPECT_FALSE(fill_tokens());
  const TokenId prefix = synthetic.add("<fim_prefix>", 0, TokenType::kControl);
  const TokenId suffix = synthetic.add("<fim_suffix>", 0, TokenType::kControl);
  EXPECT_FALSE(fill_tokens());
  const TokenId middle = synthetic.add("<fim_middle>", 0, TokenType::kControl);
  ASSERT_TRUE(fill_tokens());
  EXPECT_EQ(fill_tokens()->prefix, prefix);
  EXPECT_EQ(fill_tokens()->middle, middle);
  EXPECT_EQ(fill_tokens(22)->suffix, 21u);
  EXPECT_EQ(fill_tokens(1u << 30)->suffix, suffix);  // an id that is none
}

TEST(Vocabulary, GenerationEndsAtEosEndOfTurnAndKnownChatMarkers) {
  SyntheticVocabulary synthetic;
  const TokenId eot = synthetic.add("<turn over>", 0, TokenType::kControl);
  const TokenId im_end = synthetic.add("<|im_end|>", 0, TokenType::kControl);
  const TokenId word = synthetic.add("<|end|>", 0, TokenType::kNormal);
  VocabularyData data = synthetic.data();
  data.eot_id = eot;
  const auto tokenizer = Tokenizer::create(data).value();
  EXPECT_TRUE(tokenizer.vocabulary().ends_generation(2));
  EXPECT_TRUE(tokenizer.vocabulary().ends_generation(eot));
  EXPECT_TRUE(tokenizer.vocabulary().ends_generation(im_end));
  EXPECT_FALSE(tokenizer.vocabulary().ends_generation(word));
  EXPECT_FALSE(tokenizer.vocabulary().ends_generation(1));
  EXPECT_FALSE(tokenizer.vocabulary().ends_generation(1u << 31));
}

TEST(Vocabulary, TheEndOfAMessageIsNotThatOfATurnWhereThereAreCalls) {
  SyntheticVocabulary synthetic;
  const TokenId end = synthetic.add("<|end|>", 0, TokenType::kControl);
  EXPECT_TRUE(synthetic.tokenizer().vocabulary().ends_generation(end));
  const TokenId call = synthetic.add("<|call|>", 0, TokenType::kControl);
  const TokenId done = synthetic.add("<|return|>", 0, TokenType::kControl);
  const Tokenizer tokenizer = synthetic.tokenizer();
  EXPECT_FALSE(tokenizer.vocabulary().ends_generation(end));
  EXPECT_TRUE(tokenizer.vocabulary().ends_generation(call));
  EXPECT_TRUE(tokenizer.vocabulary().ends_generation(done));
}

TEST(Vocabulary, WithoutTypesTheSpellingOfBytesTells) {
  SyntheticVocabulary synthetic;
  VocabularyData data = synthetic.data();
  data.types.clear();
  const auto tokenizer = Tokenizer::create(data).value();
  EXPECT_EQ(tokenizer.vocabulary().type(0), TokenType::kUnknown);
  EXPECT_EQ(tokenizer.vocabulary().type(1), TokenType::kControl);
  EXPECT_EQ(tokenizer.vocabulary().byte_token(0x0A), SyntheticVocabulary::kFirstByte + 0x0A);
}

}  // namespace
}  // namespace pumice
