// Allocations of the host that fail on purpose: linking host_faults.cpp replaces operator new.
#pragma once

#include <cstdint>

namespace pumice::test {

class HostFaults {
 public:
  /// The n-th allocation of this thread from now (counting from 0) throws std::bad_alloc. Those in
  /// the Vulkan driver (VulkanFaults::in_driver) are not ours.
  static void arm(uint64_t nth);
  static void disarm();
  /// Whether one failed since the last `arm`.
  static bool struck();
  /// Allocations since `arm`.
  static uint64_t n_calls();
};

/// Allocations of this thread count for nothing while it lives: those of a test.
class HostFaultsPaused {
 public:
  HostFaultsPaused();
  ~HostFaultsPaused();
  HostFaultsPaused(const HostFaultsPaused&) = delete;
  HostFaultsPaused& operator=(const HostFaultsPaused&) = delete;
};

}  // namespace pumice::test
