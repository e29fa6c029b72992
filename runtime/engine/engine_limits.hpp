// Small facts that the engine's parts share.
#pragma once

#include <cstdint>

#include "shaders/common/kv_layout.hpp"

namespace pumice {

inline constexpr uint32_t kMaxLogitBias = 1024;  ///< logit biases of one request
inline constexpr uint64_t kLogitBiasBytes = kMaxLogitBias * 2 * sizeof(uint32_t);
/// Words of a mask of allowed tokens.
constexpr uint32_t mask_words(uint32_t n_vocab) { return (n_vocab + 31) / 32; }
inline constexpr uint32_t kMostLogProbs = 20;  ///< best tokens whose log probabilities are told
/// Of a row: its token's, then those.
inline constexpr uint32_t kLogProbsStride = 1 + kMostLogProbs;

/// Blocks that hold this many positions.
constexpr uint32_t kv_blocks_of(uint32_t tokens) {
  return (tokens + kKvBlockTokens - 1) / kKvBlockTokens;
}

}  // namespace pumice
