#include "models/decoder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "models/activation_plan.hpp"
#include "models/alignment.hpp"
#include "shaders/rope_kv/rope_table.hpp"
#include "shaders/spirv.hpp"

namespace pumice {
namespace {

constexpr uint64_t kFloat = sizeof(float);
/// Columns of the widest input of a product.
uint64_t widest_input(const Program& program) {
  uint64_t widest = 0;
  for (const Op& op : program.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&op.what)) {
      widest = std::max<uint64_t>(widest, program.values[linear->x].width);
    } else if (const auto* heads = std::get_if<op::HeadLinear>(&op.what)) {
      widest = std::max(widest, program.tensors[heads->weight].dims[0]);
    }
  }
  return widest;
}

uint64_t rows_of(const Buffer& buffer, const DecoderLimits& limits) {
  return buffer.rows == RowSet::kAll ? limits.rows : limits.logit_rows;
}

/// The buffers of routes that do not lie among the activations.
std::vector<BufferId> buffers_apart(const Lowered& lowered, Routing routing) {
  std::vector<BufferId> apart;
  if (routing == Routing::kChosen) return apart;
  for (const Dispatch& dispatch : lowered.dispatches) {
    if (const auto* route = std::get_if<call::Route>(&dispatch.what)) {
      apart.push_back(route->routes.buffer);
    }
  }
  return apart;
}

uint64_t carried_bytes(const Lowered& lowered, uint64_t slab_bytes) {
  if (lowered.attention_classes.empty()) return 0;
  return std::min(ops::FlashAttention::kCarriedBytes, slab_bytes);
}

/// What `allocate` asks for, in its order: of the scratch of products the most that kernels of any
/// device want, or a slab.
std::vector<uint64_t> range_bytes(const Lowered& lowered, const Program& program,
                                  const DecoderLimits& limits, uint64_t slab_bytes = UINT64_MAX) {
  uint64_t stats_floats = 0;
  uint64_t y_floats = 0;
  for (const AttentionClass& one : lowered.attention_classes) {
    stats_floats = std::max(stats_floats, uint64_t{one.n_heads} * 2);
    y_floats = std::max(y_floats, uint64_t{one.n_heads} * one.value_dim());
  }
  std::vector<uint64_t> ranges = {
      plan_activations(lowered, limits.rows, limits.logit_rows).bytes,
      kFloat * limits.attention_partials * stats_floats,
      kFloat * limits.attention_partials * y_floats, carried_bytes(lowered, slab_bytes),
      std::min(ops::Linear::max_scratch_bytes(std::max(limits.rows, limits.logit_rows),
                                              widest_input(program)),
               slab_bytes)};
  for (const BufferId id : buffers_apart(lowered, limits.routing)) {
    const Buffer& buffer = lowered.buffers[id];
    ranges.push_back(kFloat * rows_of(buffer, limits) * buffer.width);
  }
  for (const ops::RopeConfig& rope : program.ropes) {
    ranges.push_back(kFloat * limits.context_tokens * rope.dims);
  }
  return ranges;
}

/// Each head's matrix by itself; none where its rows are no whole groups or it is transposed.
std::vector<WeightMatrix> heads_apart(const call::HeadLinear& c, const WeightMatrix& all) {
  std::vector<WeightMatrix> heads;
  const uint32_t head_rows = all.n_rows / c.n_heads;
  const bool whole =
      head_rows % kRowGroup == 0 && c.first_row % kRowGroup == 0 && c.n_rows % kRowGroup == 0;
  for (uint32_t head = 0; whole && !c.transposed && head < c.n_heads; ++head) {
    heads.push_back(all.rows(head * head_rows + c.first_row, c.n_rows));
  }
  return heads;
}

ops::Route::Kind route_kind(const call::Route& c, Routing routing) {
  using Probability = ops::Route::Kind::Probability;
  const bool sigmoid = c.router.probability == Router::Probability::kSigmoid;
  return {.probability = sigmoid ? Probability::kSigmoid : Probability::kSoftmax,
          .biased = c.bias.has_value(),
          .grouped = c.router.n_groups > 1,
          .renormalised = c.router.renormalised,
          .gained = c.gains.has_value(),
          .given = routing == Routing::kGiven};
}

/// Up to which position each row sees. With a window it may lie behind the text's end, so that as
/// many keys are visible before each row.
void write_horizons(std::span<const ops::SequenceChunk> chunks, uint32_t ahead,
                    const vk::BufferRange& horizons) {
  const std::span<uint32_t> target = horizons.mapped<uint32_t>();
  for (const ops::SequenceChunk& chunk : chunks) {
    const uint32_t last = chunk.first_position + chunk.n_rows - 1;
    for (uint32_t i = 0; i < chunk.n_rows; ++i) {
      target[chunk.first_row + i] =
          ahead == op::kAllAhead ? last : chunk.first_position + i + ahead;
    }
  }
}

}  // namespace

/// Declares the pipelines that a program's dispatches need, each once.
class Decoder::Declaring {
 public:
  Declaring(Decoder& decoder, vk::PipelineLibrary& pipelines, const Program& program,
            KvTypes kv_type, ops::Math math)
      : decoder_(decoder),
        pipelines_(pipelines),
        program_(program),
        kv_type_(kv_type),
        math_(math) {}

  Status run() {
    PUMICE_TRY(decoder_.linear_,
               ops::Linear::plan(pipelines_, decoder_.types_, product_math(program_, math_)));
    if (decoder_.invariant_) decoder_.linear_.use_gemm_only();
    PUMICE_TRY_STATUS(declare_expert_gemm());
    for (const AttentionClass& one : decoder_.lowered_.attention_classes) {
      PUMICE_TRY(decoder_.attention_.emplace_back(),
                 ops::FlashAttention::plan(pipelines_,
                                           {.n_heads = one.n_heads,
                                            .n_kv_heads = one.n_kv_heads,
                                            .head_dim = one.head_dim,
                                            .kv_type = kv_type_,
                                            .window = one.window,
                                            .soft_cap = static_cast<float>(one.soft_cap),
                                            .sinks = one.sinks,
                                            .latent_dim = one.latent_dim},
                                           attention_math(one, math_)));
    }
    for (size_t i = 0; i < decoder_.lowered_.dispatches.size(); ++i) {
      resolved_ = &decoder_.resolved_[i];
      PUMICE_TRY_STATUS(std::visit([&](const auto& c) { return declare(c); },
                                   decoder_.lowered_.dispatches[i].what));
    }
    return {};
  }

 private:
  Status declare(const call::Embed&) {
    const WeightType* const type = resolved_->matrix.type;
    if (decoder_.embedding_.contains(type)) return {};
    PUMICE_TRY(decoder_.embedding_[type], ops::Embedding::plan(pipelines_, *type));
    return {};
  }
  Status declare(const call::Linear&) { return {}; }
  Status declare(const call::RmsNorm&) {
    PUMICE_TRY(decoder_.rms_norm_, ops::RmsNorm::plan(pipelines_));
    return {};
  }
  Status declare(const call::LayerNorm&) {
    PUMICE_TRY(decoder_.layer_norm_, ops::LayerNorm::plan(pipelines_));
    return {};
  }
  Status declare(const call::Rope& c) {
    const ops::Rope::Shape shape{
        .head_dim = c.head_dim,
        .rope_dims = program_.ropes[c.rope].dims,
        .pairs = c.halves ? ops::RopePairs::kHalves : ops::RopePairs::kAdjacent};
    const auto found = std::ranges::find(rope_shapes_, shape);
    resolved_->rope = static_cast<uint32_t>(found - rope_shapes_.begin());
    if (found != rope_shapes_.end()) return {};
    rope_shapes_.push_back(shape);
    PUMICE_TRY(decoder_.rope_.emplace_back(), ops::Rope::plan(pipelines_, shape));
    return {};
  }
  Status declare(const call::RopeKv& c) {
    const ops::RopeKv::Shape shape{
        .n_heads = c.n_heads,
        .n_kv_heads = c.n_kv_heads,
        .head_dim = c.head_dim,
        .rope_dims = c.rope ? program_.ropes[*c.rope].dims : 0,
        .pairs = c.halves ? ops::RopePairs::kHalves : ops::RopePairs::kAdjacent,
        .kv_type = kv_type_,
        .head_norms = c.q_norm.has_value(),
        .biases = c.bias.has_value(),
        .has_values = c.has_values};
    const auto found = std::ranges::find(shapes_, shape);
    resolved_->rope_kv = static_cast<uint32_t>(found - shapes_.begin());
    if (found != shapes_.end()) return {};
    shapes_.push_back(shape);
    PUMICE_TRY(decoder_.rope_kv_.emplace_back(), ops::RopeKv::plan(pipelines_, shape));
    return {};
  }
  Status declare(const call::HeadLinear& c) {
    const WeightType* const type = resolved_->matrix.type;
    if (decoder_.head_linear_.contains({type, c.transposed})) return {};
    PUMICE_TRY(ops::HeadLinear op, ops::HeadLinear::plan(pipelines_, *type, c.transposed));
    decoder_.head_linear_.emplace(std::pair(type, c.transposed), op);
    return {};
  }
  Status declare(const call::Attention&) { return {}; }
  Status declare(const call::CausalConv& c) {
    const ops::CausalConv::Shape shape{.taps = c.taps, .silu = c.silu};
    const auto found = std::ranges::find(conv_shapes_, shape);
    resolved_->causal_conv = static_cast<uint32_t>(found - conv_shapes_.begin());
    if (found != conv_shapes_.end()) return {};
    conv_shapes_.push_back(shape);
    PUMICE_TRY(decoder_.causal_conv_.emplace_back(), ops::CausalConv::plan(pipelines_, shape));
    return {};
  }
  Status declare(const call::Recurrence& c) {
    const auto found = std::ranges::find(recurrence_shapes_, c.shape);
    resolved_->recurrence = static_cast<uint32_t>(found - recurrence_shapes_.begin());
    if (found != recurrence_shapes_.end()) return {};
    recurrence_shapes_.push_back(c.shape);
    const ops::Recurrence::Tuning tuning = decoder_.invariant_
                                               ? ops::Recurrence::Tuning{}
                                               : ops::Recurrence::tuned(pipelines_, c.shape);
    PUMICE_TRY(decoder_.recurrence_.emplace_back(),
               ops::Recurrence::plan(pipelines_, c.shape, tuning));
    return {};
  }
  Status declare(const call::Gated& c) {
    if (decoder_.gated_.contains(c.kind)) return {};
    PUMICE_TRY(decoder_.gated_[c.kind], ops::GatedActivation::plan(pipelines_, c.kind));
    return {};
  }
  Status declare(const call::Elementwise& c) {
    if (decoder_.elementwise_.contains(c.kind)) return {};
    PUMICE_TRY(decoder_.elementwise_[c.kind], ops::Elementwise::plan(pipelines_, c.kind));
    return {};
  }
  Status declare(const call::Route& c) {
    const ops::Route::Kind kind = route_kind(c, decoder_.routing_);
    if (decoder_.route_.contains(kind)) return {};
    PUMICE_TRY(decoder_.route_[kind], ops::Route::plan(pipelines_, kind));
    return {};
  }
  Status declare(const call::GroupRoutes&) { return {}; }
  Status declare(const call::ExpertLinear& c) {
    const WeightType* const type = resolved_->matrix.type;
    const bool has_bias = c.bias.has_value();
    if (decoder_.expert_linear_.contains({type, has_bias})) return {};
    PUMICE_TRY(ops::ExpertLinear op, ops::ExpertLinear::plan(pipelines_, *type, has_bias));
    decoder_.expert_linear_.emplace(std::pair(type, has_bias), op);
    return {};
  }
  Status declare(const call::Combine&) {
    PUMICE_TRY(decoder_.combine_, ops::Combine::plan(pipelines_));
    return {};
  }

  /// The products of experts for many rows. Where they may not depend on how many rows there are,
  /// or a self-test rejected their kernels, those for few are for all.
  Status declare_expert_gemm() {
    std::vector<const WeightType*> types;
    for (size_t i = 0; i < decoder_.lowered_.dispatches.size(); ++i) {
      if (!std::holds_alternative<call::ExpertLinear>(decoder_.lowered_.dispatches[i].what)) {
        continue;
      }
      types.push_back(decoder_.resolved_[i].matrix.type);
    }
    if (types.empty() || decoder_.invariant_) return {};
    Result<ops::ExpertGemm> op =
        ops::ExpertGemm::plan(pipelines_, types, product_math(program_, math_),
                              ops::tuned_x_path(decoder_.device_->plan()));
    if (!op.ok() && op.error().code != ErrorCode::kSelfTestFailed) return op.error();
    if (op.ok()) decoder_.expert_gemm_ = *std::move(op);
    return {};
  }

  Decoder& decoder_;
  vk::PipelineLibrary& pipelines_;
  const Program& program_;
  const KvTypes kv_type_;
  const ops::Math math_;
  Resolved* resolved_ = nullptr;  // of the dispatch at hand
  std::vector<ops::RopeKv::Shape> shapes_;
  std::vector<ops::Rope::Shape> rope_shapes_;
  std::vector<ops::CausalConv::Shape> conv_shapes_;
  std::vector<ops::Recurrence::Shape> recurrence_shapes_;
};

uint64_t Decoder::buffer_bytes(const Lowered& lowered, const Program& program,
                               const DecoderLimits& limits) {
  uint64_t bytes = 0;
  for (const uint64_t range : range_bytes(lowered, program, limits)) bytes += aligned(range);
  return bytes;
}

vk::ArenaSizes Decoder::memory(const Lowered& lowered, const Program& program,
                               const DecoderLimits& limits, uint64_t slab_bytes) {
  vk::ArenaSizes sizes(slab_bytes, buffer_bytes(lowered, program, limits));
  // Kernels of this device may want less scratch than the most: too much is found by `allocate`.
  for (const uint64_t range : range_bytes(lowered, program, limits, slab_bytes)) {
    sizes.allocate(range);
  }
  return sizes;
}

Result<Decoder> Decoder::plan(const std::shared_ptr<vk::Device>& device,
                              vk::PipelineLibrary& pipelines, const Program& program,
                              const ModelWeights& weights, KvTypes kv_type, ops::Math math,
                              const FusionRules& rules, const DecoderLimits& limits) {
  const auto& workgroups = device->plan().max_workgroup_count;
  if (const uint32_t most = std::min(workgroups[0], workgroups[1]); limits.rows > most) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} tokens in one step are more than the {} this device computes at once; "
                      "lower the batch size (-b)",
                      limits.rows, most);
  }
  PUMICE_TRY(Lowered lowered, lower(program, rules));
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "activations",
                  buffer_bytes(lowered, program, limits));
  Decoder decoder(device, std::move(lowered), state_layout(program, kv_type), std::move(arena));
  decoder.invariant_ = limits.invariant;
  decoder.routing_ = limits.routing;
  decoder.rules_ = rules.text();
  decoder.long_rope_ = std::ranges::any_of(program.ropes, [&](const ops::RopeConfig& rope) {
    return !rope.long_divisors.empty() && limits.context_tokens > rope.original_context;
  });
  decoder.resolved_.resize(decoder.lowered_.dispatches.size());
  decoder.use_weights(weights);
  for (const std::vector<TensorId>& tensors : decoder.lowered_.vectors) {
    decoder.vectors_.push_back(weights.vector(tensors));  // they stay where they are
  }
  if (limits.invariant) math = ops::Math::kF32;  // the same kernels for every number of rows
  PUMICE_TRY_STATUS(Declaring(decoder, pipelines, program, kv_type, math).run());
  PUMICE_TRY_STATUS(decoder.allocate(program, limits));
  return decoder;
}

void Decoder::use_weights(const ModelWeights& weights) {
  std::set<const WeightType*> types;
  for (size_t i = 0; i < lowered_.dispatches.size(); ++i) {
    const Dispatch& dispatch = lowered_.dispatches[i];
    Resolved& resolved = resolved_[i];
    if (const auto* embed = std::get_if<call::Embed>(&dispatch.what)) {
      resolved.matrix = weights.matrix(lowered_.matrices[embed->table][0]);
    } else if (const auto* linear = std::get_if<call::Linear>(&dispatch.what)) {
      const std::vector<MatrixRows>& group = lowered_.matrices[linear->matrices];
      resolved.matrices =
          linear->member ? weights.stack({&group[*linear->member], 1}) : weights.stack(group);
      for (const auto& member : resolved.matrices.members) types.insert(member.matrix.type);
    } else if (const auto* experts = std::get_if<call::ExpertLinear>(&dispatch.what)) {
      resolved.matrix = weights.matrix(lowered_.matrices[experts->matrices][0]);
    } else if (const auto* heads = std::get_if<call::HeadLinear>(&dispatch.what)) {
      resolved.matrix = weights.matrix(lowered_.matrices[heads->matrices][0]);
      resolved.heads = heads_apart(*heads, resolved.matrix);
      if (!resolved.heads.empty()) types.insert(resolved.matrix.type);
    }
  }
  types_.assign(types.begin(), types.end());
}

std::string Decoder::arithmetic() const {
  constexpr uint32_t kManyRows = ops::Gemv::kMaxRows + 1;
  std::string text;
  for (const WeightType* type : types_) {
    text += fmt::format("{} {} ", type->name, ops::math_name(linear_.math_of(*type, kManyRows)));
  }
  if (expert_gemm_) text += fmt::format("experts {} ", ops::math_name(expert_gemm_->math()));
  text += "attention";
  for (const ops::FlashAttention& attention : attention_) {
    text += fmt::format(" {}", ops::math_name(attention.tile_math()));
  }
  if (long_rope_) text += " long rope";
  if (routing_ == Routing::kGiven) text += " given routes";
  if (rules_ != FusionRules().text()) text += fmt::format(" fuse {}", rules_);
  if (!invariant_) return text;
  const auto add = [&](const vk::Pipeline* pipeline) {
    text += fmt::format(" {}", pipeline->label());
    for (const auto& [id, value] : pipeline->constants()) text += fmt::format(" {}={}", id, value);
  };
  // The other operations have one kernel each.
  std::ranges::for_each(linear_.gemm_pipelines(), add);
  for (const ops::FlashAttention& attention : attention_) {
    std::ranges::for_each(attention.pipelines(), add);
  }
  const vk::DeviceSnapshot& device = device_->snapshot();
  return text + fmt::format(" shaders {:x} device {:02x} driver {:02x} subgroups of {}",
                            spirv_hash(), fmt::join(device.device_uuid, ""),
                            fmt::join(device.driver_uuid, ""), device_->plan().subgroup_size);
}

uint64_t Decoder::linear_scratch_bytes(const DecoderLimits& limits) const {
  uint64_t most = 0;
  for (size_t i = 0; i < lowered_.dispatches.size(); ++i) {
    std::vector<WeightMatrix> matrices;
    for (const auto& member : resolved_[i].matrices.members) matrices.push_back(member.matrix);
    if (!resolved_[i].heads.empty()) matrices = {resolved_[i].heads[0]};
    if (matrices.empty()) continue;
    const bool all = lowered_.dispatches[i].rows == RowSet::kAll;
    most = std::max(most, linear_.scratch_bytes(all ? limits.rows : limits.logit_rows, matrices));
  }
  return most;
}

Status Decoder::allocate(const Program& program, const DecoderLimits& limits) {
  const ActivationPlan plan = plan_activations(lowered_, limits.rows, limits.logit_rows);
  PUMICE_TRY(const vk::BufferRange activations, arena_.allocate(plan.bytes));
  for (size_t i = 0; i < lowered_.buffers.size(); ++i) {
    const Buffer& buffer = lowered_.buffers[i];
    buffers_.push_back(
        activations.subrange(plan.offsets[i], kFloat * rows_of(buffer, limits) * buffer.width));
  }
  uint64_t stats_bytes = 0;
  uint64_t y_bytes = 0;
  for (const ops::FlashAttention& attention : attention_) {
    stats_bytes = std::max(stats_bytes, attention.partial_stats_bytes(limits.attention_partials));
    y_bytes = std::max(y_bytes, attention.partial_y_bytes(limits.attention_partials));
  }
  PUMICE_TRY(partial_stats_, arena_.allocate(stats_bytes));
  PUMICE_TRY(partial_y_, arena_.allocate(y_bytes));
  PUMICE_TRY(carried_, arena_.allocate(carried_bytes(lowered_, device_->plan().slab_bytes)));
  PUMICE_TRY(linear_scratch_, arena_.allocate(linear_scratch_bytes(limits)));
  for (const BufferId id : buffers_apart(lowered_, routing_)) {
    PUMICE_TRY(buffers_[id], arena_.allocate(buffers_[id].size_bytes));
    routes_.push_back(buffers_[id]);
  }

  vk::Uploader uploader(device_);
  for (const ops::RopeConfig& rope : program.ropes) {
    PUMICE_TRY(const ops::RopeFrequencies frequencies,
               ops::rope_frequencies(rope.for_context(limits.context_tokens)));
    std::vector<float> table(size_t{limits.context_tokens} * rope.dims);
    ops::fill_rope_table(frequencies, 0, table);
    PUMICE_TRY(rope_tables_.emplace_back(), arena_.allocate(kFloat * table.size()));
    PUMICE_TRY_STATUS(uploader.write(rope_tables_.back(), std::span<const float>(table)));
  }
  return {};
}

/// Records the dispatches of one step, one after the other.
class Decoder::Recording {
 public:
  Recording(const Decoder& decoder, vk::Recorder& recorder, const StepArgs& step,
            const SequenceMemory& memory)
      : decoder_(decoder),
        lowered_(decoder.lowered_),
        recorder_(recorder),
        step_(step),
        memory_(memory) {}

  void run() {
    for (size_t i = 0; i < lowered_.dispatches.size(); ++i) {
      const Dispatch& dispatch = lowered_.dispatches[i];
      n_rows_ = dispatch.rows == RowSet::kAll ? step_.n_rows : step_.n_logit_rows;
      if (n_rows_ == 0) continue;
      resolved_ = &decoder_.resolved_[i];
      recorder_.enter({dispatch.part, dispatch.layer.value_or(vk::Scope::kNoLayer)});
      std::visit([&](const auto& c) { record(c); }, dispatch.what);
    }
  }

 private:
  /// From a view's first column on.
  vk::BufferRange at(const View& view) const {
    return decoder_.buffers_[view.buffer].from(kFloat * view.first);
  }
  vk::BufferRange at(const std::optional<View>& view) const {
    return view ? at(*view) : vk::BufferRange{};
  }
  vk::BufferRange vector(std::optional<VectorId> id) const {
    return id ? decoder_.vectors_[*id] : vk::BufferRange{};
  }
  uint32_t stride(const View& view) const { return lowered_.buffers[view.buffer].width; }
  vk::BufferRange row_index(bool gathers) const {
    return gathers ? step_.logit_rows : vk::BufferRange{};
  }

  void record(const call::Embed& c) {
    decoder_.embedding_.at(resolved_->matrix.type)
        .record(recorder_, {.tokens = c.by_position ? step_.positions : step_.tokens,
                            .sampled = c.by_position ? vk::BufferRange{} : memory_.sampled,
                            .table = &resolved_->matrix,
                            .y = at(c.y),
                            .rows = n_rows_,
                            .scale = c.scale});
  }

  void record(const call::Linear& c) {
    std::vector<ops::Linear::Args> args;
    for (const StackedMatrices::Member& member : resolved_->matrices.members) {
      args.push_back({.weights = member.matrix,
                      .x = at(c.x),
                      .x_stride = stride(c.x),
                      .y = at({c.y.buffer, c.y.first + member.first_column}),
                      .y_stride = stride(c.y),
                      .rows = n_rows_,
                      .scratch = decoder_.linear_scratch_});
    }
    decoder_.linear_.record(recorder_, args);
  }

  void record(const call::RmsNorm& c) {
    decoder_.rms_norm_.record(recorder_, {.x = at(c.x),
                                          .residual = at(c.residual),
                                          .weight = vector(c.weight),
                                          .y = at(c.y),
                                          .row_index = row_index(c.gathers),
                                          .rows = n_rows_,
                                          .n = c.n,
                                          .eps = c.eps,
                                          .n_groups = c.n_groups,
                                          .x_stride = stride(c.x),
                                          .y_stride = stride(c.y),
                                          .weight_each = c.weight_each});
  }

  void record(const call::LayerNorm& c) {
    decoder_.layer_norm_.record(recorder_, {.x = at(c.x),
                                            .residual = at(c.residual),
                                            .weight = decoder_.vectors_[c.weight],
                                            .bias = vector(c.bias),
                                            .y = at(c.y),
                                            .row_index = row_index(c.gathers),
                                            .rows = n_rows_,
                                            .n = c.n,
                                            .eps = c.eps,
                                            .n_groups = c.n_groups,
                                            .x_stride = stride(c.x),
                                            .y_stride = stride(c.y)});
  }

  void record(const call::Rope& c) {
    decoder_.rope_[resolved_->rope].record(recorder_, {.x = at(c.x),
                                                       .rope_table = decoder_.rope_tables_[c.rope],
                                                       .positions = step_.positions,
                                                       .rows = n_rows_,
                                                       .n_heads = c.n_heads,
                                                       .x_stride = stride(c.x)});
  }

  void record(const call::RopeKv& c) {
    const StateLayout::Place place = decoder_.state_.place(c.state);
    decoder_.rope_kv_[resolved_->rope_kv].record(
        recorder_, {.qkv = at(c.qkv),
                    .rope_table = c.rope ? decoder_.rope_tables_[*c.rope] : vk::BufferRange{},
                    .positions = step_.positions,
                    .row_seq = step_.row_seq,
                    .block_table = memory_.block_tables[place.page],
                    .kv = memory_.kv,
                    .rows = n_rows_,
                    .row_stride = stride(c.qkv),
                    .table_stride = memory_.table_stride,
                    .layer_offset_bytes = place.offset_bytes,
                    .q_norm = vector(c.q_norm),
                    .k_norm = vector(c.k_norm),
                    .norm_eps = c.norm_eps,
                    .bias = vector(c.bias)});
  }

  void record(const call::HeadLinear& c) {
    const WeightMatrix& weights = resolved_->matrix;
    const ops::HeadLinear& op = decoder_.head_linear_.at({weights.type, c.transposed});
    const ops::HeadLinear::Args args{.weights = weights,
                                     .n_heads = c.n_heads,
                                     .first_row = c.first_row,
                                     .n_rows = c.n_rows,
                                     .x = at(c.x),
                                     .x_stride = stride(c.x),
                                     .x_head_stride = c.x_head_dim,
                                     .y = at(c.y),
                                     .y_stride = stride(c.y),
                                     .rows = n_rows_};
    // Of many rows the usual products are faster, for all that there is one a head.
    const bool apart = n_rows_ > ops::Gemv::kMaxRows && !decoder_.invariant_;
    if (!apart || resolved_->heads.empty()) return op.record(recorder_, args);
    const uint32_t y_head_dim = c.n_rows + c.x_head_dim - weights.n_cols;
    for (uint32_t head = 0; head < c.n_heads; ++head) {
      decoder_.linear_.record(recorder_, {.weights = resolved_->heads[head],
                                          .x = at({c.x.buffer, c.x.first + head * c.x_head_dim}),
                                          .x_stride = stride(c.x),
                                          .y = at({c.y.buffer, c.y.first + head * y_head_dim}),
                                          .y_stride = stride(c.y),
                                          .rows = n_rows_,
                                          .scratch = decoder_.linear_scratch_});
    }
    op.record_kept(recorder_, args);
  }

  void record(const call::Attention& c) {
    const StateLayout::Place place = decoder_.state_.place(c.state);
    const AttentionLists& lists = step_.attention[c.attention_class];
    const ops::FlashAttention& attention = decoder_.attention_[c.attention_class];
    ops::FlashAttention::Args args{
        .q = at(c.q),
        .positions = lists.horizons.empty() ? step_.positions : lists.horizons,
        .block_table = memory_.block_tables[place.page],
        .kv = memory_.kv,
        .y = at(c.y),
        .partial_stats = decoder_.partial_stats_,
        .partial_y = decoder_.partial_y_,
        .sinks = vector(c.sinks),
        .carried = decoder_.carried_,
        .q_stride = stride(c.q),
        .table_stride = memory_.table_stride,
        .layer_offset_bytes = place.offset_bytes,
        .scale = static_cast<float>(c.scale)};
    const ops::AttentionPlan& plan = lists.plan;
    if (!plan.tile_items.empty()) {
      args.items = lists.tile_items;
      args.grid = lists.tile_grid;
      args.n_items = static_cast<uint32_t>(plan.tile_items.size());
      args.keys = plan.tile_keys;
      args.scores = plan.tile_scores;
      args.most_keys = plan.most_tile_keys;
      attention.record_tiles(recorder_, args);
    }
    if (!plan.row_items.empty()) {
      args.items = lists.row_items;
      args.grid = lists.row_grid;
      args.n_items = static_cast<uint32_t>(plan.row_items.size());
      args.keys = plan.row_keys;
      args.scores = plan.row_scores;
      args.most_keys = plan.most_row_keys;
      attention.record_rows(recorder_, args);
    }
    if (!plan.reduce_items.empty()) {
      attention.record_reduce(recorder_,
                              {.items = lists.reduce_items,
                               .grid = lists.reduce_grid,
                               .partial_stats = decoder_.partial_stats_,
                               .partial_y = decoder_.partial_y_,
                               .y = at(c.y),
                               .sinks = vector(c.sinks),
                               .n_items = static_cast<uint32_t>(plan.reduce_items.size()),
                               .n_partials = plan.n_partials});
    }
  }

  void record(const call::CausalConv& c) {
    const StateLayout::Place place = decoder_.state_.place(c.state);
    decoder_.causal_conv_[resolved_->causal_conv].record(recorder_,
                                                         {.x = at(c.x),
                                                          .x_stride = stride(c.x),
                                                          .y = at(c.y),
                                                          .y_stride = stride(c.y),
                                                          .weight = decoder_.vectors_[c.weight],
                                                          .bias = vector(c.bias),
                                                          .items = step_.states[place.page],
                                                          .n_items = step_.n_chunks,
                                                          .row_item = step_.row_chunk,
                                                          .states = memory_.kv,
                                                          .state_offset_bytes = place.offset_bytes,
                                                          .rows = n_rows_,
                                                          .n = c.n});
  }

  void record(const call::Recurrence& c) {
    const StateLayout::Place place = decoder_.state_.place(c.state);
    const auto rows = [&](const View& view) {
      return ops::Recurrence::Rows{.range = at(view), .stride = stride(view)};
    };
    decoder_.recurrence_[resolved_->recurrence].record(
        recorder_, {.q = rows(c.q),
                    .k = rows(c.k),
                    .v = rows(c.v),
                    .step = rows(c.step),
                    .beta = c.beta ? rows(*c.beta) : ops::Recurrence::Rows{},
                    .y = rows(c.y),
                    .q_scale = c.q_scale,
                    .k_scale = c.k_scale,
                    .a = decoder_.vectors_[c.a],
                    .bias = decoder_.vectors_[c.bias],
                    .d = vector(c.d),
                    .items = step_.states[place.page],
                    .n_items = step_.n_chunks,
                    .states = memory_.kv,
                    .state_offset_bytes = place.offset_bytes,
                    .rows = n_rows_,
                    .item_rows = step_.chunk_rows});
  }

  void record(const call::Gated& c) {
    decoder_.gated_.at(c.kind).record(
        recorder_, {.gate_up = at(c.gate_up), .y = at(c.y), .rows = n_rows_, .n = c.n});
  }

  void record(const call::Elementwise& c) {
    ops::Elementwise::Args args{.a = at(c.a),
                                .a_stride = stride(c.a),
                                .y = at(c.y),
                                .y_stride = stride(c.y),
                                .rows = n_rows_,
                                .n = c.n,
                                .factor = static_cast<float>(c.factor),
                                .xielu = c.xielu,
                                .row_index = row_index(c.gathers)};
    args.a_group = c.a_group;
    args.y_group = c.y_group;
    if (c.b) {
      args.b = at(*c.b);
      args.b_stride = stride(*c.b);
      args.b_group = c.b_group;
    } else if (c.bias) {
      args.b = decoder_.vectors_[c.bias->vector].from(kFloat * c.bias->first);
    }
    decoder_.elementwise_.at(c.kind).record(recorder_, args);
  }

  void record(const call::Route& c) {
    decoder_.route_.at(route_kind(c, decoder_.routing_))
        .record(recorder_, {.scores = at(c.scores),
                            .bias = vector(c.bias),
                            .gains = vector(c.gains),
                            .routes = at(c.routes),
                            .rows = n_rows_,
                            .n_experts = c.n_experts,
                            .n_used = c.n_used,
                            .n_groups = c.router.n_groups,
                            .n_used_groups = c.router.n_used_groups,
                            .scale = static_cast<float>(c.router.scale)});
  }

  /// Whether experts' products of this step are those of groups of rows.
  bool groups_routes(uint32_t n_used, uint32_t n_experts) const {
    return decoder_.expert_gemm_ && ops::ExpertGemm::suits(n_rows_, n_used, n_experts);
  }
  ops::ExpertGemm::Groups groups(const View& view, uint32_t n_used, uint32_t n_experts) const {
    return {.range = at(view), .rows = n_rows_, .n_used = n_used, .n_experts = n_experts};
  }

  void record(const call::GroupRoutes& c) {
    if (!groups_routes(c.n_used, c.n_experts)) return;
    decoder_.expert_gemm_->record_groups(recorder_, at(c.routes),
                                         groups(c.groups, c.n_used, c.n_experts));
  }

  void record(const call::ExpertLinear& c) {
    const WeightMatrix& weights = resolved_->matrix;
    if (groups_routes(c.n_used, c.n_experts)) {
      decoder_.expert_gemm_->record(recorder_, {.weights = weights,
                                                .x = at(c.x),
                                                .x_stride = stride(c.x),
                                                .x_rank_stride = c.row_each ? weights.n_cols : 0,
                                                .groups = groups(c.groups, c.n_used, c.n_experts),
                                                .bias = vector(c.bias),
                                                .y = at(c.y),
                                                .y_stride = weights.n_rows / c.n_experts});
      return;
    }
    decoder_.expert_linear_.at({weights.type, c.bias.has_value()})
        .record(recorder_, {.weights = weights,
                            .n_experts = c.n_experts,
                            .x = at(c.x),
                            .x_stride = stride(c.x),
                            .x_rank_stride = c.row_each ? weights.n_cols : 0,
                            .routes = at(c.routes),
                            .bias = vector(c.bias),
                            .y = at(c.y),
                            .y_stride = weights.n_rows / c.n_experts,
                            .rows = n_rows_,
                            .n_used = c.n_used});
  }

  void record(const call::Combine& c) {
    decoder_.combine_.record(recorder_, {.x = at(c.x),
                                         .routes = at(c.routes),
                                         .y = at(c.y),
                                         .rows = n_rows_,
                                         .n_used = c.n_used,
                                         .n = c.n});
  }

  const Decoder& decoder_;
  const Lowered& lowered_;
  vk::Recorder& recorder_;
  const StepArgs& step_;
  const SequenceMemory& memory_;
  const Resolved* resolved_ = nullptr;  // of the dispatch at hand
  uint32_t n_rows_ = 0;
};

void Decoder::write_attention(std::span<const ops::SequenceChunk> chunks,
                              const ops::AttentionPlanOptions& options, StepArgs& step) const {
  const auto write = [](const auto& values, const vk::BufferRange& range) {
    using Item = typename std::decay_t<decltype(values)>::value_type;
    const auto target = range.mapped<Item>();
    PUMICE_CHECK(values.size() <= target.size(), "more attention work than the step has room for");
    std::ranges::copy(values, target.begin());
    return static_cast<uint32_t>(values.size());
  };
  for (size_t i = 0; i < attention_.size(); ++i) {
    AttentionLists& lists = step.attention[i];
    ops::AttentionPlanOptions own = options;
    own.tile_tokens = attention_[i].tile_tokens();
    own.window = lowered_.attention_classes[i].window;
    own.ahead = lowered_.attention_classes[i].ahead;
    ops::plan_attention(chunks, own, lists.plan);
    if (!lists.horizons.empty()) write_horizons(chunks, own.ahead, lists.horizons);
    PUMICE_CHECK(own.ahead == 0 || !lists.horizons.empty(), "a step that sees no keys ahead");
    write(attention_[i].tile_grid_of(write(lists.plan.tile_items, lists.tile_items)),
          lists.tile_grid);
    write(attention_[i].row_grid_of(write(lists.plan.row_items, lists.row_items)), lists.row_grid);
    write(attention_[i].reduce_grid_of(write(lists.plan.reduce_items, lists.reduce_items)),
          lists.reduce_grid);
  }
}

uint32_t Decoder::split_classes(const StepArgs& step) {
  uint32_t bits = 0;
  for (size_t i = 0; i < step.attention.size(); ++i) {
    if (!step.attention[i].plan.reduce_items.empty()) bits |= 1u << i;
  }
  return bits;
}

bool Decoder::rows_fit(const StepArgs& step, const vk::SegmentLimit& limit) const {
  for (size_t i = 0; i < attention_.size(); ++i) {
    const ops::AttentionPlan& plan = step.attention[i].plan;
    if (!limit.holds(attention_[i].row_cost(plan.row_keys, plan.row_scores))) return false;
  }
  return true;
}

void Decoder::record(vk::Recorder& recorder, const StepArgs& step,
                     const SequenceMemory& memory) const {
  Recording(*this, recorder, step, memory).run();
}

}  // namespace pumice
