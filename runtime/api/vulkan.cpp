// The C ABI: guests on a host's Vulkan device.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "api/structs.hpp"
#include "vk/compat.hpp"
// After compat.hpp, which knows how to include Vulkan's own header.
#include "pumice/pumice_vulkan.h"
#include "vk/device.hpp"
#include "vk/host_device.hpp"
#include "vk/instance.hpp"
#include "vk/requirements.hpp"

namespace pumice::api {
namespace {

Result<vk::HostRequirements> requirements_of(PFN_vkGetInstanceProcAddr get_instance_proc_addr,
                                             VkInstance instance,
                                             VkPhysicalDevice physical_device) {
  PUMICE_TRY(const vk::Instance lent,
             vk::Instance::adopt(get_instance_proc_addr, instance, physical_device));
  PUMICE_TRY(const std::vector<vk::DeviceSnapshot> snapshots, lent.snapshots());
  return vk::host_requirements(snapshots[0]);
}

ApiStatus write_requirements(const vk::HostRequirements& wanted, pumice_vulkan_requirement* out,
                             size_t capacity, size_t* count) {
  *count = wanted.items.size();
  const size_t stride = capacity > 0 ? out->struct_size : 0;
  auto* bytes = reinterpret_cast<unsigned char*>(out);
  for (size_t i = 0; i < std::min(capacity, wanted.items.size()); ++i) {
    const vk::Requirement& item = wanted.items[i];
    auto* element = reinterpret_cast<pumice_vulkan_requirement*>(bytes + i * stride);
    element->struct_size = stride;
    write_struct(pumice_vulkan_requirement{.struct_size = sizeof(pumice_vulkan_requirement),
                                           .name = item.name,
                                           .structure = item.structure,
                                           .brings = item.brings,
                                           .required = item.required},
                 element);
  }
  if (capacity == 0 || wanted.items.size() <= capacity) return {};
  return {PUMICE_TOO_SMALL,
          fmt::format("{} requirements do not fit an array of {}", wanted.items.size(), capacity)};
}

Result<std::vector<std::string>> read_names(const char* const* names, size_t count,
                                            std::string_view what) {
  PUMICE_TRY(const std::span<const char* const> given, read_array(names, count, what));
  std::vector<std::string> read;
  for (const char* name : given) {
    if (name == nullptr) {
      return make_error(ErrorCode::kInvalidArgument, "one of {} is NULL", what);
    }
    read.emplace_back(name);
  }
  return read;
}

/// What a host lent, and the device on it: the device goes first.
struct Lent {
  pumice_vulkan_device host;
  std::shared_ptr<vk::Device> device;
};

vk::HostQueueLock lock_of(Lent& lent) {
  vk::HostQueueLock lock{.user = &lent};
  if (lent.host.try_lock_queue != nullptr) {
    lock.try_lock = [](void* user) {
      const pumice_vulkan_device& host = static_cast<Lent*>(user)->host;
      return host.try_lock_queue(host.queue_user) != 0;
    };
  }
  if (lent.host.unlock_queue != nullptr) {
    lock.unlock = [](void* user) {
      const pumice_vulkan_device& host = static_cast<Lent*>(user)->host;
      host.unlock_queue(host.queue_user);
    };
  }
  return lock;
}

vk::HostAllocator allocator_of(Lent& lent) {
  vk::HostAllocator allocator{.user = &lent};
  if (lent.host.allocate != nullptr) {
    allocator.allocate = [](void* user, const vk::HostMemoryRequest& request, vk::HostMemory& out) {
      const pumice_vulkan_device& host = static_cast<Lent*>(user)->host;
      const pumice_vulkan_memory_request wanted{.struct_size = sizeof(pumice_vulkan_memory_request),
                                                .size_bytes = request.size_bytes,
                                                .alignment = request.alignment,
                                                .memory_type = request.memory_type,
                                                .priority = request.priority,
                                                .mapped = request.mapped};
      pumice_vulkan_memory memory{.struct_size = sizeof(pumice_vulkan_memory)};
      const VkResult result = host.allocate(host.memory_user, &wanted, &memory);
      out = {memory.memory, memory.offset, memory.mapped, memory.host_data};
      return result;
    };
  }
  if (lent.host.free != nullptr) {
    allocator.free = [](void* user, const vk::HostMemory& memory) {
      const pumice_vulkan_device& host = static_cast<Lent*>(user)->host;
      const pumice_vulkan_memory given{.struct_size = sizeof(pumice_vulkan_memory),
                                       .memory = memory.memory,
                                       .offset = memory.offset,
                                       .mapped = memory.mapped,
                                       .host_data = memory.host_data};
      host.free(host.memory_user, &given);
    };
  }
  return allocator;
}

Result<std::shared_ptr<vk::Device>> adopt(const pumice_vulkan_device& host,
                                          const host::OpenOptions& options) {
  auto lent = std::make_shared<Lent>(Lent{.host = host});
  vk::HostDevice device{.get_instance_proc_addr = host.get_instance_proc_addr,
                        .instance = host.instance,
                        .physical_device = host.physical_device,
                        .device = host.device,
                        .queue_family = host.queue_family,
                        .queue = host.queue,
                        .queue_lock = lock_of(*lent),
                        .allocator = allocator_of(*lent)};
  if (host.api_version != 0) device.api_version = host.api_version;
  PUMICE_TRY(device.extensions, read_names(host.extensions, host.n_extensions, "extensions"));
  PUMICE_TRY(device.features, read_names(host.features, host.n_features, "features"));
  PUMICE_TRY(lent->device, vk::Device::adopt(device, options.device.limits, options.logger));
  lent->device->set_hang_timeout(options.device.hang_timeout_s);
  // What holds the device keeps what it calls alive.
  vk::Device* adopted = lent->device.get();
  return std::shared_ptr<vk::Device>(std::move(lent), adopted);
}

Result<std::unique_ptr<pumice_device>> open(const pumice_vulkan_device* given,
                                            const pumice_device_options* given_options) {
  PUMICE_TRY(const pumice_vulkan_device host, read_struct(given, "host"));
  PUMICE_TRY(DeviceOptions options, read_device_options(given_options));
  const host::DeviceRequest& request = options.open.device;
  if (!request.selector.empty() || request.validation || request.low_priority) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "selector, validation and low_priority cannot be set for a device that the host lends");
  }
  PUMICE_TRY(std::shared_ptr<vk::Device> device, adopt(host, options.open));
  // Without a way to reopen it: the host that lent it brings another.
  return make_device(
      std::make_shared<host::DeviceOwner>(std::move(device), std::move(options.open), nullptr),
      std::move(options.log));
}

ApiStatus replace(host::DeviceOwner& owner, const pumice_vulkan_device* given) {
  if (!owner.is_lent()) return invalid("device was not lent by a host");
  PUMICE_TRY(const pumice_vulkan_device host, read_struct(given, "host"));
  PUMICE_TRY(std::shared_ptr<vk::Device> device, adopt(host, owner.options()));
  return owner.replace(std::move(device));
}

}  // namespace
}  // namespace pumice::api

using namespace pumice;
using namespace pumice::api;

pumice_status pumice_vulkan_requirements(PFN_vkGetInstanceProcAddr get_instance_proc_addr,
                                         VkInstance instance, VkPhysicalDevice physical_device,
                                         pumice_vulkan_requirement* requirements, size_t capacity,
                                         size_t* n_requirements, uint32_t* queue_family) {
  return guarded([&]() -> ApiStatus {
    if (queue_family != nullptr) *queue_family = 0;
    PUMICE_TRY_STATUS(check_output_array(requirements, capacity, n_requirements));
    if (capacity > 0) PUMICE_TRY_STATUS(check_struct(requirements, "requirements"));
    const auto wanted = requirements_of(get_instance_proc_addr, instance, physical_device);
    if (!wanted.ok()) return wanted.error();
    if (queue_family != nullptr) *queue_family = wanted->queue_family;
    return write_requirements(*wanted, requirements, capacity, n_requirements);
  });
}

pumice_status pumice_vulkan_device_open(const pumice_vulkan_device* host,
                                        const pumice_device_options* options,
                                        pumice_device** device) {
  return guarded([&]() -> ApiStatus {
    if (device == nullptr) return invalid("device is NULL");
    *device = nullptr;
    Result<std::unique_ptr<pumice_device>> opened = open(host, options);
    if (!opened.ok()) return opened.error();
    *device = opened->release();
    return {};
  });
}

pumice_status pumice_vulkan_replace(pumice_device* device, const pumice_vulkan_device* host) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(device, "device"));
    return replace(*device->owner, host);
  });
}

pumice_status pumice_vulkan_begin_after(pumice_device* device, VkSemaphore semaphore,
                                        uint64_t value) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(device, "device"));
    if (semaphore == VK_NULL_HANDLE) return invalid("semaphore is VK_NULL_HANDLE");
    return device->owner->with_device([&](vk::Device& now) {
      now.begin_after({semaphore, value});
    });
  });
}

pumice_status pumice_vulkan_submitted(pumice_device* device, VkSemaphore* semaphore,
                                      uint64_t* value) {
  return guarded([&]() -> ApiStatus {
    if (semaphore == nullptr || value == nullptr) return invalid("semaphore or value is NULL");
    *semaphore = VK_NULL_HANDLE;
    *value = 0;
    PUMICE_TRY_STATUS(check_handle(device, "device"));
    return device->owner->with_device([&](vk::Device& now) {
      const vk::TimelinePoint point = now.submitted();
      *semaphore = point.semaphore;
      *value = point.value;
    });
  });
}
