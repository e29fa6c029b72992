// Which driver a device has, for what is faster with it: rows of tuning may name it
// (tuning_rows.hpp). What is wrong with it is in quirks.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "vk/snapshot.hpp"

namespace pumice::vk {

struct DriverFacts {
  /// Vulkan's own name of its VkDriverId, in lower case: "mesa_llvmpipe", "nvidia_proprietary".
  /// "unknown" for one that this version of Vulkan's headers has no name for.
  std::string name = "unknown";
  /// As its driverInfo says it, "Mesa 25.0.7-2 (LLVM 19.1.7)" being 25.0.7. All zero: it says none.
  std::array<uint32_t, 3> version = {};
  /// It advertises cooperative matrices on a GPU without matrix units.
  bool emulates_matrices = false;

  bool operator==(const DriverFacts&) const = default;
};

DriverFacts driver_facts(const DeviceSnapshot& snapshot);

}  // namespace pumice::vk
