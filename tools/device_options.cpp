#include "tools/device_options.hpp"

#include <cstdlib>
#include <string_view>

#include "tools/driver_cache.hpp"
#include "tools/terminal.hpp"
#include "vk/plan_options.hpp"

namespace pumice::tools {

void DeviceOptions::add_to(CLI::App& app) {
  app.add_option("--device,--dev", selector,
                 "Device: index, part of its name, or UUID (default: the best one)")
      ->envname("PUMICE_DEVICE");
  const auto problem = [](const std::string& text) {
    const Result<vk::PlanOptions> options = vk::parse_plan_options(text);
    return options.ok() ? std::string() : options.error().message;
  };
  app.add_option("--limit", limit,
                 "Use less than the device has, to test: floor, shared=16k, binding=128M,\n"
                 "subgroup=8, no-fp16, no-subgroup, ... (docs/TESTING.md)")
      ->envname("PUMICE_LIMIT")
      ->check(problem);
  app.add_flag("--list-devices", list, "List the Vulkan devices and exit");
}

Result<host::DeviceRequest> DeviceOptions::request(const Logger& logger) const {
  keep_driver_cache_off_full_disks(logger);
  const char* validation = std::getenv("PUMICE_VALIDATION");
  // Vulkan0, as llama.cpp calls the first.
  constexpr std::string_view kVulkan = "Vulkan";
  const bool is_index = selector.size() > kVulkan.size() && selector.starts_with(kVulkan) &&
                        selector.find_first_not_of("0123456789", kVulkan.size()) == selector.npos;
  host::DeviceRequest request{
      .selector = is_index ? selector.substr(kVulkan.size()) : selector,
      .validation = validation != nullptr && std::string_view(validation) == "1",
      .low_priority = low_priority};
  PUMICE_TRY(request.limits, vk::parse_plan_options(limit));
  return request;
}

Result<host::ChosenDevice> choose_device(const DeviceOptions& options, const Logger& logger) {
  PUMICE_TRY(const host::DeviceRequest request, options.request(logger));
  return host::choose_device(request, logger);
}

Result<std::shared_ptr<vk::Device>> open_device(const DeviceOptions& options,
                                                const Logger& logger) {
  PUMICE_TRY(const host::DeviceRequest request, options.request(logger));
  return host::open_device(request, logger);
}

Status print_devices(const Logger& logger) {
  PUMICE_TRY(const host::DeviceRequest any, DeviceOptions().request(logger));
  PUMICE_TRY(const std::shared_ptr<vk::Instance> instance, host::open_instance(any, logger));
  PUMICE_TRY(const std::vector<vk::DeviceSnapshot> snapshots, instance->snapshots());
  for (size_t i = 0; i < snapshots.size(); ++i) {
    const vk::DeviceSnapshot& device = snapshots[i];
    std::string lacks;
    for (const std::string& requirement : vk::missing_requirements(device)) {
      lacks += (lacks.empty() ? "  not usable, lacks: " : ", ") + requirement;
    }
    uint64_t memory_bytes = 0;
    for (const vk::MemoryHeap& heap : device.heaps) {
      if (heap.device_local) memory_bytes += heap.size_bytes;
    }
    print_text("{}  {}  {}  {} {}  Vulkan {}  {:.1f} GiB  {}{}\n", i, device.name,
               vk::device_type_name(device.type), device.driver_name, device.driver_info,
               vk::format_api_version(device.api_version),
               static_cast<double>(memory_bytes) / (1 << 30), vk::format_uuid(device.device_uuid),
               lacks);
  }
  return {};
}

}  // namespace pumice::tools
