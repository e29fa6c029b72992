#include "vk/feature_chain.hpp"

namespace pumice::vk {

struct FeatureChain::Structures {
  VkPhysicalDeviceFeatures2 core{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, nullptr, {}};
  VkPhysicalDeviceVulkan11Features v11{};
  VkPhysicalDeviceVulkan12Features v12{};
  VkPhysicalDeviceVulkan13Features v13{};
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executable{};
  VkPhysicalDeviceMemoryPriorityFeaturesEXT priority{};
  VkPhysicalDevicePageableDeviceLocalMemoryFeaturesEXT pageable{};
  VkPhysicalDeviceFaultFeaturesEXT fault{};
  VkPhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR explicit_layout{};
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix{};
  VkPhysicalDeviceCooperativeMatrix2FeaturesNV matrix2{};
  VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16{};

  template <typename Structure>
  void link(Structure& structure, VkStructureType type) {
    structure.sType = type;
    structure.pNext = core.pNext;
    core.pNext = &structure;
  }
};

namespace {

// Calls visit(VkBool32&, bool&) for each pair. `Chain` and `Features` carry their constness.
template <typename Chain, typename Features, typename Visit>
void for_each_feature(Chain& chain, Features& features, const Visit& visit) {
  visit(chain.core.features.shaderInt16, features.shader_int16);
  visit(chain.core.features.shaderInt64, features.shader_int64);
  visit(chain.v11.storageBuffer16BitAccess, features.storage_16bit);
  visit(chain.v12.storageBuffer8BitAccess, features.storage_8bit);
  visit(chain.v12.shaderFloat16, features.shader_float16);
  visit(chain.v12.shaderInt8, features.shader_int8);
  visit(chain.v12.shaderSubgroupExtendedTypes, features.subgroup_extended_types);
  visit(chain.v12.scalarBlockLayout, features.scalar_block_layout);
  visit(chain.v12.bufferDeviceAddress, features.buffer_device_address);
  visit(chain.v12.timelineSemaphore, features.timeline_semaphore);
  visit(chain.v12.hostQueryReset, features.host_query_reset);
  visit(chain.v12.vulkanMemoryModel, features.memory_model);
  visit(chain.v12.vulkanMemoryModelDeviceScope, features.memory_model_device_scope);
  visit(chain.v13.synchronization2, features.synchronization2);
  visit(chain.v13.subgroupSizeControl, features.subgroup_size_control);
  visit(chain.v13.computeFullSubgroups, features.full_subgroups);
  visit(chain.v13.maintenance4, features.maintenance4);
  visit(chain.v13.shaderIntegerDotProduct, features.integer_dot);
  visit(chain.v13.pipelineCreationCacheControl, features.pipeline_cache_control);
  visit(chain.executable.pipelineExecutableInfo, features.pipeline_executable_info);
  visit(chain.priority.memoryPriority, features.memory_priority);
  visit(chain.pageable.pageableDeviceLocalMemory, features.pageable_memory);
  visit(chain.fault.deviceFault, features.device_fault);
  visit(chain.explicit_layout.workgroupMemoryExplicitLayout, features.workgroup_explicit_layout);
  visit(chain.matrix.cooperativeMatrix, features.cooperative_matrix);
  visit(chain.bfloat16.shaderBFloat16Type, features.bfloat16);
  visit(chain.bfloat16.shaderBFloat16CooperativeMatrix, features.bfloat16_cooperative_matrix);
  visit(chain.matrix2.cooperativeMatrixWorkgroupScope, features.matrix2_workgroup_scope);
  visit(chain.matrix2.cooperativeMatrixFlexibleDimensions, features.matrix2_flexible_dimensions);
  visit(chain.matrix2.cooperativeMatrixReductions, features.matrix2_reductions);
  visit(chain.matrix2.cooperativeMatrixConversions, features.matrix2_conversions);
  visit(chain.matrix2.cooperativeMatrixPerElementOperations, features.matrix2_per_element);
  visit(chain.matrix2.cooperativeMatrixTensorAddressing, features.matrix2_tensor_addressing);
  visit(chain.matrix2.cooperativeMatrixBlockLoads, features.matrix2_block_loads);
}

}  // namespace

FeatureChain::FeatureChain(uint32_t api_version,
                           const std::function<bool(std::string_view)>& has_extension)
    : structures_(std::make_unique<Structures>()) {
  Structures& s = *structures_;
  if (api_version >= VK_API_VERSION_1_2) {
    s.link(s.v11, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
    s.link(s.v12, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  }
  if (api_version >= VK_API_VERSION_1_3) {
    s.link(s.v13, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES);
  }
  if (has_extension(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME)) {
    s.link(s.executable,
           VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR);
  }
  if (has_extension(VK_EXT_MEMORY_PRIORITY_EXTENSION_NAME)) {
    s.link(s.priority, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PRIORITY_FEATURES_EXT);
  }
  if (has_extension(VK_EXT_PAGEABLE_DEVICE_LOCAL_MEMORY_EXTENSION_NAME)) {
    s.link(s.pageable, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PAGEABLE_DEVICE_LOCAL_MEMORY_FEATURES_EXT);
  }
  if (has_extension(VK_EXT_DEVICE_FAULT_EXTENSION_NAME)) {
    s.link(s.fault, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FAULT_FEATURES_EXT);
  }
  if (has_extension(VK_KHR_WORKGROUP_MEMORY_EXPLICIT_LAYOUT_EXTENSION_NAME)) {
    s.link(s.explicit_layout,
           VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_WORKGROUP_MEMORY_EXPLICIT_LAYOUT_FEATURES_KHR);
  }
  if (has_extension(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME)) {
    s.link(s.matrix, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR);
  }
  if (has_extension(VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME)) {
    s.link(s.bfloat16, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR);
  }
  if (has_extension(VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME)) {
    s.link(s.matrix2, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV);
  }
}

FeatureChain::~FeatureChain() = default;
FeatureChain::FeatureChain(FeatureChain&&) noexcept = default;
FeatureChain& FeatureChain::operator=(FeatureChain&&) noexcept = default;

VkPhysicalDeviceFeatures2* FeatureChain::head() { return &structures_->core; }

DeviceFeatures FeatureChain::read() const {
  DeviceFeatures features;
  const Structures& structures = *structures_;
  for_each_feature(structures, features,
                   [](const VkBool32& from, bool& to) { to = from == VK_TRUE; });
  return features;
}

void FeatureChain::write(const DeviceFeatures& features) {
  for_each_feature(*structures_, features,
                   [](VkBool32& to, const bool& from) { to = from ? VK_TRUE : VK_FALSE; });
}

}  // namespace pumice::vk
