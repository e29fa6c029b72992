#include "models/program_builder.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pumice {
namespace {

constexpr float kStandingStill = 1e30f;  // divides a frequency: no angle at any position

}  // namespace

ProgramBuilder::ProgramBuilder(const ModelDimensions& dimensions) {
  program_.architecture = dimensions.architecture;
  program_.name = dimensions.name;
  program_.n_vocab = dimensions.n_vocab;
  program_.context_length = dimensions.context_length;
}

ProgramBuilder ProgramBuilder::behind(Program program) {
  ProgramBuilder p;
  p.program_ = std::move(program);
  return p;
}

ProgramBuilder::Rotation ProgramBuilder::rotation(const RopeSource& rope, uint32_t head_dim,
                                                  Pairs pairs) {
  expect(rope.config.temperature == 0 || rope.config.dims == head_dim,
         "rope: a temperature of heads of {}, of which {} turn", head_dim, rope.config.dims);
  return add_rotation(rope, head_dim, 0, pairs == Pairs::kHalves);
}

ProgramBuilder::Rotation ProgramBuilder::add_rotation(const RopeSource& rope, uint32_t head_dim,
                                                      uint32_t first, bool halves) {
  for (const TensorSpec& spec : rope.tensors) tensor(spec);
  const auto frequencies = ops::rope_frequencies(rope.config.for_context(0));
  expect(frequencies.ok(), "{}", frequencies.ok() ? "" : frequencies.error().message);
  expect(uint64_t{first} + rope.config.dims <= head_dim, "rope: {} dimensions of heads of {}",
         first + rope.config.dims, head_dim);
  const auto known = std::ranges::find(program_.ropes, rope.config);
  const auto index = static_cast<uint32_t>(known - program_.ropes.begin());
  if (known == program_.ropes.end()) program_.ropes.push_back(rope.config);
  return {.rope = index, .head_dim = head_dim, .halves = halves, .first = first};
}

uint32_t ProgramBuilder::state_group(std::string_view name, uint32_t n_kv_heads, uint32_t head_dim,
                                     uint32_t window, uint32_t value_dim) {
  expect(value_dim <= head_dim, "state group {}: values of {} numbers and keys of {}", name,
         value_dim, head_dim);
  program_.state_groups.push_back({.name = std::string(name),
                                   .n_kv_heads = n_kv_heads,
                                   .head_dim = head_dim,
                                   .window = window,
                                   .v_dim = value_dim < head_dim ? value_dim : 0});
  return static_cast<uint32_t>(program_.state_groups.size() - 1);
}

uint32_t ProgramBuilder::latent_group(std::string_view name, uint32_t head_dim,
                                      uint32_t latent_dim) {
  const uint32_t group = state_group(name, 1, head_dim);
  expect(latent_dim > 0 && latent_dim <= head_dim, "state group {}: values of {} of {} numbers",
         name, latent_dim, head_dim);
  program_.state_groups[group].latent_dim = latent_dim;
  return group;
}

uint32_t ProgramBuilder::recurrent_group(std::string_view name) {
  program_.state_groups.push_back({.name = std::string(name), .recurrent = true});
  return static_cast<uint32_t>(program_.state_groups.size() - 1);
}

uint32_t ProgramBuilder::take_slot(uint32_t recurrent_group, uint64_t n_floats) {
  StateGroup& group = program_.state_groups.at(recurrent_group);
  PUMICE_CHECK(group.recurrent, "a recurrence without a recurrent group");
  group.state_floats.push_back(n_floats);
  return group.n_slots++;
}

bool ProgramBuilder::next_layer(ValueId x, uint32_t i, uint32_t end) {
  if (in_layer_) end_layer(x);
  if (i < end) begin_layer(x);
  return in_layer_;
}

void ProgramBuilder::begin_layer(ValueId x) {
  PUMICE_CHECK(!in_layer_, "a layer within a layer");
  in_layer_ = true;
  prefix_ = fmt::format("blk.{}.", program_.predicting_block + program_.layers.size());
  used_ = {{"x", 1}};
  program_.values[x].name.assign(1, 'x');
  program_.layers.push_back(
      {.first_op = static_cast<uint32_t>(program_.ops.size()), .input = x, .output = x});
}

void ProgramBuilder::end_layer(ValueId x) {
  PUMICE_CHECK(in_layer_, "the end of no layer");
  Layer& layer = program_.layers.back();
  expect(width(x) == width(layer.input), "{}: gives {} numbers, reads {}", prefix_, width(x),
         width(layer.input));
  layer.end_op = static_cast<uint32_t>(program_.ops.size());
  layer.output = x;
  program_.values[x].name.assign(1, 'x');
  in_layer_ = false;
  prefix_.clear();
  used_.clear();
}

ValueId ProgramBuilder::embed(std::string_view stem, uint32_t width, uint32_t n_vocab) {
  return add_op(op::Embed{tensor(stem, "weight", {width, n_vocab, 1, 1})}, stem, width);
}

ValueId ProgramBuilder::embed_position(std::string_view stem, uint32_t width,
                                       uint32_t n_positions) {
  return add_op(op::EmbedPosition{tensor(stem, "weight", {width, n_positions, 1, 1})}, stem, width);
}

ValueId ProgramBuilder::add_row(ValueId x, std::string_view stem, uint32_t n_rows, uint32_t row) {
  expect(row < n_rows, "{}{}: row {} of {}", prefix_, stem, row, n_rows);
  const TensorId table = tensor(stem, "weight", {width(x), n_rows, 1, 1});
  return add_op(op::AddRow{.x = x, .table = table, .row = row}, stem, width(x));
}

ValueId ProgramBuilder::given_rows(uint32_t width) {
  return add_op(op::GivenRows{}, "hidden", width);
}

ValueId ProgramBuilder::linear(ValueId x, std::string_view stem, uint32_t n_outputs, Bias bias) {
  return linear_rows(x, stem, n_outputs, 0, n_outputs, bias);
}

ValueId ProgramBuilder::linear_rows(ValueId x, std::string_view stem, uint32_t n_rows,
                                    uint32_t first_row, uint32_t n_outputs, Bias bias) {
  expect(uint64_t{first_row} + n_outputs <= n_rows, "{}{}: rows {} to {} of {}", prefix_, stem,
         first_row, uint64_t{first_row} + n_outputs, n_rows);
  op::Linear linear{.x = x,
                    .weight = {.tensor = tensor(stem, "weight", {width(x), n_rows, 1, 1}),
                               .first_row = first_row,
                               .n_rows = n_outputs}};
  if (bias == Bias::kAdded) linear.bias = tensor(stem, "bias", {n_rows, 1, 1, 1});
  return add_op(linear, stem, n_outputs);
}

ValueId ProgramBuilder::rms_norm(ValueId x, std::string_view stem, float eps) {
  return head_norm(x, stem, width(x), eps);
}

ValueId ProgramBuilder::head_norm(ValueId x, std::string_view stem, uint32_t head_dim, float eps) {
  expect_heads(x, stem, head_dim);
  return add_op(op::RmsNorm{.x = x,
                            .weight = tensor(stem, "weight", {head_dim, 1, 1, 1}),
                            .eps = eps,
                            .group = head_dim},
                stem, width(x));
}

ValueId ProgramBuilder::group_norm(ValueId x, std::string_view stem, uint32_t n_groups, float eps) {
  expect(n_groups > 0 && width(x) % n_groups == 0, "{}{}: {} numbers in {} groups", prefix_, stem,
         width(x), n_groups);
  const uint32_t group = width(x) / std::max(n_groups, 1u);
  const TensorId weight = tensor(stem, "weight", {group, n_groups, 1, 1});
  return add_op(op::RmsNorm{.x = x, .weight = weight, .eps = eps, .group = group}, stem, width(x));
}

ValueId ProgramBuilder::bare_rms_norm(ValueId x, std::string_view name, float eps) {
  const TensorId weight =
      tensor({.name = prefix_ + std::string(name), .dims = {width(x), 1, 1, 1}});
  return add_op(op::RmsNorm{.x = x, .weight = weight, .eps = eps, .group = width(x)}, name,
                width(x));
}

ValueId ProgramBuilder::plain_head_norm(ValueId x, uint32_t head_dim, float eps) {
  expect(head_dim > 0 && width(x) % head_dim == 0, "{}norm: {} numbers are not heads of {}",
         prefix_, width(x), head_dim);
  return add_op_on(x, op::RmsNorm{.x = x, .weight = {}, .eps = eps, .group = head_dim}, width(x));
}

ValueId ProgramBuilder::layer_norm(ValueId x, std::string_view stem, float eps, Bias bias) {
  op::LayerNorm norm{
      .x = x, .weight = tensor(stem, "weight", {width(x), 1, 1, 1}), .eps = eps, .group = width(x)};
  if (bias == Bias::kAdded) norm.bias = tensor(stem, "bias", {width(x), 1, 1, 1});
  return add_op(norm, stem, width(x));
}

ValueId ProgramBuilder::head_layer_norm(ValueId x, std::string_view stem, uint32_t head_dim,
                                        float eps) {
  expect_heads(x, stem, head_dim);
  const uint32_t n_heads = width(x) / std::max(head_dim, 1u);
  return add_op(op::LayerNorm{.x = x,
                              .weight = tensor(stem, "weight", {head_dim, n_heads, 1, 1}),
                              .eps = eps,
                              .group = head_dim},
                stem, width(x));
}

void ProgramBuilder::expect_heads(ValueId x, std::string_view stem, uint32_t head_dim) {
  expect(head_dim > 0 && width(x) % head_dim == 0, "{}{}: {} numbers are not heads of {}", prefix_,
         stem, width(x), head_dim);
}

ValueId ProgramBuilder::rope(ValueId x, const Rotation& rotation) {
  expect(width(x) % rotation.head_dim == 0, "{}rope: {} numbers are not heads of {}", prefix_,
         width(x), rotation.head_dim);
  return add_op_on(x,
                   op::Rope{.x = x,
                            .rope = rotation.rope,
                            .head_dim = rotation.head_dim,
                            .halves = rotation.halves,
                            .first = rotation.first},
                   width(x));
}

ValueId ProgramBuilder::append(uint32_t state_group, ValueId k, std::optional<ValueId> v) {
  StateGroup& group = program_.state_groups.at(state_group);
  PUMICE_CHECK(!group.recurrent, "keys and values in a recurrent group");
  expect(v.has_value() == (group.latent_dim == 0), "{}append: state group {} keeps {}", prefix_,
         group.name, v ? "no values" : "values");
  const uint64_t n_keys = uint64_t{group.n_kv_heads} * group.head_dim;
  const uint64_t n_values = uint64_t{group.n_kv_heads} * group.value_dim();
  expect(width(k) == n_keys && (!v || width(*v) == n_values),
         "{}append: keys of {} and values of {} numbers where state group {} has {} and {}",
         prefix_, width(k), v ? width(*v) : 0, group.name, n_keys, n_values);
  return add_op(op::Append{.k = k, .v = v, .group = state_group, .slot = group.n_slots++}, "kv", 0,
                ValueKind::kState);
}

ValueId ProgramBuilder::attention(ValueId q, ValueId kv, const AttentionOptions& options) {
  PUMICE_CHECK(program_.values.at(kv).kind == ValueKind::kState, "attention to no state");
  const auto maker = std::ranges::find(program_.ops, kv, &Op::result);
  const StateGroup& group = program_.state_groups[std::get<op::Append>(maker->what).group];
  const uint64_t q_dim = uint64_t{options.n_heads} * group.head_dim;
  expect(width(q) == q_dim && options.n_heads % group.n_kv_heads == 0,
         "{}attention: {} numbers are not {} heads of {} on {} kv heads", prefix_, width(q),
         options.n_heads, group.head_dim, group.n_kv_heads);
  expect(group.window == 0 || (options.window != 0 && options.window <= group.window),
         "{}attention: a window of {} keys in a state group that keeps {}", prefix_, options.window,
         group.window);
  // A step holds the whole text where queries see ahead: nothing is kept, in a window or not.
  expect(options.ahead == 0 || group.window == 0,
         "{}attention: keys ahead in a state group that keeps {}", prefix_, group.window);
  expect(options.ahead == 0 || options.window == 0 || options.ahead < options.window,
         "{}attention: {} keys ahead in a window of {}", prefix_, options.ahead, options.window);
  op::Attention attention{.q = q,
                          .kv = kv,
                          .n_heads = options.n_heads,
                          .n_kv_heads = group.n_kv_heads,
                          .head_dim = group.head_dim,
                          .scale = options.scale,
                          .window = options.window,
                          .ahead = options.ahead,
                          .soft_cap = options.soft_cap};
  attention.latent_dim = group.latent_dim;
  attention.v_dim = group.v_dim;
  if (!options.sinks.empty()) {
    attention.sinks = tensor(options.sinks, "weight", {options.n_heads, 1, 1, 1});
  }
  return add_op(attention, "attention", options.n_heads * attention.value_dim());
}

ValueId ProgramBuilder::head_linear(ValueId x, std::string_view stem, const HeadMatrices& m) {
  const uint64_t all_rows = uint64_t{m.n_heads} * m.head_rows;
  const uint32_t n_in = m.transposed ? m.n_rows : m.n_cols;
  const uint32_t n_out = m.transposed ? m.n_cols : m.n_rows;
  const uint32_t head_dim = width(x) / std::max(m.n_heads, 1u);
  expect(width(x) == uint64_t{m.n_heads} * head_dim && head_dim >= n_in,
         "{}{}: {} numbers are not {} heads of {} or more", prefix_, stem, width(x), m.n_heads,
         n_in);
  expect(uint64_t{m.first_row} + m.n_rows <= m.head_rows, "{}{}: rows {} to {} of {}", prefix_,
         stem, m.first_row, uint64_t{m.first_row} + m.n_rows, m.head_rows);
  const std::array<uint64_t, 4> dims =
      m.is_flat ? std::array<uint64_t, 4>{m.n_cols, all_rows, 1, 1}
                : std::array<uint64_t, 4>{m.n_cols, m.head_rows, m.n_heads, 1};
  return add_op(op::HeadLinear{.x = x,
                               .weight = tensor(stem, "weight", dims),
                               .n_heads = m.n_heads,
                               .first_row = m.first_row,
                               .n_rows = m.n_rows,
                               .transposed = m.transposed},
                stem, m.n_heads * (head_dim - std::min(head_dim, n_in) + n_out));
}

ValueId ProgramBuilder::causal_conv(ValueId x, std::string_view stem, const CausalConv& options) {
  const uint64_t n = width(x);
  expect(options.taps > 1, "{}{}: {} taps", prefix_, stem, options.taps);
  op::CausalConv conv{
      .x = x,
      .weight = tensor(stem, "weight",
                       options.has_channel_dim ? std::array<uint64_t, 4>{options.taps, 1, n, 1}
                                               : std::array<uint64_t, 4>{options.taps, n, 1, 1}),
      .bias = {},
      .silu = options.silu,
      .group = options.state_group,
      .slot = take_slot(options.state_group, (options.taps - uint64_t{1}) * n)};
  if (options.bias == Bias::kAdded) conv.bias = tensor(stem, "bias", {n, 1, 1, 1});
  return add_op(conv, stem, width(x));
}

ValueId ProgramBuilder::recurrence(ValueId q, ValueId k, ValueId v, ValueId step,
                                   std::optional<ValueId> beta, const Recurrence& o) {
  const uint64_t n_keys = uint64_t{o.n_key_heads} * o.key_dim;
  const uint64_t n_values = uint64_t{o.n_heads} * o.value_dim;
  expect(o.n_key_heads > 0 && o.n_heads % o.n_key_heads == 0 && width(q) == n_keys &&
             width(k) == n_keys && width(v) == n_values && (!beta || width(*beta) == o.n_heads),
         "{}recurrence: {} keys and {} values are not those of {} and {} heads of {} and {}",
         prefix_, width(k), width(v), o.n_key_heads, o.n_heads, o.key_dim, o.value_dim);
  expect(o.decay != StateDecay::kKey || beta, "{}recurrence: keys decay, and nothing is a delta",
         prefix_);
  // Files have a row for each head or, of states that decay by themselves, for each value; those of
  // delta nets have one for all heads.
  using Dims = std::array<uint64_t, 4>;
  Dims a_dims = {1, o.n_heads, 1, 1};
  Dims d_dims = a_dims;
  if (o.decay == StateDecay::kHead && beta) a_dims = {o.n_heads, 1, 1, 1};
  if (o.decay == StateDecay::kState) {
    a_dims = {o.key_dim, n_values, 1, 1};
    d_dims = {n_values, 1, 1, 1};
  }
  op::Recurrence recurrence{.q = q,
                            .k = k,
                            .v = v,
                            .step = step,
                            .beta = beta,
                            .q_scale = o.q_scale,
                            .k_scale = o.k_scale,
                            .a = tensor({.name = prefix_ + "ssm_a", .dims = a_dims}),
                            .bias = tensor("ssm_dt", "bias", {width(step), 1, 1, 1}),
                            .d = {},
                            .decay = o.decay,
                            .n_heads = o.n_heads,
                            .n_key_heads = o.n_key_heads,
                            .key_dim = o.key_dim,
                            .value_dim = o.value_dim,
                            .by_remainder = o.by_remainder,
                            .group = o.state_group,
                            .slot = take_slot(o.state_group, n_values * o.key_dim)};
  expect(width(step) == recurrence.n_steps(), "{}recurrence: {} steps where {} decay", prefix_,
         width(step), recurrence.n_steps());
  if (!beta) recurrence.d = tensor({.name = prefix_ + "ssm_d", .dims = d_dims});
  return add_op(recurrence, "recurrence", width(v));
}

ValueId ProgramBuilder::activation(ValueId x, ActivationKind kind) {
  return each(op::Activation{.x = x, .kind = kind});
}

ValueId ProgramBuilder::mul(ValueId a, ValueId b) {
  expect(width(b) > 0 && width(a) % width(b) == 0, "{}mul: {} numbers times {}", prefix_, width(a),
         width(b));
  return add_op(op::Mul{a, b}, "mul", width(a));
}

ValueId ProgramBuilder::add(ValueId a, ValueId b) {
  expect(width(a) == width(b), "{}add: {} numbers and {}", prefix_, width(a), width(b));
  return add_op(op::Add{a, b}, "add", width(a));
}

ValueId ProgramBuilder::scale(ValueId x, double factor) { return each(op::Scale{x, factor}); }

ValueId ProgramBuilder::scale(ValueId x, const ScalarSource& factor) {
  tensor(factor.tensor);
  return scale(x, factor.value);
}

ValueId ProgramBuilder::soft_cap(ValueId x, double cap) {
  expect(cap > 0, "{}soft_cap: a cap of {}", prefix_, cap);
  return each(op::SoftCap{x, cap});
}

ValueId ProgramBuilder::clamp(ValueId x, double limit, bool both_sides) {
  expect(limit > 0, "{}clamp: a limit of {}", prefix_, limit);
  return each(op::Clamp{.x = x, .limit = limit, .both_sides = both_sides});
}

ValueId ProgramBuilder::split(ValueId x, uint32_t first, uint32_t n) {
  expect(uint64_t{first} + n <= width(x), "{}split: numbers {} to {} of {}", prefix_, first,
         uint64_t{first} + n, width(x));
  return add_op_on(x, op::Split{x, first}, n);
}

ValueId ProgramBuilder::concat(ValueId a, ValueId b) {
  return add_op(op::Concat{a, b}, "concat", width(a) + width(b));
}

ValueId ProgramBuilder::split_groups(ValueId x, uint32_t group, uint32_t first, uint32_t n) {
  expect(group > 0 && width(x) % group == 0 && uint64_t{first} + n <= group,
         "{}split_groups: numbers {} to {} of each {} of {}", prefix_, first, uint64_t{first} + n,
         group, width(x));
  return add_op_on(x, op::SplitGroups{.x = x, .group = group, .first = first, .n = n},
                   width(x) / std::max(group, 1u) * n);
}

ValueId ProgramBuilder::route(ValueId scores, uint32_t n_used, const Router& router,
                              std::string_view bias, std::string_view gain) {
  const uint32_t n_experts = width(scores);
  expect(n_used > 0 && n_used <= n_experts, "{}route: {} of {} experts", prefix_, n_used,
         n_experts);
  expect(router.n_groups > 0 && n_experts % router.n_groups == 0 &&
             router.n_used_groups <= router.n_groups &&
             uint64_t{n_experts} / router.n_groups * router.n_used_groups >= n_used,
         "{}route: {} of {} experts in {} of {} groups", prefix_, n_used, n_experts,
         router.n_used_groups, router.n_groups);
  op::Route route{.scores = scores, .n_used = n_used, .router = router};
  if (!bias.empty()) route.bias = tensor(bias, "bias", {n_experts, 1, 1, 1});
  if (!gain.empty()) route.gain = tensor(gain, "scale", {n_experts, 1, 1, 1});
  return add_op(route, "routes", n_used, ValueKind::kRoutes);
}

ValueId ProgramBuilder::expert_linear(ValueId x, ValueId routes, std::string_view stem,
                                      const ExpertDims& dims, Bias bias) {
  const uint32_t n_used = width(routes, ValueKind::kRoutes);
  expect(width(x) == dims.n_cols || width(x) == uint64_t{n_used} * dims.n_cols,
         "{}{}: {} numbers are not one row of {}, nor {} of them", prefix_, stem, width(x),
         dims.n_cols, n_used);
  op::ExpertLinear linear{
      .x = x,
      .routes = routes,
      .weight = tensor(stem, "weight", {dims.n_cols, dims.n_rows, dims.n_experts, 1})};
  if (bias == Bias::kAdded) linear.bias = tensor(stem, "bias", {dims.n_rows, dims.n_experts, 1, 1});
  return add_op(linear, stem, n_used * dims.n_rows);
}

ValueId ProgramBuilder::combine(ValueId x, ValueId routes) {
  const uint32_t n_used = std::max(width(routes, ValueKind::kRoutes), 1u);
  expect(width(x) % n_used == 0, "{}combine: {} numbers of {} experts", prefix_, width(x), n_used);
  return add_op(op::Combine{x, routes}, "combine", width(x) / n_used);
}

ProgramBuilder::SelfAttention ProgramBuilder::full_attention(const ModelDimensions& d) {
  return {.state_group = state_group("full", d.n_kv_heads, d.head_dim),
          .attention = {.n_heads = d.n_heads, .scale = 1 / std::sqrt(d.head_dim)}};
}

ProgramBuilder::SelfAttention ProgramBuilder::full_attention(const ModelDimensions& d,
                                                             const RopeSource& rope, Pairs pairs) {
  SelfAttention full = full_attention(d);
  full.rotation = rotation(rope, d.head_dim, pairs);
  return full;
}

ProgramBuilder::SelfAttention ProgramBuilder::in_window(SelfAttention full, uint32_t window) {
  const StateGroup& group = program_.state_groups.at(full.state_group);
  full.state_group = state_group("window", group.n_kv_heads, group.head_dim, window);
  full.attention.window = window;
  return full;
}

ValueId ProgramBuilder::normed_heads(ValueId x, std::string_view stem, uint32_t head_dim,
                                     const SelfAttention& options) {
  if (!options.head_norm_eps) return x;
  switch (options.head_norm) {
    case HeadNorm::kHead:
    case HeadNorm::kTurned:
      return head_norm(x, stem, head_dim, *options.head_norm_eps);
    case HeadNorm::kAllHeads:
      return rms_norm(x, stem, *options.head_norm_eps);
    case HeadNorm::kLayerNorm:
      return head_layer_norm(x, stem, head_dim, *options.head_norm_eps);
  }
  return x;
}

ValueId ProgramBuilder::self_attention(ValueId x, const SelfAttention& options) {
  const StateGroup group = program_.state_groups.at(options.state_group);
  const uint32_t q_dim = options.attention.n_heads * group.head_dim;
  const uint32_t k_dim = group.n_kv_heads * group.head_dim;
  const uint32_t v_dim = group.n_kv_heads * group.value_dim();
  const uint32_t n_rows = q_dim + k_dim + v_dim;
  const auto product = [&](std::string_view stem, uint32_t first, uint32_t n) {
    return options.fused ? linear_rows(x, "attn_qkv", n_rows, first, n, options.bias)
                         : linear(x, stem, n, options.bias);
  };
  const auto heads = [&](ValueId y, std::string_view norm,
                         const std::optional<Rotation>& rotation) {
    const bool turns_first = options.head_norm == HeadNorm::kTurned;
    if (!turns_first) y = normed_heads(y, norm, group.head_dim, options);
    if (rotation) y = rope(y, *rotation);
    return turns_first ? normed_heads(y, norm, group.head_dim, options) : y;
  };
  std::optional<ValueId> gates;
  const auto queries = [&] {
    if (!options.gated_q) return product("attn_q", 0, q_dim);
    const ValueId both = linear(x, "attn_q", 2 * q_dim, options.bias);
    gates = split_groups(both, 2 * group.head_dim, group.head_dim, group.head_dim);
    return split_groups(both, 2 * group.head_dim, 0, group.head_dim);
  };
  const ValueId q =
      heads(queries(), "attn_q_norm", options.q_rotation ? options.q_rotation : options.rotation);
  const ValueId k = heads(product("attn_k", q_dim, k_dim), "attn_k_norm", options.rotation);
  const ValueId v = product("attn_v", q_dim + k_dim, v_dim);
  ValueId a = attention(q, append(options.state_group, k, v), options.attention);
  if (gates) a = mul(a, sigmoid(*gates));
  if (options.n_gates > 0) a = mul(a, sigmoid(linear(x, "attn_gate", options.n_gates)));
  return linear(a, "attn_output", width(x), options.output_bias);
}

ValueId ProgramBuilder::latent_queries(ValueId x, const LatentAttention& options) {
  const LatentSource& latent = options.source;
  const uint32_t head_dim = latent.n_still + latent.n_turning;
  const uint32_t q_dim = options.n_heads * head_dim;
  ValueId q = 0;
  if (latent.q_rank == 0) {
    q = linear(x, "attn_q", q_dim);
  } else {
    const ValueId low =
        rms_norm(linear(x, "attn_q_a", latent.q_rank), "attn_q_a_norm", options.norm_eps);
    q = linear(low, "attn_q_b", q_dim);
  }
  if (!options.rope) return q;
  const ops::RopeConfig& rope = options.rope->config;
  if (rope.temperature != 0) {
    // What does not turn takes the temperature all the same: a rope that stands still.
    const RopeSource still{
        .config = {.dims = latent.n_still,
                   .temperature = rope.temperature,
                   .temperature_tokens = rope.temperature_tokens,
                   .freq_divisors = std::vector<float>(latent.n_still / 2, kStandingStill)}};
    q = this->rope(q, add_rotation(still, head_dim, 0, false));
  }
  return this->rope(q, add_rotation(*options.rope, head_dim, latent.n_still, false));
}

ValueId ProgramBuilder::latent_attention(ValueId x, uint32_t state_group,
                                         const LatentAttention& options) {
  const LatentSource& latent = options.source;
  const uint32_t n_heads = options.n_heads;
  const ValueId q = latent_queries(x, options);
  const ValueId kv = linear(x, "attn_kv_a_mqa", latent.rank + latent.n_turning);
  const ValueId c = rms_norm(split(kv, 0, latent.rank), "attn_kv_a_norm", options.norm_eps);
  ValueId turned = split(kv, latent.rank, latent.n_turning);
  if (options.rope) {
    RopeSource k_rope = *options.rope;
    k_rope.config.temperature = 0;
    k_rope.config.temperature_tokens = 0;
    turned = rope(turned, add_rotation(k_rope, latent.n_turning, 0, false));
  }
  const ValueId state = append(state_group, concat(c, turned));

  HeadMatrices keys{.n_heads = n_heads,
                    .n_cols = latent.n_still,
                    .head_rows = latent.rank,
                    .n_rows = latent.rank};
  HeadMatrices values{.n_heads = n_heads,
                      .n_cols = latent.rank,
                      .head_rows = latent.value_dim,
                      .n_rows = latent.value_dim};
  if (latent.fused) {
    const uint32_t head_rows = latent.n_still + latent.value_dim;
    keys = {.n_heads = n_heads,
            .n_cols = latent.rank,
            .head_rows = head_rows,
            .n_rows = latent.n_still,
            .transposed = true,
            .is_flat = true};
    values.head_rows = head_rows;
    values.first_row = latent.n_still;
    values.is_flat = true;
  }
  const ValueId absorbed = head_linear(q, latent.fused ? "attn_kv_b" : "attn_k_b", keys);
  const ValueId a = attention(absorbed, state, {.n_heads = n_heads, .scale = options.scale});
  const ValueId v = head_linear(a, latent.fused ? "attn_kv_b" : "attn_v_b", values);
  return linear(v, "attn_output", width(x));
}

ValueId ProgramBuilder::limited_mul(ValueId activated, ValueId x, double limit) {
  if (limit == 0) return mul(activated, x);
  const ValueId limited = at_most(activated, limit);
  return mul(limited, within(x, limit));
}

ValueId ProgramBuilder::gated_ffn(ValueId x, const GatedFfn& options) {
  const auto stem = [&](std::string_view name) {
    return fmt::format("{}{}", name, options.suffix);
  };
  const ValueId gate = activation(linear(x, stem("ffn_gate"), options.n_ff), options.activation);
  const ValueId up = linear(x, stem("ffn_up"), options.n_ff);
  return linear(limited_mul(gate, up, options.limit), stem("ffn_down"), width(x));
}

ValueId ProgramBuilder::experts(ValueId x, const Experts& options) {
  const ExpertSource& source = options.source;
  const uint32_t n = source.n_experts;
  const ValueId scores = linear(options.router_input.value_or(x), "ffn_gate_inp", n);
  const ValueId to =
      route(scores, source.n_used, source.router, options.selection_bias, options.gain);
  const uint32_t n_ff = source.n_ff;
  const auto gate_and_up = [&]() -> std::pair<ValueId, ValueId> {
    if (options.merged) {
      const ValueId both = expert_linear(x, to, "ffn_gate_up_exps", {width(x), 2 * n_ff, n});
      const ValueId gates = split_groups(both, 2 * n_ff, 0, n_ff);
      return {gates, split_groups(both, 2 * n_ff, n_ff, n_ff)};
    }
    const ValueId gates = expert_linear(x, to, "ffn_gate_exps", {width(x), n_ff, n});
    return {gates, expert_linear(x, to, "ffn_up_exps", {width(x), n_ff, n})};
  };
  const auto [gates, up] = gate_and_up();
  const ValueId product = limited_mul(activation(gates, options.activation), up, options.limit);
  const ValueId down = expert_linear(product, to, "ffn_down_exps", {source.n_ff, width(x), n});
  const ValueId routed = combine(down, to);
  if (source.n_ff_shared == 0) return routed;
  ValueId shared = gated_ffn(x, {.activation = options.activation,
                                 .n_ff = source.n_ff_shared,
                                 .suffix = "_shexp",
                                 .limit = options.shared_limit});
  if (!options.shared_gate.empty()) {
    shared = mul(shared, sigmoid(linear(x, options.shared_gate, 1)));
  }
  return add(routed, shared);
}

ValueId ProgramBuilder::input(const Blocks& blocks, uint32_t width, float eps) {
  const ValueId embedded = embed(blocks.embedding, width, program_.n_vocab);
  if (!blocks.predicts()) {
    program_.n_prediction_blocks = blocks.n_prediction;
    return embedded;
  }
  program_.predicting_block = blocks.first;
  prefix_ = blocks.tensor("");
  const ValueId token = rms_norm(embedded, "nextn.enorm", eps);
  const ValueId hidden = rms_norm(given_rows(width), "nextn.hnorm", eps);
  const ValueId x = linear(concat(token, hidden), "nextn.eh_proj", width);
  prefix_.clear();
  return x;
}

Result<Program> ProgramBuilder::finish(ValueId x, const Blocks& blocks, float eps) {
  const ValueId hidden = rms_norm(x, blocks.norm, eps);
  if (blocks.predicts() || blocks.n_prediction > 0) program_.hidden = hidden;
  return finish(linear(hidden, blocks.output, program_.n_vocab));
}

Result<Program> ProgramBuilder::finish(ValueId x, std::string_view output_stem, float eps) {
  return finish(linear(rms_norm(x, "output_norm", eps), output_stem, program_.n_vocab));
}

Result<Program> ProgramBuilder::finish(ValueId logits) {
  PUMICE_CHECK(!in_layer_, "a layer without an end");
  expect(width(logits) == program_.n_vocab, "logits: {} numbers for a vocabulary of {}",
         width(logits), program_.n_vocab);
  PUMICE_TRY_STATUS(status_);
  program_.logits = logits;
  program_.values[logits].name = "logits";
  return std::move(program_);
}

Result<Program> ProgramBuilder::finish_embedding(ValueId x, Pooling pooling) {
  PUMICE_CHECK(!in_layer_, "a layer without an end");
  PUMICE_TRY_STATUS(status_);
  program_.logits = x;
  program_.values[x].name = "embedding";
  program_.pooling = pooling;
  return std::move(program_);
}

Result<Program> ProgramBuilder::finish_ranking(ValueId scores, Pooling pooling, uint32_t relevant) {
  PUMICE_TRY(Program program, finish_embedding(scores, pooling));
  program.values[scores].name = "scores";
  program.relevant_label = relevant;
  return program;
}

ValueId ProgramBuilder::add_op(Operation what, std::string_view base_name, uint32_t width,
                               ValueKind kind) {
  const auto id = static_cast<ValueId>(program_.values.size());
  const uint32_t n_before = used_[std::string(base_name)]++;
  std::string name(base_name);
  if (n_before > 0) name += fmt::format(".{}", n_before + 1);
  program_.values.push_back({.name = std::move(name), .kind = kind, .width = width});
  program_.ops.push_back({.what = what, .result = id});
  return id;
}

ValueId ProgramBuilder::add_op_on(ValueId x, Operation what, uint32_t n) {
  const std::string name = fmt::format("{}.{}", program_.values.at(x).name, op_name(what));
  return add_op(what, name, n);
}

TensorId ProgramBuilder::tensor(std::string_view stem, std::string_view suffix,
                                std::array<uint64_t, 4> dims) {
  return tensor({.name = fmt::format("{}{}.{}", prefix_, stem, suffix), .dims = dims});
}

TensorId ProgramBuilder::tensor(const TensorSpec& spec) {
  const auto [known, is_new] =
      tensor_ids_.try_emplace(spec.name, static_cast<TensorId>(program_.tensors.size()));
  if (is_new) program_.tensors.push_back(spec);
  expect(program_.tensors[known->second].dims == spec.dims, "{}: read in two shapes", spec.name);
  return known->second;
}

uint32_t ProgramBuilder::width(ValueId x, ValueKind kind) const {
  const Value& value = program_.values.at(x);
  PUMICE_CHECK(value.kind == kind, value.name + " is a value of another kind");
  return value.width;
}

}  // namespace pumice
