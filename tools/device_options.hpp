// The flags that choose a device.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "host/open_device.hpp"
#include "vk/device.hpp"

namespace pumice::tools {

struct DeviceOptions {
  std::string selector;
  std::string limit;  ///< what vk::parse_plan_options takes; checked when flags are parsed
  bool list = false;
  bool low_priority = false;  ///< DeviceRequest::low_priority; no flag of every command

  /// --device/-dev, --limit and --list-devices.
  void add_to(CLI::App& app);
  /// What to open; with PUMICE_VALIDATION=1 under Vulkan's validation layer. Ask before anything is
  /// opened: this also keeps the driver's cache off full disks.
  Result<host::DeviceRequest> request(const Logger& logger) const;
};

/// host::choose_device and host::open_device for what the flags say.
Result<host::ChosenDevice> choose_device(const DeviceOptions& options, const Logger& logger);
Result<std::shared_ptr<vk::Device>> open_device(const DeviceOptions& options, const Logger& logger);

/// One line a device on stdout: index, name, type, driver, memory, and what it lacks.
Status print_devices(const Logger& logger);

}  // namespace pumice::tools
