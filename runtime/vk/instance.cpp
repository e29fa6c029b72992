#include "vk/instance.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace pumice::vk {

// Its address is the debug callback's user data, so it must not move.
struct Instance::State {
  Logger logger;
  std::atomic<uint64_t> error_count{0};
  LoaderFunctions loader;
  InstanceFunctions functions;
  VkInstance instance = VK_NULL_HANDLE;
  std::atomic<bool> is_owned = true;  // and is to be destroyed
  VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;
  std::vector<VkPhysicalDevice> devices;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (messenger != VK_NULL_HANDLE) {
      functions.vkDestroyDebugUtilsMessengerEXT(instance, messenger, nullptr);
    }
    if (is_owned && instance != VK_NULL_HANDLE && functions.vkDestroyInstance != nullptr) {
      functions.vkDestroyInstance(instance, nullptr);
    }
  }

  static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                   VkDebugUtilsMessageTypeFlagsEXT,
                                                   const VkDebugUtilsMessengerCallbackDataEXT* data,
                                                   void* user) {
    State& state = *static_cast<State*>(user);
    const bool is_error = severity >= VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    if (is_error) state.error_count.fetch_add(1, std::memory_order_relaxed);
    state.logger.log(is_error ? LogLevel::kError : LogLevel::kWarning, "vulkan: {}",
                     data->pMessage == nullptr ? "" : data->pMessage);
    return VK_FALSE;
  }
};

namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";

bool has_layer(const LoaderFunctions& fn, std::string_view name) {
  uint32_t count = 0;
  if (fn.vkEnumerateInstanceLayerProperties(&count, nullptr) != VK_SUCCESS) return false;
  std::vector<VkLayerProperties> layers(count);
  if (fn.vkEnumerateInstanceLayerProperties(&count, layers.data()) < VK_SUCCESS) return false;
  return std::ranges::any_of(
      layers, [&](const VkLayerProperties& layer) { return name == layer.layerName; });
}

// `layer` null: the extensions of the loader and the drivers.
bool has_instance_extension(const LoaderFunctions& fn, const char* layer, std::string_view name) {
  uint32_t count = 0;
  if (fn.vkEnumerateInstanceExtensionProperties(layer, &count, nullptr) != VK_SUCCESS) return false;
  std::vector<VkExtensionProperties> all(count);
  if (fn.vkEnumerateInstanceExtensionProperties(layer, &count, all.data()) < VK_SUCCESS) {
    return false;
  }
  return std::ranges::any_of(
      all, [&](const VkExtensionProperties& extension) { return name == extension.extensionName; });
}

Status check_validation(const LoaderFunctions& fn, bool sync) {
  if (!has_layer(fn, kValidationLayer)) {
    return make_error(ErrorCode::kNoDevice,
                      "validation was asked for, but {} is not installed: install "
                      "vulkan-validationlayers (Debian, Ubuntu: also vulkan-validationlayers-dev)",
                      kValidationLayer);
  }
  const char* extension = VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME;
  if (sync && !has_instance_extension(fn, kValidationLayer, extension)) {
    return make_error(ErrorCode::kNoDevice,
                      "synchronisation validation was asked for, but {} does not offer {}",
                      kValidationLayer, extension);
  }
  return {};
}

Result<std::vector<VkPhysicalDevice>> list_devices(const InstanceFunctions& fn,
                                                   VkInstance instance) {
  std::vector<VkPhysicalDevice> devices;
  VkResult result = VK_INCOMPLETE;
  while (result == VK_INCOMPLETE) {  // a device may appear between the two calls
    uint32_t count = 0;
    result = fn.vkEnumeratePhysicalDevices(instance, &count, nullptr);
    if (result != VK_SUCCESS) break;
    devices.resize(count);
    result = fn.vkEnumeratePhysicalDevices(instance, &count, devices.data());
    devices.resize(count);
  }
  // Some loaders report "no driver has a device" as an initialisation failure.
  if (result == VK_ERROR_INITIALIZATION_FAILED) return std::vector<VkPhysicalDevice>{};
  if (result != VK_SUCCESS) {
    return make_error(ErrorCode::kNoDevice, "listing the Vulkan devices failed: {}",
                      vk_result_name(result));
  }
  return devices;
}

}  // namespace

Result<Instance> Instance::create(const InstanceOptions& options) {
  const bool validation = options.validation || options.sync_validation;
  auto state = std::make_unique<State>();
  state->logger = options.logger;
  PUMICE_TRY(state->loader, open_loader());
  const LoaderFunctions& loader = state->loader;
  if (validation) PUMICE_TRY_STATUS(check_validation(loader, options.sync_validation));

  VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                .pApplicationName = options.application_name.c_str(),
                                .pEngineName = "pumice",
                                .apiVersion = VK_API_VERSION_1_3};

  VkInstanceCreateInfo info{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                            .pApplicationInfo = &application};
  std::vector<const char*> extensions;
  const char* portability = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
  if (has_instance_extension(loader, nullptr, portability)) {
    extensions.push_back(portability);
    info.flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
  }
  VkDebugUtilsMessengerCreateInfoEXT messenger{
      .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
      .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                         VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
      .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
      .pfnUserCallback = &State::on_message,
      .pUserData = state.get()};
  const VkValidationFeatureEnableEXT sync_feature =
      VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
  VkValidationFeaturesEXT features{.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
                                   .enabledValidationFeatureCount = 1,
                                   .pEnabledValidationFeatures = &sync_feature};
  if (validation) {
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &kValidationLayer;
    extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    info.pNext = &messenger;  // covers vkCreateInstance and vkDestroyInstance themselves
    if (options.sync_validation) {
      extensions.push_back(VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME);
      messenger.pNext = &features;
    }
  }
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();

  const VkResult created = loader.vkCreateInstance(&info, nullptr, &state->instance);
  if (created != VK_SUCCESS) {
    state->instance = VK_NULL_HANDLE;
    return make_error(
        ErrorCode::kNoDevice, "creating a Vulkan instance failed: {}{}", vk_result_name(created),
        created == VK_ERROR_INCOMPATIBLE_DRIVER
            ? " (no Vulkan driver found: install the graphics driver, or mesa-vulkan-drivers)"
            : "");
  }
  PUMICE_TRY(state->functions,
             load_instance_functions(loader.vkGetInstanceProcAddr, state->instance));
  messenger.pNext = nullptr;
  if (validation && state->functions.vkCreateDebugUtilsMessengerEXT != nullptr &&
      state->functions.vkCreateDebugUtilsMessengerEXT(state->instance, &messenger, nullptr,
                                                      &state->messenger) != VK_SUCCESS) {
    return make_error(ErrorCode::kInternal, "creating the validation messenger failed");
  }
  PUMICE_TRY(state->devices, list_devices(state->functions, state->instance));
  return Instance(std::move(state));
}

Result<Instance> Instance::adopt(PFN_vkGetInstanceProcAddr get_proc, VkInstance instance,
                                 VkPhysicalDevice device) {
  const char* missing = get_proc == nullptr          ? "vkGetInstanceProcAddr"
                        : instance == VK_NULL_HANDLE ? "instance"
                        : device == VK_NULL_HANDLE   ? "physical device"
                                                     : nullptr;
  if (missing != nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "the host's {} is null", missing);
  }
  auto state = std::make_unique<State>();
  state->is_owned = false;
  state->instance = instance;
  PUMICE_TRY(state->functions, load_instance_functions(get_proc, instance));
  state->devices = {device};
  return Instance(std::move(state));
}

Instance::Instance(std::unique_ptr<State> state) : state_(std::move(state)) {}
Instance::Instance(Instance&&) noexcept = default;
Instance& Instance::operator=(Instance&&) noexcept = default;
Instance::~Instance() = default;

VkInstance Instance::handle() const { return state_->instance; }
const InstanceFunctions& Instance::functions() const { return state_->functions; }
bool Instance::has_debug_utils() const { return state_->messenger != VK_NULL_HANDLE; }
const std::vector<VkPhysicalDevice>& Instance::physical_devices() const { return state_->devices; }

Result<std::vector<DeviceSnapshot>> Instance::snapshots() const {
  std::vector<DeviceSnapshot> snapshots;
  for (VkPhysicalDevice device : state_->devices) {
    PUMICE_TRY(DeviceSnapshot snapshot, take_snapshot(state_->functions, device));
    snapshots.push_back(std::move(snapshot));
  }
  return snapshots;
}

void Instance::leave_to_driver() { state_->is_owned = false; }

uint64_t Instance::validation_error_count() const {
  return state_->error_count.load(std::memory_order_relaxed);
}

}  // namespace pumice::vk
