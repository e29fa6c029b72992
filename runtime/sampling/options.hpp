// How a request wants its tokens chosen.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace pumice {

struct SamplerOptions {
  float temperature = 0;        ///< 0: greedy
  uint32_t top_k = 0;           ///< 0: off
  float top_p = 1;              ///< 1: off
  float min_p = 0;              ///< 0: off
  float repeat_penalty = 1;     ///< 1: off; on tokens in the prompt or the output
  float frequency_penalty = 0;  ///< times the token's count in the output
  float presence_penalty = 0;   ///< on tokens in the output
  uint64_t seed = 0;
  std::vector<std::pair<uint32_t, float>>
      logit_bias;  ///< (token, added to its logit); -inf bans it

  /// kInvalidArgument, naming the option, if one is out of range.
  Status validate(size_t n_vocab) const;
};

/// Whether tokens in the prompt or the output change scores.
bool has_penalties(const SamplerOptions& options);
/// Whether the likeliest token is always chosen, by its logit alone.
bool is_plain_greedy(const SamplerOptions& options);

/// The options as numbers that CPU and GPU compute with, so that both use the same roundings.
struct SamplerConstants {
  static constexpr uint32_t kOff = ~0u;

  float repeat = 1;          ///< multiplies scores that are not positive
  float inverse_repeat = 1;  ///< multiplies positive scores (Vulkan's division is not exact)
  float frequency = 0;
  float presence = 0;
  float inverse_temperature = 0;  ///< 0: greedy; else at least 2^-126
  uint32_t top_k = kOff;          ///< at least 1
  uint32_t top_p_q32 = kOff;      ///< ceil(top_p · 2^32)
  uint32_t min_p_q24 = 0;         ///< ceil(min_p · 2^24)
  uint32_t seed_low = 0;
  uint32_t seed_high = 0;
};

/// `options` must be valid.
SamplerConstants sampler_constants(const SamplerOptions& options);

/// Occurrences of each token of the vocabulary, for the penalties: bit 31 is set for tokens in the
/// prompt, the other bits count the token in the output.
inline constexpr uint32_t kInPrompt = 1u << 31;
inline void count_prompt_token(std::span<uint32_t> counts, uint32_t id) { counts[id] |= kInPrompt; }
inline void count_output_token(std::span<uint32_t> counts, uint32_t id) {
  if ((counts[id] & ~kInPrompt) != ~kInPrompt) ++counts[id];
}

}  // namespace pumice
