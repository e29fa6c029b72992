// Opening the device that somebody named.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "vk/device.hpp"
#include "vk/instance.hpp"
#include "vk/plan.hpp"
#include "vk/plan_options.hpp"
#include "vk/snapshot.hpp"

namespace pumice::host {

struct DeviceRequest {
  std::string selector = {};    ///< as vk::choose_device takes it; empty: the best one
  vk::PlanOptions limits = {};  ///< what not to use of the device
  bool validation = false;      ///< Vulkan's validation layer, which must then be installed
  double hang_timeout_s = vk::Device::kHangTimeout_s;  ///< vk::Device::set_hang_timeout
  /// The queue yields to those of other programs, where the driver grants that
  /// (VK_KHR_global_priority): for EngineMode::kBackground. A queue has its priority for good.
  bool low_priority = false;
};

/// Errors: kNoDevice without a loader, a driver or, if asked for, the validation layer.
Result<std::shared_ptr<vk::Instance>> open_instance(const DeviceRequest& request,
                                                    const Logger& logger);

/// A device that was chosen and what would be used of it, without opening it.
struct ChosenDevice {
  std::shared_ptr<vk::Instance> instance;
  size_t index = 0;
  vk::DeviceSnapshot snapshot;
  vk::DevicePlan plan;
};
/// Errors: kNoDevice, listing what was found, when none is usable or none matches.
Result<ChosenDevice> choose_device(const DeviceRequest& request, const Logger& logger);

/// Logs what is used of the device and what is not. Errors: those of choose_device and of
/// vk::Device::create.
Result<std::shared_ptr<vk::Device>> open_device(const DeviceRequest& request, const Logger& logger);

}  // namespace pumice::host
