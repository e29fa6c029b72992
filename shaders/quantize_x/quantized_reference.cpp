#include "shaders/quantize_x/quantized_reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pumice::ops {
namespace {

constexpr uint32_t kBlockCols = 32;

float scale_of(const float* block) {
  float largest = 0;
  for (uint32_t i = 0; i < kBlockCols; ++i) largest = std::max(largest, std::abs(block[i]));
  return largest < 1e-30f ? 0.0f : largest * (1.0f / 127.0f);
}

}  // namespace

QuantizedReference::QuantizedReference(std::span<const float> x, uint32_t rows, uint32_t k,
                                       uint32_t stride)
    : n_rows(rows), first_scale(size_t{rows} * k / 4), words(first_scale * 5 / 4) {
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t block = 0; block < k / kBlockCols; ++block) {
      const float* from = &x[size_t{row} * stride + block * kBlockCols];
      const float scale = scale_of(from);
      const size_t at = size_t{block} * rows + row;
      int32_t sums[2] = {};
      for (uint32_t i = 0; i < kBlockCols; ++i) {
        const double quotient = scale > 0 ? static_cast<double>(from[i]) / scale : 0.0;
        const auto q = static_cast<int32_t>(std::clamp(std::nearbyint(quotient), -127.0, 127.0));
        words[at * 8 + i / 4] |= (static_cast<uint32_t>(q) & 0xFFu) << (8 * (i % 4));
        sums[i / 16] += q;
      }
      words[first_scale + at * 2] = std::bit_cast<uint32_t>(scale);
      words[first_scale + at * 2 + 1] =
          (static_cast<uint32_t>(sums[0]) & 0xFFFFu) | static_cast<uint32_t>(sums[1]) << 16;
    }
  }
}

double QuantizedReference::scale(uint32_t row, uint32_t block) const {
  return std::bit_cast<float>(words[first_scale + (size_t{block} * n_rows + row) * 2]);
}

double QuantizedReference::value(uint32_t row, uint32_t col) const {
  const uint32_t block = col / kBlockCols;
  const uint32_t i = col % kBlockCols;
  const uint32_t word = words[(size_t{block} * n_rows + row) * 8 + i / 4];
  return scale(row, block) * static_cast<int8_t>(word >> (8 * (i % 4)));
}

void avoid_ties(std::span<float> x, uint32_t rows, uint32_t k, uint32_t stride) {
  constexpr double kUncertain = 1e-4;  // of a quant; the reciprocal's error is below 2^-14 of one
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t block = 0; block < k / kBlockCols; ++block) {
      float* values = &x[size_t{row} * stride + block * kBlockCols];
      const float scale = scale_of(values);
      if (scale == 0) continue;
      for (uint32_t i = 0; i < kBlockCols; ++i) {
        const double quotient = static_cast<double>(values[i]) / scale;
        const double from_middle = std::abs(quotient - std::floor(quotient) - 0.5);
        if (from_middle < kUncertain) values[i] = static_cast<float>(std::floor(quotient) * scale);
      }
    }
  }
}

}  // namespace pumice::ops
