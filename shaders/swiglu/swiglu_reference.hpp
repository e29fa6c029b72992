// swiglu in fp64, for its cases.
#pragma once

#include <cmath>

namespace pumice::ops {

inline double swiglu_value(double gate, double up) { return gate / (1 + std::exp(-gate)) * up; }

/// Vulkan allows exp() an error of 3 + 2|x| units in the last place, the division 2.5, the
/// additions and products half a unit each. For a positive gate the error of the exponential e
/// enters by e / (1 + e), so weighs at most |x|e / (1 + e) < 0.3 more. A result may be flushed
/// where e or it is subnormal.
inline double swiglu_bound(double gate, double up, double reference) {
  const double units = 8 + (gate < 0 ? 2 * std::abs(gate) : 0);
  return units * 0x1p-23 * std::abs(reference) + (std::abs(gate * up) + 1) * 0x1p-126;
}

}  // namespace pumice::ops
