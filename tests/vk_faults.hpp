// Calls of a Vulkan device that fail on purpose: the n-th one for want of memory, or since the
// device is lost; or a submission that is not carried out and counts as done. Every entry point of devices that were opened with `intercept` goes through here.
#pragma once

#include <cstdint>
#include <string>

#include "vk/functions.hpp"

namespace pumice::test {

class VulkanFaults {
 public:
  enum class Kind { kNone, kHostMemory, kDeviceMemory, kLost, kCancelled };

  /// For GpuEnvironment::open. All such devices are of one driver.
  static void intercept(vk::DeviceFunctions& fn);

  /// One failure: of the n-th call from now (counting from 0) that returns a result. For kLost any
  /// call counts, and from there on those fail that can say that the device is lost, until another
  /// device is opened. For kCancelled submissions count, and the n-th one is told to be done without
  /// its commands.
  static void arm(Kind kind, uint64_t nth);
  static void disarm();
  /// The call that failed since the last `arm`; empty: none did.
  static std::string struck();
  /// Calls since `arm` that counted.
  static uint64_t n_calls();
  /// This thread is in the driver, whose own allocations are not ours.
  static bool in_driver();
};

}  // namespace pumice::test
