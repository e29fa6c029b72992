#include "models/lowering.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace pumice {
namespace {

constexpr std::array<std::string_view, kFusionRuleCount> kRuleNames = {
    "stack", "embed_scale", "residual", "bias", "head_norm", "gate"};
constexpr uint32_t kVectorFloats = 4;  // rows that matrices read are read so many floats at once
constexpr uint64_t kAlignment = 256;

ops::GatedActivation::Kind gate_kind(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kSilu:
      return ops::GatedActivation::Kind::kSilu;
    case ActivationKind::kGelu:
      return ops::GatedActivation::Kind::kGelu;
    case ActivationKind::kGeluTanh:
      return ops::GatedActivation::Kind::kGeluTanh;
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
  }
  PUMICE_CHECK(false, "an activation without a kernel");
  return {};
}

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

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
  void add(const call::Attention& c) { use(c.q), use(c.y); }
  void add(const call::Gated& c) { use(c.gate_up), use(c.y); }
  void add(const call::Elementwise& c) { use(c.a), use(c.b), use(c.y); }
  void add(const call::Route& c) { use(c.scores), use(c.routes); }
  void add(const call::ExpertLinear& c) { use(c.x), use(c.routes), use(c.y); }
  void add(const call::Combine& c) { use(c.x), use(c.routes), use(c.y); }

  std::vector<BufferId> buffers_;
};

/// Products of one value that write side by side.
struct Bundle {
  std::string part;
  std::vector<size_t> linears;  ///< operations, in the order of their columns
  GroupId group = 0;
  std::optional<BufferId> buffer;  ///< once the first of them has been lowered
  std::optional<VectorId> bias;    ///< of all of them, one after the other
  bool bias_is_fused = false;
};

/// What attention reads, traced back to the products.
struct Heads {
  bool appends = false;          ///< it is the first to read its keys and values
  std::optional<size_t> bundle;  ///< of q, k and v, if they are products of one value
  const op::Attention* attention = nullptr;
  const op::Append* append = nullptr;
  const op::Rope* rope = nullptr;  ///< of q and k, that rope_kv computes
  // What rope_kv is given: before its own norms.
  ValueId q = 0;
  ValueId k = 0;
  ValueId v = 0;
  const op::RmsNorm* q_norm = nullptr;  ///< that rope_kv computes
  const op::RmsNorm* k_norm = nullptr;
};

class Lowering {
 public:
  Lowering(const Program& program, const FusionRules& rules)
      : program_(program),
        rules_(rules),
        makers_(program.values.size(), kNone),
        readers_(program.values.size()),
        absorbed_(program.ops.size(), false),
        bundle_of_(program.ops.size()),
        views_(program.values.size()) {
    for (size_t i = 0; i < program.ops.size(); ++i) {
      makers_[program.ops[i].result] = i;
      for (const ValueId input : op_inputs(program.ops[i].what)) readers_[input].push_back(i);
    }
    end_of_layers_ = program.layers.empty() ? 0 : program.layers.back().end_op;
    for (uint32_t i = 0; i < program.layers.size(); ++i) {
      for (size_t o = program.layers[i].first_op; o < program.layers[i].end_op; ++o)
        layer_of_[o] = i;
    }
  }

  Result<Lowered> run() {
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      if (const auto* o = std::get_if<op::Attention>(&program_.ops[i].what)) find_heads(i, *o);
      if (const auto* o = std::get_if<op::Mul>(&program_.ops[i].what)) find_gate(i, *o);
    }
    for (op_ = 0; op_ < program_.ops.size() && !error_; ++op_) {
      if (absorbed_[op_]) continue;
      result_ = program_.ops[op_].result;
      std::visit([&](const auto& o) { lower(o); }, program_.ops[op_].what);
    }
    if (error_) return *error_;
    const std::optional<View> logits = views_[program_.logits];
    if (!logits || !is_whole(program_.logits) || rows_of(*logits) != RowSet::kLogits) {
      return refused("its logits are not what its last operation gives");
    }
    lowered_.logits = logits->buffer;
    find_uses();
    return std::move(lowered_);
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  Error refused(const std::string& reason) const {
    return make_error(
        ErrorCode::kBadFile,
        "architecture {}: Pumice can describe and check this model, not run it yet: {}",
        program_.architecture, reason);
  }
  void fail(const std::string& reason) {
    if (!error_) error_ = refused(reason);
  }

  uint32_t width(ValueId value) const { return program_.values[value].width; }
  template <typename T>
  const T* made_by(ValueId value) const {
    return makers_[value] == kNone ? nullptr : std::get_if<T>(&program_.ops[makers_[value]].what);
  }
  bool has_one_reader(ValueId value) const {
    return readers_[value].size() == 1 && value != program_.logits;
  }
  /// Whether no operation after the present one reads it.
  bool dies_here(ValueId value) const {
    return value != program_.logits && !readers_[value].empty() && readers_[value].back() <= op_;
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

  // ---- patterns, found before anything is lowered

  /// Bundle products of one value; nothing if they are not.
  std::optional<size_t> bundle(std::string part, const std::vector<ValueId>& values) {
    Bundle found{.part = std::move(part)};
    std::vector<MatrixRows> matrices;
    std::optional<ValueId> x;
    for (const ValueId value : values) {
      const auto* linear = made_by<op::Linear>(value);
      if (linear == nullptr || !has_one_reader(value) || bundle_of_[makers_[value]] ||
          (x && *x != linear->x)) {
        return std::nullopt;
      }
      x = linear->x;
      found.linears.push_back(makers_[value]);
      matrices.push_back(linear->weight);
    }
    if (std::set(found.linears.begin(), found.linears.end()).size() != values.size()) {
      return std::nullopt;
    }
    found.group = group_of(std::move(matrices));
    found.bias = biases_of(found.linears);
    for (const size_t linear : found.linears) bundle_of_[linear] = bundles_.size();
    bundles_.push_back(std::move(found));
    return bundles_.size() - 1;
  }

  /// Their biases as one vector; nothing if some have none, or it would have other numbers too.
  std::optional<VectorId> biases_of(const std::vector<size_t>& linears) {
    std::vector<TensorId> tensors;
    uint64_t next = 0;  // of the last tensor; 0: it is used up
    for (const size_t index : linears) {
      const auto& linear = std::get<op::Linear>(program_.ops[index].what);
      if (!linear.bias) return std::nullopt;
      if (next == 0) tensors.push_back(*linear.bias);
      if (*linear.bias != tensors.back() || linear.weight.first_row != next) return std::nullopt;
      next = (next + linear.weight.n_rows) % program_.tensors[*linear.bias].dims[0];
    }
    return next == 0 ? std::optional(vector_of(std::move(tensors))) : std::nullopt;
  }

  /// Whether one operation reads a value and only it reads what it is made of.
  bool is_only_for(ValueId value) const {
    return has_one_reader(value) && has_one_reader(op_inputs(program_.ops[makers_[value]].what)[0]);
  }
  /// What a value of heads begins as, before what is computed in place.
  ValueId product_under(ValueId value) const {
    while (has_one_reader(value)) {
      if (const auto* norm = made_by<op::RmsNorm>(value)) {
        value = norm->x;
      } else if (const auto* layer_norm = made_by<op::LayerNorm>(value)) {
        value = layer_norm->x;
      } else if (const auto* rope = made_by<op::Rope>(value)) {
        value = rope->x;
      } else {
        break;
      }
    }
    return value;
  }

  void find_heads(size_t index, const op::Attention& attention) {
    Heads heads{.attention = &attention};
    if (attention.sinks) return fail("there is no kernel for attention with sinks");
    heads.append = made_by<op::Append>(attention.kv);
    if (heads.append == nullptr) return fail("there is no kernel for attention to such a state");
    heads.appends = readers_[attention.kv].front() == index;
    if (!heads.appends) {  // its q comes by itself
      heads_.emplace(index, heads);
      return;
    }
    absorbed_[makers_[attention.kv]] = true;
    const auto* q_rope = made_by<op::Rope>(attention.q);
    const auto* k_rope = made_by<op::Rope>(heads.append->k);
    const bool turn_alike = q_rope != nullptr && k_rope != nullptr &&
                            q_rope->rope == k_rope->rope && q_rope->halves == k_rope->halves &&
                            is_only_for(attention.q) && is_only_for(heads.append->k);
    heads.rope = turn_alike ? q_rope : nullptr;
    heads.q = turn_alike ? q_rope->x : attention.q;
    heads.k = turn_alike ? k_rope->x : heads.append->k;
    heads.v = heads.append->v;
    if (turn_alike) absorbed_[makers_[attention.q]] = absorbed_[makers_[heads.append->k]] = true;
    heads.bundle =
        bundle("qkv", {product_under(heads.q), product_under(heads.k), product_under(heads.v)});
    const auto head_norm_of = [&](ValueId value) -> const op::RmsNorm* {
      const auto* norm = made_by<op::RmsNorm>(value);
      const bool of_heads = norm != nullptr && norm->weight && norm->group == attention.head_dim &&
                            is_only_for(value);
      return of_heads ? norm : nullptr;
    };
    const op::RmsNorm* const q_norm = head_norm_of(heads.q);
    const op::RmsNorm* const k_norm = head_norm_of(heads.k);
    if (rules_.has(FusionRule::kHeadNorm) && q_norm != nullptr && k_norm != nullptr &&
        q_norm->eps == k_norm->eps) {
      absorbed_[makers_[heads.q]] = absorbed_[makers_[heads.k]] = true;
      heads.q_norm = q_norm;
      heads.k_norm = k_norm;
      heads.q = q_norm->x;
      heads.k = k_norm->x;
    }
    if (heads.bundle) {
      Bundle& found = bundles_[*heads.bundle];
      // Biases come before all else.
      const bool are_products = product_under(heads.q) == heads.q &&
                                product_under(heads.k) == heads.k &&
                                product_under(heads.v) == heads.v;
      found.bias_is_fused = found.bias && rules_.has(FusionRule::kBias) && are_products;
    }
    heads_.emplace(index, heads);
  }

  void find_gate(size_t index, const op::Mul& mul) {
    const auto* activation = made_by<op::Activation>(mul.a);
    ValueId up = mul.b;
    if (activation == nullptr) {
      activation = made_by<op::Activation>(mul.b);
      up = mul.a;
    }
    if (activation == nullptr || mul.a == mul.b) return;
    const ValueId activated = activation == made_by<op::Activation>(mul.a) ? mul.a : mul.b;
    const auto found = bundle("gate_up", {activation->x, up});
    if (!found || !has_one_reader(activated) || !rules_.has(FusionRule::kGate)) return;
    absorbed_[makers_[activated]] = true;
    gates_.emplace(index, std::pair(*found, gate_kind(activation->kind)));
  }

  // ---- operations, in their order

  void lower(const op::Embed& o) { embed(o.table, false); }
  void lower(const op::EmbedPosition& o) { embed(o.table, true); }

  void embed(TensorId table, bool by_position) {
    float scale = 1;
    const auto* factor = has_one_reader(result_)
                             ? std::get_if<op::Scale>(&program_.ops[readers_[result_][0]].what)
                             : nullptr;
    ValueId value = result_;
    if (factor != nullptr && rules_.has(FusionRule::kEmbedScale)) {
      absorbed_[readers_[result_][0]] = true;
      scale = static_cast<float>(factor->factor);
      value = program_.ops[readers_[result_][0]].result;
    }
    const View y = new_view(width(result_));
    views_[value] = y;
    emit(call::Embed{group_of({all_rows(table)}), by_position, y, scale}, "embedding");
  }

  void lower(const op::Linear& o) {
    if (width(o.x) % kVectorFloats != 0) {
      return fail(fmt::format("there is no kernel for products of {} numbers, not a multiple of {}",
                              width(o.x), kVectorFloats));
    }
    const std::optional<size_t> of = bundle_of_[op_];
    if (of) return lower_bundled(o, bundles_[*of]);
    const std::string part = leads_to_logits(result_) ? "output" : stem_of(o.weight.tensor);
    const View x = at_rows(o.x, part);
    const View y = new_view(width(result_));
    views_[result_] = y;
    emit(call::Linear{group_of({o.weight}), std::nullopt, x, y}, part);
    if (o.bias) add_bias(bias_of(o), y, width(result_), part);
  }

  void lower_bundled(const op::Linear& o, Bundle& bundle) {
    const View x = at_rows(o.x, bundle.part);
    const bool first = !bundle.buffer;
    if (first) {
      uint32_t n = 0;
      for (const size_t linear : bundle.linears) n += width(program_.ops[linear].result);
      bundle.buffer = add_buffer(n, row_set());
    }
    uint32_t column = 0;
    for (uint32_t i = 0; i < bundle.linears.size(); ++i) {
      const ValueId value = program_.ops[bundle.linears[i]].result;
      const View y{*bundle.buffer, column};
      if (first && rules_.has(FusionRule::kStack)) {
        views_[value] = y;
        if (i == 0) emit(call::Linear{bundle.group, std::nullopt, x, y}, bundle.part);
      }
      if (bundle.linears[i] == op_) {
        if (!rules_.has(FusionRule::kStack)) {
          views_[value] = y;
          emit(call::Linear{bundle.group, i, x, y}, bundle.part);
        }
        if (bundle.bias && !bundle.bias_is_fused) {
          add_bias({*bundle.bias, column}, y, width(value), bundle.part);
        } else if (!bundle.bias && o.bias) {
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
      if (!has_one_reader(value)) return false;
      const Op& reader = program_.ops[readers_[value][0]];
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
                       .gathers = rows_of(at.x) != row_set()},
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
    emit(call::Rope{.x = y,
                    .n_heads = width(o.x) / o.head_dim,
                    .head_dim = o.head_dim,
                    .rope = o.rope,
                    .halves = o.halves},
         "rope");
  }
  void lower(const op::Append&) { fail("there is no kernel for a state outside of attention"); }

  void lower(const op::Attention& o) {
    const auto entry = heads_.find(op_);
    if (entry == heads_.end()) return fail("there is no kernel for its attention");
    const Heads& heads = entry->second;
    const View q = heads.appends ? append(o, heads) : at_rows(o.q, "attention");
    const View y = new_view(width(result_));
    views_[result_] = y;
    emit(call::Attention{.q = q,
                         .y = y,
                         .attention_class = class_of({.n_heads = o.n_heads,
                                                      .n_kv_heads = o.n_kv_heads,
                                                      .head_dim = o.head_dim,
                                                      .window = o.window,
                                                      .soft_cap = o.soft_cap}),
                         .scale = o.scale,
                         .state = {heads.append->group, heads.append->slot}},
         "attention");
  }

  /// k and v go to the state; returns where q is.
  View append(const op::Attention& o, const Heads& heads) {
    const uint32_t q_dim = width(heads.q);
    const uint32_t kv_dim = width(heads.k);
    const std::array<std::pair<ValueId, uint32_t>, 3> operands = {
        std::pair(heads.q, 0u), std::pair(heads.k, q_dim), std::pair(heads.v, q_dim + kv_dim)};
    BufferId qkv = 0;
    if (heads.bundle) {
      qkv = *bundles_[*heads.bundle].buffer;
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
    const bool bias = heads.bundle && bundles_[*heads.bundle].bias_is_fused;
    emit(
        call::RopeKv{.qkv = {qkv, 0},
                     .n_heads = o.n_heads,
                     .n_kv_heads = o.n_kv_heads,
                     .head_dim = o.head_dim,
                     .rope = heads.rope == nullptr ? std::nullopt : std::optional(heads.rope->rope),
                     .halves = heads.rope != nullptr && heads.rope->halves,
                     .bias = bias ? bundles_[*heads.bundle].bias : std::nullopt,
                     .q_norm = vector_if(heads.q_norm),
                     .k_norm = vector_if(heads.k_norm),
                     .norm_eps = heads.q_norm == nullptr ? 0 : heads.q_norm->eps,
                     .state = {heads.append->group, heads.append->slot}},
        "rope_kv");
    return {qkv, 0};
  }

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
    if (const auto gate = gates_.find(op_); gate != gates_.end()) {
      const Bundle& bundle = bundles_[gate->second.first];
      const View y = new_view(width(result_));
      views_[result_] = y;
      emit(call::Gated{{*bundle.buffer, 0}, y, gate->second.second, width(result_)}, "activation");
      return;
    }
    binary(ops::Elementwise::Kind::kMul, o.a, o.b, "activation");
  }

  void lower(const op::Add& o) {
    if (rules_.has(FusionRule::kResidual) && o.a != o.b && dies_here(o.a) && is_whole(o.a) &&
        is_whole(o.b) && rows_of(*views_[o.a]) == rows_of(*views_[o.b]) &&
        !readers_[result_].empty()) {
      if (norms_rows(readers_[result_].front()) && result_ != program_.logits) {
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

  void binary(ops::Elementwise::Kind kind, ValueId a, ValueId b, const std::string& part) {
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
                           .gathers = false},
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
  void lower(const op::SoftCap& o) {
    unary(ops::Elementwise::Kind::kSoftCap, o.x, o.cap,
          leads_to_logits(result_) ? "output" : "soft_cap");
  }
  void lower(const op::Split& o) {
    views_[result_] = View{views_[o.x]->buffer, views_[o.x]->first + o.first};
  }

  void lower(const op::Route& o) {
    const View scores = whole(o.scores, "router");
    const View routes = new_view(2 * o.n_used);
    views_[result_] = routes;
    emit(call::Route{scores, routes, width(o.scores), o.n_used}, "router");
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
                            .matrices = group_of({all_rows(o.weight)}),
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
    lowered_.buffers[lowered_.logits].last_use = static_cast<uint32_t>(lowered_.dispatches.size());
  }

  const Program& program_;
  const FusionRules rules_;
  std::vector<size_t> makers_;
  std::vector<std::vector<size_t>> readers_;  // operations, rising
  std::map<size_t, uint32_t> layer_of_;
  size_t end_of_layers_ = 0;

  std::vector<bool> absorbed_;  // operations that another's dispatch computes
  std::vector<std::optional<size_t>> bundle_of_;
  std::vector<Bundle> bundles_;
  std::map<size_t, Heads> heads_;
  std::map<size_t, std::pair<size_t, ops::GatedActivation::Kind>>
      gates_;  // of a product: its bundle

  size_t op_ = 0;  // being lowered
  ValueId result_ = 0;
  std::vector<std::optional<View>> views_;  // of values
  std::map<ValueId, ValueId> sums_;  // a sum that is not computed yet, and what is to be added
  std::optional<Error> error_;
  Lowered lowered_;
};

}  // namespace

std::string_view fusion_rule_name(FusionRule rule) {
  return kRuleNames.at(static_cast<size_t>(rule));
}

Result<FusionRules> FusionRules::parse(std::string_view text) {
  if (text == "all") return FusionRules();
  if (text == "none") return none();
  const bool without = text.starts_with('-');
  FusionRules rules = without ? FusionRules() : none();
  const auto found = std::ranges::find(kRuleNames, without ? text.substr(1) : text);
  if (found == kRuleNames.end()) {
    std::string names;
    for (const std::string_view name : kRuleNames) names += fmt::format(", {}", name);
    return make_error(ErrorCode::kInvalidArgument, "all, none, RULE or -RULE, of the rules{}",
                      names.substr(1));
  }
  rules.rules_.flip(static_cast<size_t>(found - kRuleNames.begin()));
  return rules;
}

std::string FusionRules::text() const {
  if (rules_.all()) return "all";
  std::string names;
  for (size_t i = 0; i < kFusionRuleCount; ++i) {
    if (rules_.test(i)) names += fmt::format("{}{}", names.empty() ? "" : ",", kRuleNames[i]);
  }
  return names.empty() ? "none" : names;
}

Result<Lowered> lower(const Program& program, const FusionRules& rules) {
  return Lowering(program, rules).run();
}

ActivationPlan plan_activations(const Lowered& lowered, uint64_t rows, uint64_t logit_rows) {
  const auto bytes_of = [&](const Buffer& buffer) {
    return aligned(sizeof(float) * buffer.width *
                   (buffer.rows == RowSet::kAll ? rows : logit_rows));
  };
  std::vector<BufferId> order(lowered.buffers.size());
  for (BufferId id = 0; id < order.size(); ++id) order[id] = id;
  std::ranges::stable_sort(order, std::greater(),
                           [&](BufferId id) { return bytes_of(lowered.buffers[id]); });
  ActivationPlan plan{.offsets = std::vector<uint64_t>(order.size(), 0)};
  std::vector<BufferId> placed;
  for (const BufferId id : order) {
    const Buffer& buffer = lowered.buffers[id];
    // Taken places of buffers that are in use meanwhile, by rising offset.
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    for (const BufferId other : placed) {
      const Buffer& b = lowered.buffers[other];
      if (b.first_use <= buffer.last_use && buffer.first_use <= b.last_use) {
        taken.emplace_back(plan.offsets[other], plan.offsets[other] + bytes_of(b));
      }
    }
    std::ranges::sort(taken);
    uint64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + bytes_of(buffer) <= begin) break;
      offset = std::max(offset, end);
    }
    plan.offsets[id] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes_of(buffer));
    placed.push_back(id);
  }
  return plan;
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
