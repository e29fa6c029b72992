// Recorded devices to plan for, with no driver behind them: pipelines can be declared on one, and
// nothing compiled, allocated or submitted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "vk/device.hpp"
#include "vk/plan_options.hpp"
#include "vk/snapshot.hpp"

namespace pumice::test {

struct RecordedDevice {
  std::string name;  ///< of tests/vk/snapshots, and what differs
  vk::DeviceSnapshot snapshot;
  vk::PlanOptions limits = {};
};

/// Every usable one of tests/vk/snapshots, some of them with less, and with what their records are
/// silent on: the shapes of cooperative matrices, each as its maker's other drivers list them.
std::vector<RecordedDevice> recorded_devices();

/// Planned for, and never opened.
std::shared_ptr<vk::Device> open_without_driver(const RecordedDevice& recorded, Logger logger = {});

}  // namespace pumice::test
