// The device as every record of a benchmark carries it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "vk/device.hpp"

namespace pumice::bench {

/// Name, UUID, type, driver, API version, class, subgroup size, memory budget, heaps, features in
/// use and limits that were asked for.
nlohmann::json device_to_json(const vk::Device& device);

}  // namespace pumice::bench
