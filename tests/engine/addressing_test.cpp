// Where memory is cut is invisible: weights, KV blocks and buffers in slabs a thousandth of a
// GPU's.
#include "tests/engine/engine_fixture.hpp"
#include "tests/engine/synthetic_model.hpp"

namespace pumice {
namespace {

constexpr uint64_t kSlabBytes = 64 << 10;

class Addressing : public test::EngineTest {
 protected:
  static EngineOptions options() {
    return {.kv_type = KvType::kF32, .token_budget = 16, .chunk_tokens = 16, .split_tokens = 32};
  }

  static std::vector<TokenId> tokens() {
    std::vector<TokenId> result(150);
    for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<TokenId>(i * 37 % 512);
    return result;
  }
};

TEST_F(Addressing, ManySmallSlabsGiveTheBitsOfFewLargeOnes) {
  const test::TemporaryFile file = test::write_synthetic_model(
      {.n_embd = 128, .n_heads = 8, .n_kv_heads = 4, .n_ff = 256, .n_vocab = 512});
  const auto whole_model = load(file.path());
  ASSERT_NE(whole_model, nullptr);
  const auto whole = logits(whole_model, tokens(), options());
  ASSERT_EQ(whole.size(), tokens().size() * 512);

  vk::PlanOptions limits = pipelines_->device()->plan().limits;
  limits.slab_bytes = kSlabBytes;
  const auto device = test::GpuEnvironment::open(
      [&](const vk::DeviceSnapshot& snapshot) { return vk::plan_device(snapshot, limits); });
  ASSERT_TRUE(device.ok()) << device.error().message;
  const OnDevice on(*device);
  const auto model = load(file.path());
  ASSERT_NE(model, nullptr);
  for (const std::vector<MatrixRows>& group : lower(model->program).value().matrices) {
    const std::string& name = model->program.tensors[group[0].tensor].name;
    if (name == "token_embd.weight" || name == "blk.0.ffn_gate.weight") {
      EXPECT_GT(model->weights->now()->stack(group).members[0].matrix.parts.size(), 1u) << name;
    }
  }
  EXPECT_GT(
      tokens().size() / kKvBlockTokens * state_layout(model->program, KvType::kF32).block_bytes(),
      2 * kSlabBytes);
  EXPECT_EQ(logits(model, tokens(), options()), whole);
}

TEST_F(Addressing, WhatFitsNoSlabIsRefusedByName) {
  vk::PlanOptions limits;
  limits.slab_bytes = kSlabBytes;
  const auto device = test::GpuEnvironment::open(
      [&](const vk::DeviceSnapshot& snapshot) { return vk::plan_device(snapshot, limits); });
  ASSERT_TRUE(device.ok()) << device.error().message;
  const test::TemporaryFile file = test::write_synthetic_model({.n_ff = 20000});
  const auto gguf = GgufFile::open(file.path());
  ASSERT_TRUE(gguf.ok());
  const auto model = Model::load(*device, *gguf);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kDoesNotFit);
  EXPECT_NE(model.error().message.find("above the device's 65536"), std::string::npos)
      << model.error().message;
}

}  // namespace
}  // namespace pumice
