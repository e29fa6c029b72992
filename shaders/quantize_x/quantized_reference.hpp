// What quantize_x computes, on the CPU: for its cases and those of integer GEMM.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pumice::ops {

struct QuantizedReference {
  /// Quantise `rows` rows of `k` columns of `x` ([rows][stride]).
  QuantizedReference(std::span<const float> x, uint32_t rows, uint32_t k, uint32_t stride);

  /// Value and scale of a column of a row.
  double value(uint32_t row, uint32_t col) const;
  double scale(uint32_t row, uint32_t block) const;

  uint32_t n_rows;
  size_t first_scale;           ///< index of the word
  std::vector<uint32_t> words;  ///< QuantizedX
};

/// Move values that lie so near the middle of two quants that one rounding of the reciprocal
/// decides to the nearest quant itself, so that the quants of `x` are certain.
void avoid_ties(std::span<float> x, uint32_t rows, uint32_t k, uint32_t stride);

}  // namespace pumice::ops
