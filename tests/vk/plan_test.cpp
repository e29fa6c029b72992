// Policy on recorded devices (snapshots/*.json, each citing its report).
#include "vk/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/vk/snapshots.hpp"
#include "vk/queue_priority.hpp"

namespace pumice {
namespace {

using test::snapshot;

constexpr uint64_t kGiB = uint64_t{1} << 30;

vk::DevicePlan planned(const vk::DeviceSnapshot& device, const vk::PlanOptions& options = {}) {
  auto plan = vk::plan_device(device, options);
  PUMICE_CHECK(plan.ok(), plan.error().message);
  return *plan;
}

Error refused(const vk::DeviceSnapshot& device, const vk::PlanOptions& options = {}) {
  const auto plan = vk::plan_device(device, options);
  EXPECT_FALSE(plan.ok()) << device.name;
  return plan.ok() ? Error{} : plan.error();
}

bool mentions(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

const vk::OptionalCapability& capability(const vk::DevicePlan& plan, std::string_view name) {
  const auto found = std::find_if(plan.optional.begin(), plan.optional.end(),
                                  [&](const auto& c) { return c.name == name; });
  PUMICE_CHECK(found != plan.optional.end(), std::string(name));
  return *found;
}

bool has_quirk(const vk::DevicePlan& plan, std::string_view name) {
  return std::any_of(plan.quirks.notes.begin(), plan.quirks.notes.end(),
                     [&](const vk::QuirkNote& note) { return note.name == name; });
}

std::vector<std::string> usable_devices() {
  std::vector<std::string> names;
  for (const std::string& name : test::snapshot_names()) {
    if (vk::missing_requirements(snapshot(name)).empty()) names.push_back(name);
  }
  return names;
}

TEST(Plan, AQueueYieldsToOthersWhereTheDeviceCanSaySo) {
  const vk::DeviceSnapshot radeon = snapshot("amd_780m_radv");
  vk::DevicePlan plan = planned(radeon);
  EXPECT_FALSE(vk::has_low_priority(plan)) << "nobody asked";
  EXPECT_TRUE(vk::ask_for_low_priority(radeon, plan));
  EXPECT_TRUE(vk::has_low_priority(plan));
  EXPECT_EQ(plan.extensions.back(), "VK_KHR_global_priority");

  vk::DeviceSnapshot without = radeon;
  std::erase_if(without.extensions, [](const std::string& name) {
    return name.find("global_priority") != std::string::npos;
  });
  plan = planned(without);
  const std::vector<std::string> before = plan.extensions;
  EXPECT_FALSE(vk::ask_for_low_priority(without, plan));
  EXPECT_EQ(plan.extensions, before);
}

TEST(Plan, TheDevicesOfEveryVendorAreUsable) {
  for (const char* name : {"nvidia_rtx_4090", "amd_rx_6700_xt_radv", "amd_rx_6800_xt_windows",
                           "amd_780m_radv", "intel_arc_a770_windows", "intel_arc_a770_mesa",
                           "qualcomm_adreno_750", "arm_mali_g715", "apple_m3_max_moltenvk",
                           "raspberry_pi_5_v3d", "swiftshader", "lavapipe_22", "lavapipe_26"}) {
    EXPECT_EQ(vk::missing_requirements(snapshot(name)), std::vector<std::string>{}) << name;
  }
}

TEST(Plan, NothingIsEnabledThatADeviceDoesNotHave) {
  for (const std::string& name : usable_devices()) {
    const vk::DeviceSnapshot device = snapshot(name);
    const vk::DevicePlan plan = planned(device);
    for (const vk::FeatureName& feature : vk::feature_names()) {
      EXPECT_LE(plan.features.*feature.member, device.features.*feature.member)
          << name << " " << feature.name;
    }
    for (const std::string& extension : plan.extensions) {
      EXPECT_TRUE(device.has_extension(extension)) << name << " " << extension;
    }
    EXPECT_LE(plan.slab_bytes, device.limits.max_allocation_bytes) << name;
    EXPECT_LE(plan.slab_bytes, device.limits.max_buffer_bytes) << name;
    EXPECT_LE(plan.max_shared_bytes, device.limits.max_shared_bytes) << name;
    EXPECT_LE(plan.max_workgroup_invocations, device.limits.max_workgroup_invocations) << name;
  }
}

TEST(Plan, MemoryOfEachDomainIsWhatTheDomainPromises) {
  for (const std::string& name : usable_devices()) {
    const vk::DeviceSnapshot device = snapshot(name);
    const vk::DevicePlan plan = planned(device);
    for (const vk::MemoryChoice& choice : plan.memory) {
      ASSERT_LT(choice.type, device.memory_types.size()) << name;
      const uint32_t bits = device.memory_types[choice.type].property_bits;
      EXPECT_EQ(choice.heap, device.memory_types[choice.type].heap) << name;
      EXPECT_EQ(bits & ~0xFu, 0u) << name << ": a protected, lazy or uncached type";
    }
    EXPECT_TRUE(plan.domain(vk::MemoryDomain::kDevice).device_local) << name;
    EXPECT_TRUE(plan.domain(vk::MemoryDomain::kUpload).host_visible) << name;
    EXPECT_TRUE(plan.domain(vk::MemoryDomain::kUpload).coherent) << name;
    EXPECT_TRUE(plan.domain(vk::MemoryDomain::kReadback).host_visible) << name;
    EXPECT_GT(plan.device_budget_bytes, 0u) << name;
    EXPECT_LE(plan.device_budget_bytes,
              device.heaps[plan.domain(vk::MemoryDomain::kDevice).heap].size_bytes)
        << name;
  }
}

uint32_t types_of(const vk::DevicePlan& plan) {
  uint32_t bits = 0;
  for (const vk::MemoryChoice& choice : plan.memory) bits |= 1u << choice.type;
  return bits;
}

TEST(Plan, WeightsMayLeaveADeviceForMemoryOfAnotherHeapOnly) {
  for (const std::string& name : usable_devices()) {
    const vk::DeviceSnapshot device = snapshot(name);
    const vk::DevicePlan plan = planned(device);
    const std::optional<vk::MemoryDomain> beside = plan.beside_device();
    if (device.heaps.size() == 1) {
      EXPECT_FALSE(beside.has_value()) << name;
    }
    if (device.type == vk::DeviceType::kDiscrete) {
      EXPECT_TRUE(beside.has_value()) << name;
    }
    if (!beside) continue;
    EXPECT_NE(plan.domain(*beside).heap, plan.domain(vk::MemoryDomain::kDevice).heap) << name;
    EXPECT_TRUE(plan.domain(*beside).host_visible) << name;
  }
}

TEST(Plan, WhereBuffersMayNotHaveTheBestMemoryTypeTheyGetTheNext) {
  for (const std::string& name : usable_devices()) {
    const vk::DeviceSnapshot device = snapshot(name);
    const vk::DevicePlan first = planned(device);
    vk::DevicePlan same = first;
    ASSERT_TRUE(vk::plan_memory(device, types_of(first), same).ok()) << name;
    EXPECT_EQ(types_of(same), types_of(first)) << name;
    EXPECT_EQ(same.device_budget_bytes, first.device_budget_bytes) << name;

    vk::DevicePlan other = first;
    const Status status = vk::plan_memory(device, ~types_of(first), other);
    if (!status.ok()) {  // nothing else serves: an error, and nothing has changed
      EXPECT_EQ(status.error().code, ErrorCode::kNoDevice) << name;
      EXPECT_EQ(types_of(other), types_of(first)) << name;
      continue;
    }
    EXPECT_EQ(types_of(other) & types_of(first), 0u) << name;
    EXPECT_TRUE(other.domain(vk::MemoryDomain::kDevice).device_local) << name;
    EXPECT_TRUE(other.domain(vk::MemoryDomain::kUpload).coherent) << name;
    EXPECT_TRUE(other.domain(vk::MemoryDomain::kReadback).coherent) << name;
  }
}

TEST(Plan, AMemoryTypeThatIsNotAllowedTakesItsBudgetAlong) {
  const vk::DeviceSnapshot amd = snapshot("amd_rx_6800_xt_windows");  // all types are listed twice
  vk::DevicePlan plan = planned(amd);
  ASSERT_EQ(plan.domain(vk::MemoryDomain::kDevice).type, 0u);
  ASSERT_TRUE(vk::plan_memory(amd, 0xFF00, plan).ok());
  EXPECT_EQ(plan.domain(vk::MemoryDomain::kDevice).type, 8u);
  EXPECT_EQ(plan.domain(vk::MemoryDomain::kUpload).type, 9u);
  EXPECT_EQ(plan.domain(vk::MemoryDomain::kReadback).type, 11u);
  ASSERT_TRUE(vk::plan_memory(amd, 0x0E, plan).ok())
      << "only the window of 256 MiB is on the device";
  EXPECT_EQ(plan.domain(vk::MemoryDomain::kDevice).type, 2u);
  EXPECT_LT(plan.device_budget_bytes, uint64_t{256} << 20);

  const Status refused = vk::plan_memory(amd, 0x01, plan);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(mentions(refused.error().message, "memory types 0x1 only"))
      << refused.error().message;
  EXPECT_TRUE(mentions(refused.error().message, "host-visible")) << refused.error().message;
}

TEST(Plan, SlabsAreNeverAboveOneGiBSoThatOffsetsFit32Bits) {
  for (const std::string& name : usable_devices()) {
    EXPECT_LE(planned(snapshot(name)).slab_bytes, kGiB) << name;
  }
  vk::DeviceSnapshot small = snapshot("nvidia_rtx_4090");
  small.limits.max_allocation_bytes = kGiB / 2 + 12345;
  EXPECT_EQ(planned(small).slab_bytes, kGiB / 2) << "rounded down to whole 64 KiB";
  small.limits.max_buffer_bytes = kGiB / 4;
  EXPECT_EQ(planned(small).slab_bytes, kGiB / 4);
}

TEST(Plan, SwiftShaderGetsSlabsOfAtMostOneGiBWhateverItAdvertises) {
  vk::DeviceSnapshot device = snapshot("swiftshader");
  device.limits.max_allocation_bytes = device.limits.max_buffer_bytes = 8 * kGiB;
  const vk::DevicePlan plan = planned(device);
  EXPECT_EQ(plan.quirks.max_allocation_bytes, kGiB);
  EXPECT_EQ(plan.slab_bytes, kGiB);
  EXPECT_TRUE(has_quirk(plan, "max_allocation_bytes"));
}

TEST(Plan, CpuDriversHaveAnEmptyPipelineCacheAndGpusDoNot) {
  for (const char* name : {"swiftshader", "lavapipe_22", "lavapipe_26"}) {
    const vk::DevicePlan plan = planned(snapshot(name));
    EXPECT_TRUE(plan.quirks.pipeline_cache_is_empty) << name;
    EXPECT_TRUE(plan.quirks.compiles_at_first_dispatch) << name;
    EXPECT_EQ(plan.device_class, vk::DeviceClass::kCpu) << name;
    EXPECT_TRUE(plan.unified_memory) << name;
  }
  const vk::DevicePlan gpu = planned(snapshot("nvidia_rtx_4090"));
  EXPECT_EQ(gpu.device_class, vk::DeviceClass::kGpu);
  EXPECT_TRUE(gpu.quirks.notes.empty());
}

TEST(Plan, TheWeakestDeviceStillRunsWithEveryTypeFeatureMissing) {
  const vk::DevicePlan plan = planned(snapshot("swiftshader"));
  EXPECT_FALSE(plan.features.shader_float16);
  EXPECT_FALSE(plan.features.shader_int8);
  EXPECT_FALSE(plan.features.shader_int16);
  EXPECT_FALSE(plan.features.shader_int64);
  EXPECT_FALSE(plan.features.storage_8bit);
  EXPECT_FALSE(plan.features.storage_16bit);
  EXPECT_EQ(plan.subgroup_size, 4u);
  EXPECT_EQ(capability(plan, "shaderFloat16").reason, "the device lacks it");
}

TEST(Plan, ADeviceWithoutTimelineSemaphoresIsRefusedByName) {
  vk::DeviceSnapshot device = snapshot("nvidia_rtx_4090");
  device.features.timeline_semaphore = false;
  const Error error = refused(device);
  EXPECT_EQ(error.code, ErrorCode::kNoDevice);
  EXPECT_TRUE(mentions(error.message, "RTX 4090 cannot be used: it lacks timelineSemaphore"));
}

TEST(Plan, ARefusalListsEverythingThatIsMissing) {
  const std::string message = refused(snapshot("apple_m4_moltenvk_1_2")).message;
  EXPECT_TRUE(mentions(message, "Vulkan 1.3 (it has 1.2.296)")) << message;

  vk::DeviceSnapshot nothing;
  nothing.name = "nothing";
  nothing.api_version = VK_MAKE_API_VERSION(0, 1, 1, 70);
  nothing.limits.max_push_constant_bytes = 64;
  nothing.limits.max_shared_bytes = 8192;
  nothing.limits.max_workgroup_invocations = 64;
  nothing.limits.max_workgroup_size = {64, 64, 64};
  const std::string all = refused(nothing).message;
  for (const char* part :
       {"Vulkan 1.3 (it has 1.1.70)", "bufferDeviceAddress", "timelineSemaphore", "hostQueryReset",
        "synchronization2", "subgroupSizeControl", "maintenance4",
        "maxPushConstantsSize 128 (it has 64)", "maxComputeSharedMemorySize 16384 (it has 8192)",
        "maxComputeWorkGroupInvocations 128 (it has 64)", "maxComputeWorkGroupSize[0] 128",
        "a compute queue", "device-local memory", "host-visible coherent memory"}) {
    EXPECT_TRUE(mentions(all, part)) << part << " in " << all;
  }
  EXPECT_FALSE(mentions(all, "\n"));
}

TEST(Plan, KernelsRunAt32LanesWhereADeviceCanAndAtTheNearestSizeWhereNot) {
  // clang-format off
  const std::pair<const char*, uint32_t> expected[] = {
      {"nvidia_rtx_4090", 32},
      {"amd_rx_6700_xt_radv", 32},
      {"amd_rx_6800_xt_windows", 32},
      {"amd_780m_radv", 32},
      {"intel_arc_a770_mesa", 32},
      {"intel_arc_a770_windows", 32},
      {"qualcomm_adreno_750", 64},
      {"arm_mali_g715", 16},
      {"lavapipe_22", 8},
      {"swiftshader", 4},
  };
  // clang-format on
  for (const auto& [name, size] : expected) {
    const vk::DevicePlan plan = planned(snapshot(name));
    EXPECT_EQ(plan.subgroup_size, size) << name;
    EXPECT_TRUE(plan.require_subgroup_size) << name;
    EXPECT_TRUE(plan.subgroup.arithmetic) << name;
  }
}

TEST(Plan, WhereTheDriverChoosesTheSubgroupSizeKernelsUseNoSubgroupOperations) {
  const vk::DeviceSnapshot device = snapshot("apple_m3_max_moltenvk");
  ASSERT_FALSE(device.subgroup.compute_size_control);
  ASSERT_LT(device.subgroup.min_size, device.subgroup.max_size);
  const vk::DevicePlan plan = planned(device);
  EXPECT_EQ(plan.subgroup_size, 0u);
  EXPECT_FALSE(plan.require_subgroup_size);
  EXPECT_FALSE(plan.subgroup.arithmetic);
  EXPECT_FALSE(plan.subgroup.shuffle);
  EXPECT_EQ(capability(plan, "subgroupArithmetic").reason, "the driver chooses the subgroup size");
}

TEST(Plan, ASingleSubgroupSizeNeedsNoControlToBeKnown) {
  vk::DeviceSnapshot device = snapshot("nvidia_rtx_4090");
  device.subgroup.compute_size_control = false;
  const vk::DevicePlan plan = planned(device);
  EXPECT_EQ(plan.subgroup_size, 32u);
  EXPECT_FALSE(plan.require_subgroup_size);
  EXPECT_TRUE(plan.subgroup.arithmetic);
}

TEST(Plan, ASingleSubgroupSizeIsAlsoTheSizeOfMatrixKernels) {
  vk::DeviceSnapshot device =
      snapshot("nvidia_rtx_4090");  // Mesa's driver lets no stage require a size
  ASSERT_EQ(device.subgroup.min_size, device.subgroup.max_size);
  device.subgroup.compute_size_control = false;
  EXPECT_EQ(planned(device).matrix_subgroup_size, device.subgroup.max_size);
  device.subgroup.min_size = 8;  // now the driver may choose another for each pipeline
  EXPECT_EQ(planned(device).matrix_subgroup_size, 0u);
}

TEST(Plan, WorkgroupsHoldNoMoreSubgroupsThanTheDeviceAllows) {
  const vk::DeviceSnapshot device = snapshot("intel_arc_a770_mesa");
  const vk::DevicePlan narrow = planned(device, {.subgroup_size = 8});
  EXPECT_EQ(narrow.subgroup_size, 8u);
  EXPECT_LE(narrow.max_workgroup_invocations, device.subgroup.max_workgroup_subgroups * 8);
}

TEST(Plan, ASubgroupSizeTheDeviceCannotGiveIsRefused) {
  for (const uint32_t size : {1u, 12u, 64u}) {
    const Error error = refused(snapshot("intel_arc_a770_mesa"), {.subgroup_size = size});
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(mentions(error.message, "8 to 32")) << error.message;
  }
  refused(snapshot("apple_m3_max_moltenvk"), {.subgroup_size = 32});
}

TEST(Plan, AComputeFamilyWithoutGraphicsIsPreferred) {
  EXPECT_EQ(planned(snapshot("nvidia_rtx_4090")).queue_family, 2u);
  EXPECT_EQ(planned(snapshot("amd_780m_radv")).queue_family, 1u);
  EXPECT_EQ(planned(snapshot("intel_arc_a770_windows")).queue_family, 1u);
  EXPECT_EQ(planned(snapshot("intel_arc_a770_mesa")).queue_family, 0u);
  EXPECT_EQ(planned(snapshot("apple_m3_max_moltenvk")).queue_family, 0u);
}

TEST(Plan, AComputeFamilyWithoutTimestampsIsNotPreferred) {
  vk::DeviceSnapshot device = snapshot("nvidia_rtx_4090");
  device.queue_families[2].timestamp_valid_bits = 0;
  const vk::DevicePlan plan = planned(device);
  EXPECT_EQ(plan.queue_family, 0u);
  EXPECT_EQ(plan.timestamp_valid_bits, 64u);
}

TEST(Plan, ADeviceWithoutTimestampsIsUsable) {
  vk::DeviceSnapshot device = snapshot("qualcomm_adreno_750");
  for (vk::QueueFamily& family : device.queue_families) family.timestamp_valid_bits = 0;
  const vk::DevicePlan plan = planned(device);
  EXPECT_EQ(plan.timestamp_valid_bits, 0u);
  EXPECT_EQ(capability(plan, "timestamps").reason, "the device lacks it");
}

TEST(Plan, UploadsGoThroughHostMemoryWhereTheHostSeesOnlyAWindow) {
  for (const char* name : {"amd_rx_6800_xt_windows", "intel_arc_a770_windows"}) {
    const vk::DevicePlan plan = planned(snapshot(name));
    EXPECT_FALSE(plan.domain(vk::MemoryDomain::kUpload).device_local) << name;
    EXPECT_FALSE(plan.domain(vk::MemoryDomain::kUpload).cached) << name;
    EXPECT_FALSE(plan.unified_memory) << name;
  }
}

TEST(Plan, UploadsGoStraightToDeviceMemoryWhereTheHostSeesAllOfIt) {
  for (const char* name : {"nvidia_rtx_4090", "amd_rx_6700_xt_radv", "intel_arc_a770_mesa",
                           "amd_780m_radv", "arm_mali_g715", "apple_m3_max_moltenvk"}) {
    const vk::DevicePlan plan = planned(snapshot(name));
    EXPECT_TRUE(plan.domain(vk::MemoryDomain::kUpload).device_local) << name;
    EXPECT_EQ(plan.domain(vk::MemoryDomain::kUpload).heap,
              plan.domain(vk::MemoryDomain::kDevice).heap)
        << name;
  }
}

TEST(Plan, OnlyIntegratedDevicesAndCpusShareTheHostsMemory) {
  for (const char* name : {"amd_780m_radv", "arm_mali_g715", "qualcomm_adreno_750",
                           "apple_m3_max_moltenvk", "swiftshader", "lavapipe_22"}) {
    EXPECT_TRUE(planned(snapshot(name)).unified_memory) << name;
  }
  for (const char* name : {"nvidia_rtx_4090", "amd_rx_6700_xt_radv", "intel_arc_a770_mesa"}) {
    EXPECT_FALSE(planned(snapshot(name)).unified_memory) << name;
  }
}

TEST(Plan, ReadbackIsCoherentAndCachedWhereItCanBeBoth) {
  const vk::DevicePlan mali = planned(snapshot("arm_mali_g715"));
  EXPECT_FALSE(mali.domain(vk::MemoryDomain::kReadback).cached);
  EXPECT_TRUE(mali.domain(vk::MemoryDomain::kReadback).coherent);
  const vk::DevicePlan nvidia = planned(snapshot("nvidia_rtx_4090"));
  EXPECT_TRUE(nvidia.domain(vk::MemoryDomain::kReadback).cached);
  EXPECT_TRUE(nvidia.domain(vk::MemoryDomain::kReadback).coherent);
  EXPECT_FALSE(nvidia.domain(vk::MemoryDomain::kReadback).device_local);
}

TEST(Plan, TheBudgetIsWhatTheDriverSaysIsFreeWhereItSays) {
  vk::DeviceSnapshot device = snapshot("nvidia_rtx_4090");
  const uint64_t heap_bytes = device.heaps[0].size_bytes;
  EXPECT_EQ(planned(device).device_budget_bytes, heap_bytes / 10 * 9);
  device.heaps[0].budget_bytes = 10 * kGiB;
  device.heaps[0].usage_bytes = 2 * kGiB;
  EXPECT_EQ(planned(device).device_budget_bytes, 8 * kGiB / 20 * 19);
  device.heaps[0].usage_bytes = 11 * kGiB;
  EXPECT_EQ(planned(device).device_budget_bytes, 0u);
}

TEST(Plan, ThePortabilitySubsetIsEnabledWhereItIsAdvertised) {
  const auto has = [](const vk::DevicePlan& plan, std::string_view name) {
    return std::count(plan.extensions.begin(), plan.extensions.end(), name) == 1;
  };
  EXPECT_TRUE(has(planned(snapshot("apple_m3_max_moltenvk")), "VK_KHR_portability_subset"));
  EXPECT_FALSE(has(planned(snapshot("nvidia_rtx_4090")), "VK_KHR_portability_subset"));
}

TEST(Plan, AWithdrawnFeatureIsOffAndSaysSo) {
  const vk::DevicePlan plan =
      planned(snapshot("nvidia_rtx_4090"),
              {.disable = {"shaderFloat16", "subgroupArithmetic", "timestamps"}});
  EXPECT_FALSE(plan.features.shader_float16);
  EXPECT_EQ(capability(plan, "shaderFloat16").reason, "withdrawn by option");
  EXPECT_FALSE(plan.subgroup.arithmetic);
  EXPECT_TRUE(plan.subgroup.shuffle);
  EXPECT_EQ(plan.timestamp_valid_bits, 0u);
  EXPECT_TRUE(plan.features.shader_int8);
}

TEST(Plan, WhatNeedsAWithdrawnFeatureIsOffToo) {
  const vk::DevicePlan plan =
      planned(snapshot("nvidia_rtx_4090"), {.disable = {"cooperativeMatrix"}});
  EXPECT_FALSE(plan.features.cooperative_matrix);
  EXPECT_FALSE(plan.features.matrix2_workgroup_scope);
  EXPECT_FALSE(plan.features.matrix2_block_loads);
  EXPECT_EQ(capability(plan, "cooperativeMatrixBlockLoads").reason,
            "needs cooperativeMatrixTensorAddressing, which is off");
  EXPECT_EQ(std::count(plan.extensions.begin(), plan.extensions.end(), "VK_NV_cooperative_matrix2"),
            0);
}

TEST(Plan, FlexibleMatricesOfAWorkgroupNeedBothFeatures) {
  vk::DeviceSnapshot device = snapshot("nvidia_rtx_4090");
  device.matrix2 = {1024, 1024, 4096};
  constexpr vk::ComponentType kHalf = vk::ComponentType::kF16, kFloat = vk::ComponentType::kF32;
  const vk::FlexibleMatrixShape workgroup = {32,     32,     16,    kHalf, kHalf,
                                             kFloat, kFloat, false, true,  256};
  vk::FlexibleMatrixShape subgroup = workgroup;
  subgroup.workgroup_scope = false;
  device.flexible_matrix_shapes = {subgroup, workgroup};

  const vk::DevicePlan plan = planned(device);
  EXPECT_EQ(plan.matrix2, device.matrix2);
  EXPECT_EQ(plan.flexible_matrix_shapes, std::vector{workgroup});
  const vk::DevicePlan fixed =
      planned(device, {.disable = {"cooperativeMatrixFlexibleDimensions"}});
  EXPECT_EQ(fixed.matrix2, device.matrix2);
  EXPECT_TRUE(fixed.flexible_matrix_shapes.empty());
  const vk::DevicePlan narrow = planned(device, {.disable = {"cooperativeMatrixWorkgroupScope"}});
  EXPECT_EQ(narrow.matrix2, vk::Matrix2Facts{});
  EXPECT_TRUE(narrow.flexible_matrix_shapes.empty());
}

TEST(Plan, TheMemoryModelIsEnabledWithItsDeviceScopeOrNotAtAll) {
  for (const char* name : {"vulkanMemoryModel", "vulkanMemoryModelDeviceScope"}) {
    const vk::DevicePlan plan = planned(snapshot("nvidia_rtx_4090"), {.disable = {name}});
    EXPECT_FALSE(plan.features.memory_model) << name;
    EXPECT_FALSE(plan.features.memory_model_device_scope) << name;
    EXPECT_FALSE(plan.features.cooperative_matrix) << name;
  }
  EXPECT_TRUE(planned(snapshot("nvidia_rtx_4090")).features.memory_model);
}

TEST(Plan, OptionsLowerLimitsAndNeverRaiseThem) {
  const vk::DeviceSnapshot device = snapshot("nvidia_rtx_4090");
  vk::PlanOptions options;
  options.max_shared_bytes = 16384;
  options.max_workgroup_invocations = 128;
  options.slab_bytes = 1 << 20;
  options.device_budget_bytes = kGiB;
  const vk::DevicePlan low = planned(device, options);
  EXPECT_EQ(low.max_shared_bytes, 16384u);
  EXPECT_EQ(low.max_workgroup_invocations, 128u);
  EXPECT_EQ(low.max_workgroup_size[0], 128u);
  EXPECT_EQ(low.slab_bytes, uint64_t{1} << 20);
  EXPECT_EQ(low.device_budget_bytes, kGiB);

  options.max_shared_bytes = options.max_workgroup_invocations = UINT32_MAX;
  options.slab_bytes = options.device_budget_bytes = UINT64_MAX;
  const vk::DevicePlan high = planned(device, options), plain = planned(device);
  EXPECT_EQ(high.max_shared_bytes, plain.max_shared_bytes);
  EXPECT_EQ(high.max_workgroup_invocations, plain.max_workgroup_invocations);
  EXPECT_EQ(high.slab_bytes, plain.slab_bytes);
  EXPECT_EQ(high.device_budget_bytes, plain.device_budget_bytes);
}

TEST(Plan, WithdrawingAnUnknownOrARequiredFeatureIsAnError) {
  const vk::DeviceSnapshot device = snapshot("nvidia_rtx_4090");
  const Error unknown = refused(device, {.disable = {"shaderFloat61"}});
  EXPECT_EQ(unknown.code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(mentions(unknown.message, "\"shaderFloat61\""));
  EXPECT_TRUE(mentions(unknown.message, "shaderFloat16"));
  EXPECT_EQ(refused(device, {.disable = {"timelineSemaphore"}}).code, ErrorCode::kInvalidArgument);
}

TEST(Plan, Lavapipe26HasCooperativeMatricesButNotTheirReductions) {
  const vk::DeviceSnapshot device = snapshot("lavapipe_26");
  ASSERT_TRUE(device.features.matrix2_reductions);
  const vk::DevicePlan plan = planned(device);
  EXPECT_TRUE(plan.features.cooperative_matrix);
  EXPECT_FALSE(plan.features.matrix2_reductions);
  EXPECT_TRUE(has_quirk(plan, "matrix_reductions_are_wrong"));
  EXPECT_TRUE(mentions(capability(plan, "cooperativeMatrixReductions").reason, "quirk"));
  const vk::MatrixShape f16 = {8,
                               8,
                               8,
                               vk::ComponentType::kF16,
                               vk::ComponentType::kF16,
                               vk::ComponentType::kF32,
                               vk::ComponentType::kF32,
                               false,
                               true};
  EXPECT_EQ(std::count(plan.matrix_shapes.begin(), plan.matrix_shapes.end(), f16), 1);
}

TEST(Plan, MatricesThatAmdsDriverEmulatesAreAFactOfTheDriverAndNoQuirk) {
  vk::DeviceSnapshot device = snapshot("amd_rx_6800_xt_windows");
  ASSERT_TRUE(device.features.cooperative_matrix);
  EXPECT_TRUE(planned(device).driver.emulates_matrices);
  EXPECT_TRUE(planned(device).features.cooperative_matrix);
  EXPECT_TRUE(planned(device).quirks.notes.empty());
  device.name = "AMD Radeon RX 9070 XT";  // has matrix units, as newer products will
  EXPECT_FALSE(planned(device).driver.emulates_matrices);
}

TEST(Plan, MatricesOfAmdsIntegratedGpusAreUsedOnDriversThatCanListThem) {
  vk::DeviceSnapshot device = snapshot("amd_780m_radv");
  EXPECT_TRUE(planned(device).features.cooperative_matrix);
  device.driver_id = VK_DRIVER_ID_AMD_PROPRIETARY;
  EXPECT_FALSE(planned(device).features.cooperative_matrix);
  EXPECT_TRUE(has_quirk(planned(device), "matrix_query_crashes"));
}

TEST(Plan, ABrokenSnapshotIsRefusedAndNeverIndexedOutOfBounds) {
  vk::DeviceSnapshot device = snapshot("nvidia_rtx_4090");
  for (vk::MemoryType& type : device.memory_types) type.heap = 1000;
  EXPECT_TRUE(mentions(refused(device).message, "device-local memory"));
  device = snapshot("nvidia_rtx_4090");
  device.queue_families.clear();
  EXPECT_TRUE(mentions(refused(device).message, "a compute queue"));
  device = snapshot("nvidia_rtx_4090");
  device.limits.max_allocation_bytes = 0;
  device.subgroup = {};
  EXPECT_EQ(planned(device).subgroup_size, 0u);
}

}  // namespace
}  // namespace pumice
