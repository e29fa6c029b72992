// The device tests run on: whatever `vk::choose_device` picks, or PUMICE_DEVICE, less what
// PUMICE_LIMIT withdraws (vk/plan_options.hpp). Validation layers are on with PUMICE_VALIDATION=1,
// and any message then fails the test program.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>

#include "vk/device.hpp"
#include "vk/instance.hpp"
#include "vk/plan.hpp"

namespace pumice::test {

inline bool validation_requested() {
  const char* value = std::getenv("PUMICE_VALIDATION");
  return value != nullptr && std::string_view(value) == "1";
}

/// One device for the whole test program, created at first use. Destroyed, and its validation
/// messages and leaked memory checked, when GoogleTest tears the environment down.
class GpuEnvironment : public ::testing::Environment {
 public:
  static std::shared_ptr<vk::Device> device();

  /// Another device on the hardware of device(), which must not be null, planned by the test and
  /// not as PUMICE_LIMIT says. What validation layers report counts with the environment's.
  /// `intercept` sees what the driver is told (vk::Device::create).
  using MakePlan = std::function<Result<vk::DevicePlan>(const vk::DeviceSnapshot&)>;
  static Result<std::shared_ptr<vk::Device>> open(const MakePlan& make_plan,
                                                  vk::Device::Intercept intercept = {});
  /// Planned as a GPU, so that a CPU driver runs a GPU's kernels.
  static Result<std::shared_ptr<vk::Device>> open_as_gpu();
  void TearDown() override;
};

}  // namespace pumice::test

/// Declare `device`, or skip the test saying that this machine has none.
#define PUMICE_REQUIRE_DEVICE(device)                                                            \
  const std::shared_ptr<::pumice::vk::Device> device = ::pumice::test::GpuEnvironment::device(); \
  if (!device) GTEST_SKIP() << "no usable Vulkan device"
