// Withdrawing what a device has, so that its poorer paths run on it: `--limit` and PUMICE_LIMIT.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace pumice::vk {

/// Zero: no clamp. Clamps never raise what a device has.
struct PlanOptions {
  /// Names of `withdrawable_features()`.
  std::set<std::string> disable = {};
  uint32_t max_shared_bytes = 0;
  uint32_t max_workgroup_invocations = 0;
  uint32_t subgroup_size = 0;  ///< must be a size the device can be asked for
  uint64_t slab_bytes = 0;     ///< largest buffer, and so the largest range a kernel addresses
  uint64_t device_budget_bytes = 0;

  bool operator==(const PlanOptions&) const = default;
};

/// What every usable device has (docs/ARCHITECTURE.md), so what nothing may be clamped below.
constexpr uint32_t kFloorSharedBytes = 16384;
constexpr uint32_t kFloorWorkgroupInvocations = 128;
constexpr uint32_t kFloorPushConstantBytes = 128;
constexpr uint64_t kFloorBindingBytes = uint64_t{1} << 27;

/// Vulkan's names of the optional features ("shaderFloat16"), then "subgroupOperations",
/// "subgroupArithmetic", "subgroupShuffle" and "timestamps".
std::vector<std::string> withdrawable_features();

/// The weakest device allowed: every optional feature withdrawn, limits at their minimum.
PlanOptions floor_options();

/// Reads words separated by commas; of two that contradict each other the later counts:
///   shared=16k  workgroup=128  subgroup=8  binding=128M (or slab=)  budget=2G
///   no-FEATURE  a withdrawable feature, or a short name ("no-fp16", "no-coopmat")
///   no-all      every withdrawable feature
///   floor       floor_options()
///   none        no clamp, whatever came before
/// Sizes are bytes, with k, M or G for powers of 1024. Errors: kInvalidArgument, naming the word
/// and what is known, in a line.
Result<PlanOptions> parse_plan_options(std::string_view text);

/// Text that parses back to these options; empty if nothing is clamped.
std::string format_plan_options(const PlanOptions& options);

}  // namespace pumice::vk
