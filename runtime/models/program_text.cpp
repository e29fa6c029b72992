#include "models/program_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "models/embedding.hpp"

namespace pumice {
namespace {

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

/// Without "blk.N.".
std::string within_layer(const std::string& tensor) {
  const size_t number = tensor.rfind("blk.", 0) == 0 ? tensor.find('.', 4) : std::string::npos;
  return number == std::string::npos ? tensor : tensor.substr(number + 1);
}

std::string line_of(const Program& program, const Op& op) {
  const OpText text = describe_op(program, op);
  std::string operands = text.kind == "embed"        ? "tokens"
                         : text.kind == "given_rows" ? "the model's"
                         : text.kind == "embed_position"
                             ? "positions"
                             : fmt::format("{}", fmt::join(text.inputs, ", "));
  for (const std::string& tensor : text.tensors) operands += "; " + within_layer(tensor);
  if (!text.constants.empty()) operands += "; " + text.constants;
  const Value& value = program.values[op.result];
  const std::string width = value.width == 0 ? "" : fmt::format("  {}", value.width);
  return fmt::format("{} = {}({}){}\n", text.result, text.kind, operands, width);
}

std::string lines_of(const Program& program, uint32_t first, uint32_t end) {
  std::string lines;
  for (uint32_t i = first; i < end; ++i) lines += "  " + line_of(program, program.ops[i]);
  return lines;
}

}  // namespace

OpText describe_op(const Program& program, const Op& op) {
  OpText text{.result = program.values[op.result].name,
              .kind = std::string(op_name(op.what)),
              .constants = std::visit(Constants(program), op.what)};
  for (const ValueId input : op_inputs(op.what)) text.inputs.push_back(program.values[input].name);
  for (const TensorId tensor : op_tensors(op.what)) {
    text.tensors.push_back(program.tensors[tensor].name);
  }
  return text;
}

std::vector<AlikeLayers> alike_layers(const Program& program) {
  std::vector<AlikeLayers> groups;
  std::string last;
  for (uint32_t i = 0; i < program.layers.size(); ++i) {
    std::string lines = lines_of(program, program.layers[i].first_op, program.layers[i].end_op);
    if (groups.empty() || lines != last) {
      groups.push_back({i, i});
      last = std::move(lines);
    }
    groups.back().end = i + 1;
  }
  return groups;
}

std::string program_text(const Program& program) {
  std::string text = fmt::format("{}, {} layers, {} operations, {} tensors\n", program.architecture,
                                 program.layers.size(), program.ops.size(), program.tensors.size());
  for (const StateGroup& group : program.state_groups) {
    if (group.recurrent) {
      const uint64_t n =
          std::accumulate(group.state_floats.begin(), group.state_floats.end(), uint64_t{0});
      text +=
          fmt::format("state {}: {} slots, recurrent, {} numbers\n", group.name, group.n_slots, n);
      continue;
    }
    text += fmt::format(
        "state {}: {} slots, {} kv heads of {}{}{}{}\n", group.name, group.n_slots,
        group.n_kv_heads, group.head_dim,
        group.latent_dim == 0 ? "" : fmt::format(", values are the first {}", group.latent_dim),
        group.v_dim == 0 ? "" : fmt::format(", values of {}", group.v_dim),
        group.window == 0 ? "" : fmt::format(", window {}", group.window));
  }
  uint32_t next = 0;
  for (const AlikeLayers& group : alike_layers(program)) {
    const Layer& layer = program.layers[group.first];
    text += lines_of(program, next, layer.first_op);
    text += group.end == group.first + 1
                ? fmt::format("layer {}\n", program.predicting_block + group.first)
                : fmt::format("layers {} to {}\n", group.first, group.end - 1);
    text += lines_of(program, layer.first_op, layer.end_op);
    next = program.layers[group.end - 1].end_op;
  }
  const auto n_ops = static_cast<uint32_t>(program.ops.size());
  if (!program.layers.empty()) text += "after the layers\n";
  text += lines_of(program, next, n_ops);
  if (program.pooling) text += fmt::format("pooling {}\n", pooling_name(*program.pooling));
  return text;
}

}  // namespace pumice
