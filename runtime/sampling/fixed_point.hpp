// The arithmetic of sampling. Probabilities are integers, so that sums do not depend on their order
// and a GPU chooses the same token as the CPU, bit for bit. A shader repeats these functions as
// they stand: everything is 32-bit integer arithmetic (umulExtended where a product has 64 bits),
// except single fp32 additions, subtractions and multiplications, which Vulkan rounds correctly;
// declare them `precise`, so that none becomes a fused multiply-add.
#pragma once

#include <bit>
#include <cstdint>

namespace pumice {

/// A weight of kOneWeight is the probability of the best token; others are relative to it.
inline constexpr uint32_t kOneWeight = 1u << 24;
/// Weights of a whole vocabulary sum to less than 2^43 + 1.
inline constexpr uint32_t kMaxSampledVocabulary = 1u << 19;

/// NaN becomes -inf (never chosen), +inf the largest float (so that differences exist; several
/// tie), and zeros and subnormals become +0 (drivers may flush them). By bits: isnan and isinf need
/// not work on a GPU.
constexpr float canonical(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return std::bit_cast<float>(0xFF800000u);
  if (bits == 0x7F800000u) return std::bit_cast<float>(0x7F7FFFFFu);
  if (magnitude < 0x00800000u) return 0.0f;
  return value;
}

/// Keys order as canonical scores do: a larger score has a larger key.
constexpr uint32_t score_key(float canonical_score) {
  const uint32_t bits = std::bit_cast<uint32_t>(canonical_score);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
inline constexpr uint32_t kKeyOfMinusInfinity = 0x007FFFFFu;
inline constexpr uint32_t kKeyOfMasked = 0;

/// exp(-distance) in units of 1 / kOneWeight, for distance >= 0: kOneWeight at 0, monotone, at most
/// 1.1 units off, 0 from about 17.33 on and for inf and NaN.
constexpr uint32_t fixed_exp(float distance) {
  const uint32_t bits = std::bit_cast<uint32_t>(distance);
  if (bits >= 0x41900000u) return 0;  // 18.0f; also negative values, inf and NaN
  const uint32_t exponent = bits >> 23;
  if (exponent < 101) return kOneWeight;  // below 2^-26; also subnormals
  // distance in units of 2^-26: mantissa · 2^(exponent - 150 + 26)
  const uint32_t mantissa = (bits & 0x007FFFFFu) | 0x00800000u;
  const uint32_t fixed =
      exponent >= 124 ? mantissa << (exponent - 124) : mantissa >> (124 - exponent);

  // exp(-d) = 2^-(d · log2 e); log2 e in units of 2^-31. In GLSL: (high << 1) | (low >> 31).
  const auto power = static_cast<uint32_t>((uint64_t{fixed} * 0xB8AA3B29u) >> 31);
  const uint32_t whole = power >> 26;
  if (whole >= 25) return 0;

  // 2^-f for f in [0, 1), by a polynomial that interpolates (1 - 2^-f) / f at Chebyshev nodes; f in
  // units of 2^-32, coefficients and value in units of 2^-31, error below 13 of them.
  const uint32_t f = power << 6;
  const auto times_f = [f](uint32_t value) {
    return static_cast<uint32_t>((uint64_t{value} * f) >> 32);
  };
  uint32_t value = 0x0003C405u;
  value = 0x002A5309u - times_f(value);
  value = 0x013A79C4u - times_f(value);
  value = 0x071A9948u - times_f(value);
  value = 0x1EBFBA83u - times_f(value);
  value = 0x58B90BF0u - times_f(value);
  value = 0x80000000u - times_f(value);
  return (value + (1u << (6 + whole))) >> (7 + whole);
}

/// floor(fraction · total / 2^32) for total < 2^44. In GLSL, total = high · 2^32 + low:
/// fraction · high, as 64 bits, plus the high word of fraction · low.
constexpr uint64_t scale_floor(uint32_t fraction, uint64_t total) {
  const uint64_t low = uint64_t{fraction} * static_cast<uint32_t>(total);
  return uint64_t{fraction} * (total >> 32) + (low >> 32);
}

/// ceil of the same: one more where the low word of fraction · low is not zero.
constexpr uint64_t scale_ceil(uint32_t fraction, uint64_t total) {
  const uint64_t low = uint64_t{fraction} * static_cast<uint32_t>(total);
  return uint64_t{fraction} * (total >> 32) + (low >> 32) +
         (static_cast<uint32_t>(low) != 0 ? 1 : 0);
}

}  // namespace pumice
