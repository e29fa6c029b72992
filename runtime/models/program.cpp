#include "models/program.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace pumice {
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

uint32_t given_width(const Program& program) {
  const Op* const given = given_rows(program);
  return given == nullptr ? 0 : program.values[given->result].width;
}

Status check_writes_text(const Program& program) {
  if (given_rows(program) != nullptr) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a block of architecture {} that predicts writes no text by itself",
                      program.architecture);
  }
  if (!program.pooling) return {};
  if (program.relevant_label) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the model ranks texts (pumice serve answers /v1/rerank with it) and writes "
                      "none");
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "architecture {} is an embedding model: it gives vectors of texts (pumice "
                    "embed) and writes none",
                    program.architecture);
}

Result<Program> with_hidden_rows(Program program) {
  if (!program.hidden) {
    return make_error(ErrorCode::kInvalidArgument,
                      "guesses by prediction blocks need a file that carries them "
                      "(nextn_predict_layers); this one of architecture {} does not",
                      program.architecture);
  }
  program.gives_hidden = true;
  return program;
}

Result<Program> without_output(Program program) {
  ValueId value = program.logits;
  while (true) {
    const auto maker = std::ranges::find(program.ops, value, &Op::result);
    if (const auto* linear = std::get_if<op::Linear>(&maker->what)) {
      program.logits = linear->x;
      program.values[linear->x].name = "embedding";
      program.ops.erase(maker, program.ops.end());
      return program;
    }
    const bool is_passed_through = std::holds_alternative<op::Scale>(maker->what) ||
                                   std::holds_alternative<op::SoftCap>(maker->what);
    if (!is_passed_through) {
      return make_error(
          ErrorCode::kBadFile,
          "architecture {}: its logits do not come from a matrix product, so it has no embeddings",
          program.architecture);
    }
    value = op_inputs(maker->what)[0];
  }
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
