#include "models/program.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace pumice {
namespace {

/// Lists the operands of each kind; what is new in program.hpp does not compile without a line
/// here.
struct Operands {
  std::string_view name;
  std::vector<ValueId> inputs = {};
  std::vector<TensorId> tensors = {};
};

std::vector<TensorId> with(std::vector<TensorId> tensors, std::optional<TensorId> another) {
  if (another) tensors.push_back(*another);
  return tensors;
}

std::string_view activation_name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kSilu:
      return "silu";
    case ActivationKind::kGelu:
      return "gelu";
    case ActivationKind::kGeluTanh:
      return "gelu_tanh";
    case ActivationKind::kSigmoid:
      return "sigmoid";
    case ActivationKind::kRelu:
      return "relu";
  }
  PUMICE_CHECK(false, "an activation without a name");
  return {};
}

Operands operands(const op::Embed& o) { return {"embed", {}, {o.table}}; }
Operands operands(const op::EmbedPosition& o) { return {"embed_position", {}, {o.table}}; }
Operands operands(const op::AddRow& o) { return {"add_row", {o.x}, {o.table}}; }
Operands operands(const op::GivenRows&) { return {"given_rows"}; }
Operands operands(const op::Linear& o) {
  return {"linear", {o.x}, with({o.weight.tensor}, o.bias)};
}
Operands operands(const op::RmsNorm& o) { return {"rms_norm", {o.x}, with({}, o.weight)}; }
Operands operands(const op::LayerNorm& o) {
  return {"layer_norm", {o.x}, with({o.weight}, o.bias)};
}
Operands operands(const op::Rope& o) { return {"rope", {o.x}}; }
Operands operands(const op::Append& o) {
  Operands found{"append", {o.k}};
  if (o.v) found.inputs.push_back(*o.v);
  return found;
}
Operands operands(const op::Attention& o) { return {"attention", {o.q, o.kv}, with({}, o.sinks)}; }
Operands operands(const op::HeadLinear& o) { return {"head_linear", {o.x}, {o.weight}}; }
Operands operands(const op::CausalConv& o) {
  return {"causal_conv", {o.x}, with({o.weight}, o.bias)};
}
Operands operands(const op::Recurrence& o) {
  std::vector<ValueId> inputs = {o.q, o.k, o.v, o.step};
  if (o.beta) inputs.push_back(*o.beta);
  return {"recurrence", std::move(inputs), with({o.a, o.bias}, o.d)};
}
Operands operands(const op::Activation& o) { return {activation_name(o.kind), {o.x}}; }
Operands operands(const op::Xielu& o) { return {"xielu", {o.x}}; }
Operands operands(const op::Mul& o) { return {"mul", {o.a, o.b}}; }
Operands operands(const op::Add& o) { return {"add", {o.a, o.b}}; }
Operands operands(const op::Scale& o) { return {"scale", {o.x}}; }
Operands operands(const op::Clamp& o) { return {"clamp", {o.x}}; }
Operands operands(const op::SoftCap& o) { return {"soft_cap", {o.x}}; }
Operands operands(const op::Split& o) { return {"split", {o.x}}; }
Operands operands(const op::Concat& o) { return {"concat", {o.a, o.b}}; }
Operands operands(const op::SplitGroups& o) { return {"split_groups", {o.x}}; }
Operands operands(const op::Route& o) {
  return {"route", {o.scores}, with(with({}, o.bias), o.gain)};
}
Operands operands(const op::ExpertLinear& o) {
  return {"expert_linear", {o.x, o.routes}, with({o.weight}, o.bias)};
}
Operands operands(const op::Combine& o) { return {"combine", {o.x, o.routes}}; }

Operands operands_of(const Operation& what) {
  return std::visit([](const auto& o) { return operands(o); }, what);
}

}  // namespace

HeadProduct head_product(const Program& program, const op::HeadLinear& linear) {
  const auto n_cols = static_cast<uint32_t>(program.tensors[linear.weight].dims[0]);
  const uint32_t head_dim = program.values[linear.x].width / linear.n_heads;
  HeadProduct product{.n_in = n_cols, .n_out = linear.n_rows};
  if (linear.transposed) std::swap(product.n_in, product.n_out);
  product.n_kept = head_dim - product.n_in;
  return product;
}

uint32_t embedding_width(const Program& program) {
  return program.values[program.layers.empty() ? program.logits : program.layers.front().input]
      .width;
}

std::optional<uint32_t> position_limit(const Program& program) {
  std::optional<uint32_t> limit;
  for (const Op& op : program.ops) {
    const auto* const embed = std::get_if<op::EmbedPosition>(&op.what);
    if (embed == nullptr) continue;
    const auto n_positions = static_cast<uint32_t>(program.tensors[embed->table].dims[1]);
    limit = std::min(limit.value_or(n_positions), n_positions);
  }
  return limit;
}

const Op* given_rows(const Program& program) {
  const auto found = std::ranges::find_if(
      program.ops, [](const Op& op) { return std::holds_alternative<op::GivenRows>(op.what); });
  return found == program.ops.end() ? nullptr : &*found;
}

std::string_view op_name(const Operation& what) { return operands_of(what).name; }
std::vector<ValueId> op_inputs(const Operation& what) { return operands_of(what).inputs; }
std::vector<TensorId> op_tensors(const Operation& what) { return operands_of(what).tensors; }

Status check_writes_text(const Program& program) {
  if (given_rows(program) != nullptr) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a block of architecture {} that predicts writes no text by itself",
                      program.architecture);
  }
  if (!program.pooling) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "architecture {} is an embedding model: it gives vectors of texts (pumice "
                    "embed) and writes none",
                    program.architecture);
}

Program first_layers(const Program& program, uint32_t n_layers) {
  if (n_layers == 0 || n_layers >= program.layers.size()) return program;
  Program cut = program;
  const Layer& last = program.layers[n_layers - 1];
  const uint32_t end = program.layers.back().end_op;
  cut.layers.resize(n_layers);
  cut.ops.erase(cut.ops.begin() + last.end_op, cut.ops.begin() + end);
  // What follows reads the result of the last layer that is left as that of the last of all.
  const ValueId output = program.layers.back().output;
  for (uint32_t i = last.first_op; i < last.end_op; ++i) {
    if (cut.ops[i].result == last.output) cut.ops[i].result = output;
  }
  cut.layers.back().output = output;
  return cut;
}

}  // namespace pumice
