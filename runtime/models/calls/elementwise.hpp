// Numbers by themselves: activations, sums, products, copies.
#pragma once

#include "models/calls/call.hpp"
#include "models/program.hpp"
#include "shaders/elementwise/elementwise.hpp"
#include "shaders/gated_activation/gated_activation.hpp"

namespace pumice {
namespace call {

/// activation(gate) * up of a row's gates and ups, side by side.
struct Gated {
  View gate_up;
  View y;
  ops::GatedActivation::Kind kind;
  uint32_t n;

  void operands(Operands& o) const { o.buffer(gate_up), o.buffer(y); }
};

struct Elementwise {
  ops::Elementwise::Kind kind;
  View a;
  std::optional<View> b;           ///< kAdd, kMul, kMulGroups
  std::optional<VectorPart> bias;  ///< kAddBias
  View y;                          ///< may be a
  uint32_t n;
  double factor;  ///< kScale, kSoftCap, kAtMost, kWithin, kXielu
  bool gathers;   ///< a has all rows, y those of logits
  ops::Elementwise::Xielu xielu = {};
  uint32_t b_group = 1;  ///< of kMulGroups
  uint32_t a_group = 0;  ///< of kCopyGroups, whose y_group numbers are copied of each
  uint32_t y_group = 1;

  void operands(Operands& o) const { o.buffer(a), o.buffer(b), o.buffer(y); }
};

}  // namespace call

/// Where an operation on one value is computed, number by number.
struct OneValue {
  View x;
  View y;  ///< may be x
  uint32_t n;
};
// Operations that are one such call each, whatever is around them.
call::Elementwise call_of(const op::Activation& o, const OneValue& at);
call::Elementwise call_of(const op::Xielu& o, const OneValue& at);
call::Elementwise call_of(const op::Scale& o, const OneValue& at);
call::Elementwise call_of(const op::Clamp& o, const OneValue& at);
call::Elementwise call_of(const op::SoftCap& o, const OneValue& at);

BindResult bind(const call::Gated& c, Binder& binder);
BindResult bind(const call::Elementwise& c, Binder& binder);

}  // namespace pumice
