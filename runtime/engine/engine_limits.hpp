// Small facts that the engine's parts share.
#pragma once

#include <cstdint>

#include "shaders/common/kv_layout.hpp"

namespace pumice {

inline constexpr uint32_t kMaxLogitBias = 1024;  ///< logit biases of one request

/// Blocks that hold this many positions.
constexpr uint32_t kv_blocks_of(uint32_t tokens) {
  return (tokens + kKvBlockTokens - 1) / kKvBlockTokens;
}

}  // namespace pumice
