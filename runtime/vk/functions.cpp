#include "vk/functions.hpp"

#include <volk.h>

#include <mutex>

namespace pumice::vk {
namespace {

// Of volk's globals only this pointer, which opening the library leaves behind, is ever read.
PFN_vkGetInstanceProcAddr open_library() {
  static std::mutex mutex;  // volkInitialize writes globals
  const std::lock_guard lock(mutex);
  return volkInitialize() == VK_SUCCESS ? ::vkGetInstanceProcAddr : nullptr;
}

template <typename Function, typename Lookup>
void load(Function& function, const Lookup& lookup, const char* name) {
  function = reinterpret_cast<Function>(lookup(name));
}

Error missing(const char* name, const char* where) {
  return make_error(ErrorCode::kNoDevice, "the Vulkan {} lacks the function {}: update the driver",
                    where, name);
}

}  // namespace

#define PUMICE_VK_LOAD(name) load(table.name, lookup, #name);
#define PUMICE_VK_REQUIRE(name) \
  if (table.name == nullptr) return missing(#name, where);

Result<LoaderFunctions> open_loader() {
  const PFN_vkGetInstanceProcAddr get_proc = open_library();
  if (get_proc == nullptr) {
    return make_error(
        ErrorCode::kNoDevice,
        "no Vulkan loader (libvulkan.so.1, on Windows vulkan-1.dll) found: install libvulkan1 "
        "(Debian, Ubuntu), vulkan-loader (Fedora, macOS) or the graphics driver");
  }
  return load_loader_functions(get_proc);
}

Result<LoaderFunctions> load_loader_functions(PFN_vkGetInstanceProcAddr get_proc) {
  LoaderFunctions table;
  table.vkGetInstanceProcAddr = get_proc;
  const char* where = "loader (1.1 or newer is needed)";
  const auto lookup = [&](const char* name) { return get_proc(VK_NULL_HANDLE, name); };
  PUMICE_VK_LOADER_FUNCTIONS(PUMICE_VK_LOAD)
  PUMICE_VK_LOADER_FUNCTIONS(PUMICE_VK_REQUIRE)
  return table;
}

Result<InstanceFunctions> load_instance_functions(PFN_vkGetInstanceProcAddr get_proc,
                                                  VkInstance instance) {
  InstanceFunctions table;
  const char* where = "instance";
  const auto lookup = [&](const char* name) { return get_proc(instance, name); };
  PUMICE_VK_INSTANCE_FUNCTIONS(PUMICE_VK_LOAD)
  PUMICE_VK_OPTIONAL_INSTANCE_FUNCTIONS(PUMICE_VK_LOAD)
  PUMICE_VK_INSTANCE_FUNCTIONS(PUMICE_VK_REQUIRE)
  return table;
}

Result<DeviceFunctions> load_device_functions(const InstanceFunctions& instance, VkDevice device) {
  DeviceFunctions table;
  const char* where = "device";
  const auto lookup = [&](const char* name) { return instance.vkGetDeviceProcAddr(device, name); };
  PUMICE_VK_DEVICE_FUNCTIONS(PUMICE_VK_LOAD)
  PUMICE_VK_OPTIONAL_DEVICE_FUNCTIONS(PUMICE_VK_LOAD)
  PUMICE_VK_DEVICE_FUNCTIONS(PUMICE_VK_REQUIRE)
  return table;
}

std::string vk_result_name(VkResult result) {
#define PUMICE_VK_NAME(code) \
  case code:                 \
    return #code;
  switch (result) {
    PUMICE_VK_NAME(VK_SUCCESS)
    PUMICE_VK_NAME(VK_NOT_READY)
    PUMICE_VK_NAME(VK_TIMEOUT)
    PUMICE_VK_NAME(VK_INCOMPLETE)
    PUMICE_VK_NAME(VK_ERROR_OUT_OF_HOST_MEMORY)
    PUMICE_VK_NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
    PUMICE_VK_NAME(VK_ERROR_INITIALIZATION_FAILED)
    PUMICE_VK_NAME(VK_ERROR_DEVICE_LOST)
    PUMICE_VK_NAME(VK_ERROR_MEMORY_MAP_FAILED)
    PUMICE_VK_NAME(VK_ERROR_LAYER_NOT_PRESENT)
    PUMICE_VK_NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
    PUMICE_VK_NAME(VK_ERROR_FEATURE_NOT_PRESENT)
    PUMICE_VK_NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
    PUMICE_VK_NAME(VK_ERROR_TOO_MANY_OBJECTS)
    PUMICE_VK_NAME(VK_ERROR_FRAGMENTATION)
    PUMICE_VK_NAME(VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS)
    PUMICE_VK_NAME(VK_ERROR_UNKNOWN)
    PUMICE_VK_NAME(VK_PIPELINE_COMPILE_REQUIRED)
    default:
      return fmt::format("VkResult({})", static_cast<int>(result));
  }
#undef PUMICE_VK_NAME
}

}  // namespace pumice::vk
