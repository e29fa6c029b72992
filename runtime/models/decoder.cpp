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
uint32_t widest_input(const Lowered& lowered) {
  uint32_t widest = 0;
  for (const Dispatch& dispatch : lowered.dispatches) {
    for (const uint32_t n : touched(dispatch.what).columns) widest = std::max(widest, n);
  }
  return widest;
}

uint64_t rows_of(const Buffer& buffer, const DecoderLimits& limits) {
  return buffer.rows == RowSet::kAll ? limits.rows : limits.logit_rows;
}

/// The buffers of routes that do not lie among the activations.
std::vector<BufferId> buffers_apart(const Lowered& lowered, Routing routing) {
  std::vector<BufferId> apart;
  for (BufferId id = 0; routing != Routing::kChosen && id < lowered.buffers.size(); ++id) {
    if (lowered.buffers[id].holds_routes) apart.push_back(id);
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
      std::min(ops::Linear::max_scratch_bytes(most_rows, widest_input(lowered)), slab_bytes)};
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

/// The other form of attention to latents. Where a self-test rejected one of its kernels, all rows
/// take the one form.
Status plan_expansions(const Binder& binder, ops::Math math, const DecoderLimits& limits,
                       SharedByCalls& shared) {
  const auto all =
      all_expansion_sizes(shared.lowered, limits, binder.pipelines.device()->plan().slab_bytes);
  for (const auto& [i, sizes] : all) {
    const AttentionClass& one = shared.lowered.attention_classes[i];
    const auto keys = binder.expanded_keys.find(i);
    Result<LatentExpansion> expansion = LatentExpansion::plan(
        binder.pipelines, sizes, one, binder.kv_type.k,
        keys == binder.expanded_keys.end() ? std::vector<const WeightType*>() : keys->second,
        attention_math(one, math));
    if (!expansion.ok() && expansion.error().code != ErrorCode::kSelfTestFailed) {
      return expansion.error();
    }
    if (expansion.ok()) shared.expansions.emplace(i, *std::move(expansion));
  }
  return {};
}

/// The products of experts for many rows. Where they may not depend on how many rows there are, or
/// a self-test rejected their kernels, those for few are for all.
Status plan_expert_gemm(const Binder& binder, ops::Math math, SharedByCalls& shared) {
  if (binder.expert_types.empty() || shared.invariant) return {};
  Result<ops::ExpertGemm> op = ops::ExpertGemm::plan(binder.pipelines, binder.expert_types, math,
                                                     ops::tuned_x_route(binder.pipelines));
  if (!op.ok() && op.error().code != ErrorCode::kSelfTestFailed) return op.error();
  if (op.ok()) shared.expert_gemm = *std::move(op);
  return {};
}

/// What calls have in common, after all have said what they want of it.
Status plan_shared(const Binder& binder, ops::Math math, const DecoderLimits& limits,
                   SharedByCalls& shared) {
  const std::vector<const WeightType*> types(binder.product_types.begin(),
                                             binder.product_types.end());
  const ops::Math of_products = product_math(binder.program, math);
  PUMICE_TRY(shared.linear, ops::Linear::plan(binder.pipelines, types, of_products));
  if (shared.invariant) shared.linear.use_gemm_only();
  PUMICE_TRY_STATUS(plan_expert_gemm(binder, of_products, shared));
  for (uint32_t i = 0; i < shared.lowered.attention_classes.size(); ++i) {
    const AttentionClass& one = shared.lowered.attention_classes[i];
    if (one.expands) continue;
    PUMICE_TRY(shared.attention[i],
               ops::FlashAttention::plan(binder.pipelines,
                                         {.n_heads = one.n_heads,
                                          .n_kv_heads = one.n_kv_heads,
                                          .head_dim = one.head_dim,
                                          .kv_type = binder.kv_type,
                                          .window = one.window,
                                          .soft_cap = static_cast<float>(one.soft_cap),
                                          .sinks = one.sinks,
                                          .latent_dim = one.latent_dim,
                                          .v_dim = one.v_dim},
                                         attention_math(one, math)));
  }
  return plan_expansions(binder, math, limits, shared);
}

}  // namespace

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
                              vk::PipelineLibrary& pipelines, const ModelPlan& model,
                              const ModelWeights& weights, KvTypes kv_type, ops::Math math,
                              const FusionRules& rules, const DecoderLimits& limits) {
  const Program& program = model.program();
  const auto& workgroups = device->plan().max_workgroup_count;
  if (const uint32_t most = std::min(workgroups[0], workgroups[1]); limits.rows > most) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} tokens in one step are more than the {} this device computes at once; "
                      "lower the batch size (-b)",
                      limits.rows, most);
  }
  PUMICE_TRY(const std::shared_ptr<const Lowered> lowered, model.lowered(rules));
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "activations",
                  buffer_bytes(*lowered, program, limits));
  auto shared = std::make_unique<SharedByCalls>(lowered);
  shared->state = model.state(kv_type);
  shared->invariant = limits.invariant;
  shared->routing = limits.routing;
  Decoder decoder(device, std::move(shared), std::move(arena));
  decoder.rules_ = rules.text();
  decoder.tuned_ = pipelines.preferred_hash();
  decoder.long_rope_ = std::ranges::any_of(program.ropes, [&](const ops::RopeConfig& rope) {
    return !rope.long_divisors.empty() && limits.context_tokens > rope.original_context;
  });
  Binder binder(pipelines, program, *decoder.shared_, weights, kv_type);
  for (const Dispatch& dispatch : decoder.shared_->lowered.dispatches) {
    PUMICE_TRY(decoder.calls_.emplace_back(), bind_call(dispatch.what, binder));
  }
  decoder.types_.assign(binder.product_types.begin(), binder.product_types.end());
  decoder.use_weights(weights);
  for (const std::vector<TensorId>& tensors : decoder.shared_->lowered.vectors) {
    decoder.shared_->vectors.push_back(weights.vector(tensors));  // they stay where they are
  }
  if (limits.invariant) math = ops::Math::kF32;  // the same kernels for every number of rows
  PUMICE_TRY_STATUS(plan_shared(binder, math, limits, *decoder.shared_));
  PUMICE_TRY_STATUS(decoder.allocate(program, limits));
  return decoder;
}

void Decoder::use_weights(const ModelWeights& weights) {
  for (const auto& call : calls_) call->use_weights(shared_->lowered, weights);
}

void Decoder::record(vk::Recorder& recorder, const StepArgs& step,
                     const SequenceMemory& memory) const {
  StepContext context{recorder, step, memory, *shared_};
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Dispatch& dispatch = shared_->lowered.dispatches[i];
    context.n_rows = dispatch.rows == RowSet::kAll ? step.n_rows : step.n_logit_rows;
    if (context.n_rows == 0) continue;
    recorder.enter({dispatch.label, dispatch.layer.value_or(vk::Scope::kNoLayer),
                    static_cast<uint32_t>(dispatch.part)});
    calls_[i]->record(context);
  }
}

std::string Decoder::arithmetic() const {
  constexpr uint32_t kManyRows = ops::Gemv::kMaxRows + 1;
  std::string text;
  for (const WeightType* type : types_) {
    text += fmt::format("{} {} ", type->name,
                        ops::math_name(shared_->linear.math_of(*type, kManyRows)));
  }
  if (shared_->expert_gemm)
    text += fmt::format("experts {} ", ops::math_name(shared_->expert_gemm->math()));
  text += "attention";
  for (const auto& [one, attention] : shared_->attention) {
    text += fmt::format(" {}", ops::math_name(attention.tile_math()));
  }
  for (const auto& [one, expansion] : shared_->expansions) {
    text += fmt::format(" expanded {}", ops::math_name(expansion.attention().tile_math()));
  }
  if (long_rope_) text += " long rope";
  if (shared_->routing == Routing::kGiven) text += " given routes";
  if (rules_ != FusionRules().text()) text += fmt::format(" fuse {}", rules_);
  if (!shared_->invariant) return text;
  const auto add = [&](const vk::Pipeline* pipeline) {
    text += fmt::format(" {}", pipeline->label());
    for (const auto& [id, value] : pipeline->constants()) text += fmt::format(" {}={}", id, value);
  };
  // The other operations have one kernel each.
  std::ranges::for_each(shared_->linear.gemm_pipelines(), add);
  for (const auto& [one, attention] : shared_->attention) {
    std::ranges::for_each(attention.pipelines(), add);
  }
  if (tuned_ != 0) text += fmt::format(" tuned {:x}", tuned_);
  const vk::DeviceSnapshot& device = device_->snapshot();
  return text + fmt::format(" shaders {:x} device {:02x} driver {:02x} subgroups of {}",
                            spirv_hash(), fmt::join(device.device_uuid, ""),
                            fmt::join(device.driver_uuid, ""), device_->plan().subgroup_size);
}

uint64_t Decoder::linear_scratch_bytes(const DecoderLimits& limits) const {
  uint64_t most = 0;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const bool all = shared_->lowered.dispatches[i].rows == RowSet::kAll;
    most =
        std::max(most, calls_[i]->scratch_bytes(*shared_, all ? limits.rows : limits.logit_rows));
  }
  return most;
}

Status Decoder::allocate(const Program& program, const DecoderLimits& limits) {
  const ActivationPlan plan = plan_activations(shared_->lowered, limits.rows, limits.logit_rows);
  PUMICE_TRY(const vk::BufferRange activations, arena_.allocate(plan.bytes));
  for (size_t i = 0; i < shared_->lowered.buffers.size(); ++i) {
    const Buffer& buffer = shared_->lowered.buffers[i];
    shared_->buffers.push_back(
        activations.subrange(plan.offsets[i], kFloat * rows_of(buffer, limits) * buffer.width));
  }
  uint64_t stats_bytes = 0;
  uint64_t y_bytes = 0;
  for (const auto& [one, attention] : shared_->attention) {
    stats_bytes = std::max(stats_bytes, attention.partial_stats_bytes(limits.attention_partials));
    y_bytes = std::max(y_bytes, attention.partial_y_bytes(limits.attention_partials));
  }
  PUMICE_TRY(shared_->partial_stats, arena_.allocate(stats_bytes));
  PUMICE_TRY(shared_->partial_y, arena_.allocate(y_bytes));
  PUMICE_TRY(shared_->carried,
             arena_.allocate(carried_bytes(shared_->lowered, device_->plan().slab_bytes)));
  PUMICE_TRY(shared_->linear_scratch, arena_.allocate(linear_scratch_bytes(limits)));
  vk::Uploader uploader(device_);
  for (auto& [one, expansion] : shared_->expansions) {
    PUMICE_TRY_STATUS(expansion.allocate(arena_, uploader));
  }
  for (const BufferId id : buffers_apart(shared_->lowered, shared_->routing)) {
    PUMICE_TRY(shared_->buffers[id], arena_.allocate(shared_->buffers[id].size_bytes));
    routes_.push_back(shared_->buffers[id]);
  }

  for (const ops::RopeConfig& rope : program.ropes) {
    PUMICE_TRY(const ops::RopeFrequencies frequencies,
               ops::rope_frequencies(rope.for_context(limits.context_tokens)));
    std::vector<float> table(size_t{limits.context_tokens} * rope.dims);
    ops::fill_rope_table(frequencies, 0, table);
    PUMICE_TRY(shared_->rope_tables.emplace_back(), arena_.allocate(kFloat * table.size()));
    PUMICE_TRY_STATUS(uploader.write(shared_->rope_tables.back(), std::span<const float>(table)));
  }
  return {};
}

}  // namespace pumice
