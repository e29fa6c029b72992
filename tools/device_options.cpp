#include "tools/device_options.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "tools/driver_cache.hpp"
#include "vk/device_choice.hpp"

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

Result<std::shared_ptr<vk::Instance>> open_instance(const Logger& logger) {
  keep_driver_cache_off_full_disks(logger);
  vk::InstanceOptions options;
  const char* validation = std::getenv("PUMICE_VALIDATION");
  options.validation = options.sync_validation =
      validation != nullptr && std::string_view(validation) == "1";
  options.logger = logger;
  PUMICE_TRY(vk::Instance instance, vk::Instance::create(options));
  return std::make_shared<vk::Instance>(std::move(instance));
}

Result<ChosenDevice> choose_device(const DeviceOptions& options, const Logger& logger) {
  ChosenDevice chosen;
  PUMICE_TRY(chosen.instance, open_instance(logger));
  PUMICE_TRY(const std::vector<vk::DeviceSnapshot> snapshots, chosen.instance->snapshots());
  PUMICE_TRY(chosen.index, vk::choose_device(snapshots, options.selector));
  PUMICE_TRY(const vk::PlanOptions limits, vk::parse_plan_options(options.limit));
  chosen.snapshot = snapshots[chosen.index];
  PUMICE_TRY(chosen.plan, vk::plan_device(chosen.snapshot, limits));
  return chosen;
}

Result<std::shared_ptr<vk::Device>> open_device(const DeviceOptions& options,
                                                const Logger& logger) {
  PUMICE_TRY(ChosenDevice chosen, choose_device(options, logger));
  vk::log_plan(chosen.snapshot, chosen.plan, logger);
  return vk::Device::create(chosen.instance, chosen.index, chosen.snapshot, std::move(chosen.plan),
                            logger);
}

Status print_devices(const Logger& logger) {
  PUMICE_TRY(const std::shared_ptr<vk::Instance> instance, open_instance(logger));
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
    fmt::print("{}  {}  {}  {} {}  Vulkan {}  {:.1f} GiB  {}{}\n", i, device.name,
               vk::device_type_name(device.type), device.driver_name, device.driver_info,
               vk::format_api_version(device.api_version),
               static_cast<double>(memory_bytes) / (1 << 30), vk::format_uuid(device.device_uuid),
               lacks);
  }
  return {};
}

}  // namespace pumice::tools
