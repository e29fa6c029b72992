#include "models/families.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/lowering.hpp"
#include "tests/models/plain_transformer.hpp"
#include "tests/models/small_file.hpp"

namespace pumice {
namespace {

TEST(Families, AnUnknownArchitectureIsAnErrorOfOnePlainLine) {
  GgufHeader header;
  header.set("general.architecture", "ma\nmba");
  const test::SmallFile file({}, header);
  const Result<Program> program = build_program(file.file());
  ASSERT_FALSE(program.ok());
  std::string known;
  for (const ModelFamily& family : model_families()) {
    known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  }
  EXPECT_EQ(program.error().message,
            "architecture 'ma\\x0amba' is not supported yet (known: " + known + ")");
}

/// A phi3 of one layer whose heads of 16 turn by LongRoPE beyond 32 tokens; trained for 128.
class LongRope : public ::testing::Test {
 protected:
  static GgufHeader header() {
    GgufHeader made;
    made.set("general.architecture", "phi3");
    for (const auto& [key, value] :
         std::map<std::string, uint32_t>{{"block_count", 1},
                                         {"embedding_length", 32},
                                         {"feed_forward_length", 48},
                                         {"attention.head_count", 2},
                                         {"context_length", 128},
                                         {"rope.scaling.original_context_length", 32}}) {
      made.set("phi3." + key, value);
    }
    made.set("phi3.attention.layer_norm_rms_epsilon", 1e-5f);
    made.set("phi3.rope.scaling.attn_factor", 1.25f);
    return made;
  }
  static std::vector<test::SmallTensor> tensors() {
    return {{"token_embd.weight", {32, 64}},
            {"output_norm.weight", {32}},
            {"rope_factors_long.weight", {8}, std::vector<float>(8, 4.0f)},
            {"rope_factors_short.weight", {8}, std::vector<float>(8, 1.5f)},
            {"blk.0.attn_norm.weight", {32}},
            {"blk.0.attn_qkv.weight", {32, 96}},
            {"blk.0.attn_output.weight", {32, 32}},
            {"blk.0.ffn_norm.weight", {32}},
            {"blk.0.ffn_up.weight", {32, 96}},
            {"blk.0.ffn_down.weight", {48, 32}}};
  }
  static float divisor(const test::SmallFile& file, uint32_t context_tokens) {
    const Program program = build_program(file.file()).value();
    const ops::RopeConfig rope = program.ropes[0].for_context(context_tokens);
    EXPECT_EQ(rope.freq_divisors.size(), 8u);
    EXPECT_EQ(rope.attn_factor, 1.25);
    EXPECT_TRUE(ops::rope_frequencies(rope).ok());
    return rope.freq_divisors[0];
  }
};

TEST_F(LongRope, FollowsTheConfiguredContext) {
  const test::SmallFile file(tensors(), header());
  EXPECT_EQ(divisor(file, 32), 1.5f);
  EXPECT_EQ(divisor(file, 33), 4.0f);
  const Program program = build_program(file.file()).value();
  EXPECT_FALSE(ops::rope_frequencies(program.ropes[0]).ok()) << "before a context is chosen";
}

TEST_F(LongRope, NeedsBothItsTensors) {
  std::vector<test::SmallTensor> without_short = tensors();
  without_short.erase(without_short.begin() + 3);
  const test::SmallFile file(without_short, header());
  EXPECT_EQ(build_program(file.file()).error().message,
            "rope_factors_short.weight: expected 8 F32 values");
}

TEST(Granite, HasNoRopeWhereItsFileSaysSo) {
  test::PlainForm form{.architecture = "granite"};
  const auto turned = test::PlainTransformer(form).file();
  form.keys = {{"rope.scaling.finetuned", false}};
  const auto still = test::PlainTransformer(form).file();
  const auto n_ropes = [](const auto& file) {
    const Program program = build_program(file->file()).value();
    return std::ranges::count_if(
        program.ops, [](const Op& op) { return std::holds_alternative<op::Rope>(op.what); });
  };
  EXPECT_EQ(n_ropes(turned), 4);
  EXPECT_EQ(n_ropes(still), 0);
}

TEST(Apertus, WantsConstantsForEachLayer) {
  const test::PlainTransformer model({.architecture = "apertus"});
  auto header = model.header();
  const std::vector<float> three(3, 0.5f);
  header.set_array("xielu.alpha_p", std::span<const float>(three));
  const test::SmallFile file(model.tensors(), std::move(header));
  EXPECT_EQ(build_program(file.file()).error().message,
            "xielu.alpha_p: holds 3 values, expected at most 2");
}

/// Phi-4 mini: part of each head turns, by LongRoPE, and the embedding is the output matrix.
TEST(Phi4, LoadsAsItIsPublished) {
  SyntheticShape shape = find_synthetic_preset("phi4-mini").value();
  shape.n_layers = 1;
  const SyntheticModel made = SyntheticModel::create(shape, {}).value();
  const Program program = build_program(ModelSource::synthetic(made).value()).value();
  ASSERT_EQ(program.ropes.size(), 1u);
  EXPECT_EQ(program.ropes[0].dims, 96u);
  EXPECT_EQ(program.state_groups[0].head_dim, 128u);
  EXPECT_EQ(program.ropes[0].long_divisors.size(), 48u);
  EXPECT_NEAR(program.ropes[0].attn_factor, 1.190238, 1e-6);
  EXPECT_TRUE(lower(program).ok());
}

}  // namespace
}  // namespace pumice
