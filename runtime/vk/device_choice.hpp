// Which of several devices to use.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "vk/snapshot.hpp"

namespace pumice::vk {

/// Index into `devices`. An empty selector takes the best usable one: discrete over integrated over
/// virtual over CPU, then more device memory, then the first. Otherwise the selector is an index
/// (at most two digits; a longer number is part of a name), a UUID (dashes optional) or a
/// case-insensitive part of a name (the best of those that match; a whole name beats a part).
/// kNoDevice lists what was found and what each lacks.
Result<size_t> choose_device(std::span<const DeviceSnapshot> devices, std::string_view selector);

}  // namespace pumice::vk
