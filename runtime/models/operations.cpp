// What each operation is called, of which part of a model it is, what it reads, and its constants.
// What is new in program.hpp does not compile without its lines here, in `operands` and in
// Constants.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.hpp"
#include "models/parts.hpp"
#include "models/program.hpp"

namespace pumice {
namespace {

constexpr std::optional<Part> kOfNeighbours;

struct Operands {
  std::string_view name;
  std::optional<Part> part;  ///< none: that of what it reads, or of what reads a matrix's product
  std::vector<ValueId> inputs = {};
  std::vector<TensorId> tensors = {};
};

std::vector<TensorId> with(std::vector<TensorId> tensors, std::optional<TensorId> another) {
  if (another) tensors.push_back(*another);
  return tensors;
}

std::string_view activation_name(ActivationKind kind) {
  constexpr std::string_view kNames[] = {"silu", "gelu", "gelu_tanh", "sigmoid", "relu"};
  return kNames[static_cast<size_t>(kind)];
}

Operands operands(const op::Embed& o) { return {"embed", Part::kEmbedding, {}, {o.table}}; }
Operands operands(const op::EmbedPosition& o) {
  return {"embed_position", Part::kEmbedding, {}, {o.table}};
}
Operands operands(const op::AddRow& o) { return {"add_row", Part::kEmbedding, {o.x}, {o.table}}; }
Operands operands(const op::GivenRows&) { return {"given_rows", Part::kEmbedding}; }
Operands operands(const op::Linear& o) {
  return {"linear", kOfNeighbours, {o.x}, with({o.weight.tensor}, o.bias)};
}
Operands operands(const op::RmsNorm& o) {
  return {"rms_norm", Part::kNorms, {o.x}, with({}, o.weight)};
}
Operands operands(const op::LayerNorm& o) {
  return {"layer_norm", Part::kNorms, {o.x}, with({o.weight}, o.bias)};
}
Operands operands(const op::Rope& o) { return {"rope", Part::kRopeKv, {o.x}}; }
Operands operands(const op::Append& o) {
  Operands found{"append", Part::kRopeKv, {o.k}};
  if (o.v) found.inputs.push_back(*o.v);
  return found;
}
Operands operands(const op::Attention& o) {
  return {"attention", Part::kAttention, {o.q, o.kv}, with({}, o.sinks)};
}
Operands operands(const op::HeadLinear& o) {
  return {"head_linear", kOfNeighbours, {o.x}, {o.weight}};
}
Operands operands(const op::CausalConv& o) {
  return {"causal_conv", Part::kRecurrence, {o.x}, with({o.weight}, o.bias)};
}
Operands operands(const op::Recurrence& o) {
  std::vector<ValueId> inputs = {o.q, o.k, o.v, o.step};
  if (o.beta) inputs.push_back(*o.beta);
  return {"recurrence", Part::kRecurrence, std::move(inputs), with({o.a, o.bias}, o.d)};
}
Operands operands(const op::Activation& o) {
  return {activation_name(o.kind), Part::kActivation, {o.x}};
}
Operands operands(const op::Xielu& o) { return {"xielu", Part::kActivation, {o.x}}; }
Operands operands(const op::Mul& o) { return {"mul", Part::kActivation, {o.a, o.b}}; }
Operands operands(const op::Add& o) { return {"add", Part::kNorms, {o.a, o.b}}; }
Operands operands(const op::Scale& o) { return {"scale", kOfNeighbours, {o.x}}; }
Operands operands(const op::Clamp& o) { return {"clamp", Part::kActivation, {o.x}}; }
Operands operands(const op::SoftCap& o) { return {"soft_cap", kOfNeighbours, {o.x}}; }
Operands operands(const op::Split& o) { return {"split", kOfNeighbours, {o.x}}; }
Operands operands(const op::Concat& o) { return {"concat", kOfNeighbours, {o.a, o.b}}; }
Operands operands(const op::SplitGroups& o) { return {"split_groups", kOfNeighbours, {o.x}}; }
Operands operands(const op::Route& o) {
  return {"route", Part::kRouter, {o.scores}, with(with({}, o.bias), o.gain)};
}
Operands operands(const op::ExpertLinear& o) {
  return {"expert_linear", kOfNeighbours, {o.x, o.routes}, with({o.weight}, o.bias)};
}
Operands operands(const op::Combine& o) { return {"combine", Part::kActivation, {o.x, o.routes}}; }

Operands operands_of(const Operation& what) {
  return std::visit([](const auto& o) { return operands(o); }, what);
}

std::string rope_text(const ops::RopeConfig& rope) {
  std::string text = fmt::format("{} dims, base {}", rope.dims, rope.base);
  switch (rope.scaling) {
    case ops::RopeScaling::kNone:
      break;
    case ops::RopeScaling::kLinear:
      text += fmt::format(", linear {}", rope.factor);
      break;
    case ops::RopeScaling::kYarn:
      text += fmt::format(", yarn {} from {}", rope.factor, rope.original_context);
      break;
  }
  if (!rope.freq_divisors.empty()) text += ", divisors";
  if (!rope.long_divisors.empty()) {
    text += fmt::format(", others in contexts above {}", rope.original_context);
  }
  if (rope.temperature != 0) {
    text += fmt::format(", temperature {:.6g} every {}", rope.temperature, rope.temperature_tokens);
  }
  if (rope.attn_factor != 1) text += fmt::format(", magnitude {}", rope.attn_factor);
  return text;
}

/// The constants of each kind of operation.
class Constants {
 public:
  explicit Constants(const Program& program) : program_(program) {}

  std::string operator()(const op::Embed&) const { return ""; }
  std::string operator()(const op::EmbedPosition& o) const {
    return fmt::format("of {}", program_.tensors[o.table].dims[1]);
  }
  std::string operator()(const op::AddRow& o) const { return fmt::format("row {}", o.row); }
  std::string operator()(const op::GivenRows&) const { return ""; }
  std::string operator()(const op::Linear& o) const {
    const uint64_t all = program_.tensors[o.weight.tensor].dims[1];
    if (o.weight.n_rows == all) return "";
    return fmt::format("rows {} to {} of {}", o.weight.first_row,
                       o.weight.first_row + o.weight.n_rows, all);
  }
  std::string operator()(const op::RmsNorm& o) const { return norm_text(o); }
  std::string operator()(const op::LayerNorm& o) const { return norm_text(o); }
  std::string operator()(const op::Rope& o) const {
    return fmt::format("heads of {}, {}{}, {}", o.head_dim,
                       o.first == 0 ? "" : fmt::format("from {}, ", o.first),
                       rope_text(program_.ropes[o.rope]), o.halves ? "halves" : "neighbours");
  }
  std::string operator()(const op::Append& o) const {
    return fmt::format("state {}", program_.state_groups[o.group].name);
  }
  std::string operator()(const op::Attention& o) const {
    std::string text = fmt::format("{} heads of {}, {} kv heads, scale {:.6g}", o.n_heads,
                                   o.head_dim, o.n_kv_heads, o.scale);
    if (o.value_dim() != o.head_dim) text += fmt::format(", values of {}", o.value_dim());
    if (o.window != 0) text += fmt::format(", window {}", o.window);
    if (o.ahead == op::kAllAhead) text += ", not causal";
    if (o.ahead != 0 && o.ahead != op::kAllAhead) text += fmt::format(", {} ahead", o.ahead);
    if (o.soft_cap != 0) text += fmt::format(", soft cap {:.6g}", o.soft_cap);
    return text;
  }
  std::string operator()(const op::HeadLinear& o) const {
    const HeadProduct product = head_product(program_, o);
    return fmt::format("{} heads, {} numbers to {}{}{}", o.n_heads, product.n_in, product.n_out,
                       product.n_kept == 0 ? "" : fmt::format(", {} kept", product.n_kept),
                       o.transposed ? ", transposed" : "");
  }
  std::string operator()(const op::CausalConv& o) const {
    return fmt::format("{} taps{}, state {}", program_.tensors[o.weight].dims[0],
                       o.silu ? ", silu" : "", program_.state_groups[o.group].name);
  }
  std::string operator()(const op::Recurrence& o) const {
    std::string text = fmt::format("{} heads of {}, {} of keys of {}{}", o.n_heads, o.value_dim,
                                   o.n_key_heads, o.key_dim, o.by_remainder ? " by remainder" : "");
    if (o.decay == StateDecay::kKey) text += ", keys decay";
    if (o.decay == StateDecay::kState) text += ", states decay";
    if (o.q_scale != 1) text += fmt::format(", q times {:.6g}", o.q_scale);
    if (o.k_scale != 1) text += fmt::format(", k times {:.6g}", o.k_scale);
    return text + fmt::format(", state {}", program_.state_groups[o.group].name);
  }
  std::string operator()(const op::Activation&) const { return ""; }
  std::string operator()(const op::Xielu& o) const {
    return fmt::format("{:.6g} x² above 0, {:.6g} below, {:.6g} x", o.alpha_p, o.alpha_n, o.beta);
  }
  std::string operator()(const op::Mul&) const { return ""; }
  std::string operator()(const op::Add&) const { return ""; }
  std::string operator()(const op::Scale& o) const { return fmt::format("{:.6g}", o.factor); }
  std::string operator()(const op::Clamp& o) const {
    return fmt::format("{}{:.6g}", o.both_sides ? "±" : "at most ", o.limit);
  }
  std::string operator()(const op::SoftCap& o) const { return fmt::format("{:.6g}", o.cap); }
  std::string operator()(const op::Split& o) const { return fmt::format("from {}", o.first); }
  std::string operator()(const op::Concat&) const { return ""; }
  std::string operator()(const op::SplitGroups& o) const {
    return fmt::format("{} from {} of each {}", o.n, o.first, o.group);
  }
  std::string operator()(const op::Route& o) const {
    std::string text = fmt::format("{} of {}", o.n_used, program_.values[o.scores].width);
    const Router& router = o.router;
    if (router.n_groups > 1) {
      text += fmt::format(", in {} of {} groups", router.n_used_groups, router.n_groups);
    }
    if (router.probability == Router::Probability::kSigmoid) text += ", sigmoid";
    if (!router.renormalised) text += ", not renormalised";
    if (router.scale != 1) text += fmt::format(", times {:.6g}", router.scale);
    if (o.gain) text += ", times a gain of each";
    return text;
  }
  std::string operator()(const op::ExpertLinear& o) const {
    return fmt::format("{} experts", program_.tensors[o.weight].dims[2]);
  }
  std::string operator()(const op::Combine&) const { return ""; }

 private:
  std::string norm_text(const auto& norm) const {
    const bool heads = norm.group != program_.values[norm.x].width;
    return fmt::format("{}eps {:.6g}", heads ? fmt::format("heads of {}, ", norm.group) : "",
                       norm.eps);
  }

  const Program& program_;
};

}  // namespace

std::string_view op_name(const Operation& what) { return operands_of(what).name; }
std::vector<ValueId> op_inputs(const Operation& what) { return operands_of(what).inputs; }
std::vector<TensorId> op_tensors(const Operation& what) { return operands_of(what).tensors; }
std::optional<Part> own_part(const Operation& what) { return operands_of(what).part; }
std::string op_constants(const Program& program, const Operation& what) {
  return std::visit(Constants(program), what);
}

}  // namespace pumice
