// Small facts that the engine's parts share.
#pragma once

#include <cstdint>

#include "shaders/common/kv_layout.hpp"

namespace pumice {

inline constexpr uint32_t kMaxLogitBias = 1024;  ///< logit biases of one request
inline constexpr uint32_t kMostLogProbs = 20;    ///< best tokens whose log probabilities are told
/// Of a row: its token's, then those.
inline constexpr uint32_t kLogProbsStride = 1 + kMostLogProbs;

/// Blocks that hold this many positions.
constexpr uint32_t kv_blocks_of(uint32_t tokens) {
  return (tokens + kKvBlockTokens - 1) / kKvBlockTokens;
}

}  // namespace pumice
