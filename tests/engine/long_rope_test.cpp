// LongRoPE's angles follow the context that a session is configured for, not the length of what it
// reads.
#include <map>
#include <random>

#include "models/families.hpp"
#include "models/reference.hpp"
#include "tests/engine/engine_fixture.hpp"
#include "tests/models/small_file.hpp"

namespace pumice {
namespace {

constexpr uint32_t kOriginalContext = 32;

/// A phi3 of one layer with random weights.
std::unique_ptr<test::SmallFile> small_phi3() {
  GgufHeader header;
  header.set("general.architecture", "phi3");
  for (const auto& [key, value] : std::map<std::string, uint32_t>{
           {"block_count", 1},
           {"embedding_length", 32},
           {"feed_forward_length", 64},
           {"attention.head_count", 2},
           {"context_length", 128},
           {"rope.scaling.original_context_length", kOriginalContext}}) {
    header.set("phi3." + key, value);
  }
  header.set("phi3.attention.layer_norm_rms_epsilon", 1e-5f);
  header.set("phi3.rope.scaling.attn_factor", 1.25f);
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 0.3f);
  const auto tensor = [&](const char* name, std::vector<uint64_t> dims) {
    std::vector<float> values(dims.size() == 1 ? dims[0] : dims[0] * dims[1]);
    for (float& value : values) value = normal(random) + (dims.size() == 1 ? 1.0f : 0.0f);
    return test::SmallTensor{name, std::move(dims), std::move(values)};
  };
  return std::make_unique<test::SmallFile>(
      std::vector<test::SmallTensor>{
          tensor("token_embd.weight", {32, 64}),
          tensor("output_norm.weight", {32}),
          {"rope_factors_long.weight", {8}, {1, 2, 3, 4, 5, 6, 7, 8}},
          {"rope_factors_short.weight", {8}, std::vector<float>(8, 1.0f)},
          tensor("blk.0.attn_norm.weight", {32}),
          tensor("blk.0.attn_qkv.weight", {32, 96}),
          tensor("blk.0.attn_output.weight", {32, 32}),
          tensor("blk.0.ffn_norm.weight", {32}),
          tensor("blk.0.ffn_up.weight", {32, 128}),
          tensor("blk.0.ffn_down.weight", {64, 32})},
      std::move(header));
}

class LongRope : public test::EngineTest {};

TEST_F(LongRope, FollowsTheContextOfTheSession) {
  const auto file = small_phi3();
  const ModelSource source(file->file());
  const Program program = build_program(source).value();
  const auto model = Model::load(pipelines_->device(), source);
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<TokenId> tokens(20);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 13 % 64);
  std::map<uint32_t, std::vector<float>> expected;
  for (const uint32_t context : {kOriginalContext, kOriginalContext + 1}) {
    const ReferenceLogits reference =
        reference_logits(source, program, tokens, {.context_tokens = context}).value();
    expected[context].assign(reference.logits.begin(), reference.logits.end());
    const auto engine = make_engine(*model, {.kv_type = KvType::kF32,
                                             .math = ops::Math::kF32,
                                             .context_tokens = context,
                                             .prompt_logits = true,
                                             .greedy_only = true});
    EXPECT_LE(test::nmse(logits(*engine, tokens), expected[context]), 1e-9) << context;
  }
  EXPECT_GT(test::nmse(expected[kOriginalContext], expected[kOriginalContext + 1]), 1e-4);
}

}  // namespace
}  // namespace pumice
