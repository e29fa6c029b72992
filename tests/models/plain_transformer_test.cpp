// Forms of families that the shared data has no file for say what a plain forward pass does.
#include "tests/models/plain_transformer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/families.hpp"
#include "models/reference.hpp"

namespace pumice {
namespace {

class Plain : public ::testing::TestWithParam<test::PlainForm> {};

TEST_P(Plain, LogitsAgree) {
  const test::PlainTransformer plain(GetParam());
  const auto file = plain.file();
  const Result<Program> program = build_program(file->file());
  ASSERT_TRUE(program.ok()) << program.error().message;
  std::vector<TokenId> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 31 % 67);
  const std::vector<double> expected = plain.logits(tokens);
  const Result<ReferenceLogits> got = reference_logits(file->file(), *program, tokens, {});
  ASSERT_TRUE(got.ok()) << got.error().message;
  ASSERT_EQ(got->logits.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(got->logits[i], expected[i], 1e-11 * largest) << i;
  }
}

TEST(GptNeo, ThePatternOfWindowsHasAValueForEachLayer) {
  GgufHeader header;
  header.set("general.architecture", "gptneo");
  for (const char* key : {"block_count", "attention.head_count", "context_length"}) {
    header.set(std::string("gptneo.") + key, uint32_t{3});
  }
  for (const char* key : {"embedding_length", "feed_forward_length"}) {
    header.set(std::string("gptneo.") + key, uint32_t{24});
  }
  header.set("gptneo.attention.layer_norm_epsilon", 1e-5f);
  const std::array<bool, 2> two{true, false};
  header.set_array("gptneo.attention.sliding_window_pattern", std::span<const bool>(two));
  const test::SmallFile file({{"token_embd.weight", {24, 4}}}, std::move(header));
  const Result<Program> program = build_program(file.file());
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().message,
            "gptneo.attention.sliding_window_pattern: 2 values for 3 layers");
}

INSTANTIATE_TEST_SUITE_P(Forms, Plain, ::testing::ValuesIn(test::forms_without_a_file()),
                         [](const auto& given) { return given.param.name; });

}  // namespace
}  // namespace pumice
