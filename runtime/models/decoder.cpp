#include "models/decoder.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "shaders/rope_kv/rope_table.hpp"
#include "shaders/spirv.hpp"

namespace pumice {
namespace {

constexpr uint64_t kFloat = sizeof(float);

/// The other form of attention to latents. Where a self-test rejected one of its kernels, all rows
/// take the one form.
Status plan_expansions(const Binder& binder, ops::Math math, const DecoderLimits& limits,
                       SharedByCalls& shared) {
  const auto all =
      expansion_sizes(shared.lowered, limits, binder.pipelines.device()->plan().slab_bytes);
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

/// Rows of few are computed alike: see Decoder::alike_rows.
uint32_t alike_rows(const Binder& binder, const SharedByCalls& shared) {
  uint32_t rows = std::min(binder.alike_rows, shared.linear.alike_rows());
  for (const auto& [n_used, n_experts] : binder.expert_numbers) {
    for (uint32_t n = 1; shared.expert_gemm && n < rows; ++n) {
      if (shared.expert_gemm->suits(n + 1, n_used, n_experts)) rows = n;
    }
  }
  return rows;
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
  shared.alike_rows = alike_rows(binder, shared);
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
  auto shared = std::make_unique<SharedByCalls>(lowered);
  PUMICE_TRY(
      vk::Arena arena,
      shared->lay_out(*lowered, program, limits, device->plan().slab_bytes).allocate(device));
  shared->state = model.state(kv_type);
  shared->invariant = limits.invariant;
  shared->routing = limits.routing;
  Decoder decoder(device, std::move(shared), std::move(arena));
  decoder.rules_ = rules.text();
  decoder.makes_planes_ = rules.has(FusionRule::kPlanes);
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
  PUMICE_TRY_STATUS(decoder.fill(program, limits));
  return decoder;
}

uint32_t Decoder::alike_rows() const { return shared_->alike_rows; }

void Decoder::use_weights(const ModelWeights& weights) {
  for (const auto& call : calls_) call->use_weights(shared_->lowered, weights);
}

vk::BufferRange Decoder::planes_of_next(size_t i, uint32_t n_rows) const {
  const std::vector<Dispatch>& dispatches = shared_->lowered.dispatches;
  if (!makes_planes_ || n_rows == 0 || i + 1 == calls_.size()) return {};
  if (dispatches[i + 1].rows != dispatches[i].rows) return {};
  const auto read = calls_[i + 1]->reads_planes(*shared_, n_rows);
  const bool made = read && calls_[i]->makes_planes(*shared_) == read;
  return made ? shared_->linear_scratch : vk::BufferRange{};
}

void Decoder::record(vk::Recorder& recorder, const StepArgs& step,
                     const SequenceMemory& memory) const {
  StepContext context{recorder, step, memory, *shared_};
  vk::BufferRange planes;  // that the call before has written
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Dispatch& dispatch = shared_->lowered.dispatches[i];
    context.n_rows = dispatch.rows == RowSet::kAll ? step.n_rows : step.n_logit_rows;
    context.x_is_made = !planes.empty();
    planes = context.planes = planes_of_next(i, context.n_rows);
    if (context.n_rows == 0) continue;
    const std::optional<uint32_t> other = dispatch.covered_by;
    if (other && calls_[*other]->covers(*shared_, context.n_rows)) {
      planes = {};
      continue;
    }
    recorder.enter({dispatch.label, dispatch.layer.value_or(vk::Scope::kNoLayer),
                    static_cast<uint32_t>(dispatch.part)});
    calls_[i]->record(context);
  }
}

std::string Decoder::arithmetic() const {
  constexpr uint32_t kManyRows = ops::Gemv::kMaxRows + 1;
  std::string text;
  for (const WeightType* type : types_) {
    text += fmt::format("{} {}{} ", type->name,
                        ops::math_name(shared_->linear.math_of(*type, kManyRows)),
                        shared_->linear.reads_planes(*type, 1) ? " planes" : "");
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

/// What of its memory no step writes, and what of it is a buffer.
Status Decoder::fill(const Program& program, const DecoderLimits& limits) {
  SharedByCalls& shared = *shared_;
  const ActivationPlan plan = plan_activations(shared.lowered, limits);
  for (BufferId id = 0; id < shared.lowered.buffers.size(); ++id) {
    const Buffer& buffer = shared.lowered.buffers[id];
    const uint64_t bytes = kFloat * limits.rows_of(buffer) * buffer.width;
    shared.buffers.push_back(shared.activations.subrange(plan.offsets[id], bytes));
  }
  for (const auto& [id, range] : shared.routes) {
    shared.buffers[id] = range;
    routes_.push_back(range);
  }
  const uint64_t scratch_bytes = linear_scratch_bytes(limits);
  if (scratch_bytes > shared.linear_scratch.size_bytes) {
    return make_error(ErrorCode::kDoesNotFit,
                      "products want {} bytes of scratch, above the device's {} an allocation",
                      scratch_bytes, device_->plan().slab_bytes);
  }
  shared.linear_scratch = shared.linear_scratch.subrange(0, scratch_bytes);
  vk::Uploader uploader(device_);
  for (auto& [one, expansion] : shared.expansions) {
    PUMICE_TRY_STATUS(expansion.use(shared.expanded.at(one), uploader));
  }
  for (size_t i = 0; i < program.ropes.size(); ++i) {
    const ops::RopeConfig& rope = program.ropes[i];
    PUMICE_TRY(const ops::RopeFrequencies frequencies,
               ops::rope_frequencies(rope.for_context(limits.context_tokens)));
    std::vector<float> table(size_t{limits.context_tokens} * rope.dims);
    ops::fill_rope_table(frequencies, 0, table);
    PUMICE_TRY_STATUS(uploader.write(shared.rope_tables[i], std::span<const float>(table)));
  }
  return {};
}

}  // namespace pumice
