#include "text/special_tokens.hpp"

#include <algorithm>
#include <random>

#include "tests/text/synthetic_vocabulary.hpp"

namespace pumice {
namespace {

using test::kParsed;
using test::Pieces;
using test::pieces;
using test::SyntheticVocabulary;

// "abc|<s>|d": tokens between bars, so that a whole split fits in a line of a test.
std::string split(const SyntheticVocabulary& synthetic, std::string_view text, bool parse_special) {
  const auto vocabulary = Vocabulary::create(synthetic.data()).value();
  const auto special = SpecialTokens::create(*vocabulary).value();
  std::string result;
  for (const Fragment& fragment : special.split(text, parse_special)) {
    result += fragment.token ? fmt::format("[{}]", fragment.text) : std::string(fragment.text);
  }
  return result;
}

TEST(SpecialTokens, AreFoundOnlyWhenAskedFor) {
  const SyntheticVocabulary synthetic;
  EXPECT_EQ(split(synthetic, "<s>hi</s>", true), "[<s>]hi[</s>]");
  EXPECT_EQ(split(synthetic, "<s>hi</s>", false), "<s>hi</s>");
  EXPECT_EQ(split(synthetic, "", true), "");
}

TEST(SpecialTokens, UserDefinedOnesAreAlwaysFound) {
  SyntheticVocabulary synthetic;
  synthetic.add("<tool>", 0, TokenType::kUserDefined);
  EXPECT_EQ(split(synthetic, "a<tool><tool>b<s>", false), "a[<tool>][<tool>]b<s>");
  EXPECT_EQ(split(synthetic, "a<tool><tool>b<s>", true), "a[<tool>][<tool>]b[<s>]");
}

TEST(SpecialTokens, TheLongestWinsEvenWhenAShorterOneComesFirst) {
  SyntheticVocabulary synthetic;
  synthetic.add("ab", 0, TokenType::kUserDefined);
  synthetic.add("bcd", 0, TokenType::kUserDefined);
  synthetic.add("abcdefg", 0, TokenType::kUserDefined);
  synthetic.add("a", 0, TokenType::kUserDefined);
  EXPECT_EQ(split(synthetic, "abcd", false), "[a][bcd]");
  EXPECT_EQ(split(synthetic, "xabcdefgx", false), "x[abcdefg]x");
  EXPECT_EQ(split(synthetic, "aab", false), "[a][ab]");
}

// What llama.cpp does, as plainly as it can be said: each token in turn cuts every fragment.
std::string naive_split(std::vector<std::pair<std::string, TokenId>> tokens, std::string text) {
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) {
    return a.first.size() != b.first.size() ? a.first.size() > b.first.size() : a.second < b.second;
  });
  std::vector<std::pair<std::string, bool>> fragments = {{text, false}};
  for (const auto& [token, id] : tokens) {
    std::vector<std::pair<std::string, bool>> next;
    for (auto [piece, is_token] : fragments) {
      for (size_t at; !is_token && (at = piece.find(token)) != piece.npos;) {
        next.emplace_back(piece.substr(0, at), false);
        next.emplace_back(token, true);
        piece = piece.substr(at + token.size());
      }
      next.emplace_back(piece, is_token);
    }
    fragments = next;
  }
  std::string result;
  for (const auto& [piece, is_token] : fragments) result += is_token ? "[" + piece + "]" : piece;
  return result;
}

TEST(SpecialTokens, SplitAsIfEachTokenWereLookedForInTurn) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    SyntheticVocabulary synthetic;
    std::vector<std::pair<std::string, TokenId>> tokens;
    for (uint32_t i = 0; i < 1 + random() % 8; ++i) {
      std::string token;
      for (uint32_t k = 0; k < 1 + random() % 5; ++k) token += "abc"[random() % 3];
      tokens.emplace_back(token, synthetic.add(token, 0, TokenType::kUserDefined));
    }
    std::string text;
    for (uint32_t k = 0; k < random() % 40; ++k) text += "abcd"[random() % 4];
    ASSERT_EQ(split(synthetic, text, false), naive_split(tokens, text)) << text;
  }
}

TEST(SpecialTokens, OneThatIsTooLongIsAnError) {
  SyntheticVocabulary synthetic;
  synthetic.add(std::string(1025, 'x'), 0, TokenType::kControl);
  const auto result = Tokenizer::create(synthetic.data());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "tokenizer.ggml.tokens[259] is a special token of 1025 bytes, at most 1024");
}

TEST(SpecialTokens, TextAfterOneGetsTheSpacePrefixAgain) {
  SyntheticVocabulary synthetic;
  synthetic.add("▁");
  synthetic.add("h");
  synthetic.add("▁h");
  const Tokenizer tokenizer = synthetic.tokenizer();
  EXPECT_EQ(pieces(tokenizer, "h<s>h", kParsed), (Pieces{"▁h", "<s>", "▁h"}));
}

TEST(SpecialTokens, TakeBlanksAlongWhereTheModelWasTrainedSo) {
  SyntheticVocabulary synthetic;
  synthetic.add("<mask>", 0, TokenType::kControl);
  synthetic.add("<|end|>", 0, TokenType::kControl);
  VocabularyData data = synthetic.data();
  const auto texts = [&data](std::string_view text) {
    const auto vocabulary = Vocabulary::create(data).value();
    const auto special = SpecialTokens::create(*vocabulary).value();
    std::string result;
    for (const Fragment& fragment : special.split(text, true)) result += fragment.text;
    return result;
  };
  EXPECT_EQ(texts("a <mask> b <|end|>\n c <s> d"), "a <mask> b <|end|>\n c <s> d");
  data.architecture = "nomic-bert-moe";
  EXPECT_EQ(texts("a \t<mask> b <|end|> c"), "a<mask> b <|end|> c");
  EXPECT_EQ(texts(" <mask>"), "<mask>");
  data.architecture = "phi3";
  data.model_name = "Phi-3 mini";
  EXPECT_EQ(texts("a <|end|>\n c <s> d <|end|> "), "a <|end|>c <s> d <|end|>");
}

}  // namespace
}  // namespace pumice
