#include "vk/heap_use.hpp"

#include <algorithm>

namespace pumice::vk {
namespace {

VkPhysicalDevice physical_device_of(const Device& device) {
  const Instance& instance = *device.instance();
  for (const VkPhysicalDevice candidate : instance.physical_devices()) {
    VkPhysicalDeviceIDProperties id{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceProperties2 properties{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                           .pNext = &id};
    instance.functions().vkGetPhysicalDeviceProperties2(candidate, &properties);
    if (std::ranges::equal(id.deviceUUID, device.snapshot().device_uuid) &&
        std::ranges::equal(id.driverUUID, device.snapshot().driver_uuid)) {
      return candidate;
    }
  }
  return VK_NULL_HANDLE;
}

}  // namespace

std::optional<HeapUse> heap_use(const Device& device) {
  const uint32_t heap = device.plan().domain(MemoryDomain::kDevice).heap;
  // RADV's null device crashes when asked for the budget of memory it has not (gfx1201).
  if (!device.plan().has_memory_budget || device.snapshot().heaps[heap].size_bytes == 0) return {};
  const VkPhysicalDevice physical_device = physical_device_of(device);
  if (physical_device == VK_NULL_HANDLE) return {};
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
  device.instance()->functions().vkGetPhysicalDeviceMemoryProperties2(physical_device, &memory);
  return HeapUse{.budget_bytes = budget.heapBudget[heap], .used_bytes = budget.heapUsage[heap]};
}

}  // namespace pumice::vk
