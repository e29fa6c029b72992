#include "models/parts.hpp"

#include <algorithm>
#include <array>
#include <variant>

namespace pumice {
namespace {

template <typename... Kinds>
bool is(const Op& op) {
  return (std::holds_alternative<Kinds>(op.what) || ...);
}

/// What changes numbers on their way from one of the others to the next.
bool is_passed_through(const Op& op) {
  return is<op::RmsNorm, op::LayerNorm, op::Rope, op::Scale, op::SoftCap, op::Split,
            op::SplitGroups, op::Concat, op::HeadLinear>(op);
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
    return std::visit([&](const auto& what) { return of(what, op); }, op.what);
  }

 private:
  // A new operation does not compile before it has its part here.
  Part of(const op::Embed&, const Op&) const { return Part::kEmbedding; }
  Part of(const op::EmbedPosition&, const Op&) const { return Part::kEmbedding; }
  Part of(const op::AddRow&, const Op&) const { return Part::kEmbedding; }
  Part of(const op::GivenRows&, const Op&) const { return Part::kEmbedding; }
  Part of(const op::RmsNorm&, const Op&) const { return Part::kNorms; }
  Part of(const op::LayerNorm&, const Op&) const { return Part::kNorms; }
  Part of(const op::Add&, const Op&) const { return Part::kNorms; }
  Part of(const op::Rope&, const Op&) const { return Part::kRopeKv; }
  Part of(const op::Append&, const Op&) const { return Part::kRopeKv; }
  Part of(const op::Attention&, const Op&) const { return Part::kAttention; }
  Part of(const op::CausalConv&, const Op&) const { return Part::kRecurrence; }
  Part of(const op::Recurrence&, const Op&) const { return Part::kRecurrence; }
  Part of(const op::Activation&, const Op&) const { return Part::kActivation; }
  Part of(const op::Xielu&, const Op&) const { return Part::kActivation; }
  Part of(const op::Mul&, const Op&) const { return Part::kActivation; }
  Part of(const op::Clamp&, const Op&) const { return Part::kActivation; }
  Part of(const op::Combine&, const Op&) const { return Part::kActivation; }
  Part of(const op::Route&, const Op&) const { return Part::kRouter; }
  Part of(const op::Linear&, const Op& op) const { return of_matrix(op); }
  Part of(const op::ExpertLinear&, const Op& op) const { return of_matrix(op); }
  Part of(const op::HeadLinear&, const Op& op) const { return of_matrix(op); }
  Part of(const op::Scale&, const Op& op) const { return of_maker(op); }
  Part of(const op::SoftCap&, const Op& op) const { return of_maker(op); }
  Part of(const op::Split&, const Op& op) const { return of_maker(op); }
  Part of(const op::SplitGroups&, const Op& op) const { return of_maker(op); }
  Part of(const op::Concat&, const Op& op) const { return of_maker(op); }

  Part of_maker(const Op& op) const { return of(*makers_[op_inputs(op.what)[0]]); }

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
