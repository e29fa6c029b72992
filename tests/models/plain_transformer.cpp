#include "tests/models/plain_transformer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <span>
#include <utility>
#include <variant>

namespace pumice::test {
namespace {

constexpr float kEps = 0.01f;  // one that can be seen

std::vector<double> sum(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// x / √(mean square + eps), of x without its mean or as it is, in place.
void normalise(std::span<double> x, bool without_mean) {
  const auto n = static_cast<double>(x.size());
  double mean = 0;
  for (const double value : x) mean += without_mean ? value / n : 0;
  double square = 0;
  for (const double value : x) square += (value - mean) * (value - mean) / n;
  for (double& value : x) value = (value - mean) / std::sqrt(square + double{kEps});
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

}  // namespace

PlainTransformer::PlainTransformer(PlainForm form) : form_(std::move(form)) {
  add("token_embd.weight", {form_.n_embd, kVocab});
  if (form_.learned_positions) add("position_embd.weight", {form_.n_embd, kContext});
  for (uint32_t i = 0; i < form_.n_layers; ++i) add_layer(i);
  for (uint32_t i = 0; i < form_.n_prediction_blocks; ++i) add_prediction(form_.n_layers + i);
  add_norm(form_.output_norm);
  if (form_.output != PlainForm::Output::kTied) {
    add_linear("output", form_.n_embd, kVocab, form_.output == PlainForm::Output::kOwnWithBias);
  }
}

void PlainTransformer::add_layer(uint32_t index) {
  const std::string layer = "blk." + std::to_string(index) + ".";
  if (form_.norms_before) add_norm(layer + "attn_norm");
  if (taps(index) != 0) {
    add_convolution(layer, taps(index));
  } else {
    add_attention(index, !form_.keys_as_values || window(index) != 0);
  }
  if (form_.norms_after) add_norm(layer + "post_attention_norm");
  if (form_.norms_before && form_.feed_forward_norm) add_norm(layer + form_.ffn_norm);
  if (has_experts(index)) {
    add_experts(layer);
  } else {
    add_feed_forward(layer, form_.n_ff, "");
  }
  if (form_.norms_after) add_norm(layer + "post_ffw_norm");
}

void PlainTransformer::add_prediction(uint32_t index) {
  add_layer(index);
  const std::string nextn = "blk." + std::to_string(index) + ".nextn.";
  add_norm(nextn + "enorm");
  add_norm(nextn + "hnorm");
  add_linear(nextn + "eh_proj", 2 * form_.n_embd, form_.n_embd, false);
  if (!form_.prediction_has_own) return;
  add(nextn + "embed_tokens.weight", {form_.n_embd, kVocab});
  add_norm(nextn + "shared_head_norm");
  add_linear(nextn + "shared_head_head", form_.n_embd, kVocab, false);
}

void PlainTransformer::add_feed_forward(const std::string& layer, uint32_t n_ff,
                                        const std::string& suffix) {
  if (form_.gated) add_linear(layer + "ffn_gate" + suffix, form_.n_embd, n_ff, false);
  add_linear(layer + "ffn_up" + suffix, form_.n_embd, n_ff, !form_.gated);
  add_linear(layer + "ffn_down" + suffix, n_ff, form_.n_embd, !form_.gated);
}

void PlainTransformer::add_experts(const std::string& layer) {
  const PlainExperts& experts = form_.experts;
  add_linear(layer + "ffn_gate_inp", form_.n_embd, experts.n, false);
  if (experts.beside_dense) {
    add_feed_forward(layer, form_.n_ff, "");
    add(layer + "ffn_gate_inp.scale", {form_.n_embd}, 1);
    add(layer + "ffn_down_exps.scale", {experts.n}, 1);
    add(layer + "ffn_gate_up_exps.weight", {form_.n_embd, 2 * experts.n_ff, experts.n});
    for (const char* stem : {"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"}) {
      add_norm(layer + stem);
    }
  } else {
    add(layer + "ffn_gate_exps.weight", {form_.n_embd, experts.n_ff, experts.n});
    add(layer + "ffn_up_exps.weight", {form_.n_embd, experts.n_ff, experts.n});
  }
  add(layer + "ffn_down_exps.weight", {experts.n_ff, form_.n_embd, experts.n});
  if (experts.biased) add(layer + "exp_probs_b.bias", {experts.n});
  if (experts.n_ff_shared > 0) add_feed_forward(layer, experts.n_ff_shared, "_shexp");
}

void PlainTransformer::add_latent(const std::string& layer) {
  const PlainLatent& latent = form_.latent;
  if (latent.q_rank == 0) {
    add_linear(layer + "attn_q", form_.n_embd, q_dim(), false);
  } else {
    add_linear(layer + "attn_q_a", form_.n_embd, latent.q_rank, false);
    add(layer + "attn_q_a_norm.weight", {latent.q_rank}, 1);
    add_linear(layer + "attn_q_b", latent.q_rank, q_dim(), false);
  }
  add_linear(layer + "attn_kv_a_mqa", form_.n_embd, latent.rank + form_.rope_dims, false);
  add(layer + "attn_kv_a_norm.weight", {latent.rank}, 1);
  if (latent.fused) {
    add_linear(layer + "attn_kv_b", latent.rank, form_.n_heads * (n_still() + latent.value_dim),
               false);
  } else {
    add(layer + "attn_k_b.weight", {n_still(), latent.rank, form_.n_heads});
    add(layer + "attn_v_b.weight", {latent.rank, latent.value_dim, form_.n_heads});
  }
  add_linear(layer + "attn_output", form_.n_heads * latent.value_dim, form_.n_embd, false);
}

void PlainTransformer::add_convolution(const std::string& layer, uint32_t n_taps) {
  add_linear(layer + "shortconv.in_proj", form_.n_embd, 3 * form_.n_embd, false);
  add(layer + "shortconv.conv.weight", {n_taps, form_.n_embd});
  add_linear(layer + "shortconv.out_proj", form_.n_embd, form_.n_embd, false);
}

void PlainTransformer::add_attention(uint32_t index, bool has_values) {
  const std::string layer = "blk." + std::to_string(index) + ".";
  if (has_latent()) return add_latent(layer);
  const uint32_t k_dim = n_kv_heads(index) * form_.head_dim;
  const uint32_t v_dim = n_kv_heads(index) * value_dim();
  if (form_.fused_qkv) {
    add_linear(layer + "attn_qkv", form_.n_embd, q_dim() + k_dim + v_dim, form_.qkv_bias);
  } else {
    add_linear(layer + "attn_q", form_.n_embd, q_dim(), form_.qkv_bias);
    add_linear(layer + "attn_k", form_.n_embd, k_dim, form_.qkv_bias);
    if (has_values) add_linear(layer + "attn_v", form_.n_embd, v_dim, form_.qkv_bias);
  }
  if (form_.window_sinks && window(index) != 0) add(layer + "attn_sinks.weight", {form_.n_heads});
  const auto add_heads_norm = [&](const char* stem, uint32_t n_heads) {
    const uint64_t head_dim = form_.head_dim;
    const std::string name = layer + stem + ".weight";
    if (form_.qk_norm == PlainForm::QkNorm::kHeads) add(name, {head_dim}, 1);
    if (form_.qk_norm == PlainForm::QkNorm::kRow) add(name, {n_heads * head_dim}, 1);
    if (form_.qk_norm == PlainForm::QkNorm::kEachHead) add(name, {head_dim, n_heads}, 1);
  };
  add_heads_norm("attn_q_norm", form_.n_heads);
  add_heads_norm("attn_k_norm", form_.n_kv_heads);
  add_linear(layer + "attn_output", form_.n_heads * value_dim(), form_.n_embd, form_.output_bias);
}

void PlainTransformer::add(const std::string& name, std::vector<uint64_t> dims, float mean) {
  std::mt19937 random(static_cast<uint32_t>(tensors_.size()));
  uint64_t n = 1;
  for (const uint64_t dim : dims) n *= dim;
  const bool is_matrix = dims.size() >= 2 && mean == 0;
  const float spread = is_matrix ? std::sqrt(3 / static_cast<float>(dims[0])) : 0.5f;
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
  add(stem + ".weight", {form_.n_embd}, 1);
  if (form_.norm == PlainForm::Norm::kMean) add(stem + ".bias", {form_.n_embd});
}

const std::vector<float>& PlainTransformer::values(const std::string& name) const {
  return tensors_[index_.at(name)].values;
}

std::map<std::string, PlainForm::Number> PlainTransformer::keys() const {
  std::map<std::string, PlainForm::Number> keys{{"block_count", form_.n_layers},
                                                {"embedding_length", form_.n_embd},
                                                {"feed_forward_length", form_.n_ff},
                                                {"attention.head_count", form_.n_heads},
                                                {"attention.head_count_kv", form_.n_kv_heads},
                                                {"context_length", kContext}};
  if (q_dim() != form_.n_embd || form_.value_dim != 0) {
    keys["attention.key_length"] = form_.head_dim;
    keys["attention.value_length"] = value_dim();
  }
  if (has_latent()) {
    const PlainLatent& latent = form_.latent;
    const std::string suffix = latent.fused ? "" : "_mla";
    keys["attention.head_count_kv"] = latent.fused ? form_.n_heads : 1u;
    keys["attention.key_length"] = latent.rank + form_.rope_dims;
    keys["attention.value_length"] = latent.rank;
    keys["attention.key_length" + suffix] = form_.head_dim;
    keys["attention.value_length" + suffix] = latent.value_dim;
    keys["attention.kv_lora_rank"] = latent.rank;
    if (latent.q_rank != 0) keys["attention.q_lora_rank"] = latent.q_rank;
  }
  if (form_.turn != PlainForm::Turn::kNone) {
    keys["rope.dimension_count"] = form_.rope_dims;
    keys["rope.freq_base"] = kRopeBase;
  }
  if (!form_.windows.empty()) keys["attention.sliding_window"] = std::ranges::max(form_.windows);
  if (form_.window_rope_base != kRopeBase) keys["rope.freq_base_swa"] = form_.window_rope_base;
  if (form_.attention_scale != 1) {
    keys["attention.value_scale"] = static_cast<float>(form_.attention_scale);
  }
  keys[form_.norm == PlainForm::Norm::kRms ? "attention.layer_norm_rms_epsilon"
                                           : "attention.layer_norm_epsilon"] = kEps;
  if (form_.logit_scale != 1) keys["logit_scale"] = static_cast<float>(form_.logit_scale);
  if (form_.experts.n != 0) {
    keys["expert_count"] = form_.experts.n;
    keys["expert_used_count"] = form_.experts.n_used;
    keys["expert_feed_forward_length"] = form_.experts.n_ff;
  }
  if (form_.n_prediction_blocks != 0) {
    keys["block_count"] = form_.n_layers + form_.n_prediction_blocks;
    keys["nextn_predict_layers"] = form_.n_prediction_blocks;
  }
  if (!form_.taps.empty() || form_.n_window_kv_heads != 0) {
    keys.erase("attention.head_count_kv");  // a number for each layer
  }
  for (const auto& [key, number] : form_.keys) keys[key] = number;
  for (const auto& [key, numbers] : form_.array_keys) keys.erase(key);
  return keys;
}

GgufHeader PlainTransformer::header() const {
  GgufHeader header;
  const std::string prefix = form_.architecture + ".";
  header.set("general.architecture", form_.architecture);
  for (const auto& entry : keys()) {
    std::visit([&](auto number) { header.set(prefix + entry.first, number); }, entry.second);
  }
  const uint32_t n_blocks = form_.n_layers + form_.n_prediction_blocks;
  if (!form_.taps.empty() || form_.n_window_kv_heads != 0) {  // none of layers that do not attend
    std::vector<uint32_t> of_layers;
    for (uint32_t i = 0; i < n_blocks; ++i) {
      of_layers.push_back(taps(i) != 0 ? 0 : n_kv_heads(i));
    }
    if (!form_.array_keys.contains("attention.head_count_kv")) {
      header.set_array(prefix + "attention.head_count_kv", std::span<const uint32_t>(of_layers));
    }
  }
  for (const auto& [key, numbers] : form_.array_keys) {
    header.set_array(prefix + key, std::span<const uint32_t>(numbers));
  }
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  if (form_.keys.contains(kPattern) || form_.array_keys.contains(kPattern)) return header;
  std::array<bool, 8> windowed{};
  std::vector<int32_t> numbers;
  for (uint32_t i = 0; i < n_blocks; ++i) {
    numbers.push_back(window(i) != 0 ? 1 : 0);
    if (i < windowed.size()) windowed.at(i) = window(i) != 0;
  }
  if (form_.pattern == PlainForm::Pattern::kBools) {
    header.set_array(prefix + kPattern, std::span<const bool>(windowed).first(n_blocks));
  }
  if (form_.pattern == PlainForm::Pattern::kNumbers) {
    header.set_array(prefix + kPattern, std::span<const int32_t>(numbers));
  }
  return header;
}

void PlainTransformer::add_to(const std::string& tensor, std::span<const double> added) {
  std::vector<float>& values = tensors_[index_.at(tensor)].values;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(double{values[i]} + added[i]);
  }
}

std::unique_ptr<SmallFile> PlainTransformer::file() const {
  return std::make_unique<SmallFile>(tensors_, header());
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

PlainTransformer::Row PlainTransformer::norm(const Row& x, const std::string& stem) const {
  Row y = x;
  normalise(y, form_.norm != PlainForm::Norm::kRms);
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] *= values(stem + ".weight")[i];
    if (has(stem + ".bias")) y[i] += values(stem + ".bias")[i];
  }
  return y;
}

PlainTransformer::Row PlainTransformer::norm_heads(const Row& x, const std::string& stem) const {
  if (form_.qk_norm == PlainForm::QkNorm::kNone) return x;
  const std::vector<float>& weight = values(stem + ".weight");
  const size_t group = form_.qk_norm == PlainForm::QkNorm::kRow ? x.size() : form_.head_dim;
  Row y = x;
  for (size_t first = 0; first < y.size(); first += group) {
    normalise(std::span(y).subspan(first, group), form_.qk_norm == PlainForm::QkNorm::kEachHead);
  }
  for (size_t i = 0; i < y.size(); ++i) y[i] *= weight[i % weight.size()];
  return y;
}

PlainTransformer::Row PlainTransformer::turned(const Row& x, size_t position, uint32_t first,
                                               double base) const {
  const uint32_t n_pairs = form_.rope_dims / 2;
  Row y = x;
  const size_t stride = x.size() == form_.rope_dims ? form_.rope_dims : form_.head_dim;
  for (size_t head = first; head < y.size(); head += stride) {
    for (uint32_t i = 0; i < n_pairs; ++i) {
      const bool halves = form_.turn == PlainForm::Turn::kHalves;
      const size_t a = head + (halves ? i : 2 * i);
      const size_t b = halves ? a + n_pairs : a + 1;
      const double angle =
          static_cast<double>(position) * std::pow(base, -2.0 * i / form_.rope_dims);
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
    }
  }
  return y;
}

PlainTransformer::Row PlainTransformer::attention(const Row& q, const std::vector<Row>& keys,
                                                  const std::vector<Row>& seen, uint32_t window,
                                                  const std::vector<float>& sinks) const {
  const double scale = form_.scale == 0 ? 1 / std::sqrt(form_.head_dim) : form_.scale;
  const size_t first = window != 0 && keys.size() > window ? keys.size() - window : 0;
  const size_t n_kv_heads = keys.back().size() / form_.head_dim;
  const size_t value_dim = seen.back().size() / n_kv_heads;
  Row y(form_.n_heads * value_dim);
  for (uint32_t head = 0; head < form_.n_heads; ++head) {
    const size_t at = size_t{head} * form_.head_dim;
    const size_t kv_head = head / (form_.n_heads / n_kv_heads);
    const size_t v_at = kv_head * value_dim;
    const size_t kv_at = kv_head * form_.head_dim;
    Row weights;
    double total = sinks.empty() ? 0 : std::exp(double{sinks[head]});
    for (size_t t = first; t < keys.size(); ++t) {
      double score = 0;
      for (uint32_t i = 0; i < form_.head_dim; ++i) score += q[at + i] * keys[t][kv_at + i];
      weights.push_back(std::exp(scale * score));
      total += weights.back();
    }
    for (size_t t = first; t < keys.size(); ++t) {
      for (size_t i = 0; i < value_dim; ++i) {
        y[head * value_dim + i] += weights[t - first] / total * seen[t][v_at + i];
      }
    }
  }
  return y;
}

PlainTransformer::Row PlainTransformer::expert_linear(const Row& x, const std::string& stem,
                                                      size_t expert) const {
  const SmallTensor& tensor = tensors_[index_.at(stem + ".weight")];
  Row y(tensor.dims[1]);
  for (size_t row = 0; row < y.size(); ++row) {
    const float* const weight = &tensor.values[(expert * y.size() + row) * x.size()];
    for (size_t i = 0; i < x.size(); ++i) y[row] += weight[i] * x[i];
  }
  return y;
}

double PlainTransformer::gate(double x) const {
  return form_.gelu_gate ? gelu(x) : x / (1 + std::exp(-x));
}

PlainTransformer::Row PlainTransformer::experts(const Row& x, const Row& router_x,
                                                const std::string& layer) const {
  const PlainExperts& experts = form_.experts;
  Row p = linear(router_x, layer + "ffn_gate_inp");
  double total = 0;
  for (double& value : p) total += value = std::exp(value);
  for (double& value : p) value = experts.sigmoid ? value / (1 + value) : value / total;
  Row left = p;
  for (size_t e = 0; experts.biased && e < left.size(); ++e) {
    left[e] += values(layer + "exp_probs_b.bias")[e];
  }
  std::vector<size_t> chosen;
  double weights = 0;
  while (chosen.size() < experts.n_used) {
    const auto best = std::ranges::max_element(left);
    chosen.push_back(static_cast<size_t>(best - left.begin()));
    weights += p[chosen.back()];
    *best = -INFINITY;
  }
  Row y(x.size());
  for (const size_t expert : chosen) {
    Row gates, up;
    if (experts.beside_dense) {
      const Row both = expert_linear(x, layer + "ffn_gate_up_exps", expert);
      gates.assign(both.begin(), both.begin() + experts.n_ff);
      up.assign(both.begin() + experts.n_ff, both.end());
    } else {
      gates = expert_linear(x, layer + "ffn_gate_exps", expert);
      up = expert_linear(x, layer + "ffn_up_exps", expert);
    }
    for (size_t i = 0; i < up.size(); ++i) up[i] *= gate(gates[i]);
    const Row down = expert_linear(up, layer + "ffn_down_exps", expert);
    double share = experts.renormalised ? p[expert] / weights : p[expert];
    if (experts.beside_dense) share *= values(layer + "ffn_down_exps.scale")[expert];
    for (size_t i = 0; i < y.size(); ++i) y[i] += experts.scale * share * down[i];
  }
  return experts.n_ff_shared == 0 ? y : sum(y, feed_forward(x, layer, "_shexp"));
}

PlainTransformer::Row PlainTransformer::experts_beside(const Row& x, const Row& f,
                                                       const std::string& layer) const {
  Row router_x = x;
  normalise(router_x, false);
  for (size_t i = 0; i < x.size(); ++i) {
    router_x[i] *= values(layer + "ffn_gate_inp.scale")[i] / std::sqrt(x.size());
  }
  const Row routed = experts(norm(x, layer + "pre_ffw_norm_2"), router_x, layer);
  return sum(norm(feed_forward(f, layer, ""), layer + "post_ffw_norm_1"),
             norm(routed, layer + "post_ffw_norm_2"));
}

PlainTransformer::Row PlainTransformer::feed_forward(const Row& x, const std::string& layer,
                                                     const std::string& suffix) const {
  Row up = linear(x, layer + "ffn_up" + suffix);
  if (form_.gated) {
    const Row gates = linear(x, layer + "ffn_gate" + suffix);
    for (size_t i = 0; i < up.size(); ++i) up[i] *= gate(gates[i]);
  } else {
    for (double& value : up) value = gelu(value);
  }
  return linear(up, layer + "ffn_down" + suffix);
}

PlainTransformer::Qkv PlainTransformer::qkv(uint32_t index, const Row& x) const {
  const std::string layer = "blk." + std::to_string(index) + ".";
  if (!form_.fused_qkv) {
    const std::string v = has(layer + "attn_v.weight") ? "attn_v" : "attn_k";
    return {linear(x, layer + "attn_q"), linear(x, layer + "attn_k"), linear(x, layer + v)};
  }
  const Row all = linear(x, layer + "attn_qkv");
  const auto k_first = all.begin() + static_cast<ptrdiff_t>(q_dim());
  const auto v_first = k_first + static_cast<ptrdiff_t>(n_kv_heads(index) * form_.head_dim);
  return {{all.begin(), k_first}, {k_first, v_first}, {v_first, all.end()}};
}

/// Whole heads of keys and values, made of the token's latent.
PlainTransformer::Qkv PlainTransformer::latent_qkv(const std::string& layer, const Row& x,
                                                   size_t position) const {
  const PlainLatent& latent = form_.latent;
  const auto normed = [&](Row y, const std::string& stem) {
    normalise(y, false);
    for (size_t i = 0; i < y.size(); ++i) y[i] *= values(stem + ".weight")[i];
    return y;
  };
  const auto magnified = [&](Row y, size_t stride, size_t first) {
    for (size_t i = 0; i < y.size(); ++i) {
      if (i % stride >= first) y[i] *= latent.rope_magnitude;
    }
    return y;
  };
  Qkv all;
  all.q = latent.q_rank == 0
              ? linear(x, layer + "attn_q")
              : linear(normed(linear(x, layer + "attn_q_a"), layer + "attn_q_a_norm"),
                       layer + "attn_q_b");
  all.q = magnified(turned(all.q, position, n_still()), form_.head_dim, n_still());
  const auto periods = static_cast<double>(position / kTemperatureTokens);
  for (double& value : all.q) value *= 1 + latent.temperature * std::log(1 + periods);
  const Row both = linear(x, layer + "attn_kv_a_mqa");
  const auto middle = both.begin() + latent.rank;
  const Row c = normed({both.begin(), middle}, layer + "attn_kv_a_norm");
  const Row turning = magnified(turned({middle, both.end()}, position), form_.rope_dims, 0);
  const uint32_t head_rows = latent.fused ? n_still() + latent.value_dim : 0;
  for (uint32_t head = 0; head < form_.n_heads; ++head) {
    for (uint32_t i = 0; i < n_still() + latent.value_dim; ++i) {
      const bool is_key = i < n_still();
      const uint32_t row = i - n_still();
      double sum = 0;
      for (uint32_t j = 0; j < latent.rank; ++j) {
        double weight = 0;
        if (latent.fused) {
          weight = values(layer + "attn_kv_b.weight")[(head * head_rows + i) * latent.rank + j];
        } else if (is_key) {
          weight = values(layer + "attn_k_b.weight")[(head * latent.rank + j) * n_still() + i];
        } else {
          weight =
              values(layer + "attn_v_b.weight")[(head * latent.value_dim + row) * latent.rank + j];
        }
        sum += weight * c[j];
      }
      (is_key ? all.k : all.v).push_back(sum);
    }
    all.k.insert(all.k.end(), turning.begin(), turning.end());
  }
  return all;
}

PlainTransformer::Row PlainTransformer::convolved(const std::string& layer, const Row& h,
                                                  std::vector<Row>& rows) const {
  const size_t n = h.size();
  const Row bcx = linear(h, layer + "shortconv.in_proj");
  const std::vector<float>& weight = values(layer + "shortconv.conv.weight");
  const size_t n_taps = weight.size() / n;
  rows.emplace_back(n);
  for (size_t i = 0; i < n; ++i) rows.back()[i] = bcx[i] * bcx[2 * n + i];
  Row y(n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t back = 0; back < std::min(n_taps, rows.size()); ++back) {
      y[i] += weight[i * n_taps + n_taps - 1 - back] * rows[rows.size() - 1 - back][i];
    }
    y[i] *= bcx[n + i];
  }
  return linear(y, layer + "shortconv.out_proj");
}

PlainTransformer::Row PlainTransformer::attended(uint32_t index, const Row& h, Cache& cache) const {
  const std::string layer = "blk." + std::to_string(index) + ".";
  const size_t position = cache.keys[index].size();
  Qkv now = has_latent() ? latent_qkv(layer, h, position) : qkv(index, h);
  now.q = norm_heads(now.q, layer + "attn_q_norm");
  now.k = norm_heads(now.k, layer + "attn_k_norm");
  for (size_t head = 0; form_.value_norm && head < now.v.size(); head += form_.head_dim) {
    normalise(std::span(now.v).subspan(head, form_.head_dim), false);
  }
  if (form_.turn != PlainForm::Turn::kNone && !has_latent() &&
      (window(index) != 0 || form_.full_layers_turn)) {
    const double base = window(index) != 0 ? form_.window_rope_base : kRopeBase;
    now.q = turned(now.q, position, 0, base);
    now.k = turned(now.k, position, 0, base);
  }
  cache.keys[index].push_back(now.k);
  cache.values[index].push_back(now.v);
  const std::string sinks = layer + "attn_sinks.weight";
  Row y = linear(attention(now.q, cache.keys[index], cache.values[index], window(index),
                           has(sinks) ? values(sinks) : std::vector<float>()),
                 layer + "attn_output");
  for (double& value : y) value *= form_.attention_scale;
  return y;
}

PlainTransformer::Row PlainTransformer::run_layer(uint32_t index, const Row& x,
                                                  Cache& cache) const {
  const std::string layer = "blk." + std::to_string(index) + ".";
  const Row h = form_.norms_before ? norm(x, layer + "attn_norm") : x;
  Row a = taps(index) != 0 ? convolved(layer, h, cache.keys[index]) : attended(index, h, cache);
  if (form_.norms_after) a = norm(a, layer + "post_attention_norm");
  for (double& value : a) value *= form_.residual_scale;
  const Row after = sum(x, a);

  Row f = form_.parallel ? x : after;
  if (form_.norms_before) f = form_.feed_forward_norm ? norm(f, layer + form_.ffn_norm) : h;
  if (!has_experts(index)) {
    f = feed_forward(f, layer, "");
  } else {
    f = form_.experts.beside_dense ? experts_beside(after, f, layer) : experts(f, f, layer);
  }
  for (double& value : f) value *= form_.residual_scale;
  return sum(after, form_.norms_after ? norm(f, layer + "post_ffw_norm") : f);
}

PlainTransformer::Row PlainTransformer::embedding(uint32_t token, uint32_t position) const {
  Row x(form_.n_embd);
  for (uint32_t i = 0; i < form_.n_embd; ++i) {
    x[i] = form_.embedding_scale * values("token_embd.weight")[token * form_.n_embd + i];
    if (form_.learned_positions)
      x[i] += values("position_embd.weight")[position * form_.n_embd + i];
  }
  return x;
}

PlainTransformer::Cache PlainTransformer::empty_cache() const {
  const uint32_t n = form_.n_layers + form_.n_prediction_blocks;
  return {std::vector<std::vector<Row>>(n), std::vector<std::vector<Row>>(n)};
}

std::vector<double> PlainTransformer::hidden(std::span<const uint32_t> tokens) const {
  Cache cache = empty_cache();
  std::vector<double> all;
  for (uint32_t t = 0; t < tokens.size(); ++t) {
    Row x = embedding(tokens[t], t);
    for (uint32_t i = 0; i < form_.n_layers; ++i) x = run_layer(i, x, cache);
    x = norm(x, form_.output_norm);
    all.insert(all.end(), x.begin(), x.end());
  }
  return all;
}

std::vector<double> PlainTransformer::logits(std::span<const uint32_t> tokens) const {
  const std::vector<double> rows = hidden(tokens);
  std::vector<double> all;
  for (auto row = rows.begin(); row != rows.end(); row += form_.n_embd) {
    for (const double value : linear({row, row + form_.n_embd}, output())) {
      all.push_back(form_.logit_scale * value);
    }
  }
  return all;
}

std::vector<double> PlainTransformer::predicted_hidden(std::span<const uint32_t> next,
                                                       std::span<const double> hidden) const {
  const std::string nextn = "blk." + std::to_string(form_.n_layers) + ".nextn.";
  const bool own = form_.prediction_has_own;
  const std::vector<float>& table =
      values(own ? nextn + "embed_tokens.weight" : std::string("token_embd.weight"));
  Cache cache = empty_cache();
  std::vector<double> all;
  for (uint32_t t = 0; t < next.size(); ++t) {
    const auto token = table.begin() + static_cast<ptrdiff_t>(next[t] * form_.n_embd);
    const auto h = hidden.begin() + static_cast<ptrdiff_t>(t * form_.n_embd);
    Row both = norm({token, token + form_.n_embd}, nextn + "enorm");
    const Row second = norm({h, h + form_.n_embd}, nextn + "hnorm");
    both.insert(both.end(), second.begin(), second.end());
    const Row x = run_layer(form_.n_layers, linear(both, nextn + "eh_proj"), cache);
    const Row y = norm(x, own ? nextn + "shared_head_norm" : form_.output_norm);
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

std::vector<double> PlainTransformer::predicted(std::span<const uint32_t> next,
                                                std::span<const double> hidden) const {
  const std::string nextn = "blk." + std::to_string(form_.n_layers) + ".nextn.";
  const std::vector<double> rows = predicted_hidden(next, hidden);
  std::vector<double> all;
  for (auto row = rows.begin(); row != rows.end(); row += form_.n_embd) {
    const Row y = linear({row, row + form_.n_embd},
                         form_.prediction_has_own ? nextn + "shared_head_head" : output());
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

}  // namespace pumice::test
