#include "vk/snapshot.hpp"

#include <algorithm>
#include <cstring>

#include "vk/feature_chain.hpp"
#include "vk/quirks.hpp"

namespace pumice::vk {
namespace {

using F = DeviceFeatures;
constexpr FeatureName kFeatureNames[] = {
    {"shaderInt16", &F::shader_int16},
    {"shaderInt64", &F::shader_int64},
    {"storageBuffer16BitAccess", &F::storage_16bit},
    {"storageBuffer8BitAccess", &F::storage_8bit},
    {"shaderFloat16", &F::shader_float16},
    {"shaderInt8", &F::shader_int8},
    {"shaderSubgroupExtendedTypes", &F::subgroup_extended_types},
    {"scalarBlockLayout", &F::scalar_block_layout},
    {"bufferDeviceAddress", &F::buffer_device_address},
    {"timelineSemaphore", &F::timeline_semaphore},
    {"hostQueryReset", &F::host_query_reset},
    {"vulkanMemoryModel", &F::memory_model},
    {"vulkanMemoryModelDeviceScope", &F::memory_model_device_scope},
    {"synchronization2", &F::synchronization2},
    {"subgroupSizeControl", &F::subgroup_size_control},
    {"computeFullSubgroups", &F::full_subgroups},
    {"maintenance4", &F::maintenance4},
    {"shaderIntegerDotProduct", &F::integer_dot},
    {"pipelineCreationCacheControl", &F::pipeline_cache_control},
    {"pipelineExecutableInfo", &F::pipeline_executable_info},
    {"memoryPriority", &F::memory_priority},
    {"pageableDeviceLocalMemory", &F::pageable_memory},
    {"deviceFault", &F::device_fault},
    {"workgroupMemoryExplicitLayout", &F::workgroup_explicit_layout},
    {"cooperativeMatrix", &F::cooperative_matrix},
    {"shaderBFloat16Type", &F::bfloat16},
    {"shaderBFloat16CooperativeMatrix", &F::bfloat16_cooperative_matrix},
    {"cooperativeMatrixWorkgroupScope", &F::matrix2_workgroup_scope},
    {"cooperativeMatrixFlexibleDimensions", &F::matrix2_flexible_dimensions},
    {"cooperativeMatrixReductions", &F::matrix2_reductions},
    {"cooperativeMatrixConversions", &F::matrix2_conversions},
    {"cooperativeMatrixPerElementOperations", &F::matrix2_per_element},
    {"cooperativeMatrixTensorAddressing", &F::matrix2_tensor_addressing},
    {"cooperativeMatrixBlockLoads", &F::matrix2_block_loads},
};
static_assert(std::size(kFeatureNames) == sizeof(DeviceFeatures), "one bool, one name");

template <typename Structure>
Structure linked(VkStructureType type, void** chain) {
  Structure structure{};
  structure.sType = type;
  structure.pNext = *chain;
  return structure;
}

void read_limits(const VkPhysicalDeviceLimits& from, DeviceLimits& to) {
  to.max_workgroup_invocations = from.maxComputeWorkGroupInvocations;
  std::copy_n(from.maxComputeWorkGroupSize, 3, to.max_workgroup_size.begin());
  std::copy_n(from.maxComputeWorkGroupCount, 3, to.max_workgroup_count.begin());
  to.max_shared_bytes = from.maxComputeSharedMemorySize;
  to.max_push_constant_bytes = from.maxPushConstantsSize;
  to.max_storage_buffer_range_bytes = from.maxStorageBufferRange;
  to.max_allocation_count = from.maxMemoryAllocationCount;
  to.non_coherent_atom_bytes = from.nonCoherentAtomSize;
  to.min_storage_buffer_offset_bytes = from.minStorageBufferOffsetAlignment;
  to.min_map_alignment_bytes = from.minMemoryMapAlignment;
  to.buffer_image_granularity_bytes = from.bufferImageGranularity;
  to.timestamp_period_ns = from.timestampPeriod;
  to.timestamps_on_all_queues = from.timestampComputeAndGraphics == VK_TRUE;
}

void read_subgroups(const VkPhysicalDeviceVulkan11Properties& from, SubgroupFacts& to) {
  const VkSubgroupFeatureFlags operations = from.subgroupSupportedOperations;
  to.default_size = from.subgroupSize;
  to.compute_operations = (from.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
  to.basic = (operations & VK_SUBGROUP_FEATURE_BASIC_BIT) != 0;
  to.vote = (operations & VK_SUBGROUP_FEATURE_VOTE_BIT) != 0;
  to.arithmetic = (operations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) != 0;
  to.ballot = (operations & VK_SUBGROUP_FEATURE_BALLOT_BIT) != 0;
  to.shuffle = (operations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0;
  to.shuffle_relative = (operations & VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT) != 0;
  to.clustered = (operations & VK_SUBGROUP_FEATURE_CLUSTERED_BIT) != 0;
  to.quad = (operations & VK_SUBGROUP_FEATURE_QUAD_BIT) != 0;
}

void read_properties(const InstanceFunctions& fn, VkPhysicalDevice device, DeviceSnapshot& out) {
  void* chain = nullptr;
  auto v11 = linked<VkPhysicalDeviceVulkan11Properties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, &chain);
  if (out.api_version >= VK_API_VERSION_1_2) chain = &v11;
  auto v12 = linked<VkPhysicalDeviceVulkan12Properties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, &chain);
  if (out.api_version >= VK_API_VERSION_1_2) chain = &v12;
  auto v13 = linked<VkPhysicalDeviceVulkan13Properties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES, &chain);
  if (out.api_version >= VK_API_VERSION_1_3) chain = &v13;
  auto matrix2 = linked<VkPhysicalDeviceCooperativeMatrix2PropertiesNV>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_PROPERTIES_NV, &chain);
  if (out.has_extension(VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME)) chain = &matrix2;
  auto properties =
      linked<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &chain);
  fn.vkGetPhysicalDeviceProperties2(device, &properties);

  const VkPhysicalDeviceProperties& core = properties.properties;
  out.name = core.deviceName;
  out.vendor_id = core.vendorID;
  out.device_id = core.deviceID;
  out.driver_version = core.driverVersion;
  const bool known_type = core.deviceType <= VK_PHYSICAL_DEVICE_TYPE_CPU;
  out.type = known_type ? static_cast<DeviceType>(core.deviceType) : DeviceType::kOther;
  read_limits(core.limits, out.limits);
  out.matrix2 = {matrix2.cooperativeMatrixWorkgroupScopeMaxWorkgroupSize,
                 matrix2.cooperativeMatrixFlexibleDimensionsMaxDimension,
                 matrix2.cooperativeMatrixWorkgroupScopeReservedSharedMemory};
  if (out.api_version >= VK_API_VERSION_1_2) {
    std::copy_n(v11.deviceUUID, out.device_uuid.size(), out.device_uuid.begin());
    std::copy_n(v11.driverUUID, out.driver_uuid.size(), out.driver_uuid.begin());
    out.limits.max_allocation_bytes = v11.maxMemoryAllocationSize;
    read_subgroups(v11, out.subgroup);
    out.driver_id = static_cast<uint32_t>(v12.driverID);
    out.driver_name = v12.driverName;
    out.driver_info = v12.driverInfo;
    out.conformance = {v12.conformanceVersion.major, v12.conformanceVersion.minor,
                       v12.conformanceVersion.subminor, v12.conformanceVersion.patch};
  }
  if (out.api_version >= VK_API_VERSION_1_3) {
    out.limits.max_buffer_bytes = v13.maxBufferSize;
    out.subgroup.min_size = v13.minSubgroupSize;
    out.subgroup.max_size = v13.maxSubgroupSize;
    out.subgroup.max_workgroup_subgroups = v13.maxComputeWorkgroupSubgroups;
    out.subgroup.compute_size_control =
        (v13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    out.integer_dot.packed_signed_accelerated =
        v13.integerDotProduct4x8BitPackedSignedAccelerated == VK_TRUE;
    out.integer_dot.packed_unsigned_accelerated =
        v13.integerDotProduct4x8BitPackedUnsignedAccelerated == VK_TRUE;
    out.integer_dot.packed_mixed_accelerated =
        v13.integerDotProduct4x8BitPackedMixedSignednessAccelerated == VK_TRUE;
  }
}

void read_memory(const InstanceFunctions& fn, VkPhysicalDevice device, DeviceSnapshot& out) {
  const bool has_budget = out.has_extension(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  fn.vkGetPhysicalDeviceMemoryProperties2(device, &memory);
  const VkPhysicalDeviceMemoryProperties& properties = memory.memoryProperties;
  // RADV's null device crashes when asked for the budget of memory it has not (gfx1201).
  const auto* heaps = properties.memoryHeaps;
  if (has_budget && std::any_of(heaps, heaps + properties.memoryHeapCount,
                                [](const VkMemoryHeap& heap) { return heap.size > 0; })) {
    memory.pNext = &budget;
    fn.vkGetPhysicalDeviceMemoryProperties2(device, &memory);
  }
  for (uint32_t i = 0; i < properties.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = properties.memoryHeaps[i];
    out.heaps.push_back({heap.size, (heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0,
                         has_budget ? budget.heapBudget[i] : 0,
                         has_budget ? budget.heapUsage[i] : 0});
  }
  for (uint32_t i = 0; i < properties.memoryTypeCount; ++i) {
    const VkMemoryType& type = properties.memoryTypes[i];
    out.memory_types.push_back({type.heapIndex, type.propertyFlags});
  }
}

void read_queues(const InstanceFunctions& fn, VkPhysicalDevice device, DeviceSnapshot& out) {
  uint32_t count = 0;
  fn.vkGetPhysicalDeviceQueueFamilyProperties2(device, &count, nullptr);
  VkQueueFamilyProperties2 empty{.sType = VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2};
  std::vector<VkQueueFamilyProperties2> families(count, empty);
  fn.vkGetPhysicalDeviceQueueFamilyProperties2(device, &count, families.data());
  for (const VkQueueFamilyProperties2& family : families) {
    const VkQueueFamilyProperties& properties = family.queueFamilyProperties;
    out.queue_families.push_back(
        {properties.queueFlags, properties.queueCount, properties.timestampValidBits});
  }
}

Status read_extensions(const InstanceFunctions& fn, VkPhysicalDevice device, DeviceSnapshot& out) {
  std::vector<VkExtensionProperties> extensions;
  VkResult result = VK_INCOMPLETE;
  while (result == VK_INCOMPLETE) {  // the list may grow between the two calls
    uint32_t count = 0;
    result = fn.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
    if (result != VK_SUCCESS) break;
    extensions.resize(count);
    result = fn.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data());
    extensions.resize(count);
  }
  if (result != VK_SUCCESS) {
    return make_error(ErrorCode::kInternal, "{}: listing its extensions failed: {}", out.name,
                      vk_result_name(result));
  }
  for (const VkExtensionProperties& extension : extensions) {
    out.extensions.emplace_back(extension.extensionName);
  }
  std::ranges::sort(out.extensions);
  return {};
}

/// Everything that a query of cooperative matrices lists.
template <typename Properties, typename Query>
Result<std::vector<Properties>> list_matrices(VkStructureType type, const Query& query,
                                              VkPhysicalDevice device, const std::string& name) {
  uint32_t count = 0;
  VkResult result = query(device, &count, nullptr);
  Properties empty{};
  empty.sType = type;
  std::vector<Properties> shapes(count, empty);
  if (result == VK_SUCCESS) result = query(device, &count, shapes.data());
  if (result != VK_SUCCESS) {
    return make_error(ErrorCode::kInternal, "{}: listing its cooperative matrices failed: {}", name,
                      vk_result_name(result));
  }
  return shapes;
}

constexpr int kWorkgroupScope = 2;  // VK_SCOPE_WORKGROUP_KHR
constexpr int kSubgroupScope = 3;   // VK_SCOPE_SUBGROUP_KHR

Status read_flexible_matrix_shapes(const InstanceFunctions& fn, VkPhysicalDevice device,
                                   DeviceSnapshot& out) {
  const auto query = fn.vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV;
  if (!out.features.matrix2_flexible_dimensions || query == nullptr) return {};
  using Properties = VkCooperativeMatrixFlexibleDimensionsPropertiesNV;
  PUMICE_TRY(const auto shapes,
             list_matrices<Properties>(
                 VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_FLEXIBLE_DIMENSIONS_PROPERTIES_NV, query,
                 device, out.name));
  for (const Properties& s : shapes) {
    out.flexible_matrix_shapes.push_back(
        {s.MGranularity, s.NGranularity, s.KGranularity, static_cast<ComponentType>(s.AType),
         static_cast<ComponentType>(s.BType), static_cast<ComponentType>(s.CType),
         static_cast<ComponentType>(s.ResultType), s.saturatingAccumulation == VK_TRUE,
         static_cast<int>(s.scope) == kWorkgroupScope, s.workgroupInvocations});
  }
  return {};
}

Status read_matrix_shapes(const InstanceFunctions& fn, VkPhysicalDevice device,
                          DeviceSnapshot& out) {
  const auto query = fn.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR;
  if (!out.features.cooperative_matrix || query == nullptr) return {};
  using Properties = VkCooperativeMatrixPropertiesKHR;
  PUMICE_TRY(const auto shapes,
             list_matrices<Properties>(VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR, query,
                                       device, out.name));
  for (const Properties& s : shapes) {
    out.matrix_shapes.push_back(
        {s.MSize, s.NSize, s.KSize, static_cast<ComponentType>(s.AType),
         static_cast<ComponentType>(s.BType), static_cast<ComponentType>(s.CType),
         static_cast<ComponentType>(s.ResultType), s.saturatingAccumulation == VK_TRUE,
         static_cast<int>(s.scope) == kSubgroupScope});
  }
  return {};
}

}  // namespace

std::string_view device_type_name(DeviceType type) {
  constexpr std::string_view kNames[] = {"other", "integrated", "discrete", "virtual", "cpu"};
  return kNames[static_cast<size_t>(type)];
}

std::string format_uuid(const Uuid& uuid) {
  std::string text;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

std::string component_type_name(ComponentType type) {
  // Those that have numbers in a row, from 0 on.
  constexpr std::string_view kNames[] = {"f16", "f32", "f64", "s8",  "s16", "s32",
                                         "s64", "u8",  "u16", "u32", "u64"};
  if (type == ComponentType::kBf16) return "bf16";
  const auto number = static_cast<uint32_t>(type);
  return number < std::size(kNames) ? std::string(kNames[number]) : fmt::format("{}", number);
}

std::string format_api_version(uint32_t version) {
  return fmt::format("{}.{}.{}", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version),
                     VK_API_VERSION_PATCH(version));
}

std::span<const FeatureName> feature_names() { return kFeatureNames; }

bool DeviceSnapshot::has_extension(std::string_view extension) const {
  return std::ranges::find(extensions, extension) != extensions.end();
}

Result<DeviceSnapshot> take_snapshot(const InstanceFunctions& functions, VkPhysicalDevice device) {
  VkPhysicalDeviceProperties basic{};
  functions.vkGetPhysicalDeviceProperties(device, &basic);
  DeviceSnapshot snapshot;
  snapshot.api_version = basic.apiVersion;
  snapshot.name = basic.deviceName;
  PUMICE_TRY_STATUS(read_extensions(functions, device, snapshot));
  read_properties(functions, device, snapshot);
  FeatureChain chain(snapshot.api_version,
                     [&](std::string_view name) { return snapshot.has_extension(name); });
  functions.vkGetPhysicalDeviceFeatures2(device, chain.head());
  snapshot.features = chain.read();
  read_memory(functions, device, snapshot);
  read_queues(functions, device, snapshot);
  if (find_quirks(snapshot).matrix_query_crashes) return snapshot;
  PUMICE_TRY_STATUS(read_matrix_shapes(functions, device, snapshot));
  PUMICE_TRY_STATUS(read_flexible_matrix_shapes(functions, device, snapshot));
  return snapshot;
}

}  // namespace pumice::vk
