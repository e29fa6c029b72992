// Pictures on their way to a window.
#pragma once

#include <cstdint>
#include <vector>

#include "vulkan_table.hpp"

/// Errors are thrown as std::runtime_error. No picture is under way when this is made or destroyed.
class Swapchain {
 public:
  /// Destroys the surface too. All must outlive it.
  Swapchain(const VulkanTable& vk, VkInstance instance, VkPhysicalDevice physical_device,
            VkDevice device, VkSurfaceKHR surface, VkExtent2D picture);
  ~Swapchain();
  Swapchain(const Swapchain&) = delete;
  Swapchain& operator=(const Swapchain&) = delete;

  /// Begin a picture, when the one before is done. False: the window takes none now.
  bool acquire();
  /// Between the two: record that `source` (VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL) is
  /// shown. What does so waits for `acquired` and signals `drawn`.
  void record(VkCommandBuffer commands, VkImage source) const;
  VkSemaphore acquired() const { return acquired_; }
  VkSemaphore drawn() const { return drawn_[index_]; }
  /// When that has been submitted.
  void present(VkQueue queue);

 private:
  void create();
  VkSurfaceFormatKHR choose_format() const;
  void destroy();

  const VulkanTable& vk_;
  VkInstance instance_;
  VkPhysicalDevice physical_device_;
  VkDevice device_;
  VkSurfaceKHR surface_;
  VkExtent2D picture_;
  VkExtent2D size_;  // of the window
  VkSwapchainKHR swapchain_ = VK_NULL_HANDLE;
  bool is_stale_ = false;  // another one is needed
  std::vector<VkImage> images_;
  VkSemaphore acquired_ = VK_NULL_HANDLE;
  std::vector<VkSemaphore> drawn_;  // of each image
  uint32_t index_ = 0;              // of the picture that has begun
};
