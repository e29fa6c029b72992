// Which layers have a window, where a number says it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "models/metadata.hpp"

namespace pumice::families {

/// attention.sliding_window_pattern, n > 0: each n-th layer has no window. Errors (kBadFile): it is
/// something else.
inline Result<uint32_t> read_window_period(const Metadata& metadata, uint32_t fallback) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  if (!metadata.has(kKey)) return fallback;
  PUMICE_TRY(const std::vector<uint32_t> counts, metadata.read_layer_counts(kKey, 1));
  return counts[0];
}

}  // namespace pumice::families
