// Whether a SPIR-V module may run on a device as planned: each capability it declares must be
// allowed by a feature that is enabled.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "vk/plan.hpp"

namespace pumice::vk {

/// Names of what `capabilities` (SpvCapability numbers, as in ShaderInfo) need and `plan` does not
/// enable; a capability this project never enables is named by its number. Empty: it may run.
std::vector<std::string> missing_capabilities(std::span<const uint32_t> capabilities,
                                              const DevicePlan& plan);

}  // namespace pumice::vk
