// rope_kv in fp64, for its cases.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/float16.hpp"
#include "shaders/rope_kv/rope_kv.hpp"

namespace pumice::ops {

/// An element and what a kernel in fp32 may miss it by.
struct RotatedElement {
  double value;
  double bound;
};

/// Element `d` of a head, rotated. The bound is of three roundings: two products and a sum.
inline RotatedElement rotate_element(const RopeKv::Shape& shape, const float* head, uint32_t d,
                                     const float* angles) {
  constexpr double kRounding = 0x1p-24;  // half an ulp of a float, relative
  if (d >= shape.rope_dims) return {head[d], 0};
  const bool halves = shape.pairs == RopePairs::kHalves;
  const uint32_t half = shape.rope_dims / 2;
  const uint32_t pair = halves ? d % half : d / 2;
  const uint32_t first = halves ? pair : 2 * pair;
  const uint32_t second = halves ? pair + half : 2 * pair + 1;
  const double c = angles[2 * pair];
  const double s = angles[2 * pair + 1];
  const double straight = head[d] * c;
  const double crossed = d == first ? -head[second] * s : head[first] * s;
  return {straight + crossed, 3 * kRounding * (std::abs(straight) + std::abs(crossed))};
}

/// What a cache of halves keeps of a value: the nearest, or the largest.
inline RotatedElement stored_as_half(const RotatedElement& x) {
  const double value = std::clamp(x.value, -65504.0, 65504.0);
  if (x.bound == 0) return {half_to_float(float_to_half(static_cast<float>(value))), 0};
  return {value, x.bound + std::max(0x1p-11 * std::abs(value), 0x1p-25)};
}

}  // namespace pumice::ops
