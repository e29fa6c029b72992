#include "vk/requirements.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace pumice::vk {
namespace {

using F = DeviceFeatures;

/// What to tell a host of a feature.
struct FeatureText {
  bool F::*member;
  const char* structure;
  const char* brings;
};

constexpr const char* kCore = "VkPhysicalDeviceFeatures";
constexpr const char* k11 = "VkPhysicalDeviceVulkan11Features";
constexpr const char* k12 = "VkPhysicalDeviceVulkan12Features";
constexpr const char* k13 = "VkPhysicalDeviceVulkan13Features";
constexpr const char* kMatrixFeatures = "VkPhysicalDeviceCooperativeMatrixFeaturesKHR";
constexpr const char* kMatrix2 = "VkPhysicalDeviceCooperativeMatrix2FeaturesNV";
constexpr const char* kBfloat16 = "VkPhysicalDeviceShaderBfloat16FeaturesKHR";
constexpr const char* kFasterMatrix2 = "faster products of matrices on the matrix units";

constexpr const char* kUnused = "no kernel uses it yet";

constexpr FeatureText kFeatureTexts[] = {
    {&F::buffer_device_address, k12, "kernels take addresses of buffers"},
    {&F::timeline_semaphore, k12, "progress, and hand-off between the host's work and ours"},
    {&F::host_query_reset, k12, "timestamps, by which budgets are learned"},
    {&F::synchronization2, k13, "barriers and submissions"},
    {&F::subgroup_size_control, k13, "kernels of known subgroup size"},
    {&F::maintenance4, k13, "workgroup sizes chosen when a pipeline is made"},
    {&F::shader_float16, k12, "kernels that calculate in half precision: up to twice as fast"},
    {&F::shader_int8, k12, "integer kernels for quantised weights"},
    {&F::shader_int16, kCore, "unpacking of quantised weights in fewer instructions"},
    {&F::shader_int64, kCore, "addresses calculated in fewer instructions"},
    {&F::storage_8bit, k12, "loads of bytes"},
    {&F::storage_16bit, k11, "loads and stores of halves; needed by half-precision kernels"},
    {&F::subgroup_extended_types, k12, kUnused},
    {&F::scalar_block_layout, k12, kUnused},
    {&F::memory_model, k12, "needed by cooperative matrices"},
    {&F::memory_model_device_scope, k12, "needed wherever vulkanMemoryModel is enabled"},
    {&F::full_subgroups, k13, "needed by kernels on the matrix units"},
    {&F::integer_dot, k13, "integer dot products: faster quantised weights"},
    {&F::pipeline_cache_control, k13, kUnused},
    {&F::pipeline_executable_info, "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR",
     "compiler statistics, for developers only"},
    {&F::memory_priority, "VkPhysicalDeviceMemoryPriorityFeaturesEXT",
     "weights stay on the device before staging when memory is short"},
    {&F::pageable_memory, "VkPhysicalDevicePageableDeviceLocalMemoryFeaturesEXT",
     "when memory is short the system pages weights out rather than fail, and last what steps "
     "write"},
    {&F::device_fault, "VkPhysicalDeviceFaultFeaturesEXT",
     "what went wrong, in the error that says that the device was lost"},
    {&F::workgroup_explicit_layout, "VkPhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR",
     kUnused},
    {&F::cooperative_matrix, kMatrixFeatures,
     "the matrix units: prompts read several times as fast"},
    {&F::bfloat16, kBfloat16, "bfloat16 weights without conversion"},
    {&F::bfloat16_cooperative_matrix, kBfloat16, "bfloat16 weights on the matrix units"},
    {&F::matrix2_workgroup_scope, kMatrix2, kFasterMatrix2},
    {&F::matrix2_flexible_dimensions, kMatrix2, kFasterMatrix2},
    {&F::matrix2_reductions, kMatrix2, kFasterMatrix2},
    {&F::matrix2_conversions, kMatrix2, kFasterMatrix2},
    {&F::matrix2_per_element, kMatrix2, kFasterMatrix2},
    {&F::matrix2_tensor_addressing, kMatrix2, kFasterMatrix2},
    {&F::matrix2_block_loads, kMatrix2, kFasterMatrix2},
};
static_assert(std::size(kFeatureTexts) == sizeof(DeviceFeatures), "every feature has its text");

const FeatureName& feature_of(bool F::*member) {
  return *std::ranges::find(feature_names(), member, &FeatureName::member);
}

Requirement feature(const FeatureText& text, bool required) {
  // Feature names are literals, so they end with a zero.
  return {feature_of(text.member).name.data(), text.structure, required, text.brings};
}

Requirement extension(std::string_view name) {
  if (name == VK_EXT_MEMORY_BUDGET_EXTENSION_NAME) {
    return {VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, nullptr, false,
            "how much memory others have left, asked while running"};
  }
  if (name == VK_KHR_PORTABILITY_SUBSET_EXTENSION_NAME) {
    return {VK_KHR_PORTABILITY_SUBSET_EXTENSION_NAME, nullptr, true,
            "nothing; Vulkan wants it enabled where it is advertised"};
  }
  for (const OptionalFeature& optional : optional_features()) {
    if (optional.extension != nullptr && name == optional.extension) {
      return {optional.extension, nullptr, false, "its features below"};
    }
  }
  PUMICE_CHECK(false, "an extension in a plan that no feature needs");
  return {};
}

bool contains(std::span<const std::string> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

Result<HostRequirements> host_requirements(const DeviceSnapshot& snapshot,
                                           const PlanOptions& options) {
  PUMICE_TRY(const DevicePlan plan, plan_device(snapshot, options));
  HostRequirements wanted;
  wanted.queue_family = plan.queue_family;
  for (const std::string& name : plan.extensions) wanted.items.push_back(extension(name));
  const auto required = required_features();
  for (const FeatureText& text : kFeatureTexts) {
    if (!(plan.features.*text.member)) continue;
    const bool is_required = std::ranges::find(required, text.member) != required.end();
    wanted.items.push_back(feature(text, is_required));
  }
  return wanted;
}

Result<DeviceSnapshot> restrict_to(const DeviceSnapshot& snapshot, const Enabled& enabled) {
  if (enabled.queue_family >= snapshot.queue_families.size()) {
    return make_error(ErrorCode::kInvalidArgument, "{} has no queue family {}", snapshot.name,
                      enabled.queue_family);
  }
  const QueueFamily& family = snapshot.queue_families[enabled.queue_family];
  if ((family.queue_bits & VK_QUEUE_COMPUTE_BIT) == 0) {
    return make_error(ErrorCode::kInvalidArgument, "queue family {} of {} cannot compute",
                      enabled.queue_family, snapshot.name);
  }
  DeviceSnapshot left = snapshot;
  left.api_version = std::min(snapshot.api_version, enabled.api_version);
  for (const FeatureName& feature : feature_names()) {
    if (!contains(enabled.features, feature.name)) left.features.*feature.member = false;
  }
  std::erase_if(left.extensions,
                [&](const std::string& name) { return !contains(enabled.extensions, name); });
  for (uint32_t i = 0; i < left.queue_families.size(); ++i) {
    if (i != enabled.queue_family) left.queue_families[i].queue_count = 0;
  }

  // A device that lacks these itself is refused as any other is.
  std::vector<std::string> left_out = missing_requirements(left);
  const std::vector<std::string> lacking = missing_requirements(snapshot);
  std::erase_if(left_out, [&](const std::string& name) { return contains(lacking, name); });
  if (!left_out.empty()) {
    return make_error(ErrorCode::kNoDevice,
                      "the host created its device on {} without what is required: {}",
                      snapshot.name, fmt::join(left_out, ", "));
  }
  // Vulkan then forbids device scope to every shader, and GLSL's atomics and barriers have it.
  if (contains(enabled.features, "vulkanMemoryModel") && !left.features.memory_model_device_scope) {
    return make_error(ErrorCode::kNoDevice,
                      "the host enabled vulkanMemoryModel on {} without "
                      "vulkanMemoryModelDeviceScope: enable both or neither",
                      snapshot.name);
  }
  return left;
}

}  // namespace pumice::vk
