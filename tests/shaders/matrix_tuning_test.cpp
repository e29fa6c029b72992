// Which tiles attention uses on matrix cores, decided from recorded devices.
#include "shaders/flash_attention/matrix_tuning.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "tests/vk/snapshots.hpp"

namespace pumice::ops {
namespace {

vk::DevicePlan plan_of(const std::string& device, const vk::PlanOptions& options = {}) {
  return *vk::plan_device(test::snapshot(device), options);
}

/// The reports of GPUs here are silent on cooperative matrices: these are an NVIDIA GPU's.
vk::DevicePlan gpu_plan(const vk::PlanOptions& options = {}) {
  vk::DevicePlan plan = plan_of("nvidia_rtx_4090", options);
  plan.features.cooperative_matrix = plan.features.shader_float16 = true;
  plan.matrix_subgroup_size = plan.subgroup_size;
  for (const auto& [n, k] : {std::pair(8u, 8u), std::pair(8u, 16u), std::pair(16u, 16u)}) {
    for (const vk::ComponentType sum : {vk::ComponentType::kF16, vk::ComponentType::kF32}) {
      plan.matrix_shapes.push_back({.m = 16,
                                    .n = n,
                                    .k = k,
                                    .a = vk::ComponentType::kF16,
                                    .b = vk::ComponentType::kF16,
                                    .c = sum,
                                    .result = sum,
                                    .subgroup_scope = true});
    }
  }
  return plan;
}

FlashAttention::Shape heads_of(uint32_t head_dim) {
  return {.n_heads = 32, .n_kv_heads = 8, .head_dim = head_dim, .kv_type = KvType::kF16};
}

std::string obstacle_of(const vk::DevicePlan& plan, uint32_t head_dim) {
  const auto tuning = matrix_attention_tuning(plan, heads_of(head_dim));
  return tuning.ok() ? "" : tuning.error().message;
}

TEST(MatrixTuning, TakesTheLargestProductAndFitsTheSharedMemory) {
  for (const vk::DevicePlan& plan : {gpu_plan(), plan_of("lavapipe_26")}) {
    const uint32_t size = plan.device_class == vk::DeviceClass::kGpu ? 16 : 8;
    for (const uint32_t head_dim : {8u, 24u, 64u, 80u, 96u, 128u, 256u}) {
      const auto tuning = matrix_attention_tuning(plan, heads_of(head_dim));
      ASSERT_TRUE(tuning.ok()) << head_dim << ": " << tuning.error().message;
      EXPECT_LE(matrix_attention_shared_bytes(head_dim, *tuning), plan.max_shared_bytes);
      EXPECT_EQ(tuning->matrix.m * tuning->matrix.n * tuning->matrix.k, size * size * size);
      EXPECT_EQ(matrix_attention_obstacle(plan, heads_of(head_dim), *tuning), "");
    }
  }
}

TEST(MatrixTuning, NamesWhatTheDeviceLacks) {
  EXPECT_EQ(obstacle_of(plan_of("swiftshader"), 64),
            "it needs cooperativeMatrix and shaderFloat16");
  const auto without = [](const char* feature) {
    return obstacle_of(plan_of("lavapipe_26", {.disable = {feature}}), 64);
  };
  EXPECT_EQ(without("cooperativeMatrix"), "it needs cooperativeMatrix and shaderFloat16");
  EXPECT_EQ(without("subgroupShuffle"), "it needs shuffles in subgroups");
  EXPECT_EQ(without("computeFullSubgroups"), "it needs full subgroups of a known size");

  vk::DevicePlan plan = plan_of("lavapipe_26");
  std::erase_if(plan.matrix_shapes, [](const vk::MatrixShape& shape) {
    return shape.a == vk::ComponentType::kF16 && shape.result == vk::ComponentType::kF32;
  });
  EXPECT_EQ(obstacle_of(plan, 64), "no cooperative matrix shape has fp16 inputs and fp32 sums");
}

TEST(MatrixTuning, LittleSharedMemoryMakesSmallerTilesAndThenAnObstacle) {
  const vk::PlanOptions floor{.max_shared_bytes = 16384};
  const auto small = matrix_attention_tuning(gpu_plan(floor), heads_of(128));
  const auto large = matrix_attention_tuning(gpu_plan(), heads_of(128));
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_LT(small->key_tile, large->key_tile);
  EXPECT_EQ(obstacle_of(gpu_plan(floor), 256), "head_dim 256 needs 22912 bytes of shared memory");
}

TEST(MatrixTuning, ATileOfBrokenMatricesIsRefused) {
  const vk::DevicePlan plan = gpu_plan();
  const auto tuning = *matrix_attention_tuning(plan, heads_of(64));
  for (const auto change : {+[](FlashAttention::Tuning& t) { t.max_tile_rows += 1; },
                            +[](FlashAttention::Tuning& t) { t.key_tile = 24; },
                            +[](FlashAttention::Tuning& t) { t.workgroup_size = 16; },
                            +[](FlashAttention::Tuning& t) { t.matrix.k = 32; }}) {
    FlashAttention::Tuning changed = tuning;
    change(changed);
    EXPECT_NE(matrix_attention_obstacle(plan, heads_of(64), changed), "");
  }
}

TEST(MatrixTuning, SubgroupsHaveRowsOfTheirOwnWhereTheirRegistersHoldThem) {
  const vk::DevicePlan plan = gpu_plan();
  EXPECT_TRUE(matrix_attention_tuning(plan, heads_of(128))->own_rows);
  EXPECT_FALSE(matrix_attention_tuning(plan, heads_of(136))->own_rows);
  const auto rejected = [](const FlashAttention::Tuning& tuning) -> std::string {
    return tuning.own_rows ? "it failed" : "";
  };
  EXPECT_FALSE(matrix_attention_tuning(plan, heads_of(128), rejected)->own_rows);
  vk::DevicePlan without_votes = plan;
  without_votes.subgroup.vote = false;
  EXPECT_FALSE(matrix_attention_tuning(without_votes, heads_of(128))->own_rows);
}

}  // namespace
}  // namespace pumice::ops
