// Norms of rows, or of groups of a row's numbers.
#pragma once

#include "models/calls/call.hpp"

namespace pumice {
namespace call {

struct RmsNorm {
  View x;
  std::optional<View> residual;  ///< added to x first, in place
  std::optional<VectorId> weight;
  View y;
  uint32_t n;
  float eps;
  uint32_t n_groups;  ///< of n numbers each, side by side in a row
  bool gathers;       ///< x has all rows, y those of logits
  bool weight_each;   ///< groups have weights of their own

  void operands(Operands& o) const { o.buffer(x), o.buffer(residual), o.buffer(y); }
};

struct LayerNorm {
  View x;
  std::optional<View> residual;  ///< added to x first, in place
  VectorId weight;
  std::optional<VectorId> bias;
  View y;
  uint32_t n;
  float eps;
  uint32_t n_groups;  ///< of n numbers each, side by side in a row, with weights of their own
  bool gathers;       ///< x has all rows, y those of logits

  void operands(Operands& o) const { o.buffer(x), o.buffer(residual), o.buffer(y); }
};

}  // namespace call

BindResult bind(const call::RmsNorm& c, Binder& binder);
BindResult bind(const call::LayerNorm& c, Binder& binder);

}  // namespace pumice
