// What a host application should enable on a device that it will lend (host_device.hpp), and what
// is left of the device if it enables less. Pure functions of snapshots.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "vk/plan.hpp"
#include "vk/snapshot.hpp"

namespace pumice::vk {

/// One thing to enable when the device is created. All text is static.
struct Requirement {
  const char* name = nullptr;  ///< of an extension, or of the member of `structure`
  /// The structure of a feature, "VkPhysicalDeviceVulkan12Features"; null: `name` is an extension.
  const char* structure = nullptr;
  bool required = false;
  const char* brings = nullptr;  ///< what it is for
};

struct HostRequirements {
  /// Extensions first. Optional ones are those that the device has and that would be used.
  std::vector<Requirement> items;
  /// The family that a device of our own would use; any that computes serves.
  uint32_t queue_family = 0;
};

/// Errors: kNoDevice naming what the device lacks of the floor; plan_device's for the options.
Result<HostRequirements> host_requirements(const DeviceSnapshot& snapshot,
                                           const PlanOptions& options = {});

/// What a host enabled.
struct Enabled {
  uint32_t api_version = 0;  ///< of its instance, VK_MAKE_API_VERSION
  uint32_t queue_family = 0;
  std::span<const std::string> extensions;
  std::span<const std::string> features;
};

/// The device as if it had nothing but that: its plan then uses no more. Errors: kInvalidArgument
/// for a queue family that cannot compute or does not exist; kNoDevice naming each requirement that
/// the host left out, or what it enabled that our shaders cannot live with.
Result<DeviceSnapshot> restrict_to(const DeviceSnapshot& snapshot, const Enabled& enabled);

}  // namespace pumice::vk
