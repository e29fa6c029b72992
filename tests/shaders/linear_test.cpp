// Which kernels `linear` picks, by the labels that profiles and --json print.
#include "shaders/linear/linear.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "shaders/common/linear_cases.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::ops {
namespace {

class LinearChoice : public ::testing::Test {
 protected:
  /// Labels dispatched for `rows` rows of a matrix that `part_bytes` splits.
  std::vector<std::string> labels(const std::shared_ptr<vk::Device>& device, XRoute path,
                                  uint32_t rows, uint64_t part_bytes = 1 << 20) {
    vk::PipelineLibrary pipelines(device, "", spirv_hash());
    OpBed bed(device, pipelines);
    const RandomWeights weights(weight_type("Q4_K"), 96, 256, 1);
    const WeightSource sources[] = {weights.source()};
    const auto uploaded = *upload_weights(bed, sources, part_bytes);
    const auto x = *bed.input(std::vector<float>(rows * 256));
    const auto y = *bed.output(rows * 96 * 4);
    const WeightType* types[] = {weights.type};
    const Result<Linear> linear = Linear::plan(pipelines, types, Math::kF32, path);
    EXPECT_TRUE(linear.ok());
    EXPECT_TRUE(pipelines.compile().ok());
    vk::Recorder recorder(device);
    linear->record(recorder, {.weights = uploaded->matrix,
                              .x = x,
                              .x_stride = 256,
                              .y = y,
                              .y_stride = 96,
                              .rows = rows});
    const auto work = recorder.finish();
    EXPECT_TRUE(work.ok());
    EXPECT_EQ(work->barrier_count(), 0u) << "parts write different columns";
    std::vector<std::string> result;
    for (const vk::CommandInfo& command : work->commands()) result.emplace_back(command.label);
    return result;
  }
};

TEST_F(LinearChoice, UsesGemvUpToEightRowsAndGemmBeyond) {
  PUMICE_REQUIRE_DEVICE(device);
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels(device, XRoute::kPortable, 1), Labels{"gemv.q4_k.uniform"});
  EXPECT_EQ(labels(device, XRoute::kPortable, 8), Labels{"gemv.q4_k.uniform"});
  EXPECT_EQ(labels(device, XRoute::kPortable, 9), Labels{"gemm.q4_k.shared"});
  if (!broadcast_supported(device->plan())) return;
  EXPECT_EQ(labels(device, XRoute::kBroadcast, 8), Labels{"gemv.q4_k.broadcast"});
  const bool uniform = device->plan().features.cooperative_matrix;
  EXPECT_EQ(labels(device, XRoute::kBroadcast, 9),
            Labels{uniform ? "gemm.q4_k.uniform" : "gemm.q4_k.broadcast"});
}

TEST_F(LinearChoice, DispatchesOnceForEachPartWithoutBarriers) {
  PUMICE_REQUIRE_DEVICE(device);
  EXPECT_EQ(labels(device, XRoute::kPortable, 1, 5000).size(), 3u);
}

TEST(LinearPlan, RefusesAnArithmeticThatTheDeviceHasNoKernelFor) {
  PUMICE_REQUIRE_DEVICE(device);
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  const WeightType* types[] = {&weight_type("Q8_0")};
  for (const Math math : {Math::kF16, Math::kI8}) {
    const auto variants = gemm_variants(device->plan(), math, XRoute::kPortable);
    const Result<Gemm> gemm = Gemm::plan(pipelines, *types[0], variants);
    const Result<Linear> linear = Linear::plan(pipelines, types, math);
    EXPECT_EQ(linear.ok(), gemm.ok());
    if (linear.ok()) continue;
    EXPECT_EQ(linear.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(linear.error().message.rfind("--math " + std::string(math_name(math)), 0), 0u)
        << linear.error().message;
  }
}

TEST(LinearPlan, ComesToFivePipelinesForATypeHoweverOftenItIsNamedAndOneThatAddsSums) {
  PUMICE_REQUIRE_DEVICE(device);
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  const WeightType* types[] = {&weight_type("Q8_0"), &weight_type("Q8_0")};
  ASSERT_TRUE(Linear::plan(pipelines, types, Math::kF32).ok());
  ASSERT_TRUE(pipelines.compile().ok());
  const vk::DevicePlan& plan = device->plan();
  const bool may_split =
      gemv_kernels(plan, weight_type("F32"), tuned_x_route(plan)).front() == GemvKernel::kSubgroup;
  EXPECT_EQ(pipelines.compiled_count(), may_split ? 6u : 5u);
}

TEST(LinearPlan, F16SaturatesWhereInputsExceedItsRange) {
  PUMICE_REQUIRE_DEVICE(device);
  constexpr uint32_t kRows = 9, kOutputs = 5, kInputs = 32;
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  const WeightType* types[] = {&weight_type("F32")};
  const Result<Linear> linear = Linear::plan(pipelines, types, Math::kF16);
  if (!linear.ok()) GTEST_SKIP() << linear.error().message;
  // As infinities these would be NaN: their sum with opposite signs, and times zero.
  std::vector<float> w(kOutputs * kInputs), x(kRows * kInputs);
  for (size_t i = 0; i < w.size(); ++i) w[i] = i % 3 == 0 ? 0.0f : i % 2 == 0 ? 1e30f : -1e9f;
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 5 == 0 ? 0.0f : i % 2 == 0 ? -7e4f : 3e38f;
  OpBed bed(device, pipelines);
  const WeightSource source{types[0], std::as_bytes(std::span(w)), kOutputs, kInputs};
  const auto uploaded = *upload_weights(bed, std::span(&source, 1), 1 << 20);
  const auto x_range = *bed.input(x);
  const auto y_range = *bed.output(kRows * kOutputs * 4);
  const auto scratch = *bed.output(linear->scratch_bytes(kRows, {&uploaded->matrix, 1}));
  ASSERT_TRUE(pipelines.compile().ok());
  vk::Recorder recorder(device);
  linear->record(recorder, {.weights = uploaded->matrix,
                            .x = x_range,
                            .x_stride = kInputs,
                            .y = y_range,
                            .y_stride = kOutputs,
                            .rows = kRows,
                            .scratch = scratch});
  ASSERT_TRUE(vk::run(*device, *recorder.finish()).ok());
  const std::vector<std::byte> bytes = *vk::download(device, y_range);
  for (size_t i = 0; i < bytes.size(); i += 4) {
    float value = 0;
    std::memcpy(&value, &bytes[i], 4);
    EXPECT_TRUE(std::isfinite(value)) << "element " << i / 4;
  }
}

TEST(XRouteChoice, TakesBroadcastOnlyOnCpuDriversThatCanShuffle) {
  vk::DevicePlan plan;
  plan.device_class = vk::DeviceClass::kCpu;
  plan.subgroup_size = 8;
  plan.require_subgroup_size = true;
  plan.subgroup.shuffle = true;
  plan.features.shader_int64 = true;
  EXPECT_EQ(tuned_x_route(plan), XRoute::kBroadcast);
  vk::DevicePlan gpu = plan;
  gpu.device_class = vk::DeviceClass::kGpu;
  EXPECT_EQ(tuned_x_route(gpu), XRoute::kPortable);
  vk::DevicePlan narrow = plan;
  narrow.features.shader_int64 = false;
  EXPECT_EQ(tuned_x_route(narrow), XRoute::kPortable);
  vk::DevicePlan wide = plan;
  wide.subgroup_size = 64;
  EXPECT_EQ(tuned_x_route(wide), XRoute::kPortable);
}

std::vector<std::string_view> kernel_names(const vk::DevicePlan& plan, XRoute path) {
  std::vector<std::string_view> names;
  for (const GemvKernel kernel : gemv_kernels(plan, weight_type("Q4_K"), path))
    names.push_back(gemv_kernel_name(kernel));
  return names;
}

TEST(GemvChoice, TakesSubgroupsOnGpusWhereANarrowSizeIsSure) {
  using Names = std::vector<std::string_view>;
  vk::DevicePlan gpu;
  gpu.device_class = vk::DeviceClass::kGpu;
  gpu.subgroup_size = 32;
  gpu.require_subgroup_size = true;
  gpu.features.full_subgroups = true;
  gpu.subgroup.min_size = 32;
  gpu.subgroup.max_size = 64;
  gpu.subgroup.basic = gpu.subgroup.shuffle = gpu.subgroup.ballot = true;
  EXPECT_EQ(kernel_names(gpu, XRoute::kPortable), (Names{"subgroup", "uniform"}));

  vk::DevicePlan chosen_by_driver = gpu;
  chosen_by_driver.require_subgroup_size = false;
  EXPECT_EQ(kernel_names(chosen_by_driver, XRoute::kPortable), Names{"uniform"});
  vk::DevicePlan only_size = chosen_by_driver;
  only_size.subgroup.max_size = 32;
  EXPECT_EQ(kernel_names(only_size, XRoute::kPortable), (Names{"subgroup", "uniform"}));
  vk::DevicePlan partly_filled = gpu;
  partly_filled.features.full_subgroups = false;
  EXPECT_EQ(kernel_names(partly_filled, XRoute::kPortable), Names{"uniform"});
  vk::DevicePlan withdrawn = gpu;
  withdrawn.subgroup.shuffle = false;
  EXPECT_EQ(kernel_names(withdrawn, XRoute::kPortable), Names{"uniform"});
  vk::DevicePlan wide = gpu;
  wide.subgroup.min_size = 64;
  EXPECT_EQ(kernel_names(wide, XRoute::kPortable), Names{"uniform"});
  vk::DevicePlan four_lanes = gpu;
  four_lanes.subgroup.min_size = four_lanes.subgroup.max_size = 4;
  EXPECT_EQ(kernel_names(four_lanes, XRoute::kPortable), Names{"uniform"});

  vk::DevicePlan cpu = gpu;
  cpu.device_class = vk::DeviceClass::kCpu;
  cpu.subgroup_size = 8;
  cpu.subgroup.min_size = cpu.subgroup.max_size = 8;
  cpu.features.shader_int64 = true;
  EXPECT_EQ(kernel_names(cpu, XRoute::kBroadcast), (Names{"broadcast", "uniform"}));
  EXPECT_EQ(kernel_names(cpu, XRoute::kPortable), (Names{"uniform", "broadcast"}));
}

}  // namespace
}  // namespace pumice::ops
