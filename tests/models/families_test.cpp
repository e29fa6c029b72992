#include "models/families.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
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

/// GLM 4.5 of two layers, the second with a shared expert and eight others.
class Mixture : public ::testing::Test {
 protected:
  static std::string error_with(const std::map<std::string, test::PlainForm::Number>& keys) {
    test::PlainForm form = kForm;
    for (const auto& [key, number] : keys) form.keys[key] = number;
    const Result<Program> program = build_program(test::PlainTransformer(form).file()->file());
    return program.ok() ? "" : program.error().message;
  }
  /// With a tensor of other dimensions, or left out where there are none.
  static std::string error_with(std::string_view tensor, std::vector<uint64_t> dims) {
    const test::PlainTransformer model(kForm);
    std::vector<test::SmallTensor> tensors = model.tensors();
    const auto it = std::ranges::find(tensors, tensor, &test::SmallTensor::name);
    EXPECT_NE(it, tensors.end()) << tensor;
    if (dims.empty()) {
      tensors.erase(it);
    } else {
      *it = {std::string(tensor), std::move(dims)};
    }
    const test::SmallFile file(tensors, model.header());
    const Result<Program> program = build_program(file.file());
    return program.ok() ? "" : program.error().message;
  }

  inline static const test::PlainForm kForm{
      .architecture = "glm4moe",
      .qkv_bias = true,
      .experts = {.n = 8, .n_ff_shared = 24, .n_dense_layers = 1, .sigmoid = true, .biased = true},
      .ffn_norm = "post_attention_norm",
      .keys = {{"expert_shared_count", 1u}, {"leading_dense_block_count", 1u}}};
};

TEST_F(Mixture, RefusesNumbersOfExpertsThatAreNone) {
  EXPECT_EQ(error_with({}), "");
  const std::string used = "glm4moe.expert_used_count: ";
  EXPECT_EQ(error_with({{"expert_used_count", 9u}}),
            used + "9 of 8 experts, expected 1 to all of at most 1024");
  EXPECT_EQ(error_with({{"expert_used_count", 0u}}),
            used + "0 of 8 experts, expected 1 to all of at most 1024");
  EXPECT_EQ(error_with({{"expert_count", 0xFFFFFFFFu}}),
            used + "2 of 4294967295 experts, expected 1 to all of at most 1024");
  EXPECT_EQ(error_with({{"expert_count", 0u}}), "blk.1.route: 0 of 0 experts");
  EXPECT_EQ(error_with({{"leading_dense_block_count", 3u}}),
            "glm4moe.leading_dense_block_count: 3 of 2 layers");
  EXPECT_EQ(error_with({{"expert_feed_forward_length", 0u}}),
            "glm4moe.expert_feed_forward_length: 0 is not in 1..1048576");
}

TEST_F(Mixture, RefusesRoutersThatNobodyHas) {
  EXPECT_EQ(error_with({{"expert_gating_func", 4u}}),
            "glm4moe.expert_gating_func: 4 is not supported (1 a softmax, 2 a sigmoid of the "
            "scores, 3 a softmax of those chosen)");
  EXPECT_EQ(error_with({{"expert_weights_scale", -1.0f}}),
            "glm4moe.expert_weights_scale: -1 is not positive");
  EXPECT_EQ(error_with({{"expert_group_count", 3u}, {"expert_group_used_count", 2u}}),
            "glm4moe.expert_group_count: 2 of 8 experts cannot be chosen from 2 of 3 groups of two "
            "or more");
  EXPECT_EQ(error_with({{"expert_group_count", 4u}, {"expert_group_used_count", 5u}}),
            "glm4moe.expert_group_count: 2 of 8 experts cannot be chosen from 5 of 4 groups of two "
            "or more");
  EXPECT_EQ(error_with({{"nextn_predict_layers", 2u}}),
            "glm4moe.nextn_predict_layers: 2 of 2 blocks predict tokens after the next");
}

TEST_F(Mixture, NamesTheTensorThatIsMissingOrOfAnotherShape) {
  for (const std::string name :
       {"blk.1.ffn_gate_inp.weight", "blk.1.exp_probs_b.bias", "blk.1.ffn_gate_exps.weight",
        "blk.1.ffn_down_exps.weight", "blk.1.ffn_up_shexp.weight"}) {
    EXPECT_EQ(error_with(name, {}), "the file has no tensor " + name);
    EXPECT_TRUE(error_with(name, {7, 5}).starts_with(name + ": shape 7 x 5 where"));
  }
}

/// A convolution, then attention with experts.
class Lfm2Moe : public ::testing::Test {
 protected:
  static GgufHeader header(uint32_t taps = 3, uint32_t second_kv_heads = 1) {
    GgufHeader made;
    made.set("general.architecture", "lfm2moe");
    for (const auto& [key, value] :
         std::map<std::string, uint32_t>{{"block_count", 2},
                                         {"embedding_length", 32},
                                         {"feed_forward_length", 48},
                                         {"attention.head_count", 2},
                                         {"context_length", 128},
                                         {"expert_count", 4},
                                         {"expert_used_count", 2},
                                         {"expert_gating_func", 2},
                                         {"leading_dense_block_count", 1},
                                         {"shortconv.l_cache", taps}}) {
      made.set("lfm2moe." + key, value);
    }
    made.set("lfm2moe.expert_feed_forward_length", 24u);
    made.set("lfm2moe.attention.layer_norm_rms_epsilon", 1e-5f);
    const std::vector<uint32_t> kv_heads = {0, second_kv_heads};
    made.set_array("lfm2moe.attention.head_count_kv", std::span<const uint32_t>(kv_heads));
    return made;
  }
  static std::vector<test::SmallTensor> tensors() {
    return {{"token_embd.weight", {32, 64}},
            {"token_embd_norm.weight", {32}},
            {"blk.0.attn_norm.weight", {32}},
            {"blk.0.shortconv.in_proj.weight", {32, 96}},
            {"blk.0.shortconv.conv.weight", {3, 32}},
            {"blk.0.shortconv.out_proj.weight", {32, 32}},
            {"blk.0.ffn_norm.weight", {32}},
            {"blk.0.ffn_gate.weight", {32, 48}},
            {"blk.0.ffn_up.weight", {32, 48}},
            {"blk.0.ffn_down.weight", {48, 32}},
            {"blk.1.attn_norm.weight", {32}},
            {"blk.1.attn_q.weight", {32, 32}},
            {"blk.1.attn_k.weight", {32, 16}},
            {"blk.1.attn_v.weight", {32, 16}},
            {"blk.1.attn_q_norm.weight", {16}},
            {"blk.1.attn_k_norm.weight", {16}},
            {"blk.1.attn_output.weight", {32, 32}},
            {"blk.1.ffn_norm.weight", {32}},
            {"blk.1.ffn_gate_inp.weight", {32, 4}},
            {"blk.1.exp_probs_b.bias", {4}},
            {"blk.1.ffn_gate_exps.weight", {32, 24, 4}},
            {"blk.1.ffn_up_exps.weight", {32, 24, 4}},
            {"blk.1.ffn_down_exps.weight", {24, 32, 4}}};
  }
};

TEST_F(Lfm2Moe, HasAStateForItsConvolutionsAndExpertsBehindDenseLayers) {
  const test::SmallFile file(tensors(), header());
  const Program program = build_program(file.file()).value();
  ASSERT_EQ(program.state_groups.size(), 2u);
  EXPECT_EQ(program.state_groups[0].n_slots, 1u);
  EXPECT_FALSE(program.state_groups[0].recurrent);
  EXPECT_TRUE(program.state_groups[1].recurrent);
  EXPECT_EQ(program.state_groups[1].state_floats, (std::vector<uint64_t>{2 * 32}));
  const auto route = std::ranges::find_if(
      program.ops, [](const Op& op) { return std::holds_alternative<op::Route>(op.what); });
  ASSERT_NE(route, program.ops.end());
  EXPECT_EQ(std::get<op::Route>(route->what).router,
            (Router{.probability = Router::Probability::kSigmoid}));
  EXPECT_TRUE(std::get<op::Route>(route->what).bias.has_value());
  EXPECT_TRUE(lower(program).ok());
}

TEST_F(Lfm2Moe, RefusesLayersThatNobodyHas) {
  const test::SmallFile many_taps(tensors(), header(17));
  EXPECT_EQ(build_program(many_taps.file()).error().message,
            "lfm2moe.shortconv.l_cache: 17 is not in 2..16");
  const test::SmallFile other_taps(tensors(), header(4));
  EXPECT_TRUE(build_program(other_taps.file())
                  .error()
                  .message.starts_with("blk.0.shortconv.conv.weight: shape 3 x 32 where"));
  const test::SmallFile no_attention(tensors(), header(3, 0));
  EXPECT_EQ(build_program(no_attention.file()).error().message,
            "lfm2moe.attention.head_count_kv: 0 is not in 1..1024");
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
