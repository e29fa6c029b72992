// What keeps a state of fixed size of each sequence instead of keys and values.
#pragma once

#include "models/calls/call.hpp"
#include "models/state_layout.hpp"
#include "shaders/recurrence/recurrence.hpp"

namespace pumice {
namespace call {

struct CausalConv {
  View x;
  View y;  ///< another buffer
  VectorId weight;
  std::optional<VectorId> bias;
  uint32_t n;
  uint32_t taps;
  bool silu;
  StateSlot state;

  void operands(Operands& o) const { o.buffer(x), o.buffer(y); }
};

struct Recurrence {
  View q;
  View k;
  View v;
  View step;
  std::optional<View> beta;
  View y;  ///< another buffer
  float q_scale;
  float k_scale;
  VectorId a;
  VectorId bias;
  std::optional<VectorId> d;
  ops::Recurrence::Shape shape;
  StateSlot state;

  void operands(Operands& o) const {
    o.buffer(q), o.buffer(k), o.buffer(v), o.buffer(step), o.buffer(beta), o.buffer(y);
  }
};

}  // namespace call

BindResult bind(const call::CausalConv& c, Binder& binder);
BindResult bind(const call::Recurrence& c, Binder& binder);

}  // namespace pumice
