// What the driver says of the memory of a device now, all programs' together.
#pragma once

#include <cstdint>
#include <optional>

#include "vk/device.hpp"

namespace pumice::vk {

/// Of the heap that device memory comes from. More used than the budget: others need memory too,
/// and the system moves some of this process's out of the device, or soon will.
struct HeapUse {
  uint64_t budget_bytes = 0;  ///< what this process may use, what it uses included
  uint64_t used_bytes = 0;    ///< by this process

  bool is_overcommitted() const { return used_bytes > budget_bytes; }
};

/// Nothing without VK_EXT_memory_budget. A call of the driver, which may ask the system: not for
/// every step. Any thread.
std::optional<HeapUse> heap_use(const Device& device);

}  // namespace pumice::vk
