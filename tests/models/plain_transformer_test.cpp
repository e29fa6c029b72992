// Forms of families that the shared data has no file for say what a plain forward pass does.
#include "tests/models/plain_transformer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/families.hpp"
#include "models/reference.hpp"

namespace pumice {
namespace {

std::vector<TokenId> some_text() {
  std::vector<TokenId> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 31 % 67);
  return tokens;
}

void expect_logits(const Result<ReferenceLogits>& got, const std::vector<double>& expected) {
  ASSERT_TRUE(got.ok()) << got.error().message;
  ASSERT_EQ(got->logits.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(got->logits[i], expected[i], 1e-11 * largest) << i;
  }
}

class Plain : public ::testing::TestWithParam<test::PlainForm> {};

TEST_P(Plain, LogitsAgree) {
  const test::PlainTransformer plain(GetParam());
  const auto file = plain.file();
  const Result<Program> program = build_program(file->file());
  ASSERT_TRUE(program.ok()) << program.error().message;
  const std::vector<TokenId> tokens = some_text();
  expect_logits(reference_logits(file->file(), *program, tokens, {}), plain.logits(tokens));
}

/// A text, and what a block that predicts is given of it: the tokens behind each, and hidden rows.
struct GivenText {
  std::vector<TokenId> next;
  std::vector<double> hidden;
  explicit GivenText(const test::PlainTransformer& plain) {
    std::vector<TokenId> tokens = some_text();
    next.assign(tokens.begin() + 1, tokens.end());
    tokens.pop_back();
    hidden = plain.hidden(tokens);
  }
};

class PlainPrediction : public ::testing::TestWithParam<test::PlainForm> {};

TEST_P(PlainPrediction, LogitsAgree) {
  const test::PlainTransformer plain(GetParam());
  const auto file = plain.file();
  const Result<Program> program = build_prediction(file->file());
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_EQ(program->layers.size(), 1u);
  EXPECT_EQ(program->predicting_block, GetParam().n_layers);
  const GivenText text(plain);
  expect_logits(reference_logits(file->file(), *program, text.next, {.given = text.hidden}),
                plain.predicted(text.next, text.hidden));
}

TEST_P(PlainPrediction, IsGivenARowForEachToken) {
  const test::PlainTransformer plain(GetParam());
  const auto file = plain.file();
  const Program program = build_prediction(file->file()).value();
  const GivenText text(plain);
  const auto got = reference_logits(file->file(), program, text.next, {});
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().message, "0 numbers are given where 2496 are read");
}

/// What is wrong with a file some of whose tensors are others.
std::string prediction_error(const test::PlainForm& form,
                             const std::function<void(std::vector<test::SmallTensor>&)>& change) {
  const test::PlainTransformer plain(form);
  std::vector<test::SmallTensor> tensors = plain.tensors();
  change(tensors);
  const test::SmallFile file(tensors, plain.header());
  EXPECT_TRUE(build_program(file.file()).ok());  // plain decoding reads none of them
  const Result<Program> program = build_prediction(file.file());
  return program.ok() ? "" : program.error().message;
}

TEST_P(PlainPrediction, TensorsThatDoNotFitAreNamed) {
  const std::string block = "blk." + std::to_string(GetParam().n_layers) + ".";
  for (const char* stem : {"nextn.enorm", "nextn.hnorm", "nextn.eh_proj", "attn_norm"}) {
    const std::string name = block + stem + ".weight";
    EXPECT_EQ(prediction_error(GetParam(),
                               [&](auto& tensors) {
                                 std::erase_if(tensors,
                                               [&](auto& one) { return one.name == name; });
                               }),
              "the file has no tensor " + name);
  }
  EXPECT_EQ(prediction_error(GetParam(),
                             [&](auto& tensors) {
                               for (test::SmallTensor& one : tensors) {
                                 if (one.name == block + "nextn.eh_proj.weight")
                                   one.dims = {64, 64};
                               }
                             }),
            block + "nextn.eh_proj.weight: shape 64 x 64 where the metadata say 128 x 64");
  EXPECT_EQ(prediction_error(GetParam(),
                             [&](auto& tensors) {
                               tensors.push_back({block + "nextn.more.weight", {64}});
                             }),
            block + "nextn.more.weight: nothing in architecture " + GetParam().architecture +
                " reads this tensor; ignoring it would compute a different model");
}

TEST(Prediction, OfAFileWithoutABlockOrOfAnotherArchitectureIsRefusedByName) {
  const auto error = [](const test::PlainForm& form) {
    const Result<Program> program = build_prediction(test::PlainTransformer(form).file()->file());
    return program.ok() ? "" : program.error().message;
  };
  test::PlainForm form = test::forms_that_predict().front();
  form.n_prediction_blocks = 0;
  EXPECT_EQ(error(form),
            "glm4moe.nextn_predict_layers: no block of this file predicts tokens after the next");
  EXPECT_EQ(error({.name = "llama", .architecture = "llama"}),
            "architecture llama: blocks that predict further tokens are not supported");
}

TEST(Prediction, WritesNoTextByItself) {
  const auto file = test::PlainTransformer(test::forms_that_predict().front()).file();
  EXPECT_TRUE(check_writes_text(build_program(file->file()).value()).ok());
  const Status status = check_writes_text(build_prediction(file->file()).value());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message,
            "a block of architecture glm4moe that predicts writes no text by itself");
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

INSTANTIATE_TEST_SUITE_P(Forms, PlainPrediction, ::testing::ValuesIn(test::forms_that_predict()),
                         [](const auto& given) { return given.param.name; });
INSTANTIATE_TEST_SUITE_P(Forms, Plain, ::testing::ValuesIn(test::forms_without_a_file()),
                         [](const auto& given) { return given.param.name; });

}  // namespace
}  // namespace pumice
