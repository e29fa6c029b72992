// A request as the scheduler sees it: lengths and blocks, no token values and no device.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_pool.hpp"

namespace pumice {

using RequestId = uint32_t;

enum class RequestState { kWaiting, kPrefilling, kDecoding, kFinished, kCancelled, kFailed };

/// Owned by one Scheduler.
struct Request {
  RequestId id = 0;
  RequestState state = RequestState::kWaiting;
  uint32_t prompt_tokens = 0;
  uint32_t max_new_tokens = 0;
  uint32_t computed_tokens = 0;   ///< positions whose KV is written: [0, computed_tokens)
  uint32_t generated_tokens = 0;  ///< sampled so far
  std::vector<BlockId> blocks;    ///< position p lives in blocks[p / block_tokens]; append-only

  /// Tokens known so far: the prompt and what was sampled.
  uint32_t known_tokens() const { return prompt_tokens + generated_tokens; }
};

}  // namespace pumice
