// Pumice on a Vulkan device of the host's. Before it creates the device the host asks what to
// enable; then it lends instance, device and queue. Nothing of the host's is destroyed, changed or
// waited for as a whole; what was lent must outlive every pumice_device, model and engine on it.
//
// Features are names of members of Vulkan's structures, so that a host may chain whichever
// structures it likes.
#ifndef PUMICE_PUMICE_VULKAN_H
#define PUMICE_PUMICE_VULKAN_H

#include <vulkan/vulkan_core.h>

#include "pumice.h"

#ifdef __cplusplus
extern "C" {
#endif

// An extension or a feature to enable. Texts are NUL-terminated and stay valid.
typedef struct pumice_vulkan_requirement {
  size_t struct_size;
  const char* name;
  // Of a feature the structure that `name` is a member of, "VkPhysicalDeviceVulkan12Features";
  // NULL: an extension.
  const char* structure;
  const char* brings;    // what it is for
  pumice_bool required;  // without it the device cannot be used
} pumice_vulkan_requirement;

// What to enable on a device that will be lent; optional are those that it has and that would be
// used. The instance must be of Vulkan 1.3 (VkApplicationInfo::apiVersion). `requirements`: an
// array of `capacity` structs, of which the first has its struct_size set; NULL with capacity 0
// asks for the number. `queue_family` (may be NULL): the best for the queue; any other that
// computes serves. PUMICE_NO_DEVICE: the device cannot be used, and the message says what it lacks.
PUMICE_API pumice_status pumice_vulkan_requirements(
    PFN_vkGetInstanceProcAddr get_instance_proc_addr, VkInstance instance,
    VkPhysicalDevice physical_device, pumice_vulkan_requirement* requirements, size_t capacity,
    size_t* n_requirements, uint32_t* queue_family);

// Memory for many tensors at once, of which there are few; at most 1 GiB.
typedef struct pumice_vulkan_memory_request {
  size_t struct_size;
  uint64_t size_bytes;
  uint64_t alignment;    // of the offset
  uint32_t memory_type;  // index
  float priority;        // as VkMemoryPriorityAllocateInfoEXT has it
  pumice_bool mapped;    // `mapped` of the answer is wanted
} pumice_vulkan_memory_request;

typedef struct pumice_vulkan_memory {
  size_t struct_size;
  VkDeviceMemory memory;  // allocated with VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT
  uint64_t offset;
  void* mapped;     // host pointer to byte `offset`
  void* host_data;  // the host's own
} pumice_vulkan_memory;

typedef struct pumice_vulkan_device {
  size_t struct_size;
  PFN_vkGetInstanceProcAddr get_instance_proc_addr;
  VkInstance instance;
  VkPhysicalDevice physical_device;
  VkDevice device;
  VkQueue queue;
  uint32_t queue_family;  // of `queue`
  uint32_t api_version;   // the instance's; 0: VK_API_VERSION_1_3
  // What the host enabled: all it did, or what matters here. Feature names are NUL-terminated.
  const char* const* extensions;
  size_t n_extensions;
  const char* const* features;
  size_t n_features;
  // The lock of a queue that others use too; NULL: nobody does. try_lock_queue returns 1 when it
  // has taken it, 0 at once if it cannot. pumice_poll then goes on another time; every other call
  // tries until it can, so the thread in it must not hold the lock. Called by the threads that call
  // in, and so are the functions for memory; none may call back.
  pumice_bool (*try_lock_queue)(void* queue_user);
  void (*unlock_queue)(void* queue_user);
  void* queue_user;
  // The host's own allocator of device memory; NULL: the driver's. `memory` is written on
  // VK_SUCCESS, and given back as it was.
  VkResult (*allocate)(void* memory_user, const pumice_vulkan_memory_request* request,
                       pumice_vulkan_memory* memory);
  void (*free)(void* memory_user, const pumice_vulkan_memory* memory);
  void* memory_user;
} pumice_vulkan_device;

// As pumice_device_open, on a device of the host's. Of the options `selector`, `validation` and
// `low_priority` are the host's business and must be unset. PUMICE_NO_DEVICE: a requirement is not
// enabled; the message names it.
PUMICE_API pumice_status pumice_vulkan_device_open(const pumice_vulkan_device* host,
                                                   const pumice_device_options* options,
                                                   pumice_device** device);

// Another device of the host's for one that was lost, or for any other reason: the models of
// `device` are loaded on it in this call, and each engine goes on there with its next pumice_poll,
// which brings PUMICE_EVENT_DEVICE_NEW. `host` as for pumice_vulkan_device_open; the device options
// stay what they were. From any thread. After a loss nothing of the lost device is kept once each
// engine on it has returned PUMICE_DEVICE_LOST from pumice_poll, but by models without an engine
// and by calls under way that make an engine or load a model: then it may be destroyed, before
// another is made. One that is replaced though it works must outlive the next pumice_poll of each
// engine, and before that poll the host's own work that waits for its pumice_vulkan_submitted must
// have finished.
PUMICE_API pumice_status pumice_vulkan_replace(pumice_device* device,
                                               const pumice_vulkan_device* host);

// What is submitted from now on begins when the host's semaphore, of type timeline and of the same
// VkDevice, has reached the value. What signals it must not be queued behind this device's work.
// From any thread.
PUMICE_API pumice_status pumice_vulkan_begin_after(pumice_device* device, VkSemaphore semaphore,
                                                   uint64_t value);
// A timeline semaphore of the library's, and the value it reaches when all that was submitted so
// far is done: for the host's work or threads to wait for, never to signal or destroy. It lives as
// long as the device or anything made on it: what the host submitted to wait for it must have
// finished before the last of those is closed, which destroys it. From any thread.
PUMICE_API pumice_status pumice_vulkan_submitted(pumice_device* device, VkSemaphore* semaphore,
                                                 uint64_t* value);

#ifdef __cplusplus
}
#endif
#endif  // PUMICE_PUMICE_VULKAN_H
