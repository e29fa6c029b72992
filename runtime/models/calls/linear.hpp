// Products with matrices: the model's own, and of each head with one of its own.
#pragma once

#include "models/calls/call.hpp"

namespace pumice {
namespace call {

/// Matrices of a group side by side: all of them, or one.
struct Linear {
  GroupId matrices;
  std::optional<uint32_t> member;
  View x;
  View y;
  uint32_t n_columns;  ///< numbers of a row of x

  void touch(Touched& t) const {
    t.buffer(x), t.buffer(y), t.rows(matrices, {}, member), t.product(n_columns);
  }
};

/// A matrix for each head, as op::HeadLinear.
struct HeadLinear {
  /// Whose x is in scratch memory at a time, where products read it in another form.
  static constexpr uint32_t kHeadsAtOnce = 8;

  View x;
  GroupId matrices;  ///< one, the heads' rows one after the other
  View y;
  uint32_t n_heads;
  uint32_t x_head_dim;
  uint32_t first_row;
  uint32_t n_rows;
  uint32_t n_columns;  ///< of the matrix
  bool transposed;
  /// To or from the latents' space: only of rows whose chunks this class of attention has.
  std::optional<uint32_t> attention_class;

  void touch(Touched& t) const {
    t.buffer(x), t.buffer(y), t.rows(matrices, uint64_t{n_heads} * n_rows);
    t.product(n_columns, kHeadsAtOnce);
  }
};

}  // namespace call

BindResult bind(const call::Linear& c, Binder& binder);
BindResult bind(const call::HeadLinear& c, Binder& binder);

}  // namespace pumice
