// A device that a host application lends: its handles, what it enabled on them, and how to use its
// queue. Nothing of the host's is ever destroyed, waited for as a whole or changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vk/functions.hpp"

namespace pumice::vk {

/// How others' use of the queue is kept apart from ours. Both are called from threads that call
/// into the device, one right after the other; `try_lock` never waits.
struct HostQueueLock {
  bool (*try_lock)(void* user) = nullptr;  ///< null: nobody but this device uses the queue
  void (*unlock)(void* user) = nullptr;
  void* user = nullptr;
};

/// Memory that a host is asked for: one slab, of which there are few (`DevicePlan::slab_bytes`), so
/// that a host's allocator sees no more of what lies inside than the driver would.
struct HostMemoryRequest {
  uint64_t size_bytes = 0;
  uint64_t alignment = 0;    ///< of the offset, a power of two
  uint32_t memory_type = 0;  ///< index of the memory type to use
  float priority = 0;        ///< as VkMemoryPriorityAllocateInfoEXT has it
  bool mapped = false;       ///< `HostMemory::mapped` is needed
};

/// Bytes [offset, offset + size) of a VkDeviceMemory made with
/// VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT.
struct HostMemory {
  VkDeviceMemory memory = VK_NULL_HANDLE;
  uint64_t offset = 0;
  void* mapped = nullptr;     ///< host pointer to byte `offset`, if asked for
  void* host_data = nullptr;  ///< the host's own; given back with the rest
};

/// A host's allocator. Both are called from threads that call into the device; neither may call
/// back.
struct HostAllocator {
  /// Null: memory comes from the driver. On failure `out` is not read.
  VkResult (*allocate)(void* user, const HostMemoryRequest& request, HostMemory& out) = nullptr;
  void (*free)(void* user, const HostMemory& memory) = nullptr;
  void* user = nullptr;
};

struct HostDevice {
  PFN_vkGetInstanceProcAddr get_instance_proc_addr = nullptr;
  VkInstance instance = VK_NULL_HANDLE;
  uint32_t api_version = VK_API_VERSION_1_3;  ///< VkApplicationInfo::apiVersion of the instance
  VkPhysicalDevice physical_device = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  uint32_t queue_family = 0;  ///< one that computes
  VkQueue queue = VK_NULL_HANDLE;
  HostQueueLock queue_lock = {};
  std::vector<std::string> extensions = {};  ///< enabled device extensions
  /// Enabled features, by the names of their members in VkPhysicalDeviceFeatures and the structures
  /// chained to it; names that nothing here uses are ignored.
  std::vector<std::string> features = {};
  HostAllocator allocator = {};
};

/// A timeline semaphore and the value at which something has happened.
struct TimelinePoint {
  VkSemaphore semaphore = VK_NULL_HANDLE;
  uint64_t value = 0;
};

}  // namespace pumice::vk
