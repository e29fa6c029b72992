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

/// By class of attention.
std::map<uint32_t, ExpansionSizes> all_expansion_sizes(const Lowered& lowered,
                                                       const DecoderLimits& limits,
                                                       uint64_t slab_bytes) {
  std::map<uint32_t, ExpansionSizes> all;
  for (uint32_t i = 0; i < lowered.attention_classes.size(); ++i) {
    const std::optional<ExpansionSizes> sizes =
        expansion_sizes(lowered, i, limits.context_tokens, limits.invariant, slab_bytes);
    if (sizes) all.emplace(i, *sizes);
  }
  return all;
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
  const auto expansions = all_expansion_sizes(lowered, limits, slab_bytes);
  uint32_t most_rows = std::max(limits.rows, limits.logit_rows);
  for (const auto& [one, sizes] : expansions) most_rows = std::max(most_rows, sizes.piece_keys);
  std::vector<uint64_t> ranges = {
      plan_activations(lowered, limits.rows, limits.logit_rows).bytes,
      kFloat * limits.attention_partials * stats_floats,
      kFloat * limits.attention_partials * y_floats, carried_bytes(lowered, slab_bytes),
      std::min(ops::Linear::max_scratch_bytes(most_rows, widest_input(program)), slab_bytes)};
  for (const auto& [one, sizes] : expansions) {
    std::ranges::copy(sizes.bytes(KvType::kF32), std::back_inserter(ranges));
  }
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

}  // namespace

ops::Route::Kind Decoder::route_kind(const call::Route& c, Routing routing) {
  using Probability = ops::Route::Kind::Probability;
  const bool sigmoid = c.router.probability == Router::Probability::kSigmoid;
  return {.probability = sigmoid ? Probability::kSigmoid : Probability::kSoftmax,
          .biased = c.bias.has_value(),
          .grouped = c.router.n_groups > 1,
          .renormalised = c.router.renormalised,
          .gained = c.gains.has_value(),
          .given = routing == Routing::kGiven};
}

/// Declares the pipelines that a program's dispatches need, each once.
class Decoder::Declaring {
 public:
  Declaring(Decoder& decoder, vk::PipelineLibrary& pipelines, const Program& program,
            KvTypes kv_type, ops::Math math, const DecoderLimits& limits)
      : decoder_(decoder),
        pipelines_(pipelines),
        program_(program),
        kv_type_(kv_type),
        math_(math),
        expansion_sizes_(
            all_expansion_sizes(decoder.lowered_, limits, decoder.device_->plan().slab_bytes)) {}

  Status run() {
    PUMICE_TRY(decoder_.linear_,
               ops::Linear::plan(pipelines_, decoder_.types_, product_math(program_, math_)));
    if (decoder_.invariant_) decoder_.linear_.use_gemm_only();
    PUMICE_TRY_STATUS(declare_expert_gemm());
    const std::vector<AttentionClass>& classes = decoder_.lowered_.attention_classes;
    for (uint32_t i = 0; i < classes.size(); ++i) {
      const AttentionClass& one = classes[i];
      if (one.expands) continue;
      PUMICE_TRY(decoder_.attention_[i],
                 ops::FlashAttention::plan(pipelines_,
                                           {.n_heads = one.n_heads,
                                            .n_kv_heads = one.n_kv_heads,
                                            .head_dim = one.head_dim,
                                            .kv_type = kv_type_,
                                            .window = one.window,
                                            .soft_cap = static_cast<float>(one.soft_cap),
                                            .sinks = one.sinks,
                                            .latent_dim = one.latent_dim,
                                            .v_dim = one.v_dim},
                                           attention_math(one, math_)));
    }
    PUMICE_TRY_STATUS(declare_expansions());
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
        .has_values = c.has_values,
        .v_dim = c.v_dim};
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
  Status declare(const call::ExpandedAttention&) { return {}; }
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

  /// The other form of attention to latents. Where a self-test rejected one of its kernels, all
  /// rows take the one form.
  Status declare_expansions() {
    for (const auto& [i, sizes] : expansion_sizes_) {
      std::vector<const WeightType*> apart;
      for (size_t d = 0; d < decoder_.resolved_.size(); ++d) {
        const auto* const c =
            std::get_if<call::ExpandedAttention>(&decoder_.lowered_.dispatches[d].what);
        if (c == nullptr || c->attention_class != i || c->fused) continue;
        apart.push_back(decoder_.resolved_[d].matrix.type);
      }
      const AttentionClass& one = decoder_.lowered_.attention_classes[i];
      Result<LatentExpansion> expansion = LatentExpansion::plan(pipelines_, sizes, one, kv_type_.k,
                                                                apart, attention_math(one, math_));
      if (!expansion.ok() && expansion.error().code != ErrorCode::kSelfTestFailed) {
        return expansion.error();
      }
      if (expansion.ok()) decoder_.expansions_.emplace(i, *std::move(expansion));
    }
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
  const std::map<uint32_t, ExpansionSizes> expansion_sizes_;
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
  PUMICE_TRY_STATUS(Declaring(decoder, pipelines, program, kv_type, math, limits).run());
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
    } else if (const auto* expanded = std::get_if<call::ExpandedAttention>(&dispatch.what);
               expanded != nullptr && !invariant_) {
      resolved.matrix = weights.matrix(lowered_.matrices[expanded->keys][0]);
      resolved.values = weights.matrix(lowered_.matrices[expanded->values][0]);
      types.insert(resolved.values.type);
      if (!expanded->fused) types.insert(&weight_type("F32"));
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
  for (const auto& [one, attention] : attention_) {
    text += fmt::format(" {}", ops::math_name(attention.tile_math()));
  }
  for (const auto& [one, expansion] : expansions_) {
    text += fmt::format(" expanded {}", ops::math_name(expansion.attention().tile_math()));
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
  for (const auto& [one, attention] : attention_) {
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
    const Resolved& resolved = resolved_[i];
    const auto* const expanded = std::get_if<call::ExpandedAttention>(&lowered_.dispatches[i].what);
    if (expanded != nullptr && expansions_.contains(expanded->attention_class)) {
      most = std::max(most, expansions_.at(expanded->attention_class)
                                .linear_scratch_bytes(linear_, resolved.matrix, resolved.values,
                                                      expanded->fused));
    }
    std::vector<WeightMatrix> matrices;
    for (const auto& member : resolved.matrices.members) matrices.push_back(member.matrix);
    if (!resolved.heads.empty()) matrices = {resolved.heads[0]};
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
  for (const auto& [one, attention] : attention_) {
    stats_bytes = std::max(stats_bytes, attention.partial_stats_bytes(limits.attention_partials));
    y_bytes = std::max(y_bytes, attention.partial_y_bytes(limits.attention_partials));
  }
  PUMICE_TRY(partial_stats_, arena_.allocate(stats_bytes));
  PUMICE_TRY(partial_y_, arena_.allocate(y_bytes));
  PUMICE_TRY(carried_, arena_.allocate(carried_bytes(lowered_, device_->plan().slab_bytes)));
  PUMICE_TRY(linear_scratch_, arena_.allocate(linear_scratch_bytes(limits)));
  vk::Uploader uploader(device_);
  for (auto& [one, expansion] : expansions_) {
    PUMICE_TRY_STATUS(expansion.allocate(arena_, uploader));
  }
  for (const BufferId id : buffers_apart(lowered_, routing_)) {
    PUMICE_TRY(buffers_[id], arena_.allocate(buffers_[id].size_bytes));
    routes_.push_back(buffers_[id]);
  }

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

}  // namespace pumice
