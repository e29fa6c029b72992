#include "models/reference.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/parallel.hpp"

namespace pumice {
namespace {

using Clock = std::chrono::steady_clock;
using Values = std::vector<double>;  // [tokens][width]

constexpr size_t kRowsAtOnce = 32;           // of a matrix, by one thread
constexpr double kLeastWeightSum = 0x1p-14;  // that weights of experts are divided by
constexpr size_t kLanes = 8;  // tokens that share a weight in registers, or parts of a sum
using Lanes = std::array<double, kLanes>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Σ a[i] b[i]
double dot(const double* a, const double* b, size_t n) {
  Lanes sums{};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

double activate(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kGelu:
      return x * (1 + std::erf(x / std::numbers::sqrt2)) / 2;
    case ActivationKind::kGeluTanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return x * (1 + std::tanh(inner)) / 2;
    }
    case ActivationKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
  }
  PUMICE_CHECK(false, "an activation without a formula");
  return 0;
}

Values probabilities(const Router& router, std::span<const double> scores) {
  Values p(scores.begin(), scores.end());
  if (router.probability == Router::Probability::kSigmoid) {
    for (double& x : p) x = 1 / (1 + std::exp(-x));
    return p;
  }
  const double most = *std::ranges::max_element(p);
  double total = 0;
  for (double& x : p) total += x = std::exp(x - most);
  for (double& x : p) x /= total;
  return p;
}

/// Nothing is chosen of experts of other groups than the best.
void leave_out_groups(const Router& router, Values& choosing) {
  if (router.n_groups == 1) return;
  const size_t size = choosing.size() / router.n_groups;
  std::vector<std::pair<double, size_t>> groups;  // by their worth, negative, then by number
  for (size_t g = 0; g < router.n_groups; ++g) {
    double best = -INFINITY;
    double second = -INFINITY;
    for (size_t e = g * size; e < (g + 1) * size; ++e) {
      second = std::max(second, std::min(best, choosing[e]));
      best = std::max(best, choosing[e]);
    }
    groups.emplace_back(-(best + second), g);
  }
  std::ranges::sort(groups);
  for (size_t i = router.n_used_groups; i < groups.size(); ++i) {
    std::fill_n(&choosing[groups[i].second * size], size, -INFINITY);
  }
}

/// What a head's state is multiplied by behind its steps: one factor, or one a key, or one a
/// number.
Values decays(const op::Recurrence& op, const std::vector<float>& a, size_t head,
              const Values& steps) {
  const bool by_state = op.decay == StateDecay::kState;
  Values factors(by_state ? steps.size() * op.key_dim : steps.size());
  for (size_t i = 0; i < factors.size(); ++i) {
    factors[i] = by_state ? std::exp(a[head * factors.size() + i] * steps[i / op.key_dim])
                          : std::exp(a[head] * steps[i]);
  }
  return factors;
}

/// For each value the last operation that needs it: keys and values as long as their state.
std::vector<size_t> last_uses(const Program& program) {
  std::vector<size_t> last(program.values.size());
  for (size_t i = 0; i < program.ops.size(); ++i) {
    last[program.ops[i].result] = i;
    for (const ValueId input : op_inputs(program.ops[i].what)) last[input] = i;
  }
  for (size_t i = program.ops.size(); i-- > 0;) {
    if (!std::holds_alternative<op::Append>(program.ops[i].what)) continue;
    for (const ValueId input : op_inputs(program.ops[i].what)) {
      last[input] = std::max(last[input], last[program.ops[i].result]);
    }
  }
  last[program.logits] = program.ops.size();
  return last;
}

class Evaluation {
 public:
  Evaluation(const ModelSource& source, const Program& program, std::span<const TokenId> tokens,
             const ReferenceLimits& limits)
      : source_(source),
        program_(program),
        tokens_(tokens),
        given_(limits.given),
        max_threads_(limits.max_threads),
        context_tokens_(limits.context_tokens == 0 ? program.context_length
                                                   : limits.context_tokens),
        last_uses_(last_uses(program)),
        rows_(program.values.size()),
        routes_(program.values.size()),
        states_(program.values.size()) {
    for (const TensorSpec& spec : program.tensors) {
      tensors_.push_back(source.file().find_tensor(spec.name));
    }
  }

  /// Operations [first, end).
  Status run(size_t first, size_t end) {
    for (size_t i = first; i < end; ++i) {
      const Op& op = program_.ops[i];
      PUMICE_TRY(rows_[op.result],
                 std::visit([&](const auto& what) { return compute(what, op.result); }, op.what));
      for (const ValueId input : op_inputs(op.what)) release(input, i);
      if (const auto* attention = std::get_if<op::Attention>(&op.what)) {
        release(states_[attention->kv].k, i);
        if (states_[attention->kv].v) release(*states_[attention->kv].v, i);
      }
    }
    return {};
  }

  /// What follows the last layer reads this one's output.
  void leave_out_layers_after(const Layer& layer) {
    if (layer.output == program_.layers.back().output) return;
    rows_[program_.layers.back().output] = std::move(rows_[layer.output]);
  }

  Values take(ValueId value) { return std::move(rows_[value]); }

  /// Of all routers that have been computed.
  std::vector<std::vector<uint32_t>> experts() const {
    std::vector<std::vector<uint32_t>> all;
    for (const Op& op : program_.ops) {
      const std::vector<uint32_t>& own = routes_[op.result].experts;
      if (!own.empty()) all.push_back(own);
    }
    return all;
  }

  /// What the operations from `first` on will take, from the products so far.
  double seconds_of(size_t first) const {
    if (n_weights_ == 0) return 0;
    double n = 0;
    for (size_t i = first; i < program_.ops.size(); ++i) {
      if (const auto* linear = std::get_if<op::Linear>(&program_.ops[i].what)) {
        n += static_cast<double>(width(linear->x)) * linear->weight.n_rows;
      }
    }
    return n * product_seconds_ / n_weights_;
  }

 private:
  struct State {
    ValueId k = 0;
    std::optional<ValueId> v = {};
  };
  struct Routes {  // [tokens][n_used]
    std::vector<uint32_t> experts;
    Values weights;
  };
  using Computed = Result<Values>;

  size_t n_tokens() const { return tokens_.size(); }
  size_t width(ValueId value) const { return program_.values[value].width; }

  void release(ValueId value, size_t op) {
    if (last_uses_[value] == op) Values().swap(rows_[value]);
  }

  /// Rows [first, first + n) of a matrix as floats; those of an expert follow the expert before.
  Result<std::vector<float>> matrix_rows(const WeightSource& matrix, size_t first, size_t n) const {
    const WeightType& type = *matrix.type;
    std::vector<std::byte> blocks(type.file_bytes(n * matrix.n_cols));
    PUMICE_TRY_STATUS(matrix.fill(first * matrix.n_cols / type.block_elements, blocks));
    std::vector<float> values(n * matrix.n_cols);
    dequantize(type, blocks.data(), values.size(), values.data());
    return values;
  }

  Result<std::vector<float>> vector(TensorId tensor) const {
    return source_.values(*tensors_[tensor]);
  }

  /// x Wᵀ for `n` rows of x, by rows [first_row, first_row + n_rows) of a matrix.
  Computed product(const Values& x, size_t n, TensorId tensor, size_t first_row, size_t n_rows) {
    const auto start = Clock::now();
    const WeightSource matrix = source_.matrix(*tensors_[tensor], static_cast<uint32_t>(first_row),
                                               static_cast<uint32_t>(n_rows));
    const size_t n_cols = matrix.n_cols;
    const size_t n_groups = (n + kLanes - 1) / kLanes;
    std::vector<Lanes> columns(n_groups * n_cols, Lanes{});
    for (size_t t = 0; t < n; ++t) {
      for (size_t c = 0; c < n_cols; ++c) {
        columns[t / kLanes * n_cols + c][t % kLanes] = x[t * n_cols + c];
      }
    }
    Values y(n * n_rows);
    const auto chunk = [&](size_t index) -> Status {
      const size_t first = index * kRowsAtOnce;
      const size_t count = std::min(kRowsAtOnce, n_rows - first);
      PUMICE_TRY(const std::vector<float> weights, matrix_rows(matrix, first, count));
      for (size_t group = 0; group < n_groups; ++group) {
        const Lanes* const inputs = &columns[group * n_cols];
        const size_t n_lanes = std::min(kLanes, n - group * kLanes);
        for (size_t row = 0; row < count; ++row) {
          Lanes sum{};
          for (size_t c = 0; c < n_cols; ++c) {
            const double weight = weights[row * n_cols + c];
            for (size_t lane = 0; lane < kLanes; ++lane) sum[lane] += weight * inputs[c][lane];
          }
          for (size_t lane = 0; lane < n_lanes; ++lane) {
            y[(group * kLanes + lane) * n_rows + first + row] = sum[lane];
          }
        }
      }
      return {};
    };
    PUMICE_TRY_STATUS(
        for_each_on_threads((n_rows + kRowsAtOnce - 1) / kRowsAtOnce, max_threads_, chunk));
    n_weights_ += static_cast<double>(n_rows * n_cols);
    product_seconds_ += seconds_since(start);
    return y;
  }

  Computed compute(const op::Embed& op, ValueId) const {
    const WeightSource table = source_.matrix(*tensors_[op.table], 0, program_.n_vocab);
    Values y;
    for (const TokenId token : tokens_) {
      PUMICE_TRY(const std::vector<float> row, matrix_rows(table, token, 1));
      y.insert(y.end(), row.begin(), row.end());
    }
    return y;
  }

  Computed compute(const op::EmbedPosition& op, ValueId) const {
    const GgufTensor& tensor = *tensors_[op.table];
    const auto n_positions = static_cast<uint32_t>(tensor.dims[1]);
    PUMICE_CHECK(n_tokens() <= n_positions, "positions without an embedding");
    const WeightSource table = source_.matrix(tensor, 0, n_positions);
    PUMICE_TRY(const std::vector<float> rows, matrix_rows(table, 0, n_tokens()));
    return Values(rows.begin(), rows.end());
  }

  Computed compute(const op::AddRow& op, ValueId) const {
    const GgufTensor& tensor = *tensors_[op.table];
    const WeightSource table = source_.matrix(tensor, 0, static_cast<uint32_t>(tensor.dims[1]));
    PUMICE_TRY(const std::vector<float> row, matrix_rows(table, op.row, 1));
    Values y = rows_[op.x];
    for (size_t i = 0; i < y.size(); ++i) y[i] += row[i % row.size()];
    return y;
  }

  Computed compute(const op::GivenRows&, ValueId) const {
    return Values(given_.begin(), given_.end());
  }

  Computed compute(const op::Linear& op, ValueId) {
    PUMICE_TRY(Values y, product(rows_[op.x], n_tokens(), op.weight.tensor, op.weight.first_row,
                                 op.weight.n_rows));
    if (op.bias) {
      PUMICE_TRY(const std::vector<float> bias, vector(*op.bias));
      const size_t n = op.weight.n_rows;
      for (size_t i = 0; i < y.size(); ++i) y[i] += bias[op.weight.first_row + i % n];
    }
    return y;
  }

  Computed compute(const op::RmsNorm& op, ValueId) const {
    std::vector<float> weight(op.group, 1.0f);
    if (op.weight) {
      PUMICE_TRY(weight, vector(*op.weight));
    }
    Values y = rows_[op.x];
    for (size_t first = 0; first < y.size(); first += op.group) {
      double* const group = &y[first];
      const double mean = dot(group, group, op.group) / op.group;
      const double scale = 1 / std::sqrt(mean + double{op.eps});
      const float* const factors = &weight[first % weight.size()];
      for (size_t i = 0; i < op.group; ++i) group[i] *= scale * factors[i];
    }
    return y;
  }

  Computed compute(const op::LayerNorm& op, ValueId) const {
    PUMICE_TRY(const std::vector<float> weight, vector(op.weight));
    std::vector<float> bias(weight.size());
    if (op.bias) {
      PUMICE_TRY(bias, vector(*op.bias));
    }
    Values y = rows_[op.x];
    const size_t n = op.group;
    for (size_t first = 0; first < y.size(); first += n) {
      double* const group = &y[first];
      const double mean = std::accumulate(group, group + n, 0.0) / static_cast<double>(n);
      for (size_t i = 0; i < n; ++i) group[i] -= mean;
      const double variance = dot(group, group, n) / static_cast<double>(n);
      const double scale = 1 / std::sqrt(variance + double{op.eps});
      const size_t column = first % weight.size();
      for (size_t i = 0; i < n; ++i) {
        group[i] = group[i] * scale * weight[column + i] + bias[column + i];
      }
    }
    return y;
  }

  Computed compute(const op::Rope& op, ValueId) const {
    PUMICE_TRY(const ops::RopeFrequencies rope,
               ops::rope_frequencies(program_.ropes[op.rope].for_context(context_tokens_)));
    const size_t n_pairs = rope.radians_per_position.size();
    const size_t row = width(op.x);
    Values y = rows_[op.x];
    for (size_t t = 0; t < n_tokens(); ++t) {
      for (size_t i = 0; i < n_pairs; ++i) {
        const double angle = static_cast<double>(t) * rope.radians_per_position[i];
        const double cosine = std::cos(angle) * rope.magnitude_at(t);
        const double sine = std::sin(angle) * rope.magnitude_at(t);
        for (size_t head = 0; head < row; head += op.head_dim) {
          double* const values = &y[t * row + head];
          double& a = values[op.first + (op.halves ? i : 2 * i)];
          double& b = values[op.first + (op.halves ? i + n_pairs : 2 * i + 1)];
          const double first = a;
          a = first * cosine - b * sine;
          b = first * sine + b * cosine;
        }
      }
    }
    return y;
  }

  Computed compute(const op::Append& op, ValueId result) {
    states_[result] = {.k = op.k, .v = op.v};
    return Values();
  }

  Computed compute(const op::Attention& op, ValueId) const {
    const Values& q = rows_[op.q];
    const Values& k = rows_[states_[op.kv].k];
    // Values that are a part of the keys lie where those begin.
    const Values& v = rows_[states_[op.kv].v.value_or(states_[op.kv].k)];
    const size_t dim = op.head_dim;
    const size_t value_dim = op.value_dim();
    const size_t k_row = op.n_kv_heads * dim;
    // Those that are a part of the keys lie as far apart as keys do.
    const size_t v_stride = op.latent_dim != 0 ? dim : value_dim;
    const size_t v_row = op.n_kv_heads * v_stride;
    std::vector<float> sinks;
    if (op.sinks) {
      PUMICE_TRY(sinks, vector(*op.sinks));
    }
    Values y(n_tokens() * op.n_heads * value_dim);
    const auto attend = [&](size_t t) -> Status {
      // Without end the sum is beyond any text's; what is hidden behind a window follows from it.
      const size_t last_key = t + size_t{op.ahead};
      const size_t first_key =
          op.window != 0 && last_key >= op.window ? last_key + 1 - op.window : 0;
      Values scores(std::min(last_key + 1, n_tokens()) - first_key);
      for (size_t head = 0; head < op.n_heads; ++head) {
        const size_t at = (t * op.n_heads + head) * dim;
        const size_t to = (t * op.n_heads + head) * value_dim;
        const size_t kv_head = head / (op.n_heads / op.n_kv_heads);
        double largest = op.sinks ? double{sinks[head]} : -INFINITY;
        for (size_t i = 0; i < scores.size(); ++i) {
          double score = op.scale * dot(&q[at], &k[(first_key + i) * k_row + kv_head * dim], dim);
          if (op.soft_cap != 0) score = op.soft_cap * std::tanh(score / op.soft_cap);
          largest = std::max(largest, score);
          scores[i] = score;
        }
        double total = op.sinks ? std::exp(double{sinks[head]} - largest) : 0;
        for (double& score : scores) total += score = std::exp(score - largest);
        for (size_t i = 0; i < scores.size(); ++i) {
          const double share = scores[i] / total;
          const double* const value = &v[(first_key + i) * v_row + kv_head * v_stride];
          for (size_t c = 0; c < value_dim; ++c) y[to + c] += share * value[c];
        }
      }
      return {};
    };
    PUMICE_TRY_STATUS(for_each_on_threads(n_tokens(), max_threads_, attend));
    return y;
  }

  Computed compute(const op::HeadLinear& op, ValueId result) {
    const HeadProduct size = head_product(program_, op);
    const size_t x_head = size.n_in + size.n_kept;
    const size_t y_head = size.n_out + size.n_kept;
    const auto& dims = program_.tensors[op.weight].dims;
    const size_t head_rows = dims[1] * dims[2] / op.n_heads;
    Values y(n_tokens() * width(result));
    const auto multiply = [&](size_t head) -> Status {
      const size_t first = head * head_rows + op.first_row;
      const WeightSource rows = source_.matrix(*tensors_[op.weight], static_cast<uint32_t>(first),
                                               static_cast<uint32_t>(op.n_rows));
      PUMICE_TRY(const std::vector<float> w, matrix_rows(rows, 0, op.n_rows));
      for (size_t t = 0; t < n_tokens(); ++t) {
        const double* const from = &rows_[op.x][(t * op.n_heads + head) * x_head];
        double* const to = &y[(t * op.n_heads + head) * y_head];
        for (size_t row = 0; row < op.n_rows; ++row) {
          for (size_t col = 0; col < dims[0]; ++col) {
            const double weight = w[row * dims[0] + col];
            to[op.transposed ? col : row] += weight * from[op.transposed ? row : col];
          }
        }
        std::copy_n(from + size.n_in, size.n_kept, to + size.n_out);
      }
      return {};
    };
    PUMICE_TRY_STATUS(for_each_on_threads(op.n_heads, max_threads_, multiply));
    return y;
  }

  Computed compute(const op::CausalConv& op, ValueId) const {
    PUMICE_TRY(const std::vector<float> weight, vector(op.weight));
    const size_t n = width(op.x);
    const size_t taps = weight.size() / n;
    std::vector<float> bias(n);
    if (op.bias) {
      PUMICE_TRY(bias, vector(*op.bias));
    }
    const Values& x = rows_[op.x];
    Values y;
    for (size_t t = 0; t < n_tokens(); ++t) {
      for (size_t i = 0; i < n; ++i) {
        double sum = bias[i];
        for (size_t k = 0; k < taps; ++k) {
          if (t + k + 1 >= taps)
            sum += double{weight[i * taps + k]} * x[(t + k + 1 - taps) * n + i];
        }
        y.push_back(op.silu ? activate(ActivationKind::kSilu, sum) : sum);
      }
    }
    return y;
  }

  Computed compute(const op::Recurrence& op, ValueId) const {
    PUMICE_TRY(const std::vector<float> a, vector(op.a));
    PUMICE_TRY(const std::vector<float> bias, vector(op.bias));
    const size_t n_keys = op.key_dim;
    const size_t n_values = op.value_dim;
    const bool by_state = op.decay == StateDecay::kState;
    const size_t n_steps = op.n_steps();
    const size_t n_own = n_steps / op.n_heads;
    std::vector<float> d(by_state ? n_steps : op.n_heads);
    if (op.d) {
      PUMICE_TRY(d, vector(*op.d));
    }
    Values y(rows_[op.v].size());
    const auto run_head = [&](size_t head) -> Status {
      const size_t key_head =
          op.by_remainder ? head % op.n_key_heads : head / (op.n_heads / op.n_key_heads);
      Values s(n_values * n_keys);
      Values steps(n_own);  // of a token
      for (size_t t = 0; t < n_tokens(); ++t) {
        const double* const q = &rows_[op.q][(t * op.n_key_heads + key_head) * n_keys];
        const double* const k = &rows_[op.k][(t * op.n_key_heads + key_head) * n_keys];
        for (size_t i = 0; i < n_own; ++i) {
          const size_t own = head * n_own + i;
          const double raw = rows_[op.step][t * n_steps + own] + bias[own];
          steps[i] = std::max(raw, 0.0) + std::log1p(std::exp(-std::abs(raw)));
        }
        const Values factors = decays(op, a, head, steps);
        for (size_t first = 0; first < s.size(); first += factors.size()) {
          for (size_t i = 0; i < factors.size(); ++i) s[first + i] *= factors[i];
        }
        for (size_t i = 0; i < n_values; ++i) {
          double* const row = &s[i * n_keys];
          const size_t at = (t * op.n_heads + head) * n_values + i;
          double u = steps[by_state ? i : 0] * rows_[op.v][at];
          if (op.beta) {
            const double known = op.k_scale * dot(row, k, n_keys);
            const double beta =
                activate(ActivationKind::kSigmoid, rows_[*op.beta][t * op.n_heads + head]);
            u = beta * (rows_[op.v][at] - known);
          }
          for (size_t c = 0; c < n_keys; ++c) row[c] += u * op.k_scale * k[c];
          const double own_d = d[by_state ? head * n_values + i : head];
          y[at] = op.q_scale * dot(row, q, n_keys) + own_d * rows_[op.v][at];
        }
      }
      return {};
    };
    PUMICE_TRY_STATUS(for_each_on_threads(op.n_heads, max_threads_, run_head));
    return y;
  }

  Computed compute(const op::Activation& op, ValueId) const {
    Values y = rows_[op.x];
    for (double& value : y) value = activate(op.kind, value);
    return y;
  }

  Computed compute(const op::Xielu& op, ValueId) const {
    Values y = rows_[op.x];
    for (double& x : y) {
      const double curved =
          x > 0 ? op.alpha_p * x * x : op.alpha_n * (std::expm1(std::min(x, double{op.eps})) - x);
      x = curved + op.beta * x;
    }
    return y;
  }

  Computed compute(const op::Mul& op, ValueId) const {
    Values y = rows_[op.a];
    const size_t group = width(op.a) / width(op.b);
    for (size_t i = 0; i < y.size(); ++i) y[i] *= rows_[op.b][i / group];
    return y;
  }

  Computed compute(const op::Add& op, ValueId) const {
    Values y = rows_[op.a];
    for (size_t i = 0; i < y.size(); ++i) y[i] += rows_[op.b][i];
    return y;
  }

  Computed compute(const op::Scale& op, ValueId) const {
    Values y = rows_[op.x];
    for (double& value : y) value *= op.factor;
    return y;
  }

  Computed compute(const op::Clamp& op, ValueId) const {
    Values y = rows_[op.x];
    for (double& value : y) {
      value = std::min(value, op.limit);
      if (op.both_sides) value = std::max(value, -op.limit);
    }
    return y;
  }

  Computed compute(const op::SoftCap& op, ValueId) const {
    Values y = rows_[op.x];
    for (double& value : y) value = op.cap * std::tanh(value / op.cap);
    return y;
  }

  Computed compute(const op::Split& op, ValueId result) const {
    Values y;
    for (size_t t = 0; t < n_tokens(); ++t) {
      const double* const first = &rows_[op.x][t * width(op.x) + op.first];
      y.insert(y.end(), first, first + width(result));
    }
    return y;
  }

  Computed compute(const op::Concat& op, ValueId) const {
    Values y;
    for (size_t t = 0; t < n_tokens(); ++t) {
      for (const ValueId part : {op.a, op.b}) {
        const double* const first = &rows_[part][t * width(part)];
        y.insert(y.end(), first, first + width(part));
      }
    }
    return y;
  }

  Computed compute(const op::SplitGroups& op, ValueId) const {
    Values y;
    for (size_t first = op.first; first < rows_[op.x].size(); first += op.group) {
      const double* const numbers = &rows_[op.x][first];
      y.insert(y.end(), numbers, numbers + op.n);
    }
    return y;
  }

  Computed compute(const op::Route& op, ValueId result) {
    const size_t n_experts = width(op.scores);
    std::vector<float> bias;
    if (op.bias) {
      PUMICE_TRY(bias, vector(*op.bias));
    }
    std::vector<float> gains;
    if (op.gain) {
      PUMICE_TRY(gains, vector(*op.gain));
    }
    Routes& routes = routes_[result];
    std::vector<uint32_t> order(n_experts);
    for (size_t t = 0; t < n_tokens(); ++t) {
      const Values p = probabilities(op.router, {&rows_[op.scores][t * n_experts], n_experts});
      Values choosing = p;
      for (size_t e = 0; e < bias.size(); ++e) choosing[e] += bias[e];
      leave_out_groups(op.router, choosing);
      std::iota(order.begin(), order.end(), 0u);
      std::ranges::stable_sort(order, std::greater<>(), [&](uint32_t e) { return choosing[e]; });
      double total = 0;
      for (size_t rank = 0; rank < op.n_used; ++rank) total += p[order[rank]];
      total = op.router.renormalised ? std::max(total, kLeastWeightSum) : 1;
      for (size_t rank = 0; rank < op.n_used; ++rank) {
        routes.experts.push_back(order[rank]);
        const double gain = op.gain ? double{gains[order[rank]]} : 1;
        routes.weights.push_back(op.router.scale * p[order[rank]] / total * gain);
      }
    }
    return Values();
  }

  Computed compute(const op::ExpertLinear& op, ValueId) {
    const auto& dims = program_.tensors[op.weight].dims;
    const size_t n_cols = dims[0];
    const size_t n_rows = dims[1];
    const std::vector<uint32_t>& experts = routes_[op.routes].experts;
    const size_t n_used = width(op.routes);
    const bool one_row_each = width(op.x) == n_used * n_cols;
    std::vector<float> bias;
    if (op.bias) {
      PUMICE_TRY(bias, vector(*op.bias));
    }
    Values y(experts.size() * n_rows);
    for (uint32_t expert = 0; expert < dims[2]; ++expert) {
      std::vector<size_t> chosen;  // token * n_used + rank
      Values x;
      for (size_t i = 0; i < experts.size(); ++i) {
        if (experts[i] != expert) continue;
        chosen.push_back(i);
        const double* const row = &rows_[op.x][(one_row_each ? i : i / n_used) * n_cols];
        x.insert(x.end(), row, row + n_cols);
      }
      if (chosen.empty()) continue;
      PUMICE_TRY(const Values part, product(x, chosen.size(), op.weight, expert * n_rows, n_rows));
      for (size_t i = 0; i < chosen.size(); ++i) {
        for (size_t r = 0; r < n_rows; ++r) {
          y[chosen[i] * n_rows + r] =
              part[i * n_rows + r] + (op.bias ? bias[expert * n_rows + r] : 0);
        }
      }
    }
    return y;
  }

  Computed compute(const op::Combine& op, ValueId result) const {
    const Values& weights = routes_[op.routes].weights;
    const size_t n_used = width(op.routes);
    const size_t n = width(result);
    Values y(n_tokens() * n);
    for (size_t i = 0; i < weights.size(); ++i) {
      for (size_t c = 0; c < n; ++c) y[i / n_used * n + c] += weights[i] * rows_[op.x][i * n + c];
    }
    return y;
  }

  const ModelSource& source_;
  const Program& program_;
  std::span<const TokenId> tokens_;
  std::span<const double> given_;
  size_t max_threads_;
  uint32_t context_tokens_;
  std::vector<const GgufTensor*> tensors_;
  std::vector<size_t> last_uses_;
  std::vector<Values> rows_;  // of the values computed and still needed
  std::vector<Routes> routes_;
  std::vector<State> states_;
  double n_weights_ = 0;  // multiplied so far
  double product_seconds_ = 0;
};

}  // namespace

Result<ReferenceLogits> reference_logits(const ModelSource& source, const Program& program,
                                         std::span<const TokenId> tokens,
                                         const ReferenceLimits& limits) {
  const auto start = Clock::now();
  if (const auto most = position_limit(program); most && tokens.size() > *most) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} tokens: the model has position embeddings for {}", tokens.size(), *most);
  }
  const Op* const given = given_rows(program);
  const size_t n_given = given == nullptr ? 0 : tokens.size() * program.values[given->result].width;
  if (limits.given.size() != n_given) {
    return make_error(ErrorCode::kInvalidArgument, "{} numbers are given where {} are read",
                      limits.given.size(), n_given);
  }
  Evaluation evaluation(source, program, tokens, limits);
  ReferenceLogits result;
  size_t next_op = 0;
  for (const Layer& layer : program.layers) {
    const auto layer_start = Clock::now();
    PUMICE_TRY_STATUS(evaluation.run(next_op, layer.end_op));
    next_op = layer.end_op;
    ++result.n_layers;
    if (limits.stop && limits.stop()) return make_error(ErrorCode::kCancelled, "interrupted");
    const size_t after_layers = program.layers.back().end_op;
    const double with_another =
        seconds_since(start) + seconds_since(layer_start) + evaluation.seconds_of(after_layers);
    if (result.n_layers >= limits.n_layers || with_another > limits.seconds) {
      evaluation.leave_out_layers_after(layer);
      next_op = after_layers;
      break;
    }
  }
  PUMICE_TRY_STATUS(evaluation.run(next_op, program.ops.size()));
  result.logits = evaluation.take(program.logits);
  result.experts = evaluation.experts();
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace pumice
