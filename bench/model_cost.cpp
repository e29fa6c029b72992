#include "bench/model_cost.hpp"

#include <algorithm>
#include <cmath>

#include "models/metadata.hpp"
#include "models/model_config.hpp"

namespace pumice::bench {
namespace {

constexpr uint64_t kFloat = 4;

struct TensorShape {
  std::string_view name;
  const WeightType* type = nullptr;
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};

  uint64_t n_elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  uint64_t n_bytes() const { return type->file_bytes(n_elements()); }
};

/// Adds up the matrices of a model by name.
class Counter {
 public:
  Counter(ModelShape& shape, std::span<const TensorShape> tensors)
      : shape_(shape), tensors_(tensors.begin(), tensors.end()) {
    std::sort(tensors_.begin(), tensors_.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }

  Status count() {
    const TensorNames names;
    for (const TensorShape& tensor : tensors_) {
      shape_.n_params += tensor.n_elements();
      shape_.file_bytes += tensor.n_bytes();
    }
    for (uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
      const auto name = [&](const std::string& tensor) { return names.layer(layer, tensor); };
      PUMICE_TRY_STATUS(add(shape_.qkv, shape_.n_embd, shape_.q_dim(), name(names.attn_q), true));
      PUMICE_TRY_STATUS(add(shape_.qkv, shape_.n_embd, shape_.kv_dim(), name(names.attn_k)));
      PUMICE_TRY_STATUS(add(shape_.qkv, shape_.n_embd, shape_.kv_dim(), name(names.attn_v)));
      PUMICE_TRY_STATUS(
          add(shape_.attn_output, shape_.q_dim(), shape_.n_embd, name(names.attn_output), true));
      if (shape_.n_experts == 0) {
        PUMICE_TRY_STATUS(
            add(shape_.gate_up, shape_.n_embd, shape_.n_ff, name(names.ffn_gate), true));
        PUMICE_TRY_STATUS(add(shape_.gate_up, shape_.n_embd, shape_.n_ff, name(names.ffn_up)));
        PUMICE_TRY_STATUS(add(shape_.down, shape_.n_ff, shape_.n_embd, name(names.ffn_down), true));
      } else {
        PUMICE_TRY_STATUS(
            add(shape_.router, shape_.n_embd, shape_.n_experts, name("ffn_gate_inp.weight"), true));
        PUMICE_TRY_STATUS(
            add_experts(shape_.gate_up, shape_.n_embd, shape_.n_ff, name("ffn_gate_exps.weight")));
        PUMICE_TRY_STATUS(
            add_experts(shape_.gate_up, shape_.n_embd, shape_.n_ff, name("ffn_up_exps.weight")));
        PUMICE_TRY_STATUS(
            add_experts(shape_.down, shape_.n_ff, shape_.n_embd, name("ffn_down_exps.weight")));
        shape_.gate_up.values_per_row += shape_.n_embd;  // all experts read one x
        shape_.down.values_per_row += uint64_t{shape_.n_experts_used} * shape_.n_ff;
      }
    }
    PUMICE_TRY(const TensorShape* embedding,
               matrix(names.token_embd, {shape_.n_embd, shape_.n_vocab, 1, 1}));
    shape_.embedding_row_bytes = embedding->type->file_bytes(shape_.n_embd);
    const bool tied = find(names.output) == nullptr;
    return add(shape_.output, shape_.n_embd, shape_.n_vocab, tied ? names.token_embd : names.output,
               true);
  }

 private:
  const TensorShape* find(std::string_view name) const {
    const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                     [](const auto& a, auto& b) { return a.name < b; });
    return it != tensors_.end() && it->name == name ? &*it : nullptr;
  }

  Result<const TensorShape*> matrix(const std::string& name,
                                    const std::array<uint64_t, 4>& dims) const {
    const TensorShape* tensor = find(name);
    if (tensor == nullptr) {
      return make_error(ErrorCode::kBadFile, "the model has no tensor {}", name);
    }
    if (tensor->dims != dims) {
      return make_error(
          ErrorCode::kBadFile, "{}: shape {} x {} x {} where the metadata say {} x {} x {}", name,
          tensor->dims[0], tensor->dims[1], tensor->dims[2], dims[0], dims[1], dims[2]);
    }
    return tensor;
  }

  /// `reads_x`: not for matrices that share their input with the one before.
  Status add(MatrixSum& sum, uint64_t n_inputs, uint64_t n_outputs, const std::string& name,
             bool reads_x = false) {
    PUMICE_TRY(const TensorShape* tensor, matrix(name, {n_inputs, n_outputs, 1, 1}));
    sum.flops_per_row += 2 * n_inputs * n_outputs;
    sum.weight_bytes += tensor->n_bytes();
    sum.values_per_row += (reads_x ? n_inputs : 0) + n_outputs;
    return {};
  }

  Status add_experts(MatrixSum& sum, uint64_t n_inputs, uint64_t n_outputs,
                     const std::string& name) {
    PUMICE_TRY(const TensorShape* tensor, matrix(name, {n_inputs, n_outputs, shape_.n_experts, 1}));
    sum.flops_per_row += 2 * n_inputs * n_outputs * shape_.n_experts_used;
    sum.weight_bytes += tensor->n_bytes();
    sum.values_per_row += n_outputs * shape_.n_experts_used;
    return {};
  }

  ModelShape& shape_;
  std::vector<TensorShape> tensors_;
};

Amount matrices(const MatrixSum& sum, uint64_t n_rows) {
  if (n_rows == 0) return {};
  return {.flops = n_rows * sum.flops_per_row,
          .weight_bytes = sum.weight_bytes,
          .activation_bytes = n_rows * sum.values_per_row * kFloat};
}

}  // namespace

std::string_view component_name(Component component) {
  constexpr std::array<std::string_view, kComponentCount> kNames = {
      "embedding", "norms",    "qkv",        "rope, KV write", "attention", "attention output",
      "router",    "gate, up", "activation", "down",           "output"};
  return kNames.at(static_cast<size_t>(component));
}

double Amount::flops_per_byte() const {
  const uint64_t memory = memory_bytes();
  return memory == 0 ? 0 : static_cast<double>(flops) / static_cast<double>(memory);
}

Amount& Amount::operator+=(const Amount& other) {
  flops += other.flops;
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  activation_bytes += other.activation_bytes;
  return *this;
}

Amount StepWork::total() const {
  Amount sum;
  for (const Amount& part : parts) sum += part;
  return sum;
}

StepWork& StepWork::operator+=(const StepWork& other) {
  for (size_t i = 0; i < kComponentCount; ++i) parts[i] += other.parts[i];
  return *this;
}

uint64_t ModelShape::kv_bytes_per_token() const {
  return 2 * kv_dim() * (kv_type == KvType::kF32 ? 4 : 2) * n_layers;
}

double ModelShape::experts_read(uint64_t n_rows) const {
  const double all = n_experts;
  return all * (1 - std::pow(1 - n_experts_used / all, static_cast<double>(n_rows)));
}

Result<ModelShape> model_shape(const GgufFile& file, KvType kv_type) {
  PUMICE_TRY(const std::string_view architecture,
             file.get<std::string_view>("general.architecture"));
  const Metadata metadata(file, architecture);
  PUMICE_TRY(const ModelDimensions config, metadata.read_dimensions());
  PUMICE_TRY(const uint64_t rope_dims,
             metadata.get_or<uint64_t>("rope.dimension_count", config.head_dim));
  PUMICE_TRY(const uint64_t n_experts, metadata.get_or<uint64_t>("expert_count", 0));
  PUMICE_TRY(const uint64_t n_experts_used, metadata.get_or<uint64_t>("expert_used_count", 0));
  constexpr uint64_t kMaxExperts = 1 << 16;
  if (n_experts > kMaxExperts || n_experts_used > n_experts ||
      (n_experts > 0 && n_experts_used == 0)) {
    return make_error(ErrorCode::kBadFile,
                      "{}.expert_used_count: {} of {} experts, expected 1 to all of them",
                      architecture, n_experts_used, n_experts);
  }
  uint64_t n_ff = config.n_ff;
  if (n_experts > 0) {
    PUMICE_TRY(n_ff, metadata.get_or<uint64_t>("expert_feed_forward_length", n_ff));
    if (n_ff == 0 || n_ff > UINT32_MAX) {
      return make_error(ErrorCode::kBadFile,
                        "{}.expert_feed_forward_length: {} is not a valid width", architecture,
                        n_ff);
    }
  }
  if (rope_dims > config.head_dim) {
    return make_error(ErrorCode::kBadFile, "{}.rope.dimension_count: {} exceeds head_dim {}",
                      architecture, rope_dims, config.head_dim);
  }
  ModelShape shape{.name = config.name.empty() ? std::string(architecture) : config.name,
                   .n_layers = config.n_layers,
                   .n_embd = config.n_embd,
                   .n_heads = config.n_heads,
                   .n_kv_heads = config.n_kv_heads,
                   .head_dim = config.head_dim,
                   .rope_dims = static_cast<uint32_t>(rope_dims),
                   .n_ff = static_cast<uint32_t>(n_ff),
                   .n_vocab = config.n_vocab,
                   .n_experts = static_cast<uint32_t>(n_experts),
                   .n_experts_used = static_cast<uint32_t>(n_experts_used),
                   .kv_type = kv_type};
  std::vector<TensorShape> tensors;
  for (const GgufTensor& tensor : file.tensors()) {
    tensors.push_back({tensor.name, tensor.type, tensor.dims});
  }
  PUMICE_TRY_STATUS(Counter(shape, tensors).count());
  return shape;
}

Result<ModelShape> model_shape(const SyntheticModel& model, KvType kv_type) {
  const SyntheticShape& s = model.shape();
  const uint32_t head_dim = s.n_embd / s.n_heads;
  ModelShape shape{.name = std::string(s.name),
                   .n_layers = s.n_layers,
                   .n_embd = s.n_embd,
                   .n_heads = s.n_heads,
                   .n_kv_heads = s.n_kv_heads,
                   .head_dim = head_dim,
                   .rope_dims = head_dim,
                   .n_ff = s.n_ff,
                   .n_vocab = s.n_vocab,
                   .n_experts = s.n_experts,
                   .n_experts_used = s.n_experts_used,
                   .kv_type = kv_type};
  std::vector<TensorShape> tensors;
  for (const SyntheticTensor& tensor : model.tensors()) {
    TensorShape t{.name = tensor.name, .type = tensor.type};
    std::copy(tensor.dims.begin(), tensor.dims.end(), t.dims.begin());
    tensors.push_back(t);
  }
  PUMICE_TRY_STATUS(Counter(shape, tensors).count());
  return shape;
}

StepWork step_cost(const ModelShape& shape, std::span<const StepRows> batch,
                   uint32_t n_logit_rows) {
  uint64_t rows = 0;
  uint64_t pairs = 0;  // (row, key it sees)
  uint64_t keys = 0;   // read by each sequence
  for (const StepRows& chunk : batch) {
    if (chunk.n_rows == 0) continue;
    const uint64_t n = chunk.n_rows;
    rows += n;
    pairs += n * chunk.first_position + n * (n + 1) / 2;
    keys += chunk.first_position + n;
  }
  const uint64_t layers = shape.n_layers;
  const uint64_t width = shape.n_embd;
  const uint64_t norms = 2 * layers;
  const uint64_t logits = n_logit_rows;
  StepWork cost;
  cost[Component::kEmbedding] = {.weight_bytes = rows * shape.embedding_row_bytes,
                                 .activation_bytes = rows * width * kFloat};
  // A norm is four flops a value, the addition before all but the first another. It reads and
  // writes a row, and with the addition two of each.
  const uint64_t added_rows = (norms - 1) * rows + logits;
  cost[Component::kNorms] = {.flops = width * (4 * (norms * rows + logits) + added_rows),
                             .weight_bytes = (norms + (logits > 0 ? 1 : 0)) * width * kFloat,
                             .activation_bytes = width * kFloat * (2 * rows + 4 * added_rows)};
  cost[Component::kQkv] = matrices(shape.qkv, rows);
  // A rotation is six flops a pair. It reads and writes q in place, reads k and v and a row of the
  // table.
  const uint64_t rotated = uint64_t{shape.n_heads} * shape.rope_dims;
  cost[Component::kRopeKv] = {
      .flops = layers * rows * 3 * (rotated + uint64_t{shape.n_kv_heads} * shape.rope_dims),
      .kv_bytes = rows * shape.kv_bytes_per_token(),
      .activation_bytes =
          layers * rows * kFloat * (2 * rotated + 2 * shape.kv_dim() + shape.rope_dims)};
  cost[Component::kAttention] = {.flops = layers * pairs * 4 * shape.q_dim(),
                                 .kv_bytes = keys * shape.kv_bytes_per_token(),
                                 .activation_bytes = layers * rows * 2 * shape.q_dim() * kFloat};
  cost[Component::kAttentionOutput] = matrices(shape.attn_output, rows);
  cost[Component::kRouter] = matrices(shape.router, rows);
  cost[Component::kGateUp] = matrices(shape.gate_up, rows);
  cost[Component::kDown] = matrices(shape.down, rows);
  const uint64_t experts = std::max(shape.n_experts_used, 1u);
  cost[Component::kActivation] = {
      .flops = layers * rows * experts * 4 * shape.n_ff,
      .activation_bytes = layers * rows * experts * 3 * shape.n_ff * kFloat};
  if (shape.n_experts > 0) {
    const double share = shape.experts_read(rows) / shape.n_experts;
    for (const Component part : {Component::kGateUp, Component::kDown}) {
      uint64_t& bytes = cost[part].weight_bytes;
      bytes = static_cast<uint64_t>(std::llround(static_cast<double>(bytes) * share));
    }
    cost[Component::kActivation].flops += layers * rows * experts * 2 * width;
    cost[Component::kActivation].activation_bytes += layers * rows * (experts + 1) * width * kFloat;
  }
  cost[Component::kOutput] = matrices(shape.output, logits);
  return cost;
}

StepWork prefill_cost(const ModelShape& shape, uint32_t n_prompt, uint32_t depth,
                      uint32_t step_tokens) {
  PUMICE_CHECK(step_tokens > 0, "steps of no tokens");
  StepWork cost;
  for (uint32_t done = 0; done < n_prompt; done += step_tokens) {
    const StepRows rows{depth + done, std::min(step_tokens, n_prompt - done)};
    cost += step_cost(shape, {&rows, 1}, done + rows.n_rows == n_prompt ? 1 : 0);
  }
  return cost;
}

StepWork decode_cost(const ModelShape& shape, uint32_t n_gen, uint32_t depth) {
  StepWork cost;
  for (uint32_t i = 0; i < n_gen; ++i) {
    const StepRows row{depth + i, 1};
    cost += step_cost(shape, {&row, 1}, 1);
  }
  return cost;
}

std::vector<Crossing> crossings(const ModelShape& shape) {
  // The first length at which  growth * length + projections > feed_forward.
  const auto first_above = [](uint64_t feed_forward, uint64_t projections, uint64_t growth) {
    return projections > feed_forward ? 1 : (feed_forward - projections) / growth + 1;
  };
  const StepRows row{0, 1};
  const StepWork token = step_cost(shape, {&row, 1}, 0);
  const auto sum = [&](auto field, std::initializer_list<Component> parts) {
    uint64_t amount = 0;
    for (const Component part : parts) amount += token[part].*field;
    return amount;
  };
  const auto feed_forward = {Component::kRouter, Component::kGateUp, Component::kDown};
  const auto projections = {Component::kQkv, Component::kAttentionOutput};
  const uint64_t ff_flops = sum(&Amount::flops, feed_forward);
  const uint64_t projection_flops = sum(&Amount::flops, projections);
  const uint64_t key_flops = 4 * shape.q_dim() * shape.n_layers;
  // A causal prompt of n tokens has n (n + 1) / 2 pairs, (n + 1) / 2 a token.
  const auto first_causal = [&](uint64_t of_projections) {
    return std::max<uint64_t>(first_above(2 * ff_flops, 2 * of_projections, key_flops), 2) - 1;
  };
  const uint64_t ff_bytes = sum(&Amount::weight_bytes, feed_forward);
  const uint64_t projection_bytes = sum(&Amount::weight_bytes, projections);
  const uint64_t key_bytes = shape.kv_bytes_per_token();
  return {
      {.counting = "flops, all keys",
       .explanation = "a row that sees so many keys: decode at that context, or prefill counted "
                      "as a full square",
       .scores_only = first_above(ff_flops, 0, key_flops),
       .with_projections = first_above(ff_flops, projection_flops, key_flops)},
      {.counting = "flops, causal",
       .explanation = "a prompt of so many tokens, each seeing those before it",
       .scores_only = first_causal(0),
       .with_projections = first_causal(projection_flops)},
      {.counting = "bytes, decode",
       .explanation = "keys and values read by a step of one row, against the weights it reads",
       .scores_only = first_above(ff_bytes, 0, key_bytes),
       .with_projections = first_above(ff_bytes, projection_bytes, key_bytes)}};
}

}  // namespace pumice::bench
