#include "models/decoder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "shaders/rope_kv/rope_table.hpp"
#include "shaders/spirv.hpp"

namespace pumice {
namespace {

constexpr uint64_t kFloat = sizeof(float);

/// Columns of the widest input of a matrix.
uint64_t widest_input(const ModelConfig& c) { return std::max({c.n_embd, c.q_dim(), c.n_ff}); }

/// What a step's products need of scratch, one after another.
uint64_t linear_scratch_bytes(const ops::Linear& linear, const ModelWeights& weights,
                              uint64_t rows) {
  uint64_t most = 0;
  const auto add = [&](std::span<const WeightMatrix> matrices) {
    most = std::max(most, linear.scratch_bytes(rows, matrices));
  };
  const auto add_stack = [&](const StackedMatrices& stack) {
    std::vector<WeightMatrix> matrices;
    for (const StackedMatrices::Member& member : stack.members) matrices.push_back(member.matrix);
    add(matrices);
  };
  for (const LayerWeights& layer : weights.layers()) {
    add_stack(layer.qkv);
    add({&layer.attn_output, 1});
    add_stack(layer.gate_up);
    add({&layer.ffn_down, 1});
  }
  add({&weights.output(), 1});
  return most;
}

}  // namespace

uint64_t Decoder::buffer_bytes(const ModelConfig& c, const DecoderLimits& limits) {
  const uint64_t row_floats =
      3ull * c.n_embd + c.q_dim() + 2ull * c.kv_dim() + c.q_dim() + 3ull * c.n_ff;
  const uint64_t partial_floats = uint64_t{c.n_heads} * (2 + c.head_dim);
  constexpr uint64_t kAlignmentSlack = 16 * 256;
  const uint64_t most_rows = std::max(limits.rows, limits.logit_rows);
  return kFloat * (limits.rows * row_floats + uint64_t{limits.logit_rows} * c.n_vocab +
                   limits.attention_partials * partial_floats +
                   uint64_t{limits.context_tokens} * c.rope.dims) +
         ops::Linear::max_scratch_bytes(most_rows, widest_input(c)) + kAlignmentSlack;
}

Result<Decoder> Decoder::plan(const std::shared_ptr<vk::Device>& device,
                              vk::PipelineLibrary& pipelines, const ModelConfig& config,
                              const ModelWeights& weights, KvType kv_type, ops::Math math,
                              const DecoderLimits& limits) {
  const auto& workgroups = device->plan().max_workgroup_count;
  if (const uint32_t most = std::min(workgroups[0], workgroups[1]); limits.rows > most) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} tokens in one step are more than the {} this device computes at once; "
                      "lower the batch size (-b)",
                      limits.rows, most);
  }
  Decoder decoder(
      device, config, weights, kv_type,
      vk::Arena(device, vk::MemoryDomain::kDevice, "activations", buffer_bytes(config, limits)));
  PUMICE_TRY(decoder.embedding_, ops::Embedding::plan(pipelines, *weights.token_embd().type));
  PUMICE_TRY(decoder.rms_norm_, ops::RmsNorm::plan(pipelines));
  decoder.invariant_ = limits.invariant;
  if (limits.invariant) math = ops::Math::kF32;  // the same kernels for every number of rows
  PUMICE_TRY(decoder.linear_, ops::Linear::plan(pipelines, weights.matrix_types(), math));
  if (limits.invariant) decoder.linear_.use_gemm_only();
  PUMICE_TRY(decoder.rope_kv_,
             ops::RopeKv::plan(pipelines, {.n_heads = config.n_heads,
                                           .n_kv_heads = config.n_kv_heads,
                                           .head_dim = config.head_dim,
                                           .rope_dims = config.rope.dims,
                                           .pairs = config.rope_halves ? ops::RopePairs::kHalves
                                                                       : ops::RopePairs::kAdjacent,
                                           .kv_type = kv_type}));
  PUMICE_TRY(decoder.attention_, ops::FlashAttention::plan(pipelines,
                                                           {.n_heads = config.n_heads,
                                                            .n_kv_heads = config.n_kv_heads,
                                                            .head_dim = config.head_dim,
                                                            .kv_type = kv_type},
                                                           math));
  PUMICE_TRY(decoder.gated_activation_,
             ops::GatedActivation::plan(pipelines, ops::GatedActivation::Kind::kSilu));
  PUMICE_TRY_STATUS(decoder.allocate(limits));
  PUMICE_TRY_STATUS(decoder.fill_rope_table(device, limits.context_tokens));
  return decoder;
}

std::string Decoder::arithmetic() const {
  constexpr uint32_t kManyRows = ops::Gemv::kMaxRows + 1;
  std::string text;
  for (const WeightType* type : weights_->matrix_types()) {
    text += fmt::format("{} {} ", type->name, ops::math_name(linear_.math_of(*type, kManyRows)));
  }
  text += fmt::format("attention {}", ops::math_name(attention_.tile_math()));
  if (!invariant_) return text;
  const auto add = [&](const vk::Pipeline* pipeline) {
    text += fmt::format(" {}", pipeline->label());
    for (const auto& [id, value] : pipeline->constants()) text += fmt::format(" {}={}", id, value);
  };
  // The other operations have one kernel each.
  std::ranges::for_each(linear_.gemm_pipelines(), add);
  std::ranges::for_each(attention_.pipelines(), add);
  const vk::DeviceSnapshot& device = device_->snapshot();
  return text + fmt::format(" shaders {:x} device {:02x} driver {:02x} subgroups of {}",
                            spirv_hash(), fmt::join(device.device_uuid, ""),
                            fmt::join(device.driver_uuid, ""), device_->plan().subgroup_size);
}

Status Decoder::allocate(const DecoderLimits& limits) {
  const ModelConfig& c = config_;
  const uint64_t rows = limits.rows;
  const uint64_t most_rows = std::max(limits.rows, limits.logit_rows);
  const struct {
    vk::BufferRange* range;
    uint64_t bytes;
  } buffers[] = {
      {&rope_table_, kFloat * limits.context_tokens * c.rope.dims},
      {&x_, kFloat * rows * c.n_embd},
      {&delta_, kFloat * rows * c.n_embd},
      {&normed_, kFloat * rows * c.n_embd},
      {&qkv_, kFloat * rows * (c.q_dim() + 2 * c.kv_dim())},
      {&context_, kFloat * rows * c.q_dim()},
      {&gate_up_, kFloat * rows * 2 * c.n_ff},
      {&gated_, kFloat * rows * c.n_ff},
      {&logits_, kFloat * limits.logit_rows * c.n_vocab},
      {&partial_stats_, attention_.partial_stats_bytes(limits.attention_partials)},
      {&partial_y_, attention_.partial_y_bytes(limits.attention_partials)},
      {&linear_scratch_, linear_scratch_bytes(linear_, *weights_, most_rows)},
  };
  for (const auto& buffer : buffers) {
    PUMICE_TRY(*buffer.range, arena_.allocate(buffer.bytes));
  }
  return {};
}

Status Decoder::fill_rope_table(const std::shared_ptr<vk::Device>& device, uint32_t n_positions) {
  PUMICE_TRY(const ops::RopeFrequencies frequencies, ops::rope_frequencies(config_.rope));
  vk::Uploader uploader(device);
  std::vector<float> table(size_t{n_positions} * config_.rope.dims);
  ops::fill_rope_table(frequencies, 0, table);
  return uploader.write(rope_table_, std::span<const float>(table));
}

void Decoder::record_stack(vk::Recorder& recorder, const StackedMatrices& stack,
                           const vk::BufferRange& x, const vk::BufferRange& y,
                           uint32_t n_rows) const {
  std::vector<ops::LinearArgs> matrices;
  for (const StackedMatrices::Member& member : stack.members) {
    matrices.push_back({.weights = member.matrix,
                        .x = x,
                        .x_stride = member.matrix.n_cols,
                        .y = y.from(kFloat * member.first_column),
                        .y_stride = stack.n_outputs,
                        .rows = n_rows,
                        .scratch = linear_scratch_});
  }
  linear_.record(recorder, matrices);
}

void Decoder::record_attention(vk::Recorder& recorder, const DecoderStep& step,
                               uint32_t layer) const {
  const uint32_t row_stride = config_.q_dim() + 2 * config_.kv_dim();
  const uint32_t layer_offset = kv_layout_.layer_offset_bytes(layer);
  recorder.enter({"rope_kv", layer});
  rope_kv_.record(recorder, {.qkv = qkv_,
                             .rope_table = rope_table_,
                             .positions = step.positions,
                             .row_seq = step.row_seq,
                             .block_table = step.block_table,
                             .kv = step.kv,
                             .rows = step.n_rows,
                             .row_stride = row_stride,
                             .table_stride = step.table_stride,
                             .layer_offset_bytes = layer_offset});
  ops::FlashAttention::Args args{.q = qkv_,
                                 .positions = step.positions,
                                 .block_table = step.block_table,
                                 .kv = step.kv,
                                 .y = context_,
                                 .partial_stats = partial_stats_,
                                 .partial_y = partial_y_,
                                 .q_stride = row_stride,
                                 .table_stride = step.table_stride,
                                 .layer_offset_bytes = layer_offset,
                                 .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim))};
  recorder.enter({"attention", layer});
  if (step.has_tiles) {
    args.items = step.tile_items;
    args.grid = step.tile_grid;
    args.n_items = static_cast<uint32_t>(step.attention->tile_items.size());
    args.keys = step.attention->tile_keys;
    args.scores = step.attention->tile_scores;
    attention_.record_tiles(recorder, args);
  }
  if (step.has_rows) {
    args.items = step.row_items;
    args.grid = step.row_grid;
    args.n_items = static_cast<uint32_t>(step.attention->row_items.size());
    args.keys = step.attention->row_keys;
    args.scores = step.attention->row_scores;
    attention_.record_rows(recorder, args);
  }
  if (step.has_reduce) {
    attention_.record_reduce(recorder,
                             {.items = step.reduce_items,
                              .grid = step.reduce_grid,
                              .partial_stats = partial_stats_,
                              .partial_y = partial_y_,
                              .y = context_,
                              .n_items = static_cast<uint32_t>(step.attention->reduce_items.size()),
                              .n_partials = step.attention->n_partials});
  }
}

void Decoder::record_layer(vk::Recorder& recorder, const DecoderStep& step, uint32_t layer) const {
  const LayerWeights& weights = weights_->layers()[layer];
  ops::RmsNorm::Args norm{.x = x_,
                          .residual = layer > 0 ? delta_ : vk::BufferRange{},
                          .weight = weights.attn_norm,
                          .y = normed_,
                          .rows = step.n_rows,
                          .n = config_.n_embd,
                          .eps = config_.norm_eps};
  recorder.enter({"attn_norm", layer});
  rms_norm_.record(recorder, norm);
  recorder.enter({"qkv", layer});
  record_stack(recorder, weights.qkv, normed_, qkv_, step.n_rows);
  record_attention(recorder, step, layer);
  recorder.enter({"attn_output", layer});
  linear_.record(recorder, {.weights = weights.attn_output,
                            .x = context_,
                            .x_stride = config_.q_dim(),
                            .y = delta_,
                            .y_stride = config_.n_embd,
                            .rows = step.n_rows,
                            .scratch = linear_scratch_});
  norm.residual = delta_;
  norm.weight = weights.ffn_norm;
  recorder.enter({"ffn_norm", layer});
  rms_norm_.record(recorder, norm);
  recorder.enter({"gate_up", layer});
  record_stack(recorder, weights.gate_up, normed_, gate_up_, step.n_rows);
  recorder.enter({"activation", layer});
  gated_activation_.record(
      recorder, {.gate_up = gate_up_, .y = gated_, .rows = step.n_rows, .n = config_.n_ff});
  recorder.enter({"ffn_down", layer});
  linear_.record(recorder, {.weights = weights.ffn_down,
                            .x = gated_,
                            .x_stride = config_.n_ff,
                            .y = delta_,
                            .y_stride = config_.n_embd,
                            .rows = step.n_rows,
                            .scratch = linear_scratch_});
}

void Decoder::record(vk::Recorder& recorder, const DecoderStep& step) const {
  recorder.enter({"embedding"});
  embedding_.record(recorder, {.tokens = step.tokens,
                               .sampled = step.sampled,
                               .table = &weights_->token_embd(),
                               .y = x_,
                               .rows = step.n_rows});
  for (uint32_t layer = 0; layer < config_.n_layers; ++layer) {
    record_layer(recorder, step, layer);
    recorder.cut();
  }
  if (step.n_logit_rows == 0) return;
  recorder.enter({"output_norm"});
  rms_norm_.record(recorder, {.x = x_,
                              .residual = delta_,
                              .weight = weights_->output_norm(),
                              .y = normed_,
                              .row_index = step.logit_rows,
                              .rows = step.n_logit_rows,
                              .n = config_.n_embd,
                              .eps = config_.norm_eps});
  recorder.enter({"output"});
  linear_.record(recorder, {.weights = weights_->output(),
                            .x = normed_,
                            .x_stride = config_.n_embd,
                            .y = logits_,
                            .y_stride = config_.n_vocab,
                            .rows = step.n_logit_rows,
                            .scratch = linear_scratch_});
}

}  // namespace pumice
