#include "models/program_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "models/embedding.hpp"

namespace pumice {
namespace {

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
              .constants = op_constants(program, op.what)};
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
  if (program.relevant_label) text += fmt::format("ranks by label {}\n", *program.relevant_label);
  return text;
}

}  // namespace pumice
