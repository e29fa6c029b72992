#include "models/parts.hpp"

#include <array>
#include <variant>

namespace pumice {
namespace {

template <typename... Kinds>
bool is(const Op& op) {
  return (std::holds_alternative<Kinds>(op.what) || ...);
}

bool is_matrix(const Op& op) { return is<op::Linear, op::ExpertLinear, op::HeadLinear>(op); }

/// What changes numbers on their way from one of the others to the next.
bool is_passed_through(const Op& op) {
  if (is<op::RmsNorm, op::LayerNorm, op::Rope, op::HeadLinear>(op)) return true;
  return !is_matrix(op) && !own_part(op.what);
}

bool mixes_tokens(const Op& op) { return is<op::Attention, op::CausalConv, op::Recurrence>(op); }

class Parts {
 public:
  explicit Parts(const Program& program)
      : program_(program), makers_(program.values.size()), readers_(program.values.size()) {
    for (const Op& op : program.ops) {
      makers_[op.result] = &op;
      for (const ValueId input : op_inputs(op.what)) readers_[input].push_back(&op);
    }
  }

  Part of(const Op& op) const {
    if (is_matrix(op)) return of_matrix(op);
    if (const std::optional<Part> own = own_part(op.what)) return *own;
    return of(*makers_[op_inputs(op.what)[0]]);
  }

 private:
  Part of_matrix(const Op& op) const {
    if (!program_.layers.empty() && &op < &program_.ops[program_.layers.front().first_op]) {
      return Part::kEmbedding;
    }
    ValueId value = op.result;
    const Op* reader = nullptr;
    do {
      if (value == program_.logits || readers_[value].empty()) return Part::kOutput;
      reader = readers_[value].front();
      value = reader->result;
    } while (is_passed_through(*reader) || (is<op::Linear>(*reader) && !after_layers(*reader)));
    if (is<op::Append, op::Attention>(*reader)) return Part::kQkv;
    if (gates_attention(*reader)) return Part::kQkv;
    if (is<op::Route>(*reader)) return Part::kRouter;
    if (!is<op::Add, op::Combine>(*reader)) return Part::kGateUp;
    const Op* maker = makers_[op_inputs(op.what)[0]];
    while (is_passed_through(*maker) || scales_attention(*maker)) {
      const bool by_second =
          scales_attention(*maker) && mixes_tokens(*makers_[op_inputs(maker->what)[1]]);
      maker = makers_[op_inputs(maker->what)[by_second ? 1 : 0]];
    }
    return mixes_tokens(*maker) ? Part::kAttentionOutput : Part::kDown;
  }

  /// A product of attention's result with gates, or of a recurrence's.
  bool scales_attention(const Op& op) const {
    const auto* const mul = std::get_if<op::Mul>(&op.what);
    return mul != nullptr && (mixes_tokens(*makers_[mul->a]) || mixes_tokens(*makers_[mul->b]));
  }
  /// An activation that gives those gates.
  bool gates_attention(const Op& op) const {
    const std::vector<const Op*>& readers = readers_[op.result];
    return is<op::Activation>(op) && !readers.empty() && scales_attention(*readers.front());
  }

  bool after_layers(const Op& op) const {
    const uint32_t end = program_.layers.empty() ? 0 : program_.layers.back().end_op;
    return &op - program_.ops.data() >= end;
  }

  const Program& program_;
  std::vector<const Op*> makers_;
  std::vector<std::vector<const Op*>> readers_;
};

}  // namespace

std::string_view part_name(Part part) {
  constexpr std::array<std::string_view, kPartCount> kNames = {
      "embedding",        "norms",  "qkv",      "rope, KV write", "attention", "recurrence",
      "attention output", "router", "gate, up", "activation",     "down",      "output"};
  return kNames.at(static_cast<size_t>(part));
}

std::vector<Part> parts_of(const Program& program) {
  const Parts parts(program);
  std::vector<Part> result;
  for (const Op& op : program.ops) result.push_back(parts.of(op));
  return result;
}

}  // namespace pumice
