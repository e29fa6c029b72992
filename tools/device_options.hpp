// The flags that choose a device, and opening it.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "vk/device.hpp"

namespace pumice::tools {

struct DeviceOptions {
  std::string selector;
  std::string limit;  ///< what vk::parse_plan_options takes; checked when flags are parsed
  bool list = false;

  /// --device/-dev, --limit and --list-devices.
  void add_to(CLI::App& app);
};

/// Validation layers are on when PUMICE_VALIDATION=1.
Result<std::shared_ptr<vk::Instance>> open_instance(const Logger& logger);

/// A device that was chosen and what would be used of it, without opening it.
struct ChosenDevice {
  std::shared_ptr<vk::Instance> instance;
  size_t index = 0;
  vk::DeviceSnapshot snapshot;
  vk::DevicePlan plan;
};
Result<ChosenDevice> choose_device(const DeviceOptions& options, const Logger& logger);

Result<std::shared_ptr<vk::Device>> open_device(const DeviceOptions& options, const Logger& logger);

/// One line a device on stdout: index, name, type, driver, memory, and what it lacks.
Status print_devices(const Logger& logger);

}  // namespace pumice::tools
