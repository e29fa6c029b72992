#include "swapchain.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace {

void check(VkResult result, const char* what) {
  if (result == VK_SUCCESS) return;
  throw std::runtime_error(std::string(what) + " failed: VkResult " + std::to_string(result));
}

VkOffset3D corner_of(const VkExtent2D& size) {
  return {static_cast<int32_t>(size.width), static_cast<int32_t>(size.height), 1};
}

}  // namespace

Swapchain::Swapchain(const VulkanTable& vk, VkInstance instance, VkPhysicalDevice physical_device,
                     VkDevice device, VkSurfaceKHR surface, VkExtent2D picture)
    : vk_(vk),
      instance_(instance),
      physical_device_(physical_device),
      device_(device),
      surface_(surface),
      picture_(picture),
      size_(picture) {
  create();
}

Swapchain::~Swapchain() {
  destroy();
  vk_.vkDestroySurfaceKHR(instance_, surface_, nullptr);
}

/// One that shows colors as they are in the picture, if there is one.
VkSurfaceFormatKHR Swapchain::choose_format() const {
  uint32_t n = 0;
  check(vk_.vkGetPhysicalDeviceSurfaceFormatsKHR(physical_device_, surface_, &n, nullptr),
        "vkGetPhysicalDeviceSurfaceFormatsKHR");
  std::vector<VkSurfaceFormatKHR> formats(n);
  check(vk_.vkGetPhysicalDeviceSurfaceFormatsKHR(physical_device_, surface_, &n, formats.data()),
        "vkGetPhysicalDeviceSurfaceFormatsKHR");
  if (formats.empty()) throw std::runtime_error("a window without a format");
  const auto is_plain = [](const VkSurfaceFormatKHR& format) {
    return format.format == VK_FORMAT_B8G8R8A8_UNORM || format.format == VK_FORMAT_R8G8B8A8_UNORM;
  };
  const auto plain = std::ranges::find_if(formats, is_plain);
  return plain != formats.end() ? *plain : formats[0];
}

void Swapchain::create() {
  VkSurfaceCapabilitiesKHR can{};
  check(vk_.vkGetPhysicalDeviceSurfaceCapabilitiesKHR(physical_device_, surface_, &can),
        "vkGetPhysicalDeviceSurfaceCapabilitiesKHR");
  if ((can.supportedUsageFlags & VK_IMAGE_USAGE_TRANSFER_DST_BIT) == 0) {
    throw std::runtime_error("nothing can be copied into this window");
  }
  if (can.currentExtent.width != UINT32_MAX) size_ = can.currentExtent;
  const VkSurfaceFormatKHR format = choose_format();

  VkSwapchainCreateInfoKHR info{.sType = VK_STRUCTURE_TYPE_SWAPCHAIN_CREATE_INFO_KHR,
                                .surface = surface_,
                                .minImageCount = can.minImageCount + 1};
  if (can.maxImageCount > 0) info.minImageCount = std::min(info.minImageCount, can.maxImageCount);
  info.imageFormat = format.format;
  info.imageColorSpace = format.colorSpace;
  info.imageExtent = size_;
  info.imageArrayLayers = 1;
  info.imageUsage = VK_IMAGE_USAGE_TRANSFER_DST_BIT;
  info.preTransform = can.currentTransform;
  info.compositeAlpha = VK_COMPOSITE_ALPHA_OPAQUE_BIT_KHR;
  info.presentMode = VK_PRESENT_MODE_FIFO_KHR;
  info.clipped = VK_TRUE;
  check(vk_.vkCreateSwapchainKHR(device_, &info, nullptr, &swapchain_), "vkCreateSwapchainKHR");
  uint32_t n_images = 0;
  check(vk_.vkGetSwapchainImagesKHR(device_, swapchain_, &n_images, nullptr), "images");
  images_.resize(n_images);
  check(vk_.vkGetSwapchainImagesKHR(device_, swapchain_, &n_images, images_.data()), "images");

  VkSemaphoreCreateInfo semaphore{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
  check(vk_.vkCreateSemaphore(device_, &semaphore, nullptr, &acquired_), "vkCreateSemaphore");
  drawn_.assign(n_images, VK_NULL_HANDLE);
  for (VkSemaphore& drawn : drawn_) {
    check(vk_.vkCreateSemaphore(device_, &semaphore, nullptr, &drawn), "vkCreateSemaphore");
  }
  is_stale_ = false;
}

void Swapchain::destroy() {
  vk_.vkDeviceWaitIdle(device_);  // presentation is under way
  vk_.vkDestroySwapchainKHR(device_, swapchain_, nullptr);
  vk_.vkDestroySemaphore(device_, acquired_, nullptr);
  for (const VkSemaphore drawn : drawn_) vk_.vkDestroySemaphore(device_, drawn, nullptr);
}

bool Swapchain::acquire() {
  if (is_stale_) {
    destroy();
    create();
  }
  const VkResult result = vk_.vkAcquireNextImageKHR(device_, swapchain_, UINT64_MAX, acquired_,
                                                    VK_NULL_HANDLE, &index_);
  is_stale_ = result == VK_ERROR_OUT_OF_DATE_KHR || result == VK_SUBOPTIMAL_KHR;
  if (result == VK_ERROR_OUT_OF_DATE_KHR) return false;
  if (result != VK_SUBOPTIMAL_KHR) check(result, "vkAcquireNextImageKHR");
  return true;
}

void Swapchain::record(VkCommandBuffer commands, VkImage source) const {
  VkImageMemoryBarrier2 barrier{.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER_2};
  barrier.srcStageMask = barrier.dstStageMask = VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT;
  barrier.dstAccessMask = VK_ACCESS_2_TRANSFER_WRITE_BIT;
  barrier.newLayout = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL;
  barrier.srcQueueFamilyIndex = barrier.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED;
  barrier.image = images_[index_];
  barrier.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
  VkDependencyInfo dependency{.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                              .imageMemoryBarrierCount = 1,
                              .pImageMemoryBarriers = &barrier};
  vk_.vkCmdPipelineBarrier2(commands, &dependency);

  VkImageBlit region{};
  region.srcSubresource = region.dstSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1};
  region.srcOffsets[1] = corner_of(picture_);
  region.dstOffsets[1] = corner_of(size_);
  vk_.vkCmdBlitImage(commands, source, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, barrier.image,
                     VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1, &region, VK_FILTER_NEAREST);

  barrier.srcAccessMask = VK_ACCESS_2_TRANSFER_WRITE_BIT;
  barrier.dstAccessMask = 0;
  barrier.oldLayout = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL;
  barrier.newLayout = VK_IMAGE_LAYOUT_PRESENT_SRC_KHR;
  vk_.vkCmdPipelineBarrier2(commands, &dependency);
}

void Swapchain::present(VkQueue queue) {
  VkPresentInfoKHR info{.sType = VK_STRUCTURE_TYPE_PRESENT_INFO_KHR,
                        .waitSemaphoreCount = 1,
                        .pWaitSemaphores = &drawn_[index_],
                        .swapchainCount = 1,
                        .pSwapchains = &swapchain_,
                        .pImageIndices = &index_};
  const VkResult result = vk_.vkQueuePresentKHR(queue, &info);
  is_stale_ = is_stale_ || result == VK_ERROR_OUT_OF_DATE_KHR || result == VK_SUBOPTIMAL_KHR;
  if (!is_stale_) check(result, "vkQueuePresentKHR");
}
