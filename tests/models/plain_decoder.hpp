// Decoders of usual blocks, for families that no golden file shows: a small file with random
// weights, and its logits computed in fp64 directly from the formulas of the papers, token by
// token, knowing nothing of programs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/models/small_file.hpp"

namespace pumice::test {

/// What differs from layer to layer.
struct PlainLayer {
  bool turns = true;    ///< has a rope
  uint32_t window = 0;  ///< 0: all
};

struct PlainDecoder {
  enum class QkNorm { kNone, kHeads, kRow };

  std::string architecture;
  uint32_t n_embd = 16;
  uint32_t n_heads = 4;
  uint32_t n_kv_heads = 2;
  uint32_t head_dim = 8;
  uint32_t n_ff = 24;
  uint32_t n_vocab = 48;
  std::vector<PlainLayer> layers = std::vector<PlainLayer>(2);
  double eps = 1e-5;
  double rope_base = 10000;
  bool halves = true;        ///< pairs of the rope are (i, i + head_dim / 2), not (2i, 2i + 1)
  bool norms_before = true;  ///< attn_norm and ffn_norm
  bool norms_after = false;  ///< post_attention_norm and post_ffw_norm
  QkNorm qk_norm = QkNorm::kNone;
  bool biases = false;  ///< of attention's four matrices
  bool tied = false;    ///< no output matrix

  /// The tensors by name, in the file's order by that.
  using Tensors = std::map<std::string, SmallTensor>;

  Tensors random_tensors(uint32_t seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Tensors tensors;
    const auto add = [&](const std::string& name, uint64_t n_cols, uint64_t n_rows) {
      SmallTensor tensor{name, {n_cols}};
      if (n_rows > 0) tensor.dims.push_back(n_rows);
      const float spread = n_rows > 0 ? 1 / std::sqrt(static_cast<float>(n_cols)) : 0.2f;
      const bool is_norm = name.find("norm") != std::string::npos;
      for (uint64_t i = 0; i < n_cols * std::max<uint64_t>(n_rows, 1); ++i) {
        tensor.values.push_back((is_norm ? 1.0f : 0.0f) + spread * normal(random));
      }
      tensors.emplace(name, std::move(tensor));
    };
    const auto matrix = [&](const std::string& stem, uint64_t n_cols, uint64_t n_rows) {
      add(stem + ".weight", n_cols, n_rows);
      if (biases && stem.find("attn") != std::string::npos) add(stem + ".bias", n_rows, 0);
    };
    const uint64_t q_dim = uint64_t{n_heads} * head_dim;
    const uint64_t kv_dim = uint64_t{n_kv_heads} * head_dim;
    add("token_embd.weight", n_embd, n_vocab);
    add("output_norm.weight", n_embd, 0);
    if (!tied) add("output.weight", n_embd, n_vocab);
    for (size_t i = 0; i < layers.size(); ++i) {
      const std::string blk = "blk." + std::to_string(i) + ".";
      matrix(blk + "attn_q", n_embd, q_dim);
      matrix(blk + "attn_k", n_embd, kv_dim);
      matrix(blk + "attn_v", n_embd, kv_dim);
      matrix(blk + "attn_output", q_dim, n_embd);
      matrix(blk + "ffn_gate", n_embd, n_ff);
      matrix(blk + "ffn_up", n_embd, n_ff);
      matrix(blk + "ffn_down", n_ff, n_embd);
      for (const char* stem : {"attn_norm", "ffn_norm"}) {
        if (norms_before) add(blk + stem + ".weight", n_embd, 0);
      }
      for (const char* stem : {"post_attention_norm", "post_ffw_norm"}) {
        if (norms_after) add(blk + stem + ".weight", n_embd, 0);
      }
      if (qk_norm != QkNorm::kNone) {
        const bool row = qk_norm == QkNorm::kRow;
        add(blk + "attn_q_norm.weight", row ? q_dim : head_dim, 0);
        add(blk + "attn_k_norm.weight", row ? kv_dim : head_dim, 0);
      }
    }
    return tensors;
  }

  static std::vector<SmallTensor> list(const Tensors& tensors) {
    std::vector<SmallTensor> all;
    for (const auto& [name, tensor] : tensors) all.push_back(tensor);
    return all;
  }

  /// `keys` are further ones of the architecture.
  GgufHeader header(const std::map<std::string, uint32_t>& keys = {}) const {
    GgufHeader header;
    header.set("general.architecture", architecture);
    std::map<std::string, uint32_t> all{{"block_count", static_cast<uint32_t>(layers.size())},
                                        {"embedding_length", n_embd},
                                        {"feed_forward_length", n_ff},
                                        {"attention.head_count", n_heads},
                                        {"attention.head_count_kv", n_kv_heads},
                                        {"attention.key_length", head_dim},
                                        {"attention.value_length", head_dim},
                                        {"context_length", 256}};
    all.insert(keys.begin(), keys.end());
    for (const auto& [key, value] : all) header.set(architecture + "." + key, value);
    header.set(architecture + ".attention.layer_norm_rms_epsilon", static_cast<float>(eps));
    header.set(architecture + ".rope.freq_base", static_cast<float>(rope_base));
    return header;
  }
  std::unique_ptr<SmallFile> file(const Tensors& tensors,
                                  const std::map<std::string, uint32_t>& keys = {}) const {
    return std::make_unique<SmallFile>(list(tensors), header(keys));
  }

  /// [tokens][n_vocab]
  std::vector<double> logits(const Tensors& tensors, std::span<const uint32_t> tokens) const {
    return Forward{*this, tensors}.run(tokens);
  }

 private:
  using Row = std::vector<double>;

  struct Forward {
    const PlainDecoder& form;
    const Tensors& tensors;
    std::vector<std::vector<Row>> keys = std::vector<std::vector<Row>>(form.layers.size());
    std::vector<std::vector<Row>> values = keys;

    std::vector<double> run(std::span<const uint32_t> tokens) {
      std::vector<double> all;
      for (size_t t = 0; t < tokens.size(); ++t) {
        const auto& table = tensors.at("token_embd.weight").values;
        const auto first = table.begin() + static_cast<ptrdiff_t>(tokens[t] * form.n_embd);
        Row x(first, first + form.n_embd);
        for (size_t i = 0; i < form.layers.size(); ++i) x = layer(i, t, x);
        const Row logits =
            product(form.tied ? "token_embd" : "output", rms_norm("output_norm", x, x.size()));
        all.insert(all.end(), logits.begin(), logits.end());
      }
      return all;
    }

    Row layer(size_t i, size_t t, Row x) {
      const std::string blk = "blk." + std::to_string(i) + ".";
      Row y = form.norms_before ? rms_norm(blk + "attn_norm", x, x.size()) : x;
      y = product(blk + "attn_output", attention(i, t, y));
      if (form.norms_after) y = rms_norm(blk + "post_attention_norm", y, y.size());
      for (size_t c = 0; c < x.size(); ++c) x[c] += y[c];

      y = form.norms_before ? rms_norm(blk + "ffn_norm", x, x.size()) : x;
      Row hidden = product(blk + "ffn_gate", y);
      const Row up = product(blk + "ffn_up", y);
      for (size_t c = 0; c < up.size(); ++c) hidden[c] *= up[c] / (1 + std::exp(-hidden[c]));
      y = product(blk + "ffn_down", hidden);
      if (form.norms_after) y = rms_norm(blk + "post_ffw_norm", y, y.size());
      for (size_t c = 0; c < x.size(); ++c) x[c] += y[c];
      return x;
    }

    Row attention(size_t i, size_t t, const Row& x) {
      const std::string blk = "blk." + std::to_string(i) + ".";
      const Row q = heads(blk + "attn_q", form.layers[i].turns, t, x);
      keys[i].push_back(heads(blk + "attn_k", form.layers[i].turns, t, x));
      values[i].push_back(product(blk + "attn_v", x));
      const uint32_t window = form.layers[i].window;
      Row y(q.size());
      for (uint32_t head = 0; head < form.n_heads; ++head) {
        const size_t at = size_t{head} * form.head_dim;
        const size_t kv_at = head / (form.n_heads / form.n_kv_heads) * size_t{form.head_dim};
        Row shares;
        double total = 0;
        for (size_t key = 0; key <= t; ++key) {
          double score = 0;
          for (size_t c = 0; c < form.head_dim; ++c) score += q[at + c] * keys[i][key][kv_at + c];
          const bool seen = window == 0 || t - key < window;
          shares.push_back(seen ? std::exp(score / std::sqrt(form.head_dim)) : 0);
          total += shares.back();
        }
        for (size_t key = 0; key <= t; ++key) {
          for (size_t c = 0; c < form.head_dim; ++c) {
            y[at + c] += shares[key] / total * values[i][key][kv_at + c];
          }
        }
      }
      return y;
    }

    /// Those of q or k as attention reads them.
    Row heads(const std::string& stem, bool turns, size_t t, const Row& x) const {
      Row y = product(stem, x);
      const bool row = form.qk_norm == QkNorm::kRow;
      if (form.qk_norm != QkNorm::kNone) {
        y = rms_norm(stem + "_norm", y, row ? y.size() : form.head_dim);
      }
      const size_t half = form.head_dim / 2;
      for (size_t pair = 0; turns && pair < y.size() / 2; ++pair) {
        const size_t head = pair / half * form.head_dim;
        const size_t index = pair % half;
        const double angle = static_cast<double>(t) *
                             std::pow(form.rope_base, -2.0 * static_cast<double>(index) /
                                                          static_cast<double>(form.head_dim));
        double& a = y[head + (form.halves ? index : 2 * index)];
        double& b = y[head + (form.halves ? index + half : 2 * index + 1)];
        const double before = a;
        a = before * std::cos(angle) - b * std::sin(angle);
        b = before * std::sin(angle) + b * std::cos(angle);
      }
      return y;
    }

    Row product(const std::string& stem, const Row& x) const {
      const SmallTensor& matrix = tensors.at(stem + ".weight");
      const auto bias = tensors.find(stem + ".bias");
      Row y;
      for (size_t row = 0; row < matrix.dims[1]; ++row) {
        double sum = bias == tensors.end() ? 0 : bias->second.values[row];
        for (size_t c = 0; c < x.size(); ++c) sum += x[c] * matrix.values[row * x.size() + c];
        y.push_back(sum);
      }
      return y;
    }

    /// Of each `group` numbers.
    Row rms_norm(const std::string& stem, const Row& x, size_t group) const {
      const std::vector<float>& weight = tensors.at(stem + ".weight").values;
      Row y = x;
      for (size_t first = 0; first < x.size(); first += group) {
        double squares = 0;
        for (size_t c = 0; c < group; ++c) squares += x[first + c] * x[first + c];
        const double root = std::sqrt(squares / static_cast<double>(group) + form.eps);
        for (size_t c = 0; c < group; ++c) y[first + c] = x[first + c] / root * weight[c];
      }
      return y;
    }
  };
};

/// Those that no golden file shows; `keys` of their files besides the usual.
struct PlainFamily {
  std::string name;
  PlainDecoder form;
  std::map<std::string, uint32_t> keys = {};
};
inline std::vector<PlainFamily> plain_families() {
  std::vector<PlainLayer> windows;
  for (uint32_t i = 0; i < 64; ++i) {
    windows.push_back({.turns = i % 4 != 3, .window = i % 4 != 3 ? 20u : 0u});
  }
  return {{"olmo2",
           {.architecture = "olmo2",
            .norms_before = false,
            .norms_after = true,
            .qk_norm = PlainDecoder::QkNorm::kRow}},
          {"llama_wide_heads",
           {.architecture = "llama", .n_kv_heads = 1, .head_dim = 512, .halves = false}},
          {"ernie4_5", {.architecture = "ernie4_5", .halves = false, .tied = true}},
          {"ernie4_5_biases", {.architecture = "ernie4_5", .halves = false, .biases = true}},
          {"exaone4_windows",
           {.architecture = "exaone4",
            .layers = windows,
            .norms_before = false,
            .norms_after = true,
            .qk_norm = PlainDecoder::QkNorm::kHeads},
           {{"attention.sliding_window", 20}}}};
}

}  // namespace pumice::test
