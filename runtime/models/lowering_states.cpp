// Operations that have states: attention, and what comes before and behind it; recurrences.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.hpp"
#include "models/lowering_pass.hpp"

namespace pumice {
namespace {

constexpr double kLargeScores = 2;  // times what division by the root of head_dim gives

ops::Recurrence::Decay recurrence_decay(StateDecay decay) {
  using enum ops::Recurrence::Decay;
  constexpr ops::Recurrence::Decay kDecays[] = {kHead, kKey, kState};
  return kDecays[static_cast<size_t>(decay)];
}

bool are_large(double scale, uint32_t head_dim) {
  return scale * std::sqrt(head_dim) > kLargeScores;
}

AttentionClass shape_of(const op::Attention& o) {
  return {.n_heads = o.n_heads,
          .n_kv_heads = o.n_kv_heads,
          .head_dim = o.head_dim,
          .window = o.window,
          .ahead = o.ahead,
          .soft_cap = o.soft_cap,
          .large_scores = are_large(o.scale, o.head_dim),
          .sinks = o.sinks.has_value(),
          .latent_dim = o.latent_dim,
          .v_dim = o.v_dim};
}

}  // namespace

void Lowering::lower(const op::Rope& o) {
  const View x = at_rows(o.x, "rope");
  const View y = place_of_result(o.x);
  if (y.buffer != x.buffer || y.first != x.first) copy(x, y, width(o.x), "rope");
  views_[result_] = y;
  emit(call::Rope{.x = {y.buffer, y.first + o.first},
                  .n_heads = width(o.x) / o.head_dim,
                  .head_dim = o.head_dim,
                  .rope = o.rope,
                  .halves = o.halves},
       "rope");
}

void Lowering::lower(const op::HeadLinear& o) {
  const std::string label = stem_of(o.weight);
  const uint32_t head_dim = width(o.x) / o.n_heads;
  View x = at_rows(o.x, label);
  // Heads are read four floats at once.
  if (x.first % kVectorFloats != 0) x = whole(o.x, label);
  if (head_dim % kVectorFloats != 0 || lowered_.buffers[x.buffer].width % kVectorFloats != 0 ||
      (!o.transposed && program_.tensors[o.weight].dims[0] % kVectorFloats != 0)) {
    return fail(fmt::format("there is no kernel for products of heads of {} numbers", head_dim));
  }
  const View y = new_view(width(result_));
  views_[result_] = y;
  const GroupId matrices = group_of({all_rows(o.weight)});
  const FusionPatterns::Latents* const latents = patterns_.latents_of(op_);
  emit(call::HeadLinear{.x = x,
                        .matrices = matrices,
                        .y = y,
                        .n_heads = o.n_heads,
                        .x_head_dim = head_dim,
                        .first_row = o.first_row,
                        .n_rows = o.n_rows,
                        .n_columns = static_cast<uint32_t>(program_.tensors[o.weight].dims[0]),
                        .transposed = o.transposed,
                        .attention_class = latents == nullptr
                                               ? std::nullopt
                                               : std::optional(class_of(attention_of(*latents)))},
       label);
  if (latents == nullptr) return;
  if (latents->keys == op_) {
    queries_ = {x, matrices};
  } else {
    expand(*latents, matrices, y);
  }
}

const op::Attention& Lowering::attention_of(const FusionPatterns::Latents& latents) const {
  return std::get<op::Attention>(program_.ops[latents.attention].what);
}

void Lowering::expand(const FusionPatterns::Latents& latents, GroupId values, View y) {
  const op::Attention& o = attention_of(latents);
  AttentionClass expanded = shape_of(o);
  expanded.expands = class_of(o);
  expanded.n_kv_heads = o.n_heads;
  expanded.head_dim = latents.n_still + latents.n_turned;
  expanded.latent_dim = 0;
  expanded.v_dim = latents.value_dim;
  expanded.large_scores = are_large(o.scale, expanded.head_dim);
  const Heads& heads = *patterns_.heads_of(latents.attention);
  emit(call::ExpandedAttention{.q = queries_->x,
                               .y = y,
                               .keys = queries_->matrices,
                               .values = values,
                               .fused = latents.fused,
                               .attention_class = class_of(expanded),
                               .scale = o.scale,
                               .state = {heads.append->group, heads.append->slot},
                               .sinks =
                                   o.sinks ? std::optional(vector_of({*o.sinks})) : std::nullopt},
       "attention");
}

void Lowering::lower(const op::Attention& o) {
  const Heads& heads = *patterns_.heads_of(op_);
  if (heads.appends && o.latent_dim != 0) append_latent(o, heads);
  const bool has_q = heads.appends && o.latent_dim == 0;
  const View q = has_q ? append(o, heads) : at_rows(o.q, "attention");
  const View y = new_view(width(result_));
  views_[result_] = y;
  emit(call::Attention{.q = q,
                       .y = y,
                       .attention_class = class_of(o),
                       .scale = o.scale,
                       .state = {heads.append->group, heads.append->slot},
                       .sinks = o.sinks ? std::optional(vector_of({*o.sinks})) : std::nullopt},
       "attention");
}

void Lowering::append_latent(const op::Attention& o, const Heads& heads) {
  emit(call::RopeKv{.qkv = at_rows(heads.k, "rope_kv"),
                    .n_heads = 0,
                    .n_kv_heads = o.n_kv_heads,
                    .head_dim = o.head_dim,
                    .rope = {},
                    .halves = false,
                    .bias = {},
                    .q_norm = {},
                    .k_norm = {},
                    .norm_eps = 0,
                    .state = {heads.append->group, heads.append->slot},
                    .has_values = false},
       "rope_kv", Part::kRopeKv);
}

View Lowering::append(const op::Attention& o, const Heads& heads) {
  const uint32_t first_k = width(heads.q);
  const uint32_t first_v = first_k + width(heads.k);
  const std::array<std::pair<ValueId, uint32_t>, 3> operands = {
      std::pair(heads.q, 0u), std::pair(heads.k, first_k), std::pair(heads.v, first_v)};
  BufferId qkv = 0;
  if (heads.bundle) {
    qkv = *places_[*heads.bundle].buffer;
  } else {
    qkv = add_buffer(first_v + width(heads.v), row_set());
  }
  for (const auto& [value, column] : operands) {
    const View at = at_rows(value, "rope_kv");
    if (at.buffer != qkv || at.first != column) {
      copy(at, {qkv, column}, width(value), "rope_kv");
    }
  }
  const auto vector_if = [&](const op::RmsNorm* norm) {
    return norm == nullptr ? std::nullopt : std::optional(vector_of({*norm->weight}));
  };
  const bool bias = heads.bundle && patterns_.bundles()[*heads.bundle].bias_is_fused;
  emit(call::RopeKv{.qkv = {qkv, 0},
                    .n_heads = o.n_heads,
                    .n_kv_heads = o.n_kv_heads,
                    .head_dim = o.head_dim,
                    .rope = heads.rope == nullptr ? std::nullopt : std::optional(heads.rope->rope),
                    .halves = heads.rope != nullptr && heads.rope->halves,
                    .bias = bias ? places_[*heads.bundle].bias : std::nullopt,
                    .q_norm = vector_if(heads.q_norm),
                    .k_norm = vector_if(heads.k_norm),
                    .norm_eps = heads.q_norm == nullptr ? 0 : heads.q_norm->eps,
                    .state = {heads.append->group, heads.append->slot},
                    .v_dim = o.v_dim},
       "rope_kv", Part::kRopeKv);
  return {qkv, 0};
}

void Lowering::lower(const op::CausalConv& o) {
  // A token's state is that of all before it: only whole texts have one.
  if (row_set() != RowSet::kAll) return fail("it has a recurrence after its layers");
  const View y = new_view(width(result_));
  views_[result_] = y;
  emit(call::CausalConv{.x = *views_[o.x],
                        .y = y,
                        .weight = vector_of({o.weight}),
                        .bias = o.bias ? std::optional(vector_of({*o.bias})) : std::nullopt,
                        .n = width(result_),
                        .taps = static_cast<uint32_t>(program_.tensors[o.weight].dims[0]),
                        .silu = o.silu,
                        .state = {o.group, o.slot}},
       stem_of(o.weight));
}

void Lowering::lower(const op::Recurrence& o) {
  if (row_set() != RowSet::kAll) return fail("it has a recurrence after its layers");
  const View y = new_view(width(result_));
  views_[result_] = y;
  emit(call::Recurrence{.q = *views_[o.q],
                        .k = *views_[o.k],
                        .v = *views_[o.v],
                        .step = *views_[o.step],
                        .beta = o.beta ? views_[*o.beta] : std::nullopt,
                        .y = y,
                        .q_scale = static_cast<float>(o.q_scale),
                        .k_scale = static_cast<float>(o.k_scale),
                        .a = vector_of({o.a}),
                        .bias = vector_of({o.bias}),
                        .d = o.d ? std::optional(vector_of({*o.d})) : std::nullopt,
                        .shape = {.n_heads = o.n_heads,
                                  .n_key_heads = o.n_key_heads,
                                  .key_dim = o.key_dim,
                                  .value_dim = o.value_dim,
                                  .by_remainder = o.by_remainder,
                                  .delta = o.beta.has_value(),
                                  .has_d = o.d.has_value(),
                                  .decay = recurrence_decay(o.decay)},
                        .state = {o.group, o.slot}},
       "recurrence");
}

uint32_t Lowering::class_of(const op::Attention& o) { return class_of(shape_of(o)); }

uint32_t Lowering::class_of(const AttentionClass& wanted) {
  auto& classes = lowered_.attention_classes;
  const auto found = std::ranges::find(classes, wanted);
  if (found != classes.end()) return static_cast<uint32_t>(found - classes.begin());
  if (classes.size() == kMostAttentionClasses) {
    fail(fmt::format("its layers have more than {} kinds of attention", kMostAttentionClasses));
    return 0;
  }
  classes.push_back(wanted);
  return static_cast<uint32_t>(classes.size() - 1);
}

}  // namespace pumice
