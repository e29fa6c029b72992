// Every call there is. A new kernel's model side is its struct with `operands`, its `bind`, and a name
// in this list.
#pragma once

#include <variant>

#include "models/calls/attention.hpp"
#include "models/calls/elementwise.hpp"
#include "models/calls/embed.hpp"
#include "models/calls/experts.hpp"
#include "models/calls/linear.hpp"
#include "models/calls/lora.hpp"
#include "models/calls/norms.hpp"
#include "models/calls/recurrent.hpp"

namespace pumice {

using Call =
    std::variant<call::Embed, call::Linear, call::RmsNorm, call::LayerNorm, call::Rope,
                 call::RopeKv, call::HeadLinear, call::Attention, call::ExpandedAttention,
                 call::CausalConv, call::Recurrence, call::Gated, call::Elementwise, call::Lora,
                 call::Route, call::GroupRoutes, call::ExpertLinear, call::Combine>;

inline Operands operands(const Call& call) {
  Operands result;
  std::visit([&](const auto& c) { c.operands(result); }, call);
  return result;
}

}  // namespace pumice
