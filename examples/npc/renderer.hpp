// The host: a Vulkan instance, device and queue of this program's own, and pictures drawn on them
// into an image that nobody needs a screen for, and shown in a window if there is one.
#pragma once

#include <cstdint>
#include <glm/glm.hpp>
#include <memory>
#include <string>
#include <vector>

#include "pumice/pumice_vulkan.h"
#include "swapchain.hpp"
#include "vulkan_table.hpp"
#include "window.hpp"

struct Vertex {
  glm::vec2 position;  ///< -1 to 1, y down
  glm::vec4 color;
};

/// Errors are thrown as std::runtime_error.
class Renderer {
 public:
  static constexpr uint32_t kWidth = 960, kHeight = 540;
  static constexpr size_t kMaxVertices = 1 << 16;

  /// `window`: null, or outlives this.
  explicit Renderer(Window* window);
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  /// What to lend; valid as long as this.
  pumice_vulkan_device lent() const;

  /// Draws triangles, after the picture before is done. Beyond kMaxVertices they are left out.
  void draw(const std::vector<Vertex>& vertices);

  /// Writes the last picture to a file of type PPM.
  void save(const std::string& path);

 private:
  void load();
  void create_instance();
  void create_device();
  uint32_t choose_queue_family() const;
  void create_target();
  void create_pipeline();
  void create_frame();
  VkDeviceMemory allocate(const VkMemoryRequirements& requirements, VkMemoryPropertyFlags wanted);
  /// A buffer that the host maps.
  struct Mapped {
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    void* data = nullptr;
  };
  Mapped create_mapped(VkDeviceSize bytes, VkBufferUsageFlags usage);
  VkShaderModule create_shader(const uint32_t* code, size_t bytes);
  void begin();
  void end(bool is_shown);
  void transition(VkImageLayout from, VkImageLayout to);

  Window* window_;
  void* library_ = nullptr;
  VulkanTable vk_;
  VkInstance instance_ = VK_NULL_HANDLE;
  VkSurfaceKHR surface_ = VK_NULL_HANDLE;
  VkPhysicalDevice physical_device_ = VK_NULL_HANDLE;
  VkDevice device_ = VK_NULL_HANDLE;
  uint32_t queue_family_ = 0;
  VkQueue queue_ = VK_NULL_HANDLE;
  std::vector<const char*> extensions_, features_;  // enabled
  std::unique_ptr<Swapchain> swapchain_;
  VkImage image_ = VK_NULL_HANDLE;
  VkDeviceMemory image_memory_ = VK_NULL_HANDLE;
  VkImageView view_ = VK_NULL_HANDLE;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipeline pipeline_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  uint64_t n_submitted_ = 0;
  Mapped vertices_, pixels_;
};
