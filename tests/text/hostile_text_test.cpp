// Texts that want to crash, hang or fill the memory.
#include <random>

#include "tests/text/synthetic_vocabulary.hpp"
#include "text/detokenizer.hpp"
#include "text/utf8.hpp"

namespace pumice {
namespace {

using test::encode;
using test::kParsed;
using test::SyntheticVocabulary;

constexpr size_t kMegabyte = 1 << 20;

// Merges that make one ever longer run of 'a', the worst case of leftmost merging.
SyntheticVocabulary runs_of_a() {
  SyntheticVocabulary synthetic;
  synthetic.add("▁", -100);
  for (size_t n = 1; n <= 64; ++n) synthetic.add(std::string(n, 'a'), static_cast<float>(n));
  for (size_t n = 128; n <= 4096; n *= 2) synthetic.add(std::string(n, 'a'), 0);
  return synthetic;
}

TEST(HostileText, AMegabyteOfOneCharacterTakesSeconds) {
  const Tokenizer tokenizer = runs_of_a().tokenizer();
  const std::string text(kMegabyte, 'a');
  const double start = test::cpu_seconds();
  const auto ids = encode(tokenizer, text);
  EXPECT_LT(test::cpu_seconds() - start, test::kSlowSeconds);
  EXPECT_EQ(detokenize(tokenizer, ids), text);
}

TEST(HostileText, ManySpacesNulsAndBrokenLeadBytesComeBack) {
  const Tokenizer tokenizer = runs_of_a().tokenizer();
  for (char c : {' ', '\0', '\n'}) {
    const std::string text(kMegabyte / 4, c);
    EXPECT_EQ(detokenize(tokenizer, encode(tokenizer, text)), text);
  }
  for (char c : {'\x80', '\xC3', '\xF0', '\xFF'}) {
    EXPECT_EQ(encode(tokenizer, std::string(kMegabyte / 4, c)).size(), kMegabyte / 4 + 1);
  }
}

TEST(HostileText, OverlappingSpecialTokensStayLinearInTheText) {
  SyntheticVocabulary synthetic = runs_of_a();
  for (size_t n = 1; n <= 1024; n += n < 16 ? 1 : n / 8) {
    synthetic.add(std::string(n, '<'), 0, TokenType::kControl);
  }
  const Tokenizer tokenizer = synthetic.tokenizer();
  const std::string text(kMegabyte / 64, '<');
  const double start = test::cpu_seconds();
  EXPECT_FALSE(encode(tokenizer, text, kParsed).empty());
  EXPECT_LT(test::cpu_seconds() - start, test::kSlowSeconds);
}

TEST(HostileText, RunsOfUserDefinedTokensTakeSeconds) {
  SyntheticVocabulary synthetic;
  for (size_t n = 1; n < 32; ++n) {
    synthetic.add(std::string(n, '\n'), 0, TokenType::kUserDefined);
  }
  const Tokenizer tokenizer = synthetic.tokenizer();
  const double start = test::cpu_seconds();
  EXPECT_EQ(encode(tokenizer, std::string(31 * 20000 + 1, '\n')).size(), 20001u);
  EXPECT_LT(test::cpu_seconds() - start, test::kSlowSeconds);
}

TEST(HostileText, RandomBytesNeitherCrashNorLoseAByte) {
  const Tokenizer tokenizer = runs_of_a().tokenizer();
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string text(random() % 200, '\0');
    for (char& c : text) c = static_cast<char>(random());
    std::string bytes;
    for (TokenId id : encode(tokenizer, text)) tokenizer.append_bytes(id, false, bytes);
    ASSERT_EQ(bytes, text.empty() ? "" : " " + text);
  }
}

TEST(HostileText, AnyIdsGiveValidUtf8) {
  const Tokenizer tokenizer = runs_of_a().tokenizer();
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenId> ids(random() % 100);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % 400);
    const std::string text = detokenize(tokenizer, ids);
    for (std::string_view rest = text; !rest.empty();) {
      const Utf8Step step = utf8_step(rest);
      ASSERT_EQ(step.kind, Utf8Kind::kComplete);
      rest.remove_prefix(step.length);
    }
  }
}

}  // namespace
}  // namespace pumice
