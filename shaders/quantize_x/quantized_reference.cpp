#include "shaders/quantize_x/quantized_reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pumice::ops {
namespace {

constexpr uint32_t kQuantCols = 32;
static_assert(QuantizedX::kBlockCols == kQuantCols && PlanesOfX::kBlockCols == kQuantCols);

/// A block of a row.
struct Quants {
  float scale = 0;
  int32_t q[kQuantCols] = {};
  int32_t sums[2] = {};
};

float scale_of(const float* block, XForm form) {
  float largest = 0;
  for (uint32_t i = 0; i < kQuantCols; ++i) largest = std::max(largest, std::abs(block[i]));
  const float reciprocal = 1.0f / static_cast<float>(most_quant(form));
  return largest < 1e-30f ? 0.0f : largest * reciprocal;
}

Quants quants_of(const float* block, XForm form) {
  Quants quants{.scale = scale_of(block, form)};
  const double most = most_quant(form);
  for (uint32_t i = 0; i < kQuantCols; ++i) {
    const double quotient = quants.scale > 0 ? static_cast<double>(block[i]) / quants.scale : 0.0;
    quants.q[i] = static_cast<int32_t>(std::clamp(std::nearbyint(quotient), -most, most));
    quants.sums[i / 16] += quants.q[i];
  }
  return quants;
}

void put_byte(uint32_t* words, uint32_t i, int32_t byte) {
  words[i / 4] |= (static_cast<uint32_t>(byte) & 0xFFu) << (8 * (i % 4));
}

void put_int8(const Quants& quants, uint32_t* bytes, uint32_t* scale) {
  for (uint32_t i = 0; i < kQuantCols; ++i) put_byte(bytes, i, quants.q[i]);
  scale[0] = std::bit_cast<uint32_t>(quants.scale);
  scale[1] = (static_cast<uint32_t>(quants.sums[0]) & 0xFFFFu) |
             static_cast<uint32_t>(quants.sums[1]) << 16;
}

void put_planes(const Quants& quants, uint32_t* block) {
  for (uint32_t i = 0; i < kQuantCols; ++i) {
    const int32_t high = (quants.q[i] + 128) >> 8;
    put_byte(block, i, high);
    put_byte(block + kQuantCols / 4, i, quants.q[i] - 256 * high);
  }
  const float numbers[] = {quants.scale, static_cast<float>(quants.sums[0]),
                           static_cast<float>(quants.sums[1]),
                           static_cast<float>(quants.sums[0] + quants.sums[1])};
  for (uint32_t i = 0; i < 4; ++i) {
    block[kQuantCols / 2 + i] = std::bit_cast<uint32_t>(numbers[i]);
  }
}

}  // namespace

int32_t most_quant(XForm form) { return form == XForm::kPlanes ? 127 * 256 : 127; }

QuantizedReference::QuantizedReference(std::span<const float> x, uint32_t rows, uint32_t k,
                                       uint32_t stride, XForm form)
    : n_rows(rows), n_cols(k), words(x_form_bytes(form, rows, k) / 4) {
  const uint32_t n_blocks = k / kQuantCols;
  const uint64_t first_scale = QuantizedX::scales_offset(rows, k) / 4;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t block = 0; block < n_blocks; ++block) {
      const Quants quants = quants_of(&x[size_t{row} * stride + block * kQuantCols], form);
      for (const int32_t q : quants.q) values.push_back(double{quants.scale} * q);
      if (form == XForm::kPlanes) {
        put_planes(quants, &words[(size_t{row} * n_blocks + block) * (PlanesOfX::kBlockBytes / 4)]);
      } else {
        const size_t at = size_t{block} * rows + row;
        put_int8(quants, &words[at * 8], &words[first_scale + at * 2]);
      }
    }
  }
}

void avoid_ties(std::span<float> x, uint32_t rows, uint32_t k, uint32_t stride, XForm form) {
  // Of a quant; the reciprocal's error is below 2^-21 of its number.
  const double uncertain = most_quant(form) * 0x1p-20;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t block = 0; block < k / kQuantCols; ++block) {
      float* values = &x[size_t{row} * stride + block * kQuantCols];
      const float scale = scale_of(values, form);
      if (scale == 0) continue;
      for (uint32_t i = 0; i < kQuantCols; ++i) {
        const double quotient = static_cast<double>(values[i]) / scale;
        const double from_middle = std::abs(quotient - std::floor(quotient) - 0.5);
        if (from_middle < uncertain) values[i] = static_cast<float>(std::floor(quotient) * scale);
      }
    }
  }
}

}  // namespace pumice::ops
