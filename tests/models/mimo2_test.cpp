// What a file of MiMo-V2 must not say, and how its program reads; what it computes is tested with
// the plain forms.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/families.hpp"
#include "models/program_tensors.hpp"
#include "models/program_text.hpp"
#include "tests/models/plain_transformer.hpp"

namespace pumice {
namespace {

test::PlainForm mimo2_form() { return test::form_with_small_values(); }

std::string build_error(const test::PlainForm& form) {
  const Result<Program> program = build_program(test::PlainTransformer(form).file()->file());
  return program.ok() ? "" : program.error().message;
}

/// What is wrong with a file that says so.
std::string error_with(const std::string& key, std::vector<uint32_t> numbers) {
  test::PlainForm form = mimo2_form();
  form.array_keys[key] = std::move(numbers);
  return build_error(form);
}
std::string error_with(const std::string& key, test::PlainForm::Number number) {
  test::PlainForm form = mimo2_form();
  form.keys[key] = number;
  return build_error(form);
}

TEST(MiMo2, LayersOfAKindHaveTheSameKvHeads) {
  EXPECT_EQ(error_with("attention.head_count_kv", {1, 2, 2, 1, 2, 2, 2}), "");
  EXPECT_EQ(error_with("attention.head_count_kv", {1, 2, 4, 1, 2, 2, 2}),
            "mimo2.attention.head_count_kv: 4 in layer 2, 2 in another with a window; not "
            "supported");
  EXPECT_EQ(error_with("attention.head_count_kv", {1, 2, 2, 2, 2, 2, 2}),
            "mimo2.attention.head_count_kv: 2 in layer 3, 1 in another without a window; not "
            "supported");
}

TEST(MiMo2, ThePatternSaysOfEachBlockWhetherItHasAWindow) {
  const std::string key = "attention.sliding_window_pattern";
  EXPECT_EQ(error_with(key, {0, 1, 1, 0, 1, 1, 1}), "");
  EXPECT_EQ(error_with(key, {0, 1, 2, 0, 1, 1, 1}), "mimo2." + key + ": 2 is neither 0 nor 1");
  EXPECT_EQ(error_with(key, {0, 1, 1, 0}), "mimo2." + key + ": 4 values for 7 layers");
  EXPECT_EQ(error_with(key, 2u), "mimo2." + key + ": expected a bool, found uint32");
}

TEST(MiMo2, ValuesAreOfAtMostAsManyNumbersAsKeys) {
  EXPECT_EQ(error_with("attention.value_length", 72u),
            "mimo2.attention.value_length: 72 is more than key_length 64; not supported");
  EXPECT_EQ(error_with("attention.value_length", 20u),
            "mimo2.attention.value_length: 20 is not a multiple of 8 up to 512");
  EXPECT_EQ(error_with("attention.value_length_swa", 72u),
            "state group window: values of 72 numbers and keys of 64");
  // Those of the tensors follow.
  EXPECT_EQ(error_with("attention.value_length_swa", 24u),
            "blk.1.attn_v.weight: shape 64 x 64 where the metadata say 64 x 48");
  EXPECT_EQ(error_with("attention.value_scale", 0.0f),
            "mimo2.attention.value_scale: 0 is not positive");
}

TEST(MiMo2, OtherFamiliesRefuseValuesOfAnotherSize) {
  const test::PlainForm form{
      .name = "llama", .architecture = "llama", .head_dim = 24, .value_dim = 16};
  EXPECT_EQ(build_error(form),
            "llama.attention.value_length: 16 differs from key_length 24; not supported");
}

TEST(MiMo2, BlocksThatPredictAreLeftOut) {
  const auto file = test::PlainTransformer(mimo2_form()).file();
  const Program program = build_program(file->file()).value();
  EXPECT_EQ(program.layers.size(), 4u);
  EXPECT_EQ(program.n_prediction_blocks, 3u);
  EXPECT_GT(prediction_bytes(file->file(), program), 0u);
}

TEST(MiMo2, ItsProgramSaysWhatValuesAre) {
  const auto file = test::PlainTransformer(mimo2_form()).file();
  const std::string text = program_text(build_program(file->file()).value());
  for (const char* line :
       {"state full: 2 slots, 1 kv heads of 64, values of 32\n",
        "state window: 2 slots, 2 kv heads of 64, values of 32, window 20\n",
        "attention = attention(attn_q.rope, kv; 4 heads of 64, 1 kv heads, scale 0.125, values of "
        "32)  128\n",
        "attention = attention(attn_q.rope, kv; attn_sinks.weight; 4 heads of 64, 2 kv heads, "
        "scale 0.125, values of 32, window 20)  128\n",
        "attn_output.scale = scale(attn_output; 0.707)  64\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

}  // namespace
}  // namespace pumice
