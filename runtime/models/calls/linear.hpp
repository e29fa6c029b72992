// Products with matrices: the model's own, and of each head with one of its own.
#pragma once

#include "models/calls/call.hpp"
#include "shaders/common/activation_kind.hpp"

namespace pumice {
namespace call {

/// Matrices of a group side by side: all of them, or one.
struct Linear {
  GroupId matrices;
  std::optional<uint32_t> member;
  View x;
  View y;
  uint32_t n_columns;  ///< numbers of a row of x

  // What it does besides, of as many rows as the device's kernels do it for (ops::LinearFinish).
  /// It adds y to the stream instead, and begins the norm behind it, whose dispatch is not recorded.
  struct Norm {
    View stream;
    VectorId weight;
    View normed;
    View squares;
  };
  /// It ends the norm before it, which a product began.
  struct Scale {
    View squares;
    float eps;
  };
  /// It gates its ups, so that the dispatch behind it is not recorded.
  struct Gate {
    View y;
    ActivationKind kind;
  };
  std::optional<Norm> norm = {};
  std::optional<Scale> scale = {};
  std::optional<Gate> gate = {};

  void operands(Operands& o) const {
    o.buffer(x), o.buffer(y), o.rows(matrices, {}, member), o.product(n_columns);
    if (norm) {
      o.buffer_of_few(norm->stream), o.buffer_of_few(norm->normed), o.buffer_of_few(norm->squares);
    }
    if (scale) o.buffer_of_few(scale->squares);
    if (gate) o.buffer_of_few(gate->y);
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

  void operands(Operands& o) const {
    o.buffer(x), o.buffer(y), o.rows(matrices, uint64_t{n_heads} * n_rows);
    o.product(n_columns, kHeadsAtOnce);
  }
};

}  // namespace call

BindResult bind(const call::Linear& c, Binder& binder);
BindResult bind(const call::HeadLinear& c, Binder& binder);

}  // namespace pumice
