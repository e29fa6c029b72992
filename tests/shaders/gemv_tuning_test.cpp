// Over how many workgroups gemv splits K, on recorded devices.
#include <gtest/gtest.h>

#include "shaders/gemv/gemv.hpp"
#include "tests/vk/snapshots.hpp"

namespace pumice::ops {
namespace {

uint32_t splits_on(const std::string& name, const char* type, uint32_t n_rows, uint32_t n_cols) {
  const auto plan = vk::plan_device(test::snapshot(name));
  PUMICE_CHECK(plan.ok(), name);
  const GemvKernel kernel = gemv_kernels(*plan, weight_type(type), tuned_x_route(*plan)).front();
  return gemv_splits(*plan, kernel, weight_type(type)).of(weight_type(type), n_rows, n_cols);
}

TEST(GemvSplits, ShareOutMatricesOfFewOutputsOnALargeGpu) {
  const auto splits = [](const char* type, uint32_t n_rows, uint32_t n_cols) {
    return splits_on("nvidia_rtx_4090", type, n_rows, n_cols);
  };
  // Keys and values of Llama 3.1 8B, of a model with half as many, of Llama 3.2 1B.
  EXPECT_EQ(splits("Q4_K", 1024, 4096), 2u);
  EXPECT_EQ(splits("Q6_K", 1024, 4096), 2u) << "a power of two";
  EXPECT_EQ(splits("Q8_0", 512, 4096), 4u);
  EXPECT_EQ(splits("F16", 512, 4096), 8u);
  EXPECT_EQ(splits("F16", 512, 2048), 4u);
  // Attention's output and the feed-forward's of Llama 3.2 1B.
  EXPECT_EQ(splits("Q4_K", 2048, 2048), 1u) << "two shares of 18 KiB do not pay a dispatch";
  EXPECT_EQ(splits("Q4_K", 2048, 8192), 2u) << "128 workgroups are enough";
  // Enough workgroups without.
  EXPECT_EQ(splits("Q4_K", 4096, 4096), 1u);
  EXPECT_EQ(splits("F16", 4096, 14336), 1u);
  EXPECT_EQ(splits("Q6_K", 128256, 2048), 1u);
  EXPECT_EQ(splits("F32", 1, 1 << 20), Gemv::kMaxSplits);
  EXPECT_EQ(splits("Q4_0", 1, 32), 1u);
}

TEST(GemvSplits, AreFewerWhereMemoryIsSharedWithTheHost) {
  EXPECT_EQ(splits_on("amd_780m_radv", "F16", 512, 4096), 2u);
  EXPECT_EQ(splits_on("amd_780m_radv", "F16", 1024, 4096), 1u);
}

TEST(GemvSplits, AreOneWhereTheSubgroupKernelIsNotUsed) {
  for (const std::string& name : test::snapshot_names()) {
    const vk::DeviceSnapshot snapshot = test::snapshot(name);
    if (!vk::missing_requirements(snapshot).empty()) continue;
    const vk::DevicePlan plan = *vk::plan_device(snapshot);
    const GemvKernel kernel = gemv_kernels(plan, weight_type("F32"), tuned_x_route(plan)).front();
    const bool may = kernel == GemvKernel::kSubgroup && plan.device_class == vk::DeviceClass::kGpu;
    EXPECT_EQ(splits_on(name, "F32", 32, 1 << 20) > 1, may) << name;
    for (const GemvKernel other : {GemvKernel::kPortable, GemvKernel::kBroadcast}) {
      EXPECT_EQ(gemv_splits(plan, other, weight_type("F32")).of(weight_type("F32"), 32, 1 << 20),
                1u)
          << name;
    }
  }
}

TEST(GemvSplits, NeedNoMoreScratchThanIsSaid) {
  for (const std::string& name : test::snapshot_names()) {
    if (!vk::missing_requirements(test::snapshot(name)).empty()) continue;
    for (uint32_t n_rows = 1; n_rows < 8192; n_rows += 31) {
      const uint64_t splits = splits_on(name, "F32", n_rows, 1 << 20);
      if (splits > 1) {
        EXPECT_LE(splits * n_rows * 8 * 4, Gemv::max_scratch_bytes(8)) << name;
      }
    }
  }
}

}  // namespace
}  // namespace pumice::ops
