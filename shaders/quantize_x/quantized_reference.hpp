// What quantize_x computes of integers, on the CPU: for its cases and those of integer GEMM and GEMV.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shaders/quantize_x/quantize_x.hpp"

namespace pumice::ops {

struct QuantizedReference {
  /// Quantise `rows` rows of `k` columns of `x` ([rows][stride]) to `form`, kInt8 or kPlanes.
  QuantizedReference(std::span<const float> x, uint32_t rows, uint32_t k, uint32_t stride,
                     XForm form = XForm::kInt8);

  /// Of a column of a row.
  double value(uint32_t row, uint32_t col) const { return values[size_t{row} * n_cols + col]; }

  uint32_t n_rows, n_cols;
  std::vector<uint32_t> words;  ///< QuantizedX or PlanesOfX
  std::vector<double> values;
};

/// What a multiple of a block's scale is at most.
int32_t most_quant(XForm form);

/// Move values that lie so near the middle of two quants that one rounding of the reciprocal
/// decides to the nearest quant itself, so that the quants of `x` are certain.
void avoid_ties(std::span<float> x, uint32_t rows, uint32_t k, uint32_t stride,
                XForm form = XForm::kInt8);

}  // namespace pumice::ops
