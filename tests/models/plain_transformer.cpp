#include "tests/models/plain_transformer.hpp"

#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <span>
#include <utility>

namespace pumice::test {
namespace {

constexpr uint32_t kWidth = 64;
constexpr uint32_t kHeadDim = 16;
constexpr uint32_t kFeedForward = 96;
constexpr float kEps = 0.01f;  // one that can be seen

std::vector<double> sum(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// (x - mean) / √(variance + eps), in place.
void normalise(std::span<double> x) {
  const auto n = static_cast<double>(x.size());
  double mean = 0;
  for (const double value : x) mean += value / n;
  double variance = 0;
  for (const double value : x) variance += (value - mean) * (value - mean) / n;
  for (double& value : x) value = (value - mean) / std::sqrt(variance + double{kEps});
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

}  // namespace

PlainTransformer::PlainTransformer(PlainShape shape) : shape_(std::move(shape)) {
  const uint32_t n_q = shape_.n_heads * kHeadDim;
  const uint32_t n_kv = shape_.n_kv_heads * kHeadDim;
  add("token_embd.weight", {kWidth, kVocab});
  if (shape_.learned_positions) add("position_embd.weight", {kWidth, kContext});
  for (uint32_t i = 0; i < shape_.n_layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    add_norm(layer + "attn_norm");
    if (shape_.fused_qkv) {
      add_linear(layer + "attn_qkv", kWidth, n_q + 2 * n_kv, shape_.qkv_bias);
    } else {
      add_linear(layer + "attn_q", kWidth, n_q, shape_.qkv_bias);
      add_linear(layer + "attn_k", kWidth, n_kv, shape_.qkv_bias);
      add_linear(layer + "attn_v", kWidth, n_kv, shape_.qkv_bias);
    }
    if (shape_.head_norms) {
      add(layer + "attn_q_norm.weight", {kHeadDim, shape_.n_heads}, 1);
      add(layer + "attn_k_norm.weight", {kHeadDim, shape_.n_kv_heads}, 1);
    }
    add_linear(layer + "attn_output", n_q, kWidth, shape_.output_bias);
    if (shape_.second_norm) add_norm(layer + "ffn_norm");
    if (shape_.gated) add_linear(layer + "ffn_gate", kWidth, kFeedForward, false);
    add_linear(layer + "ffn_up", kWidth, kFeedForward, !shape_.gated);
    add_linear(layer + "ffn_down", kFeedForward, kWidth, !shape_.gated);
  }
  add_norm("output_norm");
  if (shape_.own_output) add_linear("output", kWidth, kVocab, true);
}

void PlainTransformer::add(const std::string& name, std::vector<uint64_t> dims, float mean) {
  std::mt19937 random(static_cast<uint32_t>(tensors_.size()));
  uint64_t n = 1;
  for (const uint64_t dim : dims) n *= dim;
  const float spread = dims.size() == 2 && mean == 0 ? 0.25f : 0.5f;
  std::vector<float> values(n);
  for (float& value : values) {
    value = mean + spread * (static_cast<float>(random() >> 8) * 0x1p-23f - 1);
  }
  index_[name] = tensors_.size();
  tensors_.push_back({name, std::move(dims), std::move(values)});
}

void PlainTransformer::add_linear(const std::string& stem, uint32_t n_inputs, uint32_t n_outputs,
                                  bool bias) {
  add(stem + ".weight", {n_inputs, n_outputs});
  if (bias) add(stem + ".bias", {n_outputs});
}

void PlainTransformer::add_norm(const std::string& stem) {
  add(stem + ".weight", {kWidth}, 1);
  if (shape_.norm_bias) add(stem + ".bias", {kWidth});
}

const std::vector<float>& PlainTransformer::values(const std::string& name) const {
  return tensors_[index_.at(name)].values;
}

std::unique_ptr<SmallFile> PlainTransformer::file() const {
  GgufHeader header;
  const std::string prefix = shape_.architecture + ".";
  header.set("general.architecture", shape_.architecture);
  for (const auto& [key, value] :
       std::map<std::string, uint32_t>{{"block_count", shape_.n_layers},
                                       {"embedding_length", kWidth},
                                       {"feed_forward_length", kFeedForward},
                                       {"attention.head_count", shape_.n_heads},
                                       {"attention.head_count_kv", shape_.n_kv_heads},
                                       {"context_length", kContext}}) {
    header.set(prefix + key, value);
  }
  header.set(prefix + "attention.layer_norm_epsilon", kEps);
  if (shape_.turn != PlainShape::Turn::kNone) {
    header.set(prefix + "rope.dimension_count", shape_.rope_dims);
  }
  std::array<bool, 8> windowed{};
  for (size_t i = 0; i < shape_.windows.size(); ++i) windowed.at(i) = shape_.windows[i] != 0;
  header.set_array(prefix + "attention.sliding_window_pattern",
                   std::span<const bool>(windowed).first(shape_.n_layers));
  for (const auto& [key, value] : shape_.floats) header.set(prefix + key, value);
  for (const auto& [key, value] : shape_.bools) header.set(prefix + key, value);
  for (const auto& [key, value] : shape_.counts) header.set(prefix + key, value);
  return std::make_unique<SmallFile>(tensors_, std::move(header));
}

PlainTransformer::Row PlainTransformer::linear(const Row& x, const std::string& stem) const {
  const std::vector<float>& weight = values(stem + ".weight");
  Row y(weight.size() / x.size());
  for (size_t row = 0; row < y.size(); ++row) {
    for (size_t i = 0; i < x.size(); ++i) y[row] += weight[row * x.size() + i] * x[i];
  }
  if (has(stem + ".bias")) {
    for (size_t row = 0; row < y.size(); ++row) y[row] += values(stem + ".bias")[row];
  }
  return y;
}

PlainTransformer::Row PlainTransformer::layer_norm(const Row& x, const std::string& stem) const {
  Row y = x;
  normalise(y);
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] *= values(stem + ".weight")[i];
    if (shape_.norm_bias) y[i] += values(stem + ".bias")[i];
  }
  return y;
}

PlainTransformer::Row PlainTransformer::norm_heads(const Row& x, const std::string& stem) const {
  Row y = x;
  for (size_t head = 0; head < y.size(); head += kHeadDim) {
    normalise(std::span(y).subspan(head, kHeadDim));
  }
  for (size_t i = 0; i < y.size(); ++i) y[i] *= values(stem + ".weight")[i];
  return y;
}

PlainTransformer::Row PlainTransformer::turned(const Row& x, uint32_t position) const {
  const uint32_t n_pairs = shape_.rope_dims / 2;
  Row y = x;
  for (size_t head = 0; head < y.size(); head += kHeadDim) {
    for (uint32_t i = 0; i < n_pairs; ++i) {
      const bool halves = shape_.turn == PlainShape::Turn::kHalves;
      const size_t a = head + (halves ? i : 2 * i);
      const size_t b = halves ? a + n_pairs : a + 1;
      const double angle = position * std::pow(10000.0, -2.0 * i / shape_.rope_dims);
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
    }
  }
  return y;
}

PlainTransformer::Row PlainTransformer::attention(const Row& q, const std::vector<Row>& keys,
                                                  const std::vector<Row>& seen,
                                                  uint32_t window) const {
  const size_t first = window != 0 && keys.size() > window ? keys.size() - window : 0;
  Row y(q.size());
  for (uint32_t head = 0; head < shape_.n_heads; ++head) {
    const size_t at = size_t{head} * kHeadDim;
    const size_t kv_at = size_t{head} / (shape_.n_heads / shape_.n_kv_heads) * kHeadDim;
    Row weights;
    double total = 0;
    for (size_t t = first; t < keys.size(); ++t) {
      double score = 0;
      for (uint32_t i = 0; i < kHeadDim; ++i) score += q[at + i] * keys[t][kv_at + i];
      weights.push_back(std::exp(shape_.scale * score));
      total += weights.back();
    }
    for (size_t t = first; t < keys.size(); ++t) {
      for (uint32_t i = 0; i < kHeadDim; ++i) {
        y[at + i] += weights[t - first] / total * seen[t][kv_at + i];
      }
    }
  }
  return y;
}

PlainTransformer::Row PlainTransformer::feed_forward(const Row& x, const std::string& layer) const {
  Row up = linear(x, layer + "ffn_up");
  if (shape_.gated) {
    const Row gate = linear(x, layer + "ffn_gate");
    for (size_t i = 0; i < up.size(); ++i) up[i] *= gate[i] / (1 + std::exp(-gate[i]));
  } else {
    for (double& value : up) value = gelu(value);
  }
  return linear(up, layer + "ffn_down");
}

std::vector<double> PlainTransformer::logits(const std::vector<uint32_t>& tokens) const {
  const size_t n_q = size_t{shape_.n_heads} * kHeadDim;
  const size_t n_kv = size_t{shape_.n_kv_heads} * kHeadDim;
  std::vector<std::vector<Row>> keys(shape_.n_layers);
  std::vector<std::vector<Row>> seen(shape_.n_layers);
  std::vector<double> all;
  for (uint32_t t = 0; t < tokens.size(); ++t) {
    Row x(kWidth);
    for (uint32_t i = 0; i < kWidth; ++i) {
      x[i] = values("token_embd.weight")[tokens[t] * kWidth + i];
      if (shape_.learned_positions) x[i] += values("position_embd.weight")[t * kWidth + i];
    }
    for (uint32_t l = 0; l < shape_.n_layers; ++l) {
      const std::string layer = "blk." + std::to_string(l) + ".";
      const uint32_t window = l < shape_.windows.size() ? shape_.windows[l] : 0;
      const Row h = layer_norm(x, layer + "attn_norm");
      Row q, k, v;
      if (shape_.fused_qkv) {
        const Row qkv = linear(h, layer + "attn_qkv");
        const auto k_first = qkv.begin() + static_cast<ptrdiff_t>(n_q);
        const auto v_first = k_first + static_cast<ptrdiff_t>(n_kv);
        q.assign(qkv.begin(), k_first);
        k.assign(k_first, v_first);
        v.assign(v_first, qkv.end());
      } else {
        q = linear(h, layer + "attn_q");
        k = linear(h, layer + "attn_k");
        v = linear(h, layer + "attn_v");
      }
      if (shape_.head_norms) {
        q = norm_heads(q, layer + "attn_q_norm");
        k = norm_heads(k, layer + "attn_k_norm");
      }
      if (shape_.turn != PlainShape::Turn::kNone && (window != 0 || shape_.full_layers_turn)) {
        q = turned(q, t);
        k = turned(k, t);
      }
      keys[l].push_back(k);
      seen[l].push_back(v);
      const Row a = linear(attention(q, keys[l], seen[l], window), layer + "attn_output");
      const Row after = sum(x, a);
      const Row& read = shape_.parallel ? x : after;
      const Row f = shape_.second_norm ? layer_norm(read, layer + "ffn_norm") : h;
      x = sum(after, feed_forward(f, layer));
    }
    for (double value :
         linear(layer_norm(x, "output_norm"), shape_.own_output ? "output" : "token_embd")) {
      all.push_back(shape_.logit_scale * value);
    }
  }
  return all;
}

std::vector<PlainShape> forms_without_a_file() {
  using Turn = PlainShape::Turn;
  // Command R and its like: one norm without bias, no biases, a gate, the embedding's logits
  // scaled.
  const PlainShape cohere{.architecture = "command-r",
                          .turn = Turn::kNeighbours,
                          .rope_dims = 16,
                          .norm_bias = false,
                          .parallel = true,
                          .second_norm = false,
                          .qkv_bias = false,
                          .output_bias = false,
                          .gated = true,
                          .logit_scale = 0.25,
                          .floats = {{"logit_scale", 0.25f}}};
  PlainShape command_r_plus = cohere;
  command_r_plus.head_norms = true;
  PlainShape cohere2 = cohere;
  cohere2.architecture = "cohere2";
  cohere2.n_layers = 5;
  cohere2.windows = {20, 20, 20, 0, 20};
  cohere2.full_layers_turn = false;
  cohere2.counts = {{"attention.sliding_window", 20}};
  const PlainShape phi2{.architecture = "phi2",
                        .parallel = true,
                        .second_norm = false,
                        .fused_qkv = true,
                        .own_output = true};
  PlainShape older_phi2 = phi2;
  older_phi2.fused_qkv = false;
  return {
      {.architecture = "gptneox", .fused_qkv = true, .bools = {{"use_parallel_residual", false}}},
      {.architecture = "stablelm",
       .parallel = true,
       .second_norm = false,
       .head_norms = true,
       .output_bias = false,
       .gated = true},
      phi2,
      older_phi2,
      {.architecture = "starcoder2", .rope_dims = 16},
      command_r_plus,
      cohere2,
      {.architecture = "gptneo",
       .n_layers = 3,
       .n_kv_heads = 4,
       .turn = Turn::kNone,
       .windows = {0, 20, 0},
       .learned_positions = true,
       .scale = 1,
       .qkv_bias = false,
       .counts = {{"attention.sliding_window", 20}}},
  };
}

}  // namespace pumice::test
