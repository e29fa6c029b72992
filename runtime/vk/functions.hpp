// The Vulkan entry points this project calls, in tables owned by what loaded them. volk only
// opens the loader library; its global pointers are never used, so that several instances and
// devices, and a host application's own volk, live in one process.
//
// Members carry Vulkan's full names (`fn.vkCreateBuffer(device, …)`). A table is plain data: copy
// it freely, read it from any thread; it is valid while its instance or device lives.
#pragma once

#include "base/result.hpp"
#include "vk/compat.hpp"

namespace pumice::vk {

#define PUMICE_VK_LOADER_FUNCTIONS(F)       \
  F(vkCreateInstance)                       \
  F(vkEnumerateInstanceVersion)             \
  F(vkEnumerateInstanceExtensionProperties) \
  F(vkEnumerateInstanceLayerProperties)

#define PUMICE_VK_INSTANCE_FUNCTIONS(F)        \
  F(vkDestroyInstance)                         \
  F(vkEnumeratePhysicalDevices)                \
  F(vkEnumerateDeviceExtensionProperties)      \
  F(vkGetPhysicalDeviceProperties)             \
  F(vkGetPhysicalDeviceProperties2)            \
  F(vkGetPhysicalDeviceFeatures2)              \
  F(vkGetPhysicalDeviceMemoryProperties2)      \
  F(vkGetPhysicalDeviceQueueFamilyProperties2) \
  F(vkCreateDevice)                            \
  F(vkGetDeviceProcAddr)

// Null without their extension. Some loaders return non-null even then: ask the extension list.
#define PUMICE_VK_OPTIONAL_INSTANCE_FUNCTIONS(F)       \
  F(vkCreateDebugUtilsMessengerEXT)                    \
  F(vkDestroyDebugUtilsMessengerEXT)                   \
  F(vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR) \
  F(vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV)

#define PUMICE_VK_DEVICE_FUNCTIONS(F)    \
  F(vkDestroyDevice)                     \
  F(vkDeviceWaitIdle)                    \
  F(vkGetDeviceQueue)                    \
  F(vkQueueSubmit2)                      \
  F(vkQueueWaitIdle)                     \
  F(vkAllocateMemory)                    \
  F(vkFreeMemory)                        \
  F(vkMapMemory)                         \
  F(vkCreateBuffer)                      \
  F(vkDestroyBuffer)                     \
  F(vkGetBufferMemoryRequirements2)      \
  F(vkGetDeviceBufferMemoryRequirements) \
  F(vkBindBufferMemory)                  \
  F(vkGetBufferDeviceAddress)            \
  F(vkCreateShaderModule)                \
  F(vkDestroyShaderModule)               \
  F(vkCreatePipelineLayout)              \
  F(vkDestroyPipelineLayout)             \
  F(vkCreatePipelineCache)               \
  F(vkDestroyPipelineCache)              \
  F(vkGetPipelineCacheData)              \
  F(vkCreateComputePipelines)            \
  F(vkDestroyPipeline)                   \
  F(vkCreateCommandPool)                 \
  F(vkDestroyCommandPool)                \
  F(vkResetCommandPool)                  \
  F(vkAllocateCommandBuffers)            \
  F(vkBeginCommandBuffer)                \
  F(vkEndCommandBuffer)                  \
  F(vkCmdBindPipeline)                   \
  F(vkCmdPushConstants)                  \
  F(vkCmdDispatch)                       \
  F(vkCmdDispatchIndirect)               \
  F(vkCmdPipelineBarrier2)               \
  F(vkCmdCopyBuffer)                     \
  F(vkCmdFillBuffer)                     \
  F(vkCmdWriteTimestamp2)                \
  F(vkCmdResetQueryPool)                 \
  F(vkCreateQueryPool)                   \
  F(vkDestroyQueryPool)                  \
  F(vkGetQueryPoolResults)               \
  F(vkCreateSemaphore)                   \
  F(vkDestroySemaphore)                  \
  F(vkGetSemaphoreCounterValue)          \
  F(vkWaitSemaphores)                    \
  F(vkSignalSemaphore)                   \
  F(vkGetFenceStatus)

#define PUMICE_VK_OPTIONAL_DEVICE_FUNCTIONS(F) \
  F(vkGetPipelineExecutableStatisticsKHR)      \
  F(vkGetDeviceFaultInfoEXT)

#define PUMICE_VK_MEMBER(name) PFN_##name name = nullptr;

struct LoaderFunctions {
  PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr = nullptr;
  PUMICE_VK_LOADER_FUNCTIONS(PUMICE_VK_MEMBER)
};

struct InstanceFunctions {
  PUMICE_VK_INSTANCE_FUNCTIONS(PUMICE_VK_MEMBER)
  PUMICE_VK_OPTIONAL_INSTANCE_FUNCTIONS(PUMICE_VK_MEMBER)
};

struct DeviceFunctions {
  PUMICE_VK_DEVICE_FUNCTIONS(PUMICE_VK_MEMBER)
  PUMICE_VK_OPTIONAL_DEVICE_FUNCTIONS(PUMICE_VK_MEMBER)
};

#undef PUMICE_VK_MEMBER

/// Opens the system's Vulkan loader; it stays open until the process ends. Any thread may call
/// this. kNoDevice if there is none, or if it is too old.
Result<LoaderFunctions> open_loader();

/// The same from a host application's own entry point, with no library opened.
Result<LoaderFunctions> load_loader_functions(PFN_vkGetInstanceProcAddr get_proc);

/// kNoDevice naming the first required function that is missing; optional ones stay null.
Result<InstanceFunctions> load_instance_functions(PFN_vkGetInstanceProcAddr get_proc,
                                                  VkInstance instance);

/// The device must have been created with Vulkan 1.3 core. Errors as above.
Result<DeviceFunctions> load_device_functions(const InstanceFunctions& instance, VkDevice device);

/// "VK_ERROR_OUT_OF_DEVICE_MEMORY", or "VkResult(-1234)" for a code unknown here.
std::string vk_result_name(VkResult result);

}  // namespace pumice::vk
