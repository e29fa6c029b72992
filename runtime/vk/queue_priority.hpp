// A queue that yields to those of other programs.
#pragma once

#include "vk/plan.hpp"
#include "vk/snapshot.hpp"

namespace pumice::vk {

/// Plan a queue of low priority (VK_KHR_global_priority, or its EXT form). False: the device has
/// neither; the plan is then unchanged. Where a driver refuses at creation, the queue is as usual.
bool ask_for_low_priority(const DeviceSnapshot& snapshot, DevicePlan& plan);

bool has_low_priority(const DevicePlan& plan);

}  // namespace pumice::vk
