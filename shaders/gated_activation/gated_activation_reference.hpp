// gated_activation in fp64, for its cases.
#pragma once

#include "shaders/common/activation_reference.hpp"
#include "shaders/gated_activation/gated_activation.hpp"

namespace pumice::ops {

/// A value and what a kernel in fp32 may miss it by.
struct GatedElement {
  double value;
  double bound;
};

inline GatedElement gated_element(GatedActivation::Kind kind, double gate, double up) {
  const auto activation = static_cast<uint32_t>(kind);
  const double value = activation_value(activation, gate) * up;
  const double bound = activation_bound(activation, gate) * std::abs(up) +
                       0x1p-24 * std::abs(value) + 0x1p-126;  // the product, which may be flushed
  return {value, bound};
}

}  // namespace pumice::ops
