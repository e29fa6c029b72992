#include "models/lowering.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "models/lowering_pass.hpp"
#include "shaders/common/linear_args.hpp"
#include "shaders/expert_gemm/expert_gemm.hpp"
#include "shaders/experts/experts.hpp"

namespace pumice {
namespace {

/// "attn_q" of "blk.3.attn_q.weight".
std::string stem(std::string_view tensor) {
  if (tensor.starts_with("blk.")) {
    const size_t end = tensor.find('.', 4);
    if (end != std::string_view::npos) tensor.remove_prefix(end + 1);
  }
  const size_t end = tensor.rfind('.');
  return std::string(tensor.substr(0, end));
}

}  // namespace

Lowering::Lowering(const Program& program, const FusionRules& rules, FusionPatterns patterns)
    : program_(program),
      rules_(rules),
      patterns_(std::move(patterns)),
      parts_(parts_of(program)),
      views_(program.values.size()) {
  for (const Bundle& bundle : patterns_.bundles()) {
    places_.push_back({.group = group_of(bundle.matrices)});
    if (!bundle.biases.empty()) places_.back().bias = vector_of(bundle.biases);
  }
  parts_.push_back(Part::kOutput);  // behind the last operation
  end_of_layers_ = program.layers.empty() ? 0 : program.layers.back().end_op;
  if (program.gives_hidden) {
    const auto norm = std::ranges::find(program.ops, *program.hidden, &Op::result);
    end_of_layers_ = static_cast<size_t>(norm - program.ops.begin()) + 1;
  }
  for (uint32_t i = 0; i < program.layers.size(); ++i) {
    for (size_t o = program.layers[i].first_op; o < program.layers[i].end_op; ++o) layer_of_[o] = i;
  }
}

Result<Lowered> Lowering::run() {
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
    return cannot_be_lowered(program_, "its logits are not the result of its last operation");
  }
  lowered_.logits = logits->buffer;
  if (program_.gives_hidden) {
    if (!is_whole(*program_.hidden))
      return cannot_be_lowered(program_, "its hidden rows are parts");
    lowered_.hidden = views_[*program_.hidden]->buffer;
  }
  find_uses();
  return std::move(lowered_);
}

void Lowering::fail(const std::string& reason) {
  if (!error_) error_ = cannot_be_lowered(program_, reason);
}

bool Lowering::dies_here(ValueId value) const {
  return value != program_.logits && !patterns_.readers(value).empty() &&
         !patterns_.is_read_after(value, op_);
}

bool Lowering::is_whole(ValueId value) const {
  const View& view = *views_[value];
  return view.first == 0 && lowered_.buffers[view.buffer].width == width(value);
}

BufferId Lowering::add_buffer(uint32_t buffer_width, RowSet rows) {
  lowered_.buffers.push_back({.width = buffer_width, .rows = rows});
  return static_cast<BufferId>(lowered_.buffers.size() - 1);
}

VectorId Lowering::vector_of(std::vector<TensorId> tensors) {
  const auto found = std::ranges::find(lowered_.vectors, tensors);
  if (found != lowered_.vectors.end()) {
    return static_cast<VectorId>(found - lowered_.vectors.begin());
  }
  lowered_.vectors.push_back(std::move(tensors));
  return static_cast<VectorId>(lowered_.vectors.size() - 1);
}

GroupId Lowering::group_of(std::vector<MatrixRows> matrices) {
  lowered_.matrices.push_back(std::move(matrices));
  return static_cast<GroupId>(lowered_.matrices.size() - 1);
}

MatrixRows Lowering::all_rows(TensorId tensor) const {
  const auto& dims = program_.tensors[tensor].dims;
  return {tensor, 0, static_cast<uint32_t>(dims[1] * dims[2])};
}

std::string Lowering::stem_of(TensorId tensor) const { return stem(program_.tensors[tensor].name); }

void Lowering::emit(Call call, std::string label, std::optional<Part> part) {
  const auto layer = layer_of_.find(op_);
  lowered_.dispatches.push_back(
      {.what = std::move(call),
       .rows = row_set(),
       .part = part.value_or(parts_[op_]),
       .label = std::move(label),
       .layer = layer == layer_of_.end() ? std::nullopt : std::optional(layer->second)});
}

View Lowering::at_rows(ValueId value, const std::string& label) {
  const View view = *views_[value];
  if (rows_of(view) == row_set()) return view;
  const View y = new_view(width(value));
  emit(call::Elementwise{.kind = ops::Elementwise::Kind::kCopy,
                         .a = view,
                         .y = y,
                         .n = width(value),
                         .factor = 0,
                         .gathers = true},
       label);
  return y;
}

View Lowering::whole(ValueId value, const std::string& label) {
  if (rows_of(*views_[value]) == row_set() && is_whole(value)) return *views_[value];
  const View y = new_view(width(value));
  copy(at_rows(value, label), y, width(value), label);
  return y;
}

void Lowering::copy(View from, View to, uint32_t n, const std::string& label) {
  emit(call::Elementwise{.kind = ops::Elementwise::Kind::kCopy,
                         .a = from,
                         .y = to,
                         .n = n,
                         .factor = 0,
                         .gathers = false},
       label);
}

View Lowering::place_of_result(ValueId operand) {
  const View& view = *views_[operand];
  if (dies_here(operand) && rows_of(view) == row_set()) return view;
  return new_view(width(result_));
}

void Lowering::embed(TensorId table, bool by_position) {
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

void Lowering::lower(const op::AddRow& o) {
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

void Lowering::lower(const op::GivenRows&) {
  const View y = new_view(width(result_));
  views_[result_] = y;
  lowered_.given = y.buffer;
}

void Lowering::lower(const op::Linear& o) {
  if (width(o.x) % kVectorFloats != 0) {
    return fail(fmt::format("there is no kernel for products of {} numbers, not a multiple of {}",
                            width(o.x), kVectorFloats));
  }
  const std::optional<size_t> of = patterns_.bundle_of(op_);
  if (of) return lower_bundled(o, patterns_.bundles()[*of], places_[*of]);
  const std::string label = leads_to_logits(result_) ? "output" : stem_of(o.weight.tensor);
  View x = at_rows(o.x, label);
  if (x.first % kVectorFloats != 0 || lowered_.buffers[x.buffer].width % kVectorFloats != 0) {
    x = whole(o.x, label);
  }
  const View y = new_view(width(result_));
  views_[result_] = y;
  emit(call::Linear{.matrices = group_of({o.weight}),
                    .member = std::nullopt,
                    .x = x,
                    .y = y,
                    .n_columns = width(o.x),
                    .scale = scale_of(o.x)},
       label);
  adapt(o, x, y);
  if (o.bias) add_bias(bias_of(o), y, width(result_), label);
}

void Lowering::lower_bundled(const op::Linear& o, const Bundle& bundle, Place& place) {
  const View x = at_rows(o.x, bundle.label);
  const auto product = [&](std::optional<uint32_t> member, View y) {
    return call::Linear{.matrices = place.group,
                        .member = member,
                        .x = x,
                        .y = y,
                        .n_columns = width(o.x),
                        .scale = scale_of(o.x)};
  };
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
      if (i == 0) emit(product(std::nullopt, y), bundle.label);
    }
    if (bundle.linears[i] == op_) {
      if (!rules_.has(FusionRule::kStack)) {
        views_[value] = y;
        emit(product(i, y), bundle.label);
      }
      adapt(o, x, y);
      if (place.bias && !bundle.bias_is_fused) {
        add_bias({*place.bias, column}, y, width(value), bundle.label);
      } else if (!place.bias && o.bias) {
        add_bias(bias_of(o), y, width(value), bundle.label);
      }
    }
    column += width(value);
  }
}

bool Lowering::is_adapted(const op::Linear& o) const {
  return std::ranges::find(program_.adapted, o.weight.tensor, &AdaptedMatrix::tensor) !=
         program_.adapted.end();
}

void Lowering::adapt(const op::Linear& o, View x, View y) {
  const auto found = std::ranges::find(program_.adapted, o.weight.tensor, &AdaptedMatrix::tensor);
  if (found == program_.adapted.end()) return;
  emit(call::Lora{.x = x,
                  .t = new_view(found->rank),
                  .y = y,
                  .matrix = static_cast<uint32_t>(found - program_.adapted.begin()),
                  .n_in = width(o.x),
                  .n_out = o.weight.n_rows,
                  .first_out = o.weight.first_row,
                  .b_stride = static_cast<uint32_t>(program_.tensors[o.weight.tensor].dims[1]),
                  .rank = found->rank,
                  .of_logits = row_set() == RowSet::kLogits},
       "lora");
}

void Lowering::add_bias(VectorPart bias, View y, uint32_t n, const std::string& label) {
  emit(call::Elementwise{.kind = ops::Elementwise::Kind::kAddBias,
                         .a = y,
                         .bias = bias,
                         .y = y,
                         .n = n,
                         .factor = 0,
                         .gathers = false},
       label);
}

bool Lowering::leads_to_logits(ValueId value) const {
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

void Lowering::lower(const op::RmsNorm& o) {
  const NormPlaces at = place_norm(o.x, o.group);
  const std::optional<uint32_t> before = share_norm(o, at);
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
  lowered_.dispatches.back().covered_by = before;
}

call::Linear* Lowering::product_into(const View& y) {
  if (lowered_.dispatches.empty()) return nullptr;
  auto* const product = std::get_if<call::Linear>(&lowered_.dispatches.back().what);
  const bool found = product != nullptr && !product->member && y.first == 0 &&
                     product->y.buffer == y.buffer && product->y.first == 0;
  if (!found) return nullptr;
  uint32_t n = 0;
  for (const MatrixRows& matrix : lowered_.matrices[product->matrices]) n += matrix.n_rows;
  return n == lowered_.buffers[y.buffer].width ? product : nullptr;
}

std::optional<uint32_t> Lowering::share_norm(const op::RmsNorm& o, const NormPlaces& at) {
  const auto whole_rows = [&](const View& view) {
    const Buffer& buffer = lowered_.buffers[view.buffer];
    return view.first == 0 && buffer.width == o.group && buffer.rows == row_set();
  };
  const bool is_of_rows = rules_.has(FusionRule::kNorm) && at.residual && o.weight &&
                          o.group == width(o.x) && program_.tensors[*o.weight].dims[1] == 1 &&
                          whole_rows(at.x) && whole_rows(at.y) && whole_rows(*at.residual);
  if (!is_of_rows || result_ == program_.logits || result_ == program_.hidden) return {};
  // Nobody else has use for what was added, or for the result.
  const auto* const sum = patterns_.made_by<op::Add>(o.x);
  if (sum == nullptr || !patterns_.has_one_reader(sum->b) || sum->b == program_.hidden) return {};
  for (const size_t reader : patterns_.readers(result_)) {
    const auto* const product = std::get_if<op::Linear>(&program_.ops[reader].what);
    const bool of_these_rows = (reader < end_of_layers_) == (op_ < end_of_layers_);
    if (product == nullptr || is_adapted(*product) || !of_these_rows) return {};
  }
  call::Linear* const before = product_into(*at.residual);
  const bool does_nothing_else = before != nullptr && !before->scale && !before->gate;
  if (!does_nothing_else || lowered_.matrices[before->matrices].size() != 1) return {};
  const View squares = new_view(ops::LinearFinish::n_squares(o.group));
  before->norm = {
      .stream = at.x, .weight = vector_of({*o.weight}), .normed = at.y, .squares = squares};
  scales_[result_] = {.squares = squares, .eps = o.eps};
  return last_dispatch();
}

std::optional<call::Linear::Scale> Lowering::scale_of(ValueId x) const {
  const auto found = scales_.find(x);
  return found == scales_.end() ? std::nullopt : std::optional(found->second);
}

void Lowering::lower(const op::LayerNorm& o) {
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

Lowering::NormPlaces Lowering::place_norm(ValueId x, uint32_t group) {
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

void Lowering::lower(const op::Mul& o) {
  if (const FusionPatterns::Gate* gate = patterns_.gate_of(op_)) {
    const View gate_up{*places_[gate->bundle].buffer, 0};
    const View y = new_view(width(result_));
    views_[result_] = y;
    std::optional<uint32_t> before;
    if (call::Linear* const product = product_into(gate_up);
        product != nullptr && rules_.has(FusionRule::kActivation)) {
      product->gate = {.y = y, .kind = gate->kind};
      before = last_dispatch();
    }
    emit(call::Gated{gate_up, y, gate->kind, width(result_)}, "activation");
    lowered_.dispatches.back().covered_by = before;
    return;
  }
  const uint32_t group = width(o.a) / width(o.b);
  binary(group == 1 ? ops::Elementwise::Kind::kMul : ops::Elementwise::Kind::kMulGroups, o.a, o.b,
         "activation", group);
}

void Lowering::lower(const op::Add& o) {
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

bool Lowering::norms_rows(size_t index) const {
  const Operation& what = program_.ops[index].what;
  if (const auto* norm = std::get_if<op::RmsNorm>(&what)) return norm->group == width(norm->x);
  const auto* norm = std::get_if<op::LayerNorm>(&what);
  return norm != nullptr && norm->group == width(norm->x);
}

void Lowering::binary(ops::Elementwise::Kind kind, ValueId a, ValueId b, const std::string& label,
                      uint32_t b_group) {
  const View at_a = at_rows(a, label);
  const View at_b = at_rows(b, label);
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
       label);
}

std::string Lowering::label_of_one(const Operation& o) const {
  if (const std::optional<Part> part = own_part(o)) return std::string(part_name(*part));
  return leads_to_logits(result_) ? "output" : std::string(op_name(o));
}

void Lowering::lower(const op::Split& o) {
  views_[result_] = View{views_[o.x]->buffer, views_[o.x]->first + o.first};
}

void Lowering::lower(const op::Concat& o) {
  const View a = at_rows(o.a, "concat");
  const View b = at_rows(o.b, "concat");
  if (a.buffer == b.buffer && a.first + width(o.a) == b.first && dies_here(o.a) && dies_here(o.b)) {
    views_[result_] = a;
    return;
  }
  const View y = new_view(width(result_));
  views_[result_] = y;
  copy(a, y, width(o.a), "concat");
  copy(b, {y.buffer, width(o.a)}, width(o.b), "concat");
}

void Lowering::lower(const op::SplitGroups& o) {
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

void Lowering::lower(const op::Route& o) {
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
  lowered_.buffers[routes.buffer].holds_routes = true;
  views_[result_] = routes;
  const auto bias = o.bias ? std::optional(vector_of({*o.bias})) : std::nullopt;
  const auto gains = o.gain ? std::optional(vector_of({*o.gain})) : std::nullopt;
  emit(call::Route{scores, routes, n_experts, o.n_used, o.router, bias, gains}, "router");
  const View groups = new_view(ops::ExpertGemm::kWordsPerPair * o.n_used);
  groups_[result_] = groups;
  emit(call::GroupRoutes{routes, groups, n_experts, o.n_used}, "router");
}

void Lowering::lower(const op::ExpertLinear& o) {
  const auto& dims = program_.tensors[o.weight].dims;
  const std::string label = stem_of(o.weight);
  const uint32_t n_used = width(o.routes);
  const View x = whole(o.x, label);
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
                          .n_rows = static_cast<uint32_t>(dims[1]),
                          .n_columns = static_cast<uint32_t>(dims[0]),
                          .row_each = width(o.x) != dims[0]},
       label);
}

void Lowering::lower(const op::Combine& o) {
  const View x = whole(o.x, "combine");
  const View y = new_view(width(result_));
  views_[result_] = y;
  emit(call::Combine{x, *views_[o.routes], y, width(result_), width(o.routes)}, "combine");
}

void Lowering::find_uses() {
  const auto use = [&](BufferId id, uint32_t i) {
    lowered_.buffers[id].uses.add(i);
    lowered_.buffers[id].few.add(i);
  };
  for (uint32_t i = 0; i < lowered_.dispatches.size(); ++i) {
    const Operands of_call = operands(lowered_.dispatches[i].what);
    for (const BufferId id : of_call.buffers) use(id, i);
    for (const BufferId id : of_call.buffers_of_few) {
      // Few logits are wanted of many rows, too.
      if (lowered_.buffers[id].rows == RowSet::kLogits) use(id, i);
      lowered_.buffers[id].few.add(i);
    }
  }
  if (lowered_.given) use(*lowered_.given, 0);
  const auto end = static_cast<uint32_t>(lowered_.dispatches.size());
  use(lowered_.logits, end);
  if (lowered_.hidden) use(*lowered_.hidden, end);
}

Result<Lowered> lower(const Program& program, const FusionRules& rules) {
  PUMICE_TRY(FusionPatterns patterns, FusionPatterns::find(program, rules));
  return Lowering(program, rules, std::move(patterns)).run();
}

}  // namespace pumice
