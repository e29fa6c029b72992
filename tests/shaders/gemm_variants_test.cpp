// How gemm is computed on devices nobody here has (tests/vk/snapshots).
#include "shaders/gemm/gemm_variants.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/vk/snapshots.hpp"

namespace pumice::ops {
namespace {

vk::DevicePlan planned(const vk::DeviceSnapshot& device) { return *vk::plan_device(device); }

/// Names of the variants without an obstacle, best first.
std::vector<std::string> usable(const vk::DevicePlan& plan, Math math) {
  std::vector<std::string> names;
  for (const GemmVariant& variant : gemm_variants(plan, math, XRoute::kPortable)) {
    if (variant.obstacle.empty()) names.emplace_back(variant.name);
  }
  return names;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

GemmVariant variant_of(const vk::DevicePlan& plan, std::string_view name) {
  for (GemmVariant& variant : gemm_variants(plan, Math::kF16, XRoute::kPortable)) {
    if (variant.name == name) return variant;
  }
  return {};
}

/// A device as one with NV cooperative matrix 2 might describe itself.
vk::DeviceSnapshot matrix2_device() {
  vk::DeviceSnapshot device = test::snapshot("nvidia_rtx_4090");
  constexpr vk::ComponentType kHalf = vk::ComponentType::kF16, kFloat = vk::ComponentType::kF32;
  device.matrix2 = {.max_workgroup_size = 256, .max_dimension = 512, .reserved_shared_bytes = 4096};
  device.flexible_matrix_shapes = {
      {16, 16, 16, kHalf, kHalf, kFloat, kFloat, false, true, 128},
      {32, 32, 16, kHalf, kHalf, kFloat, kFloat, false, true, 256},
      {32, 32, 16, kHalf, kHalf, kHalf, kHalf, false, true, 512},
  };
  return device;
}

TEST(GemmVariants, AutoIsFp32OnDevicesWithFastIntegerDotsAndNoMatrices) {
  for (const char* fast : {"amd_rx_6700_xt_radv", "qualcomm_adreno_750"}) {
    const vk::DevicePlan plan = planned(test::snapshot(fast));
    ASSERT_TRUE(plan.integer_dot.packed_signed_accelerated) << fast;
    ASSERT_TRUE(plan.matrix_shapes.empty()) << fast;
    for (const GemmVariant& variant : gemm_variants(plan, Math::kAuto, tuned_x_route(plan))) {
      if (!variant.obstacle.empty()) continue;
      EXPECT_EQ(variant.math, Math::kF32) << fast;
    }
  }
}

TEST(GemmVariants, IntegersAreForWhoAsksForThemOnly) {
  for (const std::string& name : test::snapshot_names()) {
    const Result<vk::DevicePlan> plan = vk::plan_device(test::snapshot(name));
    if (!plan.ok()) continue;
    for (const Math math : {Math::kAuto, Math::kF32, Math::kF16}) {
      for (const GemmVariant& variant : gemm_variants(*plan, math, tuned_x_route(*plan))) {
        EXPECT_NE(variant.math, Math::kI8) << name;
        EXPECT_TRUE(math == Math::kAuto || variant.math == math) << name;
      }
    }
    EXPECT_EQ(usable(*plan, Math::kI8), std::vector<std::string>{"i8"}) << name;
    EXPECT_TRUE(contains(usable(*plan, Math::kAuto), "shared")) << name;
  }
}

TEST(GemmVariants, CpuDriversLoadUniformlyWhereThatIsOneLoad) {
  const auto best = [](const char* name) {
    const vk::DevicePlan plan = planned(test::snapshot(name));
    return gemm_variants(plan, Math::kF32, tuned_x_route(plan)).front().name;
  };
  EXPECT_EQ(best("lavapipe_26"), "uniform");
  EXPECT_EQ(best("lavapipe_22"), "broadcast");
  EXPECT_EQ(best("swiftshader"), "shared");
  EXPECT_EQ(best("nvidia_rtx_4090"), "shared");
}

TEST(GemmVariants, MatricesOfAWorkgroupTakeTheLargestWorkgroupThatMayShareThem) {
  const GemmVariant variant = variant_of(planned(matrix2_device()), "matrix2");
  EXPECT_EQ(variant.obstacle, "");
  ASSERT_EQ(variant.tiles.size(), 2u);
  EXPECT_EQ(variant.tiles[0].rows, 64u);
  EXPECT_EQ(variant.tiles[1].cols, 128u);
  for (const GemmTile& tile : variant.tiles) EXPECT_EQ(tile.workgroup_size, 256u);
}

TEST(GemmVariants, MatricesOfAWorkgroupAreNotUsedWhereOneThingIsMissing) {
  const auto obstacle = [](const auto& change) {
    vk::DeviceSnapshot device = matrix2_device();
    change(device);
    const GemmVariant variant = variant_of(planned(device), "matrix2");
    EXPECT_TRUE(variant.tiles.empty());
    return variant.obstacle;
  };
  for (bool vk::DeviceFeatures::*feature :
       {&vk::DeviceFeatures::matrix2_workgroup_scope,
        &vk::DeviceFeatures::matrix2_flexible_dimensions,
        &vk::DeviceFeatures::matrix2_tensor_addressing, &vk::DeviceFeatures::matrix2_block_loads,
        &vk::DeviceFeatures::shader_float16}) {
    EXPECT_NE(obstacle([&](vk::DeviceSnapshot& device) { device.features.*feature = false; }), "");
  }
  EXPECT_NE(obstacle([](vk::DeviceSnapshot& device) { device.flexible_matrix_shapes.clear(); }),
            "");
  EXPECT_NE(obstacle([](vk::DeviceSnapshot& device) { device.matrix2.max_dimension = 32; }), "");
  EXPECT_NE(obstacle([](vk::DeviceSnapshot& device) { device.matrix2.max_workgroup_size = 64; }),
            "");
  EXPECT_NE(
      obstacle([](vk::DeviceSnapshot& device) { device.matrix2.reserved_shared_bytes = 1 << 20; }),
      "");
  EXPECT_NE(obstacle([](vk::DeviceSnapshot& device) {
              for (auto& shape : device.flexible_matrix_shapes) shape.k_granularity = 64;
            }),
            "");
}

}  // namespace
}  // namespace pumice::ops
