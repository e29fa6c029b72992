// Rotation angles of RoPE as a table of cosines and sines, computed on the host in fp64: devices
// promise only 2^-11 for sin and cos, and the error of an fp32 angle grows with the position.
// Su et al., "RoFormer", 2021; Peng et al., "YaRN", 2023, as GGUF models mean it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace pumice::ops {

enum class RopeScaling { kNone, kLinear, kYarn };

struct RopeConfig {
  uint32_t dims = 0;  ///< rotated elements of a head: even
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;  ///< by how much the context is extended (linear, yarn)

  // YaRN: pairs that turn more than beta_fast times over the original context keep their frequency,
  // those that turn less than beta_slow times are slowed by `factor`, a ramp lies between.
  uint32_t original_context = 0;  ///< LongRoPE's too
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double ext_factor = 1.0;  ///< weight of the kept frequencies; 0 gives linear scaling

  /// Attention's temperature, of ropes of q alone that cover whole heads: cos and sin are
  /// multiplied by 1 + temperature · ln(1 + floor(position / temperature_tokens)). 0: none.
  double temperature = 0.0;
  uint32_t temperature_tokens = 0;

  double attn_factor = 1.0;  ///< multiplies cos and sin, besides YaRN's own 1 + 0.1 ln(factor)

  /// Divisor of each pair's frequency (Llama 3's rope_freqs tensor); empty for none.
  std::vector<float> freq_divisors;
  /// LongRoPE: those of sessions whose context is longer than the original one, whatever the length
  /// of a sequence; empty for none. Ding et al., "LongRoPE", 2024.
  std::vector<float> long_divisors;

  bool operator==(const RopeConfig&) const = default;

  /// What holds in sessions of such a context: without long_divisors.
  RopeConfig for_context(uint32_t context_tokens) const;
};

/// What a position contributes to the angle of each pair, and the common factor of cos and sin.
struct RopeFrequencies {
  std::vector<double> radians_per_position;  ///< [dims / 2]
  double magnitude = 1.0;
  double temperature = 0.0;
  uint32_t temperature_tokens = 0;

  /// The common factor at a position.
  double magnitude_at(uint64_t position) const;
};

/// Of a config without long_divisors. Errors: kInvalidArgument naming the field that is out of
/// range.
Result<RopeFrequencies> rope_frequencies(const RopeConfig& config);

/// Write (cos, sin) of positions [first_position, first_position + n) to `table`, float
/// [n][dims / 2][2]; n follows from the size of `table`.
void fill_rope_table(const RopeFrequencies& frequencies, uint32_t first_position,
                     std::span<float> table);

}  // namespace pumice::ops
