// rope_kv in fp64, for its cases.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/float16.hpp"
#include "shaders/common/kv_row.hpp"
#include "shaders/rope_kv/rope_kv.hpp"

namespace pumice::ops {

/// An element and what a kernel in fp32 may miss it by.
struct RotatedElement {
  double value;
  double bound;
};

/// A head as it is rotated: with its bias (if not null) and its norm (if `weight` is not null).
inline std::vector<RotatedElement> head_to_rotate(std::span<const float> head, const float* bias,
                                                  const float* weight, double eps) {
  std::vector<RotatedElement> elements;
  double squares = 0;
  for (size_t d = 0; d < head.size(); ++d) {
    const double value = double{head[d]} + (bias != nullptr ? bias[d] : 0.0f);
    elements.push_back({value, bias != nullptr ? 0x1p-24 * std::abs(value) : 0});
    squares += value * value;
  }
  if (weight == nullptr) return elements;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(head.size()) + eps);
  for (size_t d = 0; d < head.size(); ++d) {
    elements[d].value *= scale * weight[d];
    // A sum of squares, so nothing cancels; a division, a square root and three roundings.
    elements[d].bound = 2e-6 * std::abs(elements[d].value);
  }
  return elements;
}

/// Element `d` of a head, rotated. The bound adds three roundings, two products and a sum, to those
/// of the elements.
inline RotatedElement rotate_element(const RopeKv::Shape& shape,
                                     std::span<const RotatedElement> head, uint32_t d,
                                     const float* angles) {
  constexpr double kRounding = 0x1p-24;  // half an ulp of a float, relative
  if (d >= shape.rope_dims) return head[d];
  const bool halves = shape.pairs == RopePairs::kHalves;
  const uint32_t half = shape.rope_dims / 2;
  const uint32_t pair = halves ? d % half : d / 2;
  const uint32_t first = halves ? pair : 2 * pair;
  const uint32_t second = halves ? pair + half : 2 * pair + 1;
  const double c = angles[2 * pair];
  const double s = angles[2 * pair + 1];
  const uint32_t other = d == first ? second : first;
  const double straight = head[d].value * c;
  const double crossed = head[other].value * (d == first ? -s : s);
  return {straight + crossed, 3 * kRounding * (std::abs(straight) + std::abs(crossed)) +
                                  head[d].bound * std::abs(c) + head[other].bound * std::abs(s)};
}

/// What a cache of halves keeps of a value: the nearest, or the largest.
inline RotatedElement stored_as_half(const RotatedElement& x) {
  const double value = std::clamp(x.value, -65504.0, 65504.0);
  if (x.bound == 0) return {half_to_float(float_to_half(static_cast<float>(value))), 0};
  return {value, x.bound + std::max(0x1p-11 * std::abs(value), 0x1p-25)};
}

inline RotatedElement stored_as_bfloat16(const RotatedElement& x) {
  if (x.bound == 0) {
    return {bfloat16_to_float(float_to_bfloat16(static_cast<float>(x.value))), 0};
  }
  return {x.value, x.bound + 0x1p-8 * std::abs(x.value)};
}

/// 32 elements in place of which a quantised cache keeps multiples of their scale. A multiple is
/// either of two where the value lies between them within its error: its own, and of a scale whose
/// largest element errs and which takes a division. The scale itself is kept in fp16.
inline void store_quantised(KvType type, std::span<RotatedElement> block) {
  std::vector<double> values;
  double error = 0;
  for (const RotatedElement& x : block) {
    values.push_back(x.value);
    error = std::max(error, x.bound);
  }
  const double scale = kv_scale_of(type, values);
  const double size = std::abs(scale);
  const double most = type == KvType::kQ8_0 ? 127 : 8;
  const double scale_error = 0x1p-21 + (size == 0 ? 0 : error / (size * most));  // relative
  for (RotatedElement& x : block) {
    if (size == 0) {
      x = {0, 0};
      continue;
    }
    const double steps = x.value / scale;
    const double steps_error = x.bound / size + std::abs(steps) * (scale_error + 0x1p-21);
    const double least = type == KvType::kQ8_0 ? -127 : -8;
    const double highest = type == KvType::kQ8_0 ? 127 : 7;
    const double low = std::clamp(std::nearbyint(steps - steps_error), least, highest);
    const double high = std::clamp(std::nearbyint(steps + steps_error), least, highest);
    const double kept = std::clamp(scale, -65504.0, 65504.0);
    const double kept_error = std::abs(kept) * (0x1p-11 + scale_error) + 0x1p-25;
    x = {(low + high) / 2 * kept,
         (high - low) / 2 * std::abs(kept) + std::max(std::abs(low), std::abs(high)) * kept_error};
  }
}

/// What the cache keeps of a row of a head.
inline void store_row(KvType type, std::span<RotatedElement> row) {
  if (kv_quant_elements(type) > 1) {
    for (size_t first = 0; first < row.size(); first += 32) {
      store_quantised(type, row.subspan(first, 32));
    }
  } else if (type != KvType::kF32) {
    for (RotatedElement& x : row) {
      x = type == KvType::kF16 ? stored_as_half(x) : stored_as_bfloat16(x);
    }
  }
}

}  // namespace pumice::ops
