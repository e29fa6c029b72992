#include "vk/landing_marks.hpp"

#include <algorithm>
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
  if (value - seen_ > kMost) return VkCommandBuffer(VK_NULL_HANDLE);
  const auto place = static_cast<uint32_t>(value % kMost);
  VkCommandBuffer& commands = commands_[place];
  if (commands == VK_NULL_HANDLE) {
    VkCommandBufferAllocateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    info.commandPool = pool_;
    info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    info.commandBufferCount = 1;
    VkCommandBuffer made = VK_NULL_HANDLE;
    const VkResult result = device.fn().vkAllocateCommandBuffers(device.handle(), &info, &made);
    if (result != VK_SUCCESS) return device.error_of(result, "allocating a command buffer");
    PUMICE_TRY_STATUS(record(device, made, place));
    commands = made;
  }
  word(words_, place).store(0);
  begun_ = value;
  return commands;
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
  for (const uint64_t end = std::min(reached, begun_); seen_ < end; ++seen_) {
    all = word(words_, (seen_ + 1) % kMost).load() == kWritten && all;
  }
  return all;
}

}  // namespace pumice::vk
