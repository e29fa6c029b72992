// Correctness workarounds, by name; what a quirk changes is decided where it is read. Nothing but
// this and driver.hpp looks at driver IDs, and nothing at vendors'. Speed belongs in rows of tuning,
// not here (tuning_rows.hpp).
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "vk/snapshot.hpp"

namespace pumice::vk {

struct QuirkNote {
  std::string_view name;    ///< the member of Quirks
  std::string_view reason;  ///< what goes wrong without it, and where it was seen
};

struct Quirks {
  /// No allocation may be larger, whatever the device advertises.
  uint64_t max_allocation_bytes = std::numeric_limits<uint64_t>::max();
  /// VkPipelineCache holds no code, so keeping its data on disk saves nothing.
  bool pipeline_cache_is_empty = false;
  /// Code is generated at the first dispatch, not at creation: prewarming must dispatch.
  bool compiles_at_first_dispatch = false;
  /// Cooperative matrix reductions give wrong numbers; their variants are withdrawn.
  bool matrix_reductions_are_wrong = false;

  /// Listing the cooperative matrices crashes: take_snapshot does not ask, and none are used.
  bool matrix_query_crashes = false;

  std::vector<QuirkNote> notes;  ///< one for each quirk that is set, in the order above
};

/// Pure; reads identities, extensions and features only, so that take_snapshot can ask before it
/// makes a call that a quirk forbids. The device layer logs the notes.
Quirks find_quirks(const DeviceSnapshot& snapshot);

}  // namespace pumice::vk
