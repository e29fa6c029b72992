// DeviceSnapshots of the JSON that snapshot_to_json writes: recorded devices.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"
#include "vk/snapshot.hpp"

namespace pumice::test {

/// A field that is absent keeps the default of DeviceSnapshot, the least Vulkan guarantees.
/// kBadFile names a field that is unknown or of the wrong type or range; "source", "license" and
/// "absent" (notes on where a fixture comes from) are ignored.
Result<vk::DeviceSnapshot> snapshot_from_json(const nlohmann::json& json);

}  // namespace pumice::test
