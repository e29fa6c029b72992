// Tiles of the cooperative-matrix gemm on devices nobody here has: the reports that
// tests/vk/snapshots were taken from name no shapes, so each gets those of several makers.
#include <gtest/gtest.h>

#include <algorithm>

#include "shaders/gemm/gemm_matrix.h"
#include "shaders/gemm/gemm_variants.hpp"
#include "tests/vk/snapshots.hpp"

namespace pumice::ops {
namespace {

vk::MatrixShape shape(uint32_t m, uint32_t n, uint32_t k,
                      vk::ComponentType sum = vk::ComponentType::kF32) {
  return {.m = m,
          .n = n,
          .k = k,
          .a = vk::ComponentType::kF16,
          .b = vk::ComponentType::kF16,
          .c = sum,
          .result = sum,
          .saturating = false,
          .subgroup_scope = true};
}

GemmVariant matrix_variant(const vk::DevicePlan& plan, Math math = Math::kF16) {
  for (GemmVariant& variant : gemm_variants(plan, math, XRoute::kPortable)) {
    if (variant.name == "matrix") return variant;
  }
  return {.name = {}, .obstacle = "not listed"};
}

uint32_t constant(const GemmTile& tile, uint32_t id) {
  for (const auto& [known, value] : tile.constants) {
    if (known == id) return value;
  }
  ADD_FAILURE() << "no constant " << id;
  return 1;
}

vk::DeviceSnapshot with_shapes(const std::string& name, std::vector<vk::MatrixShape> shapes) {
  vk::DeviceSnapshot device = test::snapshot(name);
  device.matrix_shapes = std::move(shapes);
  return device;
}

/// What the kernel assumes of its constants and what the device promises.
void expect_runs(const GemmTile& tile, const vk::DevicePlan& plan) {
  GemmMatrixSpec spec;
  ASSERT_EQ(tile.constants.size(), std::size(GemmMatrixSpec::kEntries));
  auto* members = reinterpret_cast<uint32_t*>(&spec);
  for (const auto& entry : GemmMatrixSpec::kEntries) *members++ = constant(tile, entry.id);
  EXPECT_EQ(tile.rows, spec.tile_rows);
  EXPECT_EQ(tile.cols, spec.tile_cols);
  EXPECT_EQ(spec.tile_rows % spec.part_rows, 0u);
  EXPECT_EQ(spec.tile_cols % spec.part_cols, 0u);
  EXPECT_EQ(spec.part_rows % spec.matrix_m, 0u);
  EXPECT_EQ(spec.part_cols % spec.matrix_n, 0u);
  EXPECT_EQ(spec.tile_k % spec.matrix_k, 0u);
  EXPECT_EQ(spec.tile_k % kWeightBlockCols, 0u);
  const uint32_t parts = spec.tile_rows / spec.part_rows * (spec.tile_cols / spec.part_cols);
  EXPECT_EQ(spec.workgroup_size, parts * spec.subgroup_size);
  EXPECT_LE(spec.workgroup_size, plan.max_workgroup_invocations);
  EXPECT_LE(spec.workgroup_size, plan.max_workgroup_size[0]);
  EXPECT_GE(spec.subgroup_size, plan.subgroup.min_size);
  EXPECT_LE(spec.subgroup_size, plan.subgroup.max_size);
  EXPECT_LE(tile.shared_bytes, plan.max_shared_bytes);
  EXPECT_GT(tile.shared_bytes, 0u);
  EXPECT_LE(spec.part_rows * spec.part_cols / spec.subgroup_size, 64u) << "sums an invocation";
}

TEST(GemmMatrix, EveryDeviceWithMatricesGetsTilesWithinItsLimits) {
  const std::vector<std::vector<vk::MatrixShape>> makers = {
      {shape(16, 16, 16), shape(16, 8, 16), shape(16, 8, 8)},
      {shape(16, 16, 16)},
      {shape(8, 8, 8)},
      {shape(8, 8, 16)},
      {shape(8, 16, 16)},
      {shape(16, 32, 32)},
      {shape(64, 16, 16)},
      {shape(4, 64, 4)}};
  int devices = 0;
  for (const std::string& name : test::snapshot_names()) {
    if (!test::snapshot(name).features.cooperative_matrix) continue;
    for (const auto& shapes : makers) {
      for (const uint32_t shared_bytes : {0u, 49152u, 32768u, 16384u}) {
        SCOPED_TRACE(name + " " + std::to_string(shapes[0].m) + "x" + std::to_string(shapes[0].n) +
                     " shared " + std::to_string(shared_bytes));
        const Result<vk::DevicePlan> plan =
            vk::plan_device(with_shapes(name, shapes), {.max_shared_bytes = shared_bytes});
        if (!plan.ok()) continue;
        if (!plan->features.cooperative_matrix) continue;
        ++devices;
        const GemmVariant variant = matrix_variant(*plan);
        EXPECT_EQ(variant.obstacle.empty(), !variant.tiles.empty());
        const bool huge = shapes[0].m > 16 || shapes[0].n > 16;
        // Parts of such matrices, 16 by 16 at least, may be more than a subgroup's registers hold.
        const bool too_large = std::max(shapes[0].m, 16u) * std::max(shapes[0].n, 16u) >
                               64 * plan->matrix_subgroup_size;
        if (huge && (plan->max_shared_bytes < 49152 || too_large)) continue;
        EXPECT_TRUE(variant.full_subgroups);
        EXPECT_EQ(variant.subgroup_size, plan->matrix_subgroup_size);
        ASSERT_FALSE(variant.tiles.empty());
        for (const GemmTile& tile : variant.tiles) expect_runs(tile, *plan);
      }
    }
  }
  EXPECT_GT(devices, 100);
}

TEST(GemmMatrix, ATileOf128By128IsForDevicesThatHoldIt) {
  const auto largest = [](const std::string& name, const vk::PlanOptions& options = {}) {
    const vk::DevicePlan plan = *vk::plan_device(with_shapes(name, {shape(16, 16, 16)}), options);
    return matrix_variant(plan).tiles.back();
  };
  for (const char* name : {"nvidia_rtx_4090", "amd_780m_radv"}) {
    EXPECT_EQ(largest(name).rows, 128u) << name;
    EXPECT_EQ(largest(name).cols, 128u) << name;
    EXPECT_EQ(largest(name).workgroup_size, 256u) << name;
  }
  EXPECT_LE(largest("nvidia_rtx_4090", {.max_shared_bytes = 32768}).shared_bytes, 32768u);
}

TEST(GemmMatrix, SubgroupsAreTheNarrowestThatMatrixUnitsAreMadeFor) {
  const auto size = [](const std::string& name) {
    return matrix_variant(*vk::plan_device(with_shapes(name, {shape(8, 8, 16)}))).subgroup_size;
  };
  EXPECT_EQ(size("intel_arc_a770_mesa"), 8u);
  EXPECT_EQ(size("amd_780m_radv"), 32u);
  EXPECT_EQ(size("nvidia_rtx_4090"), 32u);
  const vk::DevicePlan wide =
      *vk::plan_device(with_shapes("amd_780m_radv", {shape(16, 16, 16)}), {.subgroup_size = 64});
  EXPECT_EQ(matrix_variant(wide).subgroup_size, 64u);
}

TEST(GemmMatrix, AccumulatesInFp32OnlyAndNeverWithSaturation) {
  vk::MatrixShape saturating = shape(16, 16, 16);
  saturating.saturating = true;
  for (const vk::MatrixShape& unusable : {shape(16, 16, 16, vk::ComponentType::kF16), saturating,
                                          shape(16, 16, 64), shape(12, 16, 16)}) {
    const vk::DevicePlan plan = *vk::plan_device(with_shapes("nvidia_rtx_4090", {unusable}));
    EXPECT_NE(matrix_variant(plan).obstacle, "");
    EXPECT_TRUE(matrix_variant(plan).tiles.empty());
  }
  const vk::DevicePlan both = *vk::plan_device(with_shapes(
      "nvidia_rtx_4090", {shape(16, 16, 16, vk::ComponentType::kF16), shape(16, 8, 8)}));
  EXPECT_EQ(constant(matrix_variant(both).tiles[0], 8), 8u);
}

TEST(GemmMatrix, IsFirstOfAutoOnGpusWithMatricesAndNeverComputesF32) {
  const vk::DevicePlan plan = *vk::plan_device(with_shapes("nvidia_rtx_4090", {shape(16, 16, 16)}));
  const auto variants = gemm_variants(plan, Math::kAuto, XRoute::kPortable);
  const auto proven = [](const GemmVariant& variant) { return variant.name != "matrix2"; };
  EXPECT_EQ(std::ranges::find_if(variants, proven)->name, "matrix");
  EXPECT_TRUE(std::ranges::any_of(
      variants, [](const GemmVariant& variant) { return variant.name == "shared"; }));
  EXPECT_EQ(matrix_variant(plan, Math::kF32).obstacle, "not listed");
}

TEST(GemmMatrix, SmallProductsUseSmallTilesAndLargeOnesLargeTiles) {
  const vk::DevicePlan plan = *vk::plan_device(with_shapes("nvidia_rtx_4090", {shape(16, 16, 16)}));
  const std::vector<GemmTile> tiles = matrix_variant(plan).tiles;
  ASSERT_EQ(tiles.size(), 2u);
  EXPECT_EQ(choose_gemm_tile(tiles, 9, 4096), 0u);
  EXPECT_EQ(choose_gemm_tile(tiles, 512, 512), 0u) << "16 large tiles occupy too little of a GPU";
  EXPECT_EQ(choose_gemm_tile(tiles, 512, 4096), 1u);
  EXPECT_EQ(choose_gemm_tile(std::span(tiles).first(1), 512, 4096), 0u);
}

}  // namespace
}  // namespace pumice::ops
