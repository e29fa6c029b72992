// Attention, and what comes right before it: rotation, and keys and values into the state.
#pragma once

#include "models/calls/call.hpp"
#include "models/program.hpp"
#include "models/state_layout.hpp"

namespace pumice {
namespace call {

/// Rotation of heads in place.
struct Rope {
  View x;
  uint32_t n_heads;
  uint32_t head_dim;
  uint32_t rope;  ///< index into Program::ropes
  bool halves;

  void operands(Operands& o) const { o.buffer(x); }
};

/// Biases, norms of heads and rotation of q and k, and k and v into the state; or keys alone.
struct RopeKv {
  View qkv;
  uint32_t n_heads;  ///< 0: there is no q
  uint32_t n_kv_heads;
  uint32_t head_dim;
  std::optional<uint32_t> rope;  ///< index into Program::ropes
  bool halves;
  std::optional<VectorId> bias;  ///< of q, k and v, one after the other
  std::optional<VectorId> q_norm;
  std::optional<VectorId> k_norm;
  float norm_eps;
  StateSlot state;
  bool has_values = true;
  uint32_t v_dim = 0;  ///< as the state group's

  void operands(Operands& o) const { o.buffer(qkv); }
};

struct Attention {
  View q;
  View y;
  uint32_t attention_class;  ///< index into Lowered::attention_classes
  double scale;
  StateSlot state;
  std::optional<VectorId> sinks;

  void operands(Operands& o) const { o.buffer(q), o.buffer(y); }
};

/// Attention to latents of the chunks that `attention_class`, which expands, has: from queries as
/// they are before the one product of heads to results as they are behind the other.
struct ExpandedAttention {
  View q;
  View y;
  GroupId keys;    ///< one, of the product of queries: each head's, transposed; or `values`
  GroupId values;  ///< of the product of results
  bool fused;      ///< both are one matrix: of each head's rows the first are of keys
  uint32_t attention_class;
  double scale;
  StateSlot state;
  std::optional<VectorId> sinks;

  /// Its matrices are those of call::HeadLinear, which is what a single token reads them for.
  void operands(Operands& o) const { o.buffer(q), o.buffer(y); }
};

}  // namespace call

BindResult bind(const call::Rope& c, Binder& binder);
BindResult bind(const call::RopeKv& c, Binder& binder);
BindResult bind(const call::Attention& c, Binder& binder);
BindResult bind(const call::ExpandedAttention& c, Binder& binder);

}  // namespace pumice
