#include "vk/landing_marks.hpp"

#include <atomic>

#include "vk/device.hpp"

namespace pumice::vk {
namespace {

constexpr uint32_t kWritten = 1;

std::atomic_ref<uint32_t> word(const Slab& words, uint64_t place) {
  return std::atomic_ref(reinterpret_cast<uint32_t*>(words.mapped)[place]);
}

}  // namespace

Status LandingMarks::create(Device& device) {
  PUMICE_TRY(words_, device.allocate_slab(MemoryDomain::kReadback, kMost * sizeof(uint32_t),
                                          "landing marks"));
  VkCommandPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  info.queueFamilyIndex = device.plan().queue_family;
  const VkResult result = device.fn().vkCreateCommandPool(device.handle(), &info, nullptr, &pool_);
  if (result != VK_SUCCESS) return device.error_of(result, "creating a command pool");
  return {};
}

void LandingMarks::destroy(Device& device) {
  if (pool_) device.fn().vkDestroyCommandPool(device.handle(), pool_, nullptr);
  if (words_.buffer) device.free_slab(words_);
}

Result<VkCommandBuffer> LandingMarks::commands(Device& device, uint64_t value) {
  const std::lock_guard lock(mutex_);
  if (!under_way_.empty() && under_way_.back().value == value) {
    return commands_[under_way_.back().place];
  }
  if (free_.empty() && commands_.size() == kMost) return VkCommandBuffer(VK_NULL_HANDLE);
  if (free_.empty()) {
    const auto place = static_cast<uint32_t>(commands_.size());
    VkCommandBufferAllocateInfo info{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                     .commandPool = pool_,
                                     .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                     .commandBufferCount = 1};
    VkCommandBuffer made = VK_NULL_HANDLE;
    const VkResult result = device.fn().vkAllocateCommandBuffers(device.handle(), &info, &made);
    if (result != VK_SUCCESS) return device.error_of(result, "allocating a command buffer");
    PUMICE_TRY_STATUS(record(device, made, place));
    free_.reserve(commands_.size() + 1);  // so that giving a place back cannot fail
    commands_.push_back(made);
    free_.push_back(place);
  }
  under_way_.push_back({value, free_.back()});
  free_.pop_back();
  word(words_, under_way_.back().place).store(0);
  return commands_[under_way_.back().place];
}

Status LandingMarks::record(Device& device, VkCommandBuffer commands, uint32_t place) const {
  const DeviceFunctions& fn = device.fn();
  VkCommandBufferBeginInfo begin{};
  begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  VkResult result = fn.vkBeginCommandBuffer(commands, &begin);
  if (result != VK_SUCCESS) return device.error_of(result, "starting a command buffer");
  VkMemoryBarrier2 memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2;
  memory.srcStageMask =
      VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT;
  memory.dstStageMask = VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT;
  VkDependencyInfo dependency{};
  dependency.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO;
  dependency.memoryBarrierCount = 1;
  dependency.pMemoryBarriers = &memory;
  fn.vkCmdPipelineBarrier2(commands, &dependency);  // behind all that the submission does
  fn.vkCmdFillBuffer(commands, words_.buffer, place * sizeof(uint32_t), sizeof(uint32_t), kWritten);
  memory.srcStageMask = VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT;
  memory.srcAccessMask = VK_ACCESS_2_TRANSFER_WRITE_BIT;
  memory.dstStageMask = VK_PIPELINE_STAGE_2_HOST_BIT;
  memory.dstAccessMask = VK_ACCESS_2_HOST_READ_BIT;
  fn.vkCmdPipelineBarrier2(commands, &dependency);
  result = fn.vkEndCommandBuffer(commands);
  if (result != VK_SUCCESS) return device.error_of(result, "ending a command buffer");
  return {};
}

bool LandingMarks::all_written(uint64_t reached) {
  const std::lock_guard lock(mutex_);
  bool all = true;
  for (; !under_way_.empty() && under_way_.front().value <= reached; under_way_.pop_front()) {
    const uint32_t place = under_way_.front().place;
    all = word(words_, place).load() == kWritten && all;
    free_.push_back(place);
  }
  return all;
}

}  // namespace pumice::vk
