// The Vulkan functions this program calls, from the system's loader. They are its own: the library
// that it lends its device to has another table, and neither sees the other's. Those that end in
// KHR are null without a window.
#pragma once

#include <vulkan/vulkan_core.h>

#define NPC_INSTANCE_FUNCTIONS(F)              \
  F(vkDestroyInstance)                         \
  F(vkEnumeratePhysicalDevices)                \
  F(vkGetPhysicalDeviceProperties)             \
  F(vkGetPhysicalDeviceMemoryProperties)       \
  F(vkGetPhysicalDeviceQueueFamilyProperties)  \
  F(vkGetPhysicalDeviceSurfaceSupportKHR)      \
  F(vkGetPhysicalDeviceSurfaceCapabilitiesKHR) \
  F(vkGetPhysicalDeviceSurfaceFormatsKHR)      \
  F(vkDestroySurfaceKHR)                       \
  F(vkCreateDevice)                            \
  F(vkGetDeviceProcAddr)

#define NPC_DEVICE_FUNCTIONS(F)    \
  F(vkDestroyDevice)               \
  F(vkDeviceWaitIdle)              \
  F(vkGetDeviceQueue)              \
  F(vkQueueSubmit2)                \
  F(vkAllocateMemory)              \
  F(vkFreeMemory)                  \
  F(vkMapMemory)                   \
  F(vkCreateBuffer)                \
  F(vkDestroyBuffer)               \
  F(vkGetBufferMemoryRequirements) \
  F(vkBindBufferMemory)            \
  F(vkCreateImage)                 \
  F(vkDestroyImage)                \
  F(vkGetImageMemoryRequirements)  \
  F(vkBindImageMemory)             \
  F(vkCreateImageView)             \
  F(vkDestroyImageView)            \
  F(vkCreateShaderModule)          \
  F(vkDestroyShaderModule)         \
  F(vkCreatePipelineLayout)        \
  F(vkDestroyPipelineLayout)       \
  F(vkCreateGraphicsPipelines)     \
  F(vkDestroyPipeline)             \
  F(vkCreateCommandPool)           \
  F(vkDestroyCommandPool)          \
  F(vkResetCommandPool)            \
  F(vkAllocateCommandBuffers)      \
  F(vkBeginCommandBuffer)          \
  F(vkEndCommandBuffer)            \
  F(vkCmdPipelineBarrier2)         \
  F(vkCmdBeginRendering)           \
  F(vkCmdEndRendering)             \
  F(vkCmdBindPipeline)             \
  F(vkCmdBindVertexBuffers)        \
  F(vkCmdDraw)                     \
  F(vkCmdCopyImageToBuffer)        \
  F(vkCmdBlitImage)                \
  F(vkCreateSwapchainKHR)          \
  F(vkDestroySwapchainKHR)         \
  F(vkGetSwapchainImagesKHR)       \
  F(vkAcquireNextImageKHR)         \
  F(vkQueuePresentKHR)             \
  F(vkCreateSemaphore)             \
  F(vkDestroySemaphore)            \
  F(vkWaitSemaphores)

struct VulkanTable {
#define NPC_MEMBER(name) PFN_##name name = nullptr;
  PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr = nullptr;
  PFN_vkCreateInstance vkCreateInstance = nullptr;
  NPC_INSTANCE_FUNCTIONS(NPC_MEMBER)
  NPC_DEVICE_FUNCTIONS(NPC_MEMBER)
#undef NPC_MEMBER
};
