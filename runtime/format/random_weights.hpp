// Random weights in the file blocks of any type that has a codec: the quants are random bits and
// the scales are chosen so that the dequantised weights have the mean and deviation asked for.
// Nothing is quantised, so blocks come at memory speed.
//
// Every byte is a function of (type, key, mean, deviation, position) alone, the same on any host
// and in any order: a tensor can be made piece by piece, on several threads, in a file or in device
// memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "format/weight_type.hpp"

namespace pumice {

/// A key for the random bits of what is called `name`.
uint64_t random_key(uint64_t seed, std::string_view name);

/// Immutable once made; `fill` may run on several threads.
class RandomWeights {
 public:
  /// The type must have a codec. F32, F16 and BF16 weights are close to normally distributed,
  /// quantised ones have the spread of their quants. A mean other than 0 needs F32, F16 or BF16.
  RandomWeights(const WeightType& type, uint64_t key, float deviation, float mean = 0);

  /// The blocks from `first_block` on; `out` holds a whole number of them.
  void fill(uint64_t first_block, std::span<std::byte> out) const;

 private:
  void fill_values(std::span<std::byte> out) const;
  void make_scales(double quant_deviation, bool either_sign, double minimum_over_scale);
  void make_exponents(double quant_deviation);

  const WeightType& type_;
  uint64_t key_;
  std::vector<uint32_t> values_;  // of F32, F16, BF16: bits of a sample of the distribution
  // Of the others: half d, and half m or dmin above it; of MXFP4 an exponent.
  std::array<uint32_t, 256> scales_{};
};

}  // namespace pumice
