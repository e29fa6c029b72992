#include "models/lowering.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "models/fusion_patterns.hpp"
#include "shaders/expert_gemm/expert_gemm.hpp"
#include "shaders/experts/experts.hpp"

namespace pumice {
namespace {

constexpr double kLargeScores = 2;     // times what division by the root of head_dim gives
constexpr uint32_t kVectorFloats = 4;  // rows that matrices read are read so many floats at once

ops::GatedActivation::Kind gate_kind(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kSilu:
      return ops::GatedActivation::Kind::kSilu;
    case ActivationKind::kGelu:
      return ops::GatedActivation::Kind::kGelu;
    case ActivationKind::kGeluTanh:
      return ops::GatedActivation::Kind::kGeluTanh;
    case ActivationKind::kSigmoid:
      return ops::GatedActivation::Kind::kSigmoid;
    case ActivationKind::kRelu:
      return ops::GatedActivation::Kind::kRelu;
  }
  PUMICE_CHECK(false, "an activation without a kernel");
  return {};
}

ops::Elementwise::Kind elementwise_kind(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kSilu:
      return ops::Elementwise::Kind::kSilu;
    case ActivationKind::kGelu:
      return ops::Elementwise::Kind::kGelu;
    case ActivationKind::kGeluTanh:
      return ops::Elementwise::Kind::kGeluTanh;
    case ActivationKind::kSigmoid:
      return ops::Elementwise::Kind::kSigmoid;
    case ActivationKind::kRelu:
      return ops::Elementwise::Kind::kRelu;
  }
  PUMICE_CHECK(false, "an activation without a kernel");
  return {};
}

ops::Recurrence::Decay recurrence_decay(StateDecay decay) {
  switch (decay) {
    case StateDecay::kHead:
      return ops::Recurrence::Decay::kHead;
    case StateDecay::kKey:
      return ops::Recurrence::Decay::kKey;
    case StateDecay::kState:
      return ops::Recurrence::Decay::kState;
  }
  PUMICE_CHECK(false, "a decay without a kernel");
  return {};
}

/// "attn_q" of "blk.3.attn_q.weight".
std::string stem(std::string_view tensor) {
  if (tensor.starts_with("blk.")) {
    const size_t end = tensor.find('.', 4);
    if (end != std::string_view::npos) tensor.remove_prefix(end + 1);
  }
  const size_t end = tensor.rfind('.');
  return std::string(tensor.substr(0, end));
}

/// Buffers that a call reads or writes.
class Touched {
 public:
  std::vector<BufferId> of(const Call& call) {
    buffers_.clear();
    std::visit([&](const auto& c) { add(c); }, call);
    return buffers_;
  }

 private:
  void use(const View& view) { buffers_.push_back(view.buffer); }
  void use(const std::optional<View>& view) {
    if (view) use(*view);
  }
  void add(const call::Embed& c) { use(c.y); }
  void add(const call::Linear& c) { use(c.x), use(c.y); }
  void add(const call::RmsNorm& c) { use(c.x), use(c.residual), use(c.y); }
  void add(const call::LayerNorm& c) { use(c.x), use(c.residual), use(c.y); }
  void add(const call::Rope& c) { use(c.x); }
  void add(const call::RopeKv& c) { use(c.qkv); }
  void add(const call::HeadLinear& c) { use(c.x), use(c.y); }
  void add(const call::Attention& c) { use(c.q), use(c.y); }
  void add(const call::ExpandedAttention& c) { use(c.q), use(c.y); }
  void add(const call::CausalConv& c) { use(c.x), use(c.y); }
  void add(const call::Recurrence& c) {
    use(c.q), use(c.k), use(c.v), use(c.step), use(c.beta), use(c.y);
  }
  void add(const call::Gated& c) { use(c.gate_up), use(c.y); }
  void add(const call::Elementwise& c) { use(c.a), use(c.b), use(c.y); }
  void add(const call::Route& c) { use(c.scores), use(c.routes); }
  void add(const call::GroupRoutes& c) { use(c.routes), use(c.groups); }
  void add(const call::ExpertLinear& c) { use(c.x), use(c.routes), use(c.groups), use(c.y); }
  void add(const call::Combine& c) { use(c.x), use(c.routes), use(c.y); }

  std::vector<BufferId> buffers_;
};

using Bundle = FusionPatterns::Bundle;
using Heads = FusionPatterns::Heads;

class Lowering {
 public:
  Lowering(const Program& program, const FusionRules& rules, FusionPatterns patterns)
      : program_(program),
        rules_(rules),
        patterns_(std::move(patterns)),
        views_(program.values.size()) {
    for (const Bundle& bundle : patterns_.bundles()) {
      places_.push_back({.group = group_of(bundle.matrices)});
      if (!bundle.biases.empty()) places_.back().bias = vector_of(bundle.biases);
    }
    end_of_layers_ = program.layers.empty() ? 0 : program.layers.back().end_op;
    for (uint32_t i = 0; i < program.layers.size(); ++i) {
      for (size_t o = program.layers[i].first_op; o < program.layers[i].end_op; ++o)
        layer_of_[o] = i;
    }
  }

  Result<Lowered> run() {
    for (op_ = 0; op_ < program_.ops.size() && !error_; ++op_) {
      if (patterns_.is_absorbed(op_)) continue;
      result_ = program_.ops[op_].result;
      std::visit([&](const auto& o) { lower(o); }, program_.ops[op_].what);
    }
    if (error_) return *error_;
    // The last norm may be a layer's, of all rows.
    if (program_.pooling) views_[program_.logits] = whole(program_.logits, "output");
    const std::optional<View> logits = views_[program_.logits];
    if (!logits || !is_whole(program_.logits) || rows_of(*logits) != RowSet::kLogits) {
      return cannot_be_lowered(program_, "its logits are not what its last operation gives");
    }
    lowered_.logits = logits->buffer;
    find_uses();
    return std::move(lowered_);
  }

 private:
  /// Where a bundle's products are.
  struct Place {
    GroupId group = 0;
    std::optional<VectorId> bias = {};    ///< of all of them, one after the other
    std::optional<BufferId> buffer = {};  ///< once the first of them has been lowered
  };

  void fail(const std::string& reason) {
    if (!error_) error_ = cannot_be_lowered(program_, reason);
  }

  uint32_t width(ValueId value) const { return program_.values[value].width; }
  /// Whether no operation after the present one reads it.
  bool dies_here(ValueId value) const {
    return value != program_.logits && !patterns_.readers(value).empty() &&
           !patterns_.is_read_after(value, op_);
  }
  RowSet row_set() const { return op_ >= end_of_layers_ ? RowSet::kLogits : RowSet::kAll; }
  RowSet rows_of(const View& view) const { return lowered_.buffers[view.buffer].rows; }
  /// Whether its view is all of a buffer.
  bool is_whole(ValueId value) const {
    const View& view = *views_[value];
    return view.first == 0 && lowered_.buffers[view.buffer].width == width(value);
  }

  BufferId add_buffer(uint32_t buffer_width, RowSet rows) {
    lowered_.buffers.push_back({.width = buffer_width, .rows = rows});
    return static_cast<BufferId>(lowered_.buffers.size() - 1);
  }
  View new_view(uint32_t buffer_width) { return {add_buffer(buffer_width, row_set()), 0}; }
  VectorId vector_of(std::vector<TensorId> tensors) {
    const auto found = std::ranges::find(lowered_.vectors, tensors);
    if (found != lowered_.vectors.end()) {
      return static_cast<VectorId>(found - lowered_.vectors.begin());
    }
    lowered_.vectors.push_back(std::move(tensors));
    return static_cast<VectorId>(lowered_.vectors.size() - 1);
  }
  GroupId group_of(std::vector<MatrixRows> matrices) {
    lowered_.matrices.push_back(std::move(matrices));
    return static_cast<GroupId>(lowered_.matrices.size() - 1);
  }
  MatrixRows all_rows(TensorId tensor) const {
    const auto& dims = program_.tensors[tensor].dims;
    return {tensor, 0, static_cast<uint32_t>(dims[1] * dims[2])};
  }
  std::string stem_of(TensorId tensor) const { return stem(program_.tensors[tensor].name); }
  void emit(Call call, std::string part) {
    const auto layer = layer_of_.find(op_);
    lowered_.dispatches.push_back(
        {.what = std::move(call),
         .rows = row_set(),
         .part = std::move(part),
         .layer = layer == layer_of_.end() ? std::nullopt : std::optional(layer->second)});
  }

  /// Where an operand is, at the rows that are computed now.
  View at_rows(ValueId value, const std::string& part) {
    const View view = *views_[value];
    if (rows_of(view) == row_set()) return view;
    const View y = new_view(width(value));
    emit(call::Elementwise{.kind = ops::Elementwise::Kind::kCopy,
                           .a = view,
                           .y = y,
                           .n = width(value),
                           .factor = 0,
                           .gathers = true},
         part);
    return y;
  }
  /// The same in a buffer of its own.
  View whole(ValueId value, const std::string& part) {
    if (rows_of(*views_[value]) == row_set() && is_whole(value)) return *views_[value];
    const View y = new_view(width(value));
    copy(at_rows(value, part), y, width(value), part);
    return y;
  }
  void copy(View from, View to, uint32_t n, const std::string& part) {
    emit(call::Elementwise{.kind = ops::Elementwise::Kind::kCopy,
                           .a = from,
                           .y = to,
                           .n = n,
                           .factor = 0,
                           .gathers = false},
         part);
  }
  /// For elementwise operations on a value: in place where it is read for the last time.
  View place_of_result(ValueId operand) {
    const View& view = *views_[operand];
    if (dies_here(operand) && rows_of(view) == row_set()) return view;
    return new_view(width(result_));
  }

  // ---- operations, in their order

  void lower(const op::Embed& o) { embed(o.table, false); }
  void lower(const op::EmbedPosition& o) { embed(o.table, true); }

  void embed(TensorId table, bool by_position) {
    float scale = 1;
    ValueId value = result_;
    if (patterns_.has_one_reader(result_) && rules_.has(FusionRule::kEmbedScale)) {
      const size_t reader = patterns_.readers(result_)[0];
      if (const auto* factor = std::get_if<op::Scale>(&program_.ops[reader].what)) {
        patterns_.absorb(reader);
        scale = static_cast<float>(factor->factor);
        value = program_.ops[reader].result;
      }
    }
    const View y = new_view(width(result_));
    views_[value] = y;
    emit(call::Embed{group_of({all_rows(table)}), by_position, y, scale}, "embedding");
  }

  void lower(const op::AddRow& o) {
    const View x = at_rows(o.x, "embedding");
    const View y = place_of_result(o.x);
    views_[result_] = y;
    emit(call::Elementwise{.kind = ops::Elementwise::Kind::kAddBias,
                           .a = x,
                           .bias = VectorPart{vector_of({o.table}), o.row * width(result_)},
                           .y = y,
                           .n = width(result_),
                           .factor = 0,
                           .gathers = false},
         "embedding");
  }

  void lower(const op::GivenRows&) {
    const View y = new_view(width(result_));
    views_[result_] = y;
    lowered_.given = y.buffer;
  }

  void lower(const op::Linear& o) {
    if (width(o.x) % kVectorFloats != 0) {
      return fail(fmt::format("there is no kernel for products of {} numbers, not a multiple of {}",
                              width(o.x), kVectorFloats));
    }
    const std::optional<size_t> of = patterns_.bundle_of(op_);
    if (of) return lower_bundled(o, patterns_.bundles()[*of], places_[*of]);
    const std::string part = leads_to_logits(result_) ? "output" : stem_of(o.weight.tensor);
    View x = at_rows(o.x, part);
    if (x.first % kVectorFloats != 0 || lowered_.buffers[x.buffer].width % kVectorFloats != 0) {
      x = whole(o.x, part);
    }
    const View y = new_view(width(result_));
    views_[result_] = y;
    emit(call::Linear{group_of({o.weight}), std::nullopt, x, y}, part);
    if (o.bias) add_bias(bias_of(o), y, width(result_), part);
  }

  void lower_bundled(const op::Linear& o, const Bundle& bundle, Place& place) {
    const View x = at_rows(o.x, bundle.part);
    const bool first = !place.buffer;
    if (first) {
      uint32_t n = 0;
      for (const size_t linear : bundle.linears) n += width(program_.ops[linear].result);
      place.buffer = add_buffer(n, row_set());
    }
    uint32_t column = 0;
    for (uint32_t i = 0; i < bundle.linears.size(); ++i) {
      const ValueId value = program_.ops[bundle.linears[i]].result;
      const View y{*place.buffer, column};
      if (first && rules_.has(FusionRule::kStack)) {
        views_[value] = y;
        if (i == 0) emit(call::Linear{place.group, std::nullopt, x, y}, bundle.part);
      }
      if (bundle.linears[i] == op_) {
        if (!rules_.has(FusionRule::kStack)) {
          views_[value] = y;
          emit(call::Linear{place.group, i, x, y}, bundle.part);
        }
        if (place.bias && !bundle.bias_is_fused) {
          add_bias({*place.bias, column}, y, width(value), bundle.part);
        } else if (!place.bias && o.bias) {
          add_bias(bias_of(o), y, width(value), bundle.part);
        }
      }
      column += width(value);
    }
  }

  VectorPart bias_of(const op::Linear& o) { return {vector_of({*o.bias}), o.weight.first_row}; }

  void add_bias(VectorPart bias, View y, uint32_t n, const std::string& part) {
    emit(call::Elementwise{.kind = ops::Elementwise::Kind::kAddBias,
                           .a = y,
                           .bias = bias,
                           .y = y,
                           .n = n,
                           .factor = 0,
                           .gathers = false},
         part);
  }

  /// Whether what reads a value only scales or caps it on its way to the logits.
  bool leads_to_logits(ValueId value) const {
    while (value != program_.logits) {
      if (!patterns_.has_one_reader(value)) return false;
      const Op& reader = program_.ops[patterns_.readers(value)[0]];
      if (!std::holds_alternative<op::SoftCap>(reader.what) &&
          !std::holds_alternative<op::Scale>(reader.what)) {
        return false;
      }
      value = reader.result;
    }
    return true;
  }

  void lower(const op::RmsNorm& o) {
    const NormPlaces at = place_norm(o.x, o.group);
    emit(call::RmsNorm{.x = at.x,
                       .residual = at.residual,
                       .weight = o.weight ? std::optional(vector_of({*o.weight})) : std::nullopt,
                       .y = at.y,
                       .n = o.group,
                       .eps = o.eps,
                       .n_groups = width(o.x) / o.group,
                       .gathers = rows_of(at.x) != row_set(),
                       .weight_each = o.weight && program_.tensors[*o.weight].dims[1] > 1},
         o.weight ? stem_of(*o.weight) : "rms_norm");
  }

  void lower(const op::LayerNorm& o) {
    const NormPlaces at = place_norm(o.x, o.group);
    emit(call::LayerNorm{.x = at.x,
                         .residual = at.residual,
                         .weight = vector_of({o.weight}),
                         .bias = o.bias ? std::optional(vector_of({*o.bias})) : std::nullopt,
                         .y = at.y,
                         .n = o.group,
                         .eps = o.eps,
                         .n_groups = width(o.x) / o.group,
                         .gathers = rows_of(at.x) != row_set()},
         stem_of(o.weight));
  }

  /// What a norm reads, a sum that it computes first, and where its result goes.
  struct NormPlaces {
    View x;
    std::optional<View> residual;
    View y;
  };
  NormPlaces place_norm(ValueId x, uint32_t group) {
    NormPlaces at{.x = *views_[x]};
    if (const auto sum = sums_.find(x); sum != sums_.end()) {
      at.residual = *views_[sum->second];
      sums_.erase(sum);
    }
    // Heads stay side by side for what reads them.
    const bool in_place = group != width(x) || (!is_whole(x) && rows_of(at.x) == row_set());
    at.y = in_place ? place_of_result(x) : new_view(width(result_));
    views_[result_] = at.y;
    return at;
  }

  void lower(const op::Rope& o) {
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
  void lower(const op::HeadLinear& o) {
    const std::string part = stem_of(o.weight);
    const uint32_t head_dim = width(o.x) / o.n_heads;
    View x = at_rows(o.x, part);
    // Heads are read four floats at once.
    if (x.first % kVectorFloats != 0) x = whole(o.x, part);
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
                          .transposed = o.transposed,
                          .attention_class = latents == nullptr
                                                 ? std::nullopt
                                                 : std::optional(class_of(attention_of(*latents)))},
         part);
    if (latents == nullptr) return;
    if (latents->keys == op_) {
      queries_ = {x, matrices};
    } else {
      expand(*latents, matrices, y);
    }
  }

  const op::Attention& attention_of(const FusionPatterns::Latents& latents) const {
    return std::get<op::Attention>(program_.ops[latents.attention].what);
  }

  /// The same rows the other way: from what the product of keys has read to what that of values
  /// writes.
  void expand(const FusionPatterns::Latents& latents, GroupId values, View y) {
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
  void lower(const op::Append&) { fail("there is no kernel for a state outside of attention"); }

  void lower(const op::Attention& o) {
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

  /// Keys alone go to the state.
  void append_latent(const op::Attention& o, const Heads& heads) {
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
         "rope_kv");
  }

  /// k and v go to the state; returns where q is.
  View append(const op::Attention& o, const Heads& heads) {
    const uint32_t q_dim = width(heads.q);
    const uint32_t kv_dim = width(heads.k);
    const std::array<std::pair<ValueId, uint32_t>, 3> operands = {
        std::pair(heads.q, 0u), std::pair(heads.k, q_dim), std::pair(heads.v, q_dim + kv_dim)};
    BufferId qkv = 0;
    if (heads.bundle) {
      qkv = *places_[*heads.bundle].buffer;
    } else {
      qkv = add_buffer(q_dim + 2 * kv_dim, row_set());
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
    emit(
        call::RopeKv{.qkv = {qkv, 0},
                     .n_heads = o.n_heads,
                     .n_kv_heads = o.n_kv_heads,
                     .head_dim = o.head_dim,
                     .rope = heads.rope == nullptr ? std::nullopt : std::optional(heads.rope->rope),
                     .halves = heads.rope != nullptr && heads.rope->halves,
                     .bias = bias ? places_[*heads.bundle].bias : std::nullopt,
                     .q_norm = vector_if(heads.q_norm),
                     .k_norm = vector_if(heads.k_norm),
                     .norm_eps = heads.q_norm == nullptr ? 0 : heads.q_norm->eps,
                     .state = {heads.append->group, heads.append->slot}},
        "rope_kv");
    return {qkv, 0};
  }

  void lower(const op::CausalConv& o) {
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

  void lower(const op::Recurrence& o) {
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

  static bool are_large(double scale, uint32_t head_dim) {
    return scale * std::sqrt(head_dim) > kLargeScores;
  }
  static AttentionClass shape_of(const op::Attention& o) {
    return {.n_heads = o.n_heads,
            .n_kv_heads = o.n_kv_heads,
            .head_dim = o.head_dim,
            .window = o.window,
            .ahead = o.ahead,
            .soft_cap = o.soft_cap,
            .large_scores = are_large(o.scale, o.head_dim),
            .sinks = o.sinks.has_value(),
            .latent_dim = o.latent_dim};
  }
  uint32_t class_of(const op::Attention& o) { return class_of(shape_of(o)); }
  uint32_t class_of(const AttentionClass& wanted) {
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

  void lower(const op::Mul& o) {
    if (const FusionPatterns::Gate* gate = patterns_.gate_of(op_)) {
      const View gate_up{*places_[gate->bundle].buffer, 0};
      const View y = new_view(width(result_));
      views_[result_] = y;
      emit(call::Gated{gate_up, y, gate_kind(gate->kind), width(result_)}, "activation");
      return;
    }
    const uint32_t group = width(o.a) / width(o.b);
    binary(group == 1 ? ops::Elementwise::Kind::kMul : ops::Elementwise::Kind::kMulGroups, o.a, o.b,
           "activation", group);
  }

  void lower(const op::Add& o) {
    if (rules_.has(FusionRule::kResidual) && o.a != o.b && dies_here(o.a) && is_whole(o.a) &&
        is_whole(o.b) && rows_of(*views_[o.a]) == rows_of(*views_[o.b]) &&
        !patterns_.readers(result_).empty()) {
      if (norms_rows(patterns_.readers(result_).front()) && result_ != program_.logits) {
        views_[result_] = views_[o.a];
        sums_.emplace(result_, o.b);
        return;
      }
    }
    binary(ops::Elementwise::Kind::kAdd, o.a, o.b, "residual");
  }

  /// Whether it is a norm of whole rows, which can compute a sum first.
  bool norms_rows(size_t index) const {
    const Operation& what = program_.ops[index].what;
    if (const auto* norm = std::get_if<op::RmsNorm>(&what)) return norm->group == width(norm->x);
    const auto* norm = std::get_if<op::LayerNorm>(&what);
    return norm != nullptr && norm->group == width(norm->x);
  }

  void binary(ops::Elementwise::Kind kind, ValueId a, ValueId b, const std::string& part,
              uint32_t b_group = 1) {
    const View at_a = at_rows(a, part);
    const View at_b = at_rows(b, part);
    const View y = place_of_result(a);
    views_[result_] = y;
    emit(call::Elementwise{.kind = kind,
                           .a = at_a,
                           .b = at_b,
                           .y = y,
                           .n = width(result_),
                           .factor = 0,
                           .gathers = false,
                           .b_group = b_group},
         part);
  }

  void unary(ops::Elementwise::Kind kind, ValueId x, double factor, const std::string& part,
             const ops::Elementwise::Xielu& xielu = {}) {
    const View at = at_rows(x, part);
    const View y = place_of_result(x);
    views_[result_] = y;
    emit(call::Elementwise{.kind = kind,
                           .a = at,
                           .y = y,
                           .n = width(result_),
                           .factor = factor,
                           .gathers = false,
                           .xielu = xielu},
         part);
  }

  void lower(const op::Activation& o) { unary(elementwise_kind(o.kind), o.x, 0, "activation"); }
  void lower(const op::Xielu& o) {
    unary(ops::Elementwise::Kind::kXielu, o.x, o.beta, "activation",
          {.alpha_p = o.alpha_p, .alpha_n = o.alpha_n, .eps = o.eps});
  }
  void lower(const op::Scale& o) {
    unary(ops::Elementwise::Kind::kScale, o.x, o.factor,
          leads_to_logits(result_) ? "output" : "scale");
  }
  void lower(const op::Clamp& o) {
    unary(o.both_sides ? ops::Elementwise::Kind::kWithin : ops::Elementwise::Kind::kAtMost, o.x,
          o.limit, "activation");
  }
  void lower(const op::SoftCap& o) {
    unary(ops::Elementwise::Kind::kSoftCap, o.x, o.cap,
          leads_to_logits(result_) ? "output" : "soft_cap");
  }
  void lower(const op::Split& o) {
    views_[result_] = View{views_[o.x]->buffer, views_[o.x]->first + o.first};
  }

  void lower(const op::Concat& o) {
    const View a = at_rows(o.a, "concat");
    const View b = at_rows(o.b, "concat");
    if (a.buffer == b.buffer && a.first + width(o.a) == b.first && dies_here(o.a) &&
        dies_here(o.b)) {
      views_[result_] = a;
      return;
    }
    const View y = new_view(width(result_));
    views_[result_] = y;
    copy(a, y, width(o.a), "concat");
    copy(b, {y.buffer, width(o.a)}, width(o.b), "concat");
  }

  void lower(const op::SplitGroups& o) {
    View x = at_rows(o.x, "split");
    x.first += o.first;
    const View y = new_view(width(result_));
    views_[result_] = y;
    emit(call::Elementwise{.kind = ops::Elementwise::Kind::kCopyGroups,
                           .a = x,
                           .y = y,
                           .n = width(result_),
                           .factor = 0,
                           .gathers = false,
                           .a_group = o.group,
                           .y_group = o.n},
         "split");
  }

  void lower(const op::Route& o) {
    const uint32_t n_experts = width(o.scores);
    if (n_experts > ops::kMostExperts || o.n_used > ops::kMostUsedExperts ||
        o.router.n_groups > ops::kMostExpertGroups) {
      return fail(
          fmt::format("{} of {} experts in {} groups are more than the {} of {} in {} that "
                      "its kernel takes",
                      o.n_used, n_experts, o.router.n_groups, ops::kMostUsedExperts,
                      ops::kMostExperts, ops::kMostExpertGroups));
    }
    const View scores = whole(o.scores, "router");
    const View routes = new_view(2 * o.n_used);
    views_[result_] = routes;
    const auto bias = o.bias ? std::optional(vector_of({*o.bias})) : std::nullopt;
    const auto gains = o.gain ? std::optional(vector_of({*o.gain})) : std::nullopt;
    emit(call::Route{scores, routes, n_experts, o.n_used, o.router, bias, gains}, "router");
    const View groups = new_view(ops::ExpertGemm::kWordsPerPair * o.n_used);
    groups_[result_] = groups;
    emit(call::GroupRoutes{routes, groups, n_experts, o.n_used}, "router");
  }
  void lower(const op::ExpertLinear& o) {
    const auto& dims = program_.tensors[o.weight].dims;
    const std::string part = stem_of(o.weight);
    const uint32_t n_used = width(o.routes);
    const View x = whole(o.x, part);
    const View y = new_view(width(result_));
    views_[result_] = y;
    emit(call::ExpertLinear{.x = x,
                            .routes = *views_[o.routes],
                            .groups = groups_.at(o.routes),
                            .matrices = group_of({all_rows(o.weight)}),
                            .bias = o.bias ? std::optional(vector_of({*o.bias})) : std::nullopt,
                            .y = y,
                            .n_experts = static_cast<uint32_t>(dims[2]),
                            .n_used = n_used,
                            .row_each = width(o.x) != dims[0]},
         part);
  }
  void lower(const op::Combine& o) {
    const View x = whole(o.x, "combine");
    const View y = new_view(width(result_));
    views_[result_] = y;
    emit(call::Combine{x, *views_[o.routes], y, width(result_), width(o.routes)}, "combine");
  }

  void find_uses() {
    std::vector<bool> used(lowered_.buffers.size(), false);
    Touched touched;
    for (uint32_t i = 0; i < lowered_.dispatches.size(); ++i) {
      for (const BufferId id : touched.of(lowered_.dispatches[i].what)) {
        Buffer& buffer = lowered_.buffers[id];
        if (!used[id]) buffer.first_use = i;
        used[id] = true;
        buffer.last_use = i;
      }
    }
    if (lowered_.given) lowered_.buffers[*lowered_.given].first_use = 0;
    lowered_.buffers[lowered_.logits].last_use = static_cast<uint32_t>(lowered_.dispatches.size());
  }

  const Program& program_;
  const FusionRules rules_;
  FusionPatterns patterns_;
  std::vector<Place> places_;  // of its bundles
  std::map<size_t, uint32_t> layer_of_;
  size_t end_of_layers_ = 0;

  size_t op_ = 0;  // being lowered
  ValueId result_ = 0;
  std::vector<std::optional<View>> views_;  // of values
  std::map<ValueId, View> groups_;          // of routes
  /// What the last product of queries, on their way to a latent's space, has read.
  struct Queries {
    View x;
    GroupId matrices;
  };
  std::optional<Queries> queries_;
  std::map<ValueId, ValueId> sums_;  // a sum that is not computed yet, and what is to be added
  std::optional<Error> error_;
  Lowered lowered_;
};

}  // namespace

Result<Lowered> lower(const Program& program, const FusionRules& rules) {
  PUMICE_TRY(FusionPatterns patterns, FusionPatterns::find(program, rules));
  return Lowering(program, rules, std::move(patterns)).run();
}

}  // namespace pumice
