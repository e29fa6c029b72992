#include "bench/reference_model.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <mutex>
#include <thread>

#include "shaders/rope_kv/rope_table.hpp"

namespace pumice::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Values = std::vector<double>;  // [tokens][width]

constexpr size_t kRowsAtOnce = 32;  // of a matrix, by one thread
constexpr size_t kLanes = 8;        // tokens that share a weight in registers
using Lanes = std::array<double, kLanes>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// body(i) for i in [0, n), on all cores.
void for_each_on_threads(size_t n, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < n; i = next++) body(i);
  };
  const size_t n_threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, n);
  std::vector<std::future<void>> others;
  for (size_t i = 1; i < n_threads; ++i) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
}

class Pass {
 public:
  Pass(const ModelSource& source, const ModelDescription& model, size_t n_tokens)
      : source_(source), model_(model), config_(model.config), n_tokens_(n_tokens) {}

  /// What could not be read of the model; the values are then worth nothing.
  const Status& status() const { return status_; }

  Values embed(std::span<const TokenId> tokens) {
    const WeightSource table = matrix_named(model_.names.token_embd);
    Values x;
    for (const TokenId token : tokens) {
      const std::vector<float> row = rows_of(table, token, 1);
      x.insert(x.end(), row.begin(), row.end());
    }
    return x;
  }

  void add_layer(Values& x, uint32_t layer, const ops::RopeFrequencies& rope) {
    const TensorNames& names = model_.names;
    const auto name = [&](const std::string& tensor) { return names.layer(layer, tensor); };
    const Values attention_input = norm(x, name(names.attn_norm));
    Values q = product(attention_input, name(names.attn_q));
    Values k = product(attention_input, name(names.attn_k));
    const Values v = product(attention_input, name(names.attn_v));
    rotate(q, config_.n_heads, rope);
    rotate(k, config_.n_kv_heads, rope);
    add(x, product(attend(q, k, v), name(names.attn_output)));

    const Values ffn_input = norm(x, name(names.ffn_norm));
    Values gate = product(ffn_input, name(names.ffn_gate));
    const Values up = product(ffn_input, name(names.ffn_up));
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    add(x, product(gate, name(names.ffn_down)));
  }

  Values output(const Values& x) {
    return product(norm(x, model_.names.output_norm), output_name());
  }

  /// What the output will take, from the products so far.
  double output_seconds() const {
    const auto n = static_cast<double>(source_.file().find_tensor(output_name())->n_elements());
    return n_weights_ == 0 ? 0 : n * product_seconds_ / n_weights_;
  }

 private:
  WeightSource matrix_named(const std::string& name) const {
    return source_.matrix(*source_.file().find_tensor(name));
  }
  const std::string& output_name() const {
    const bool tied = source_.file().find_tensor(model_.names.output) == nullptr;
    return tied ? model_.names.token_embd : model_.names.output;
  }

  static void add(Values& x, const Values& delta) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += delta[i];
  }

  void note(const Status& read) {
    const std::scoped_lock lock(status_mutex_);
    if (status_.ok()) status_ = read;
  }

  /// Rows [first, first + n) of a matrix as floats. Thread-safe.
  std::vector<float> rows_of(const WeightSource& matrix, size_t first, size_t n) {
    const WeightType& type = *matrix.type;
    std::vector<std::byte> blocks(type.file_bytes(n * matrix.n_cols));
    note(matrix.fill(first * matrix.n_cols / type.block_elements, blocks));
    std::vector<float> values(n * matrix.n_cols);
    dequantize(type, blocks.data(), values.size(), values.data());
    return values;
  }

  Values norm(const Values& x, const std::string& weight_name) {
    const auto read = source_.values(*source_.file().find_tensor(weight_name));
    if (!read.ok()) {
      note(read.error());
      return Values(x.size());
    }
    const std::vector<float>& weight = *read;
    const size_t width = weight.size();
    Values y(x.size());
    for (size_t t = 0; t < n_tokens_; ++t) {
      double square = 0;
      for (size_t i = 0; i < width; ++i) square += x[t * width + i] * x[t * width + i];
      const double scale =
          1 / std::sqrt(square / static_cast<double>(width) + double{config_.norm_eps});
      for (size_t i = 0; i < width; ++i) y[t * width + i] = x[t * width + i] * scale * weight[i];
    }
    return y;
  }

  /// x · Wᵀ
  Values product(const Values& x, const std::string& weight_name) {
    const auto start = Clock::now();
    const WeightSource matrix = matrix_named(weight_name);
    const size_t n_cols = matrix.n_cols;
    const size_t n_rows = matrix.n_rows;
    const size_t n_groups = (n_tokens_ + kLanes - 1) / kLanes;
    std::vector<Lanes> columns(n_groups * n_cols, Lanes{});
    for (size_t t = 0; t < n_tokens_; ++t) {
      for (size_t c = 0; c < n_cols; ++c) {
        columns[t / kLanes * n_cols + c][t % kLanes] = x[t * n_cols + c];
      }
    }
    Values y(n_tokens_ * n_rows);
    for_each_on_threads((n_rows + kRowsAtOnce - 1) / kRowsAtOnce, [&](size_t chunk) {
      const size_t first = chunk * kRowsAtOnce;
      const size_t count = std::min(kRowsAtOnce, n_rows - first);
      const std::vector<float> weights = rows_of(matrix, first, count);
      for (size_t row = 0; row < count; ++row) {
        for (size_t group = 0; group < n_groups; ++group) {
          Lanes sum{};
          for (size_t c = 0; c < n_cols; ++c) {
            const double weight = weights[row * n_cols + c];
            const Lanes& inputs = columns[group * n_cols + c];
            for (size_t lane = 0; lane < kLanes; ++lane) sum[lane] += weight * inputs[lane];
          }
          const size_t last = std::min(kLanes, n_tokens_ - group * kLanes);
          for (size_t lane = 0; lane < last; ++lane) {
            y[(group * kLanes + lane) * n_rows + first + row] = sum[lane];
          }
        }
      }
    });
    n_weights_ += static_cast<double>(n_rows * n_cols);
    product_seconds_ += seconds_since(start);
    return y;
  }

  void rotate(Values& x, uint32_t n_heads, const ops::RopeFrequencies& rope) const {
    const size_t head_dim = config_.head_dim;
    const size_t n_pairs = config_.rope.dims / 2;
    for (size_t t = 0; t < n_tokens_; ++t) {
      for (size_t head = 0; head < n_heads; ++head) {
        double* const values = &x[(t * n_heads + head) * head_dim];
        for (size_t i = 0; i < n_pairs; ++i) {
          double& a = values[config_.rope_halves ? i : 2 * i];
          double& b = values[config_.rope_halves ? i + n_pairs : 2 * i + 1];
          const double angle = static_cast<double>(t) * rope.radians_per_position[i];
          const double cosine = std::cos(angle) * rope.magnitude;
          const double sine = std::sin(angle) * rope.magnitude;
          const double first = a;
          a = first * cosine - b * sine;
          b = first * sine + b * cosine;
        }
      }
    }
  }

  /// Causal attention; several heads of q share one of k and v.
  Values attend(const Values& q, const Values& k, const Values& v) const {
    const size_t head_dim = config_.head_dim;
    const size_t n_heads = config_.n_heads;
    const size_t n_kv_heads = config_.n_kv_heads;
    const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
    Values y(q.size());
    for (size_t t = 0; t < n_tokens_; ++t) {
      for (size_t head = 0; head < n_heads; ++head) {
        const size_t kv_head = head / (n_heads / n_kv_heads);
        const auto at = [&](const Values& kv, size_t position, size_t i) {
          return kv[(position * n_kv_heads + kv_head) * head_dim + i];
        };
        const size_t row = (t * n_heads + head) * head_dim;
        Values scores(t + 1);
        for (size_t key = 0; key <= t; ++key) {
          for (size_t i = 0; i < head_dim; ++i) scores[key] += q[row + i] * at(k, key, i);
          scores[key] *= scale;
        }
        const double largest = *std::ranges::max_element(scores);
        double total = 0;
        for (double& score : scores) total += score = std::exp(score - largest);
        for (size_t key = 0; key <= t; ++key) {
          for (size_t i = 0; i < head_dim; ++i) y[row + i] += scores[key] / total * at(v, key, i);
        }
      }
    }
    return y;
  }

  const ModelSource& source_;
  const ModelDescription& model_;
  const ModelConfig& config_;
  size_t n_tokens_;
  double n_weights_ = 0;  // multiplied so far
  double product_seconds_ = 0;
  std::mutex status_mutex_;
  Status status_;
};

}  // namespace

Result<ReferenceLogits> reference_logits(const ModelSource& source, const ModelDescription& model,
                                         std::span<const TokenId> tokens,
                                         const ReferenceLimits& limits) {
  PUMICE_TRY(const ops::RopeFrequencies rope, ops::rope_frequencies(model.config.rope));
  const auto start = Clock::now();
  const uint32_t n_layers = std::min(limits.n_layers, model.config.n_layers);
  Pass pass(source, model, tokens.size());
  ReferenceLogits result;
  Values x = pass.embed(tokens);
  while (result.n_layers < n_layers) {
    const auto layer_start = Clock::now();
    pass.add_layer(x, result.n_layers++, rope);
    PUMICE_TRY_STATUS(pass.status());
    if (limits.stop && limits.stop()) return make_error(ErrorCode::kCancelled, "interrupted");
    const double with_another =
        seconds_since(start) + seconds_since(layer_start) + pass.output_seconds();
    if (with_another > limits.seconds) break;
  }
  result.logits = pass.output(x);
  PUMICE_TRY_STATUS(pass.status());
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace pumice::bench
