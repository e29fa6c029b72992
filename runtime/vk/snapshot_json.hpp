// DeviceSnapshot as JSON: what `pumice info --json` prints, bug reports carry and the plan's tests
// read. Fields bear Vulkan's own names, so that a report can be compared with vulkaninfo's.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "vk/snapshot.hpp"

namespace pumice::vk {

/// Complete: reading it back (tests/vk/snapshot_reader.hpp) gives the same snapshot (Vulkan's API
/// variant, always 0, is dropped).
nlohmann::json snapshot_to_json(const DeviceSnapshot& snapshot);

}  // namespace pumice::vk
