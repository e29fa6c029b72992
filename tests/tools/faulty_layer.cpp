// A Vulkan layer for tests of whole programs: it loses the device, or leaves less of its memory, when it is told to.
//
// PUMICE_TEST_FAULTS names a folder. A file "lose" there: the next submission loses the device, and the file is
// removed. A file "grant" with a number: so many bytes of each heap are what VK_EXT_memory_budget says the process may
// use; it says of what was allocated through here that it is used, on every driver. With a file "silent" there is no
// such extension.
#include <unistd.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace {

/// Its functions are looked up when it is made: later the loader gives the first layer's, which may be this one.
struct Instance {
  PFN_vkGetInstanceProcAddr next = nullptr;
  PFN_vkDestroyInstance destroy = nullptr;
  PFN_vkEnumerateDeviceExtensionProperties list_extensions = nullptr;
  PFN_vkGetPhysicalDeviceMemoryProperties memory_properties = nullptr;
  PFN_vkGetPhysicalDeviceMemoryProperties2 memory_properties2 = nullptr;
  PFN_vkCreateDevice create_device = nullptr;
};

struct Device {
  VkDevice handle = VK_NULL_HANDLE;
  PFN_vkGetDeviceProcAddr next = nullptr;
  std::vector<uint32_t> heaps;  // of memory types
  std::atomic<bool> is_lost = false;

  template <typename F>
  F real(const char* name) const {
    return reinterpret_cast<F>(next(handle, name));
  }
};

struct Allocation {
  uint32_t heap = 0;
  VkDeviceSize bytes = 0;
};

std::mutex mutex;
std::map<void*, Instance> instances;  // by dispatch table, which what is made of one shares
std::map<void*, std::shared_ptr<Device>> devices;  // likewise
std::map<VkDeviceMemory, Allocation> allocations;
std::array<VkDeviceSize, VK_MAX_MEMORY_HEAPS> used = {};

template <typename Handle>
void* key_of(Handle handle) {
  return *reinterpret_cast<void**>(handle);
}

template <typename Handle>
Instance instance_of(Handle handle) {
  const std::lock_guard lock(mutex);
  return instances.at(key_of(handle));
}

template <typename Handle>
std::shared_ptr<Device> device_of(Handle handle) {
  const std::lock_guard lock(mutex);
  return devices.at(key_of(handle));
}

std::string fault(const char* name) {
  const char* folder = std::getenv("PUMICE_TEST_FAULTS");
  return folder != nullptr ? std::string(folder) + "/" + name : std::string();
}

// ---- instances

template <typename Link, typename Info>
Link* chain_link(const Info* info, VkStructureType type) {
  auto* link = static_cast<Link*>(const_cast<void*>(info->pNext));
  while (link != nullptr && !(link->sType == type && link->function == VK_LAYER_LINK_INFO)) {
    link = static_cast<Link*>(const_cast<void*>(link->pNext));
  }
  return link;
}

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo* info,
                                               const VkAllocationCallbacks* callbacks,
                                               VkInstance* instance) {
  auto* link =
      chain_link<VkLayerInstanceCreateInfo>(info, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
  if (link == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
  const PFN_vkGetInstanceProcAddr next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  const auto create =
      reinterpret_cast<PFN_vkCreateInstance>(next(VK_NULL_HANDLE, "vkCreateInstance"));
  const VkResult result = create(info, callbacks, instance);
  if (result != VK_SUCCESS) return result;
  Instance known{.next = next};
  const auto look_up = [&]<typename F>(const char* name, F& function) {
    function = reinterpret_cast<F>(next(*instance, name));
  };
  look_up("vkDestroyInstance", known.destroy);
  look_up("vkEnumerateDeviceExtensionProperties", known.list_extensions);
  look_up("vkGetPhysicalDeviceMemoryProperties", known.memory_properties);
  look_up("vkGetPhysicalDeviceMemoryProperties2", known.memory_properties2);
  look_up("vkCreateDevice", known.create_device);
  const std::lock_guard lock(mutex);
  instances[key_of(*instance)] = known;
  return result;
}

VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance instance,
                                            const VkAllocationCallbacks* callbacks) {
  if (instance == VK_NULL_HANDLE) return;
  const Instance known = instance_of(instance);
  {
    const std::lock_guard lock(mutex);
    instances.erase(key_of(instance));
  }
  known.destroy(instance, callbacks);
}

VKAPI_ATTR VkResult VKAPI_CALL list_extensions(VkPhysicalDevice physical, const char* layer,
                                               uint32_t* n, VkExtensionProperties* properties) {
  const auto real = instance_of(physical).list_extensions;
  uint32_t n_real = 0;
  if (const VkResult result = real(physical, layer, &n_real, nullptr); result != VK_SUCCESS)
    return result;
  std::vector<VkExtensionProperties> all(n_real);
  if (const VkResult result = real(physical, layer, &n_real, all.data()); result != VK_SUCCESS)
    return result;
  all.resize(n_real);
  std::erase_if(all, [](const VkExtensionProperties& one) {
    return std::string_view(one.extensionName) == VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
  });
  if (::access(fault("silent").c_str(), F_OK) != 0) {
    all.push_back({VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, VK_EXT_MEMORY_BUDGET_SPEC_VERSION});
  }
  if (properties == nullptr) {
    *n = static_cast<uint32_t>(all.size());
    return VK_SUCCESS;
  }
  const bool is_short = *n < all.size();
  *n = std::min(*n, static_cast<uint32_t>(all.size()));
  std::copy_n(all.begin(), *n, properties);
  return is_short ? VK_INCOMPLETE : VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice physical,
                                             VkPhysicalDeviceMemoryProperties2* properties) {
  instance_of(physical).memory_properties2(physical, properties);
  auto* next = static_cast<VkBaseOutStructure*>(properties->pNext);
  while (next != nullptr &&
         next->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) {
    next = next->pNext;
  }
  if (next == nullptr) return;
  auto& budget = *reinterpret_cast<VkPhysicalDeviceMemoryBudgetPropertiesEXT*>(next);
  VkDeviceSize granted = 0;
  std::ifstream file(fault("grant"));
  const bool is_limited = static_cast<bool>(file >> granted);
  const VkPhysicalDeviceMemoryProperties& memory = properties->memoryProperties;
  const std::lock_guard lock(mutex);
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    budget.heapUsage[i] = used[i];
    budget.heapBudget[i] = is_limited ? granted : memory.memoryHeaps[i].size;
  }
}

// ---- devices

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                             const VkDeviceCreateInfo* info,
                                             const VkAllocationCallbacks* callbacks,
                                             VkDevice* device) {
  auto* link =
      chain_link<VkLayerDeviceCreateInfo>(info, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
  if (link == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
  const PFN_vkGetDeviceProcAddr next = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  const Instance instance = instance_of(physical);
  // The driver may not know it; whoever does needs no enabling to be asked.
  std::vector<const char*> names(info->ppEnabledExtensionNames,
                                 info->ppEnabledExtensionNames + info->enabledExtensionCount);
  std::erase_if(names, [](const char* name) {
    return std::string_view(name) == VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
  });
  VkDeviceCreateInfo changed = *info;
  changed.enabledExtensionCount = static_cast<uint32_t>(names.size());
  changed.ppEnabledExtensionNames = names.data();
  const VkResult result = instance.create_device(physical, &changed, callbacks, device);
  if (result != VK_SUCCESS) return result;
  auto known = std::make_shared<Device>();
  known->handle = *device;
  known->next = next;
  VkPhysicalDeviceMemoryProperties memory;
  instance.memory_properties(physical, &memory);
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i)
    known->heaps.push_back(memory.memoryTypes[i].heapIndex);
  const std::lock_guard lock(mutex);
  devices[key_of(*device)] = known;
  return result;
}

VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice device, const VkAllocationCallbacks* callbacks) {
  if (device == VK_NULL_HANDLE) return;
  const std::shared_ptr<Device> known = device_of(device);
  {
    const std::lock_guard lock(mutex);
    devices.erase(key_of(device));
  }
  known->real<PFN_vkDestroyDevice>("vkDestroyDevice")(device, callbacks);
}

VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo* info,
                                        const VkAllocationCallbacks* callbacks,
                                        VkDeviceMemory* memory) {
  const std::shared_ptr<Device> known = device_of(device);
  const VkResult result =
      known->real<PFN_vkAllocateMemory>("vkAllocateMemory")(device, info, callbacks, memory);
  if (result != VK_SUCCESS) return result;
  const std::lock_guard lock(mutex);
  const Allocation allocation{known->heaps.at(info->memoryTypeIndex), info->allocationSize};
  allocations[*memory] = allocation;
  used.at(allocation.heap) += allocation.bytes;
  return result;
}

VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice device, VkDeviceMemory memory,
                                       const VkAllocationCallbacks* callbacks) {
  {
    const std::lock_guard lock(mutex);
    if (const auto it = allocations.find(memory); it != allocations.end()) {
      used.at(it->second.heap) -= it->second.bytes;
      allocations.erase(it);
    }
  }
  device_of(device)->real<PFN_vkFreeMemory>("vkFreeMemory")(device, memory, callbacks);
}

/// Now, if that was asked for. What is under way ends first, as the program may free what it works on.
bool loses(Device& device) {
  if (device.is_lost) return true;
  const std::string file = fault("lose");
  if (file.empty() || ::unlink(file.c_str()) != 0) return false;
  device.is_lost = true;
  device.real<PFN_vkDeviceWaitIdle>("vkDeviceWaitIdle")(device.handle);
  return true;
}

VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t n, const VkSubmitInfo2* infos,
                                      VkFence fence) {
  const std::shared_ptr<Device> device = device_of(queue);
  if (loses(*device)) return VK_ERROR_DEVICE_LOST;
  return device->real<PFN_vkQueueSubmit2>("vkQueueSubmit2")(queue, n, infos, fence);
}

VKAPI_ATTR VkResult VKAPI_CALL wait(VkDevice handle, const VkSemaphoreWaitInfo* info,
                                    uint64_t timeout) {
  const std::shared_ptr<Device> device = device_of(handle);
  if (device->is_lost) return VK_ERROR_DEVICE_LOST;
  return device->real<PFN_vkWaitSemaphores>("vkWaitSemaphores")(handle, info, timeout);
}

VKAPI_ATTR VkResult VKAPI_CALL value_of(VkDevice handle, VkSemaphore semaphore, uint64_t* value) {
  const std::shared_ptr<Device> device = device_of(handle);
  if (device->is_lost) return VK_ERROR_DEVICE_LOST;
  return device->real<PFN_vkGetSemaphoreCounterValue>("vkGetSemaphoreCounterValue")(
      handle, semaphore, value);
}

VKAPI_ATTR VkResult VKAPI_CALL wait_idle(VkDevice handle) {
  const std::shared_ptr<Device> device = device_of(handle);
  if (device->is_lost) return VK_ERROR_DEVICE_LOST;
  return device->real<PFN_vkDeviceWaitIdle>("vkDeviceWaitIdle")(handle);
}

// ---- which entry points are ours

struct Entry {
  const char* name;
  PFN_vkVoidFunction function;
};

template <typename F>
PFN_vkVoidFunction entry(F* function) {
  return reinterpret_cast<PFN_vkVoidFunction>(function);
}

PFN_vkVoidFunction find(const char* name, std::initializer_list<Entry> entries) {
  for (const Entry& one : entries) {
    if (std::strcmp(one.name, name) == 0) return one.function;
  }
  return nullptr;
}

PFN_vkVoidFunction of_device(const char* name) {
  return find(name, {{"vkDestroyDevice", entry(destroy_device)},
                     {"vkAllocateMemory", entry(allocate)},
                     {"vkFreeMemory", entry(free_memory)},
                     {"vkQueueSubmit2", entry(submit)},
                     {"vkQueueSubmit2KHR", entry(submit)},
                     {"vkWaitSemaphores", entry(wait)},
                     {"vkWaitSemaphoresKHR", entry(wait)},
                     {"vkGetSemaphoreCounterValue", entry(value_of)},
                     {"vkGetSemaphoreCounterValueKHR", entry(value_of)},
                     {"vkDeviceWaitIdle", entry(wait_idle)}});
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char* name) {
  if (std::strcmp(name, "vkGetDeviceProcAddr") == 0) return entry(device_function);
  const PFN_vkVoidFunction own = of_device(name);
  const PFN_vkVoidFunction real = device_of(device)->next(device, name);
  return own != nullptr && real != nullptr ? own : real;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance instance, const char* name) {
  const PFN_vkVoidFunction own =
      find(name, {{"vkGetInstanceProcAddr", entry(instance_function)},
                  {"vkGetDeviceProcAddr", entry(device_function)},
                  {"vkCreateInstance", entry(create_instance)},
                  {"vkDestroyInstance", entry(destroy_instance)},
                  {"vkEnumerateDeviceExtensionProperties", entry(list_extensions)},
                  {"vkGetPhysicalDeviceMemoryProperties2", entry(memory_properties)},
                  {"vkGetPhysicalDeviceMemoryProperties2KHR", entry(memory_properties)},
                  {"vkCreateDevice", entry(create_device)}});
  if (own != nullptr) return own;
  if (const PFN_vkVoidFunction of_its_devices = of_device(name)) return of_its_devices;
  return instance != VK_NULL_HANDLE ? instance_of(instance).next(instance, name) : nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* versions) {
  if (versions->loaderLayerInterfaceVersion < 2) return VK_ERROR_INITIALIZATION_FAILED;
  versions->loaderLayerInterfaceVersion = 2;
  versions->pfnGetInstanceProcAddr = instance_function;
  versions->pfnGetDeviceProcAddr = device_function;
  versions->pfnGetPhysicalDeviceProcAddr = nullptr;
  return VK_SUCCESS;
}
