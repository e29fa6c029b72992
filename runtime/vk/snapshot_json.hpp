// DeviceSnapshot as JSON: what `pumice info --json` prints, bug reports carry and the plan's tests
// read. Fields bear Vulkan's own names, so that a report can be compared with vulkaninfo's.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"
#include "vk/snapshot.hpp"

namespace pumice::vk {

/// Complete: reading it back gives the same snapshot (Vulkan's API variant, always 0, is dropped).
nlohmann::json snapshot_to_json(const DeviceSnapshot& snapshot);

/// A field that is absent keeps the default of DeviceSnapshot, the least Vulkan guarantees.
/// kBadFile names a field that is unknown or of the wrong type or range; "source", "license" and
/// "absent" (notes on where a fixture comes from) are ignored.
Result<DeviceSnapshot> snapshot_from_json(const nlohmann::json& json);

}  // namespace pumice::vk
