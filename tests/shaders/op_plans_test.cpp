// Every op chooses among its variants what the device as planned can run; declaring a pipeline
// checks its SPIR-V against what is enabled.
#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "shaders/common/linear_cases.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/linear/linear.hpp"
#include "shaders/rope_kv/rope_kv.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"
#include "tests/shaders/plan_ops.hpp"
#include "tests/vk/snapshots.hpp"

namespace pumice {
namespace {

Status plan_attention_ops(vk::PipelineLibrary& pipelines, KvTypes kv_type, uint32_t head_dim) {
  for (const bool norms : {false, true}) {
    PUMICE_TRY_STATUS(ops::RopeKv::plan(pipelines, {.n_heads = 8,
                                                    .n_kv_heads = 2,
                                                    .head_dim = head_dim,
                                                    .rope_dims = head_dim,
                                                    .kv_type = kv_type,
                                                    .head_norms = norms}));
  }
  const ops::FlashAttention::Shape heads{
      .n_heads = 8, .n_kv_heads = 2, .head_dim = head_dim, .kv_type = kv_type};
  for (const ops::Math math : {ops::Math::kAuto, ops::Math::kF32, ops::Math::kF16}) {
    PUMICE_TRY_STATUS(ops::FlashAttention::plan(pipelines, heads, math));
  }
  return {};
}

/// All ops as a decoder plans them. The device compiles nothing.
Status plan_every_op(vk::PipelineLibrary& pipelines) {
  const std::vector<const WeightType*> types = ops::linear_types();
  for (const ops::Math math : {ops::Math::kAuto, ops::Math::kF32}) {
    PUMICE_TRY_STATUS(ops::Linear::plan(pipelines, types, math));
  }
  PUMICE_TRY_STATUS(test::plan_small_ops(pipelines, types));
  for (const uint32_t head_dim : {8u, 64u, 128u, 256u}) {
    PUMICE_TRY_STATUS(plan_attention_ops(pipelines, KvType::kF16, head_dim));
    PUMICE_TRY_STATUS(plan_attention_ops(pipelines, KvType::kF32, head_dim));
    if (head_dim % 32 != 0) continue;
    PUMICE_TRY_STATUS(plan_attention_ops(pipelines, {KvType::kQ8_0, KvType::kQ4_0}, head_dim));
  }
  return {};
}

TEST(OpPlans, HeadsThatAQuantisedTypeCannotHoldAreRefusedByEveryOp) {
  PUMICE_REQUIRE_DEVICE(device);
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  const ops::FlashAttention::Shape shape{
      .n_heads = 2, .n_kv_heads = 1, .head_dim = 80, .kv_type = {KvType::kF16, KvType::kQ8_0}};
  const ops::RopeKv::Shape rope{
      .n_heads = 2, .n_kv_heads = 1, .head_dim = 80, .kv_type = {KvType::kQ4_0, KvType::kF16}};
  EXPECT_FALSE(ops::FlashAttention::plan(pipelines, shape, ops::Math::kF32).ok());
  EXPECT_FALSE(ops::RopeKv::plan(pipelines, rope).ok());
}

/// A new op is planned here, and by the compile gate, once plan_ops.hpp plans it.
TEST(OpPlans, AreOfEveryModuleThatAModelRuns) {
  PUMICE_REQUIRE_DEVICE(device);
  const auto op_of = [](std::string_view module) { return module.substr(0, module.find('.')); };
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  ASSERT_TRUE(plan_every_op(pipelines).ok());
  std::set<std::string_view> planned = {
      "peak",                                // measures the device
      "rope", "quantize_x", "gemv_reduce"};  // where a program or the device asks for them
  for (const vk::Pipeline* pipeline : pipelines.declared()) {
    planned.insert(op_of(pipeline->module_name()));
  }
  for (const vk::ShaderModule& module : spirv_modules()) {
    EXPECT_TRUE(planned.contains(op_of(module.name))) << module.name;
  }
}

void expect_every_op_plans(const std::string& what, const test::GpuEnvironment::MakePlan& plan) {
  const auto device = test::GpuEnvironment::open(plan);
  ASSERT_TRUE(device.ok()) << what << ": " << device.error().message;
  vk::PipelineLibrary pipelines(*device, "", spirv_hash());
  const Status planned = plan_every_op(pipelines);
  EXPECT_TRUE(planned.ok()) << what << ": " << planned.error().message;
}

TEST(OpPlans, HoldWithEveryOptionalFeatureWithdrawnSinglyAndAllTogether) {
  PUMICE_REQUIRE_DEVICE(device);
  std::vector<vk::PlanOptions> limits{{}, vk::floor_options()};
  for (const std::string& feature : vk::withdrawable_features())
    limits.push_back({.disable = {feature}});
  for (const vk::PlanOptions& limit : limits) {
    expect_every_op_plans(vk::format_plan_options(limit), [&](const vk::DeviceSnapshot& snapshot) {
      return vk::plan_device(snapshot, limit);
    });
  }
}

/// The plan of a recorded device, less what the device of this machine does not have.
Result<vk::DevicePlan> plan_as(const vk::DeviceSnapshot& recorded, const vk::DeviceSnapshot& here) {
  PUMICE_TRY(const vk::DevicePlan real, vk::plan_device(here));
  PUMICE_TRY(vk::DevicePlan plan, vk::plan_device(recorded));
  for (const vk::FeatureName& feature : vk::feature_names()) {
    bool& enabled = plan.features.*feature.member;
    enabled = enabled && real.features.*feature.member;
  }
  plan.extensions = real.extensions;
  plan.queue_family = real.queue_family;
  plan.memory = real.memory;
  return plan;
}

TEST(OpPlans, HoldForEveryRecordedDevice) {
  PUMICE_REQUIRE_DEVICE(device);
  for (const std::string& name : test::snapshot_names()) {
    const vk::DeviceSnapshot recorded = test::snapshot(name);
    if (!vk::missing_requirements(recorded).empty()) continue;
    expect_every_op_plans(
        name, [&](const vk::DeviceSnapshot& snapshot) { return plan_as(recorded, snapshot); });
  }
}

}  // namespace
}  // namespace pumice
