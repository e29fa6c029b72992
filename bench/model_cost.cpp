#include "bench/model_cost.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "models/families.hpp"

namespace pumice::bench {
namespace {

constexpr uint64_t kFloat = 4;

uint64_t activation_flops(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kSilu:
    case ActivationKind::kSigmoid:
      return 3;
    case ActivationKind::kGelu:
      return 4;
    case ActivationKind::kGeluTanh:
      return 8;
    case ActivationKind::kRelu:
      return 1;
  }
  PUMICE_CHECK(false, "an activation without a price");
  return 0;
}

/// Prices the operations of a program.
class Pricing {
 public:
  Pricing(const Program& program, const GgufFile& file, KvTypes kv_type)
      : program_(program),
        file_(file),
        kv_type_(kv_type),
        parts_(parts_of(program)),
        makers_(program.values.size()),
        readers_(program.values.size()) {
    for (size_t i = 0; i < program.ops.size(); ++i) {
      makers_[program.ops[i].result] = &program.ops[i];
      for (const ValueId input : op_inputs(program.ops[i].what)) {
        readers_[input].push_back(&program.ops[i]);
      }
    }
  }

  /// Sums of the operations that have part, rows and window in common.
  std::vector<PartCost> costs() {
    std::vector<PartCost> sums;
    for (const Op& op : program_.ops) {
      PartCost cost = std::visit([&](const auto& what) { return price(what, op); }, op.what);
      cost.part = part_of(op);
      cost.logit_rows = at_logit_rows(op);
      add(sums, cost);
    }
    return sums;
  }

  Part part_of(const Op& op) const {
    return parts_[static_cast<size_t>(&op - program_.ops.data())];
  }

 private:
  template <typename... Kinds>
  static bool is(const Op& op) {
    return (std::holds_alternative<Kinds>(op.what) || ...);
  }

  bool after_layers(const Op& op) const {
    const uint32_t end = program_.layers.empty() ? 0 : program_.layers.back().end_op;
    return &op - program_.ops.data() >= end;
  }
  /// After the last layer, and the sum that only what comes there reads.
  bool at_logit_rows(const Op& op) const {
    if (after_layers(op)) return true;
    const std::vector<const Op*>& readers = readers_[op.result];
    return is<op::Add>(op) && !readers.empty() &&
           std::ranges::all_of(readers, [&](const Op* one) { return after_layers(*one); });
  }

  static void add(std::vector<PartCost>& sums, const PartCost& cost) {
    auto sum = std::ranges::find_if(sums, [&](const PartCost& one) {
      return one.part == cost.part && one.logit_rows == cost.logit_rows &&
             one.window == cost.window && one.ahead == cost.ahead;
    });
    if (sum == sums.end()) {
      sums.push_back(cost);
      return;
    }
    for (const auto field :
         {&PartCost::flops, &PartCost::values, &PartCost::row_weight_bytes,
          &PartCost::step_weight_bytes, &PartCost::expert_weight_bytes, &PartCost::written_kv_bytes,
          &PartCost::pair_flops, &PartCost::key_bytes, &PartCost::state_bytes,
          &PartCost::expanded_pair_flops, &PartCost::expanded_key_flops}) {
      (*sum).*field += cost.*field;
    }
  }

  uint64_t width(ValueId value) const { return program_.values[value].width; }
  /// Bytes in the file of so many of a tensor's numbers.
  uint64_t bytes(TensorId tensor, uint64_t n_elements) const {
    return file_.find_tensor(program_.tensors[tensor].name)->type->file_bytes(n_elements);
  }
  /// Vectors are read as floats.
  uint64_t vector_bytes(std::optional<TensorId> tensor) const {
    return tensor ? program_.tensors[*tensor].n_elements() * kFloat : 0;
  }
  /// Matrices of one part that follow each other read a value together.
  uint64_t values_read(ValueId x, const Op& op) {
    return read_.emplace(x, part_of(op)).second ? width(x) : 0;
  }

  PartCost price(const op::Embed& o, const Op& op) {
    return {.values = width(op.result), .row_weight_bytes = bytes(o.table, width(op.result))};
  }
  PartCost price(const op::EmbedPosition& o, const Op& op) {
    return {.values = width(op.result), .row_weight_bytes = bytes(o.table, width(op.result))};
  }
  PartCost price(const op::AddRow& o, const Op&) {
    return {.flops = width(o.x),
            .values = 2 * width(o.x),
            .step_weight_bytes = bytes(o.table, width(o.x))};
  }
  PartCost price(const op::GivenRows&, const Op& op) { return {.values = width(op.result)}; }
  PartCost price(const op::Linear& o, const Op& op) {
    const uint64_t n = width(op.result);
    return {
        .flops = 2 * width(o.x) * n + (o.bias ? n : 0),
        .values = values_read(o.x, op) + n,
        .step_weight_bytes = bytes(o.weight.tensor, width(o.x) * n) + (o.bias ? n * kFloat : 0)};
  }
  PartCost price(const op::RmsNorm& o, const Op&) {
    return {.flops = 4 * width(o.x),
            .values = 2 * width(o.x),
            .step_weight_bytes = vector_bytes(o.weight)};
  }
  PartCost price(const op::LayerNorm& o, const Op&) {
    return {.flops = (o.bias ? 7 : 6) * width(o.x),
            .values = 2 * width(o.x),
            .step_weight_bytes = vector_bytes(o.weight) + vector_bytes(o.bias)};
  }
  /// Six flops a pair. q is read and written in place, with a row of the table; k is on its way to
  /// the cache.
  PartCost price(const op::Rope& o, const Op& op) {
    const uint64_t dims = program_.ropes[o.rope].dims;
    const uint64_t rotated = width(o.x) / o.head_dim * dims;
    const std::vector<const Op*>& readers = readers_[op.result];
    const bool is_key = !readers.empty() && is<op::Append>(*readers.front());
    return {.flops = 3 * rotated, .values = is_key ? 0 : 2 * rotated + dims};
  }
  PartCost price(const op::Append& o, const Op&) {
    const uint64_t n = width(o.k) + (o.v ? width(*o.v) : 0);
    const StateGroup& group = program_.state_groups[o.group];
    return {.values = n, .written_kv_bytes = group.n_kv_heads * kv_row_bytes_of(group)};
  }
  /// Of a token and kv head.
  template <typename Heads>
  uint64_t kv_row_bytes_of(const Heads& heads) const {
    const uint64_t k = kv_row_bytes(kv_type_.k, heads.head_dim);
    return heads.latent_dim != 0 ? k : k + kv_row_bytes(kv_type_.v, heads.value_dim());
  }
  PartCost price(const op::Attention& o, const Op& op) {
    PartCost cost{.window = o.window,
                  .ahead = o.ahead,
                  .values = width(o.q) + width(op.result),
                  .step_weight_bytes = vector_bytes(o.sinks),
                  .pair_flops = 2 * (width(o.q) + width(op.result)),
                  .key_bytes = o.n_kv_heads * kv_row_bytes_of(o)};
    if (o.latent_dim == 0) return cost;
    const Op& queries = *makers_[o.q];
    const Op& results = *readers_[op.result].front();
    const auto* const q = std::get_if<op::HeadLinear>(&queries.what);
    const auto* const y = std::get_if<op::HeadLinear>(&results.what);
    if (q == nullptr || y == nullptr) return cost;
    cost.expanded_pair_flops = 2 * (width(q->x) + width(results.result));
    cost.expanded_key_flops = price(*q, queries).flops + price(*y, results).flops;
    return cost;
  }
  PartCost price(const op::HeadLinear& o, const Op& op) {
    const HeadProduct size = head_product(program_, o);
    const uint64_t n_weights = uint64_t{o.n_heads} * size.n_in * size.n_out;
    return {.flops = 2 * n_weights,
            .values = width(o.x) + width(op.result),
            .step_weight_bytes = bytes(o.weight, n_weights)};
  }
  PartCost price(const op::CausalConv& o, const Op&) {
    const uint64_t n = width(o.x);
    const uint64_t taps = program_.tensors[o.weight].dims[0];
    return {.flops = (2 * taps + (o.silu ? 3 : 0)) * n,
            .values = 2 * n,
            .step_weight_bytes = vector_bytes(o.weight) + vector_bytes(o.bias),
            .state_bytes = 2 * (taps - 1) * n * kFloat};
  }
  PartCost price(const op::Recurrence& o, const Op&) {
    const uint64_t n_values = width(o.v);
    const uint64_t n_state = n_values * o.key_dim;
    // Where each number decays by itself, its exponent and that function of it too.
    const uint64_t of_element = (o.beta ? 7 : 5) + (o.decay == StateDecay::kState ? 2 : 0);
    return {.flops = of_element * n_state + (o.d ? 2 * n_values : 0),
            .values = width(o.q) + width(o.k) + 2 * n_values + width(o.step) +
                      (o.beta ? width(*o.beta) : 0),
            .step_weight_bytes = vector_bytes(o.a) + vector_bytes(o.bias) + vector_bytes(o.d),
            .state_bytes = 2 * n_state * kFloat};
  }
  PartCost price(const op::Activation& o, const Op&) {
    return {.flops = activation_flops(o.kind) * width(o.x), .values = width(o.x)};
  }
  PartCost price(const op::Xielu& o, const Op&) {
    return {.flops = 5 * width(o.x), .values = 2 * width(o.x)};
  }
  PartCost price(const op::Mul& o, const Op&) {
    return {.flops = width(o.a), .values = width(o.a) + width(o.b)};
  }
  PartCost price(const op::Add& o, const Op&) {
    return {.flops = width(o.a), .values = 2 * width(o.a)};
  }
  PartCost price(const op::Scale& o, const Op&) {
    return {.flops = width(o.x), .values = 2 * width(o.x)};
  }
  PartCost price(const op::Clamp& o, const Op&) {
    return {.flops = (o.both_sides ? 2 : 1) * width(o.x), .values = 2 * width(o.x)};
  }
  PartCost price(const op::SoftCap& o, const Op&) {
    return {.flops = 2 * width(o.x), .values = 2 * width(o.x)};
  }
  PartCost price(const op::Split&, const Op&) { return {}; }
  PartCost price(const op::Concat&, const Op&) { return {}; }
  PartCost price(const op::SplitGroups&, const Op& op) { return {.values = 2 * width(op.result)}; }
  PartCost price(const op::Route&, const Op&) { return {}; }
  PartCost price(const op::ExpertLinear& o, const Op& op) {
    const auto& dims = program_.tensors[o.weight].dims;
    return {
        .flops = 2 * dims[0] * width(op.result) + (o.bias ? width(op.result) : 0),
        .values = values_read(o.x, op) + width(op.result),
        .expert_weight_bytes = bytes(o.weight, dims[0] * dims[1] * dims[2]) + vector_bytes(o.bias)};
  }
  PartCost price(const op::Combine& o, const Op& op) {
    return {.flops = 2 * width(o.x), .values = width(o.x) + width(op.result)};
  }

  const Program& program_;
  const GgufFile& file_;
  KvTypes kv_type_;
  const std::vector<Part> parts_;
  std::vector<const Op*> makers_;
  std::vector<std::vector<const Op*>> readers_;
  std::set<std::pair<ValueId, Part>> read_;
};

/// Widths and heads, each of the first operation that has it.
void read_widths(const Program& program, const Pricing& pricing, ModelShape& shape) {
  for (const Op& op : program.ops) {
    if (const auto* attention = std::get_if<op::Attention>(&op.what);
        shape.n_heads == 0 && attention) {
      shape.n_heads = attention->n_heads;
      shape.n_kv_heads = attention->n_kv_heads;
      shape.head_dim = attention->head_dim;
    }
    const auto* experts = std::get_if<op::ExpertLinear>(&op.what);
    if (shape.n_experts == 0 && experts != nullptr) {
      shape.n_experts = static_cast<uint32_t>(program.tensors[experts->weight].dims[2]);
      shape.n_experts_used = program.values[experts->routes].width;
    }
    const bool is_matrix = experts != nullptr || std::holds_alternative<op::Linear>(op.what);
    if (shape.n_ff == 0 && is_matrix && pricing.part_of(op) == Part::kDown) {
      shape.n_ff = static_cast<uint32_t>(program.tensors[op_tensors(op.what)[0]].dims[0]);
    }
  }
}

/// Flops of attention to latents in the cheaper of its two forms, chunk by chunk. What takes rows
/// to the latents' space and back is counted where it is, and is as much as making keys and values
/// of the chunk's own latents.
uint64_t flops_of_latents(std::span<const StepRows> batch, const PartCost& cost) {
  uint64_t flops = 0;
  for (const StepRows& chunk : batch) {
    const uint64_t pairs = uint64_t{chunk.n_rows} * chunk.first_position +
                           uint64_t{chunk.n_rows} * (chunk.n_rows + uint64_t{1}) / 2;
    flops += std::min(pairs * cost.pair_flops, pairs * cost.expanded_pair_flops +
                                                   chunk.first_position * cost.expanded_key_flops);
  }
  return flops;
}

/// Keys that a sequence's rows see: with how many rows each, and how many there are.
struct SeenKeys {
  uint64_t pairs = 0;
  uint64_t keys = 0;
};
SeenKeys seen_keys(std::span<const StepRows> batch, uint32_t window, uint32_t ahead) {
  SeenKeys seen;
  for (const StepRows& chunk : batch) {
    if (chunk.n_rows == 0) continue;
    const uint64_t n = chunk.n_rows;
    const uint64_t end = chunk.first_position + n;
    if (ahead != 0) {  // the chunk is a text
      for (uint64_t row = chunk.first_position; row < end; ++row) {
        const uint64_t last = row + ahead;
        const uint64_t first = window != 0 && last >= window ? last + 1 - window : 0;
        seen.pairs += std::min(last + 1, end) - first;
      }
      seen.keys += end;
      continue;
    }
    if (window == 0) {
      seen.pairs += n * chunk.first_position + n * (n + 1) / 2;
      seen.keys += end;
      continue;
    }
    // Rows that see fewer keys than the window, then those that see as many.
    const uint64_t first = chunk.first_position;
    const uint64_t full = std::clamp<uint64_t>(window, first, end);
    seen.pairs += (full - first) * (first + 1 + full) / 2 + (end - full) * window;
    seen.keys += std::min<uint64_t>(end, n + window - 1);
  }
  return seen;
}

}  // namespace

double Amount::flops_per_byte() const {
  const uint64_t memory = memory_bytes();
  return memory == 0 ? 0 : static_cast<double>(flops) / static_cast<double>(memory);
}

Amount& Amount::operator+=(const Amount& other) {
  flops += other.flops;
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  activation_bytes += other.activation_bytes;
  return *this;
}

Amount StepWork::total() const {
  Amount sum;
  for (const Amount& part : parts) sum += part;
  return sum;
}

StepWork& StepWork::operator+=(const StepWork& other) {
  for (size_t i = 0; i < kPartCount; ++i) parts[i] += other.parts[i];
  return *this;
}

uint64_t ModelShape::kv_bytes_per_token() const {
  uint64_t bytes = 0;
  for (const PartCost& cost : costs) bytes += cost.written_kv_bytes;
  return bytes;
}

uint64_t ModelShape::flops_per_pair() const {
  uint64_t flops = 0;
  for (const PartCost& cost : costs) flops += cost.pair_flops;
  return flops;
}

double ModelShape::experts_read(uint64_t n_rows) const {
  const double all = n_experts;
  return all * (1 - std::pow(1 - n_experts_used / all, static_cast<double>(n_rows)));
}

Result<ModelShape> model_shape(const ModelSource& source, KvTypes kv_type) {
  PUMICE_TRY(const Program program, build_program(source));
  ModelShape shape{.name = program.name.empty() ? program.architecture : program.name,
                   .n_layers = static_cast<uint32_t>(program.layers.size()),
                   .n_embd = program.values[program.ops.front().result].width,
                   .n_vocab = program.n_vocab,
                   .kv_type = kv_type};
  for (const GgufTensor& tensor : source.file().tensors()) {
    shape.n_params += tensor.n_elements();
    shape.file_bytes += tensor.n_bytes;
  }
  Pricing pricing(program, source.file(), kv_type);
  read_widths(program, pricing, shape);
  shape.costs = pricing.costs();
  return shape;
}

Result<ModelShape> model_shape(const SyntheticModel& model, KvTypes kv_type) {
  PUMICE_TRY(const ModelSource source, ModelSource::synthetic(model));
  return model_shape(source, kv_type);
}

StepWork step_cost(const ModelShape& shape, std::span<const StepRows> batch,
                   uint32_t n_logit_rows) {
  uint64_t all_rows = 0;
  for (const StepRows& chunk : batch) all_rows += chunk.n_rows;
  StepWork work;
  for (const PartCost& cost : shape.costs) {
    const uint64_t rows = cost.logit_rows ? n_logit_rows : all_rows;
    if (rows == 0) continue;
    Amount& amount = work[cost.part];
    amount.flops += rows * cost.flops;
    amount.weight_bytes += cost.step_weight_bytes + rows * cost.row_weight_bytes;
    amount.activation_bytes += rows * cost.values * kFloat;
    amount.kv_bytes += rows * cost.written_kv_bytes;
    amount.kv_bytes +=
        cost.state_bytes * static_cast<uint64_t>(std::ranges::count_if(
                               batch, [](const StepRows& chunk) { return chunk.n_rows > 0; }));
    if (cost.expert_weight_bytes > 0) {
      const double share = shape.experts_read(rows) / shape.n_experts;
      amount.weight_bytes += static_cast<uint64_t>(
          std::llround(static_cast<double>(cost.expert_weight_bytes) * share));
    }
    if (cost.pair_flops > 0) {
      const SeenKeys seen = seen_keys(batch, cost.window, cost.ahead);
      amount.flops += cost.expanded_pair_flops > 0 ? flops_of_latents(batch, cost)
                                                   : seen.pairs * cost.pair_flops;
      amount.kv_bytes += seen.keys * cost.key_bytes;
    }
  }
  return work;
}

std::vector<Crossing> crossings(const ModelShape& shape) {
  // The first length at which  growth * length + projections > feed_forward.
  const auto first_above = [](uint64_t feed_forward, uint64_t projections, uint64_t growth) {
    return projections > feed_forward ? 1 : (feed_forward - projections) / growth + 1;
  };
  const StepRows row{0, 1};
  const StepWork token = step_cost(shape, {&row, 1}, 0);
  const auto sum = [&](auto field, std::initializer_list<Part> parts) {
    uint64_t amount = 0;
    for (const Part part : parts) amount += token[part].*field;
    return amount;
  };
  const auto feed_forward = {Part::kRouter, Part::kGateUp, Part::kDown};
  const auto projections = {Part::kQkv, Part::kAttentionOutput};
  const uint64_t ff_flops = sum(&Amount::flops, feed_forward);
  const uint64_t projection_flops = sum(&Amount::flops, projections);
  const uint64_t key_flops = shape.flops_per_pair();
  // A causal prompt of n tokens has n (n + 1) / 2 pairs, (n + 1) / 2 a token.
  const auto first_causal = [&](uint64_t of_projections) {
    return std::max<uint64_t>(first_above(2 * ff_flops, 2 * of_projections, key_flops), 2) - 1;
  };
  const uint64_t ff_bytes = sum(&Amount::weight_bytes, feed_forward);
  const uint64_t projection_bytes = sum(&Amount::weight_bytes, projections);
  const uint64_t key_bytes = shape.kv_bytes_per_token();
  return {
      {.counting = "flops, all keys",
       .explanation = "a row that sees so many keys: decode at that context, or prefill counted "
                      "as a full square",
       .scores_only = first_above(ff_flops, 0, key_flops),
       .with_projections = first_above(ff_flops, projection_flops, key_flops)},
      {.counting = "flops, causal",
       .explanation = "a prompt of so many tokens, each seeing those before it",
       .scores_only = first_causal(0),
       .with_projections = first_causal(projection_flops)},
      {.counting = "bytes, decode",
       .explanation = "keys and values read by a step of one row, against the weights it reads",
       .scores_only = first_above(ff_bytes, 0, key_bytes),
       .with_projections = first_above(ff_bytes, projection_bytes, key_bytes)}};
}

}  // namespace pumice::bench
