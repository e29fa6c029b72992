// ModernBERT has no golden file: a forward pass in fp64 written from its paper, which shares
// nothing with Pumice's, says what a small random model says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "models/embedding.hpp"
#include "models/families.hpp"
#include "models/reference.hpp"
#include "tests/models/nmse.hpp"
#include "tests/models/small_file.hpp"

namespace pumice {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

constexpr size_t kEmbd = 32;
constexpr size_t kHeads = 2;
constexpr size_t kHeadDim = kEmbd / kHeads;
constexpr size_t kFf = 48;
constexpr size_t kLayers = 4;  // whole text, window, window, whole text
constexpr size_t kVocab = 40;
constexpr size_t kHalfWindow = 4;
constexpr double kEps = 1e-5;
constexpr double kBase = 160000;
constexpr double kWindowBase = 10000;

class ModernBert {
 public:
  ModernBert() {
    add("token_embd", {kEmbd, kVocab});
    add("token_embd_norm", {kEmbd}, 1);
    add("output_norm", {kEmbd}, 1);
    for (size_t i = 0; i < kLayers; ++i) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      if (i > 0) add(layer + "attn_norm", {kEmbd}, 1);
      add(layer + "attn_qkv", {kEmbd, 3 * kEmbd});
      add(layer + "attn_output", {kEmbd, kEmbd});
      add(layer + "ffn_norm", {kEmbd}, 1);
      add(layer + "ffn_up", {kEmbd, 2 * kFf});
      add(layer + "ffn_down", {kFf, kEmbd});
    }
  }

  test::SmallFile file() const {
    GgufHeader header;
    header.set("general.architecture", "modern-bert");
    const auto set = [&](const std::string& key, auto value) {
      header.set("modern-bert." + key, value);
    };
    set("block_count", static_cast<uint32_t>(kLayers));
    set("embedding_length", static_cast<uint32_t>(kEmbd));
    set("feed_forward_length", static_cast<uint32_t>(kFf));
    set("context_length", 64u);
    set("attention.head_count", static_cast<uint32_t>(kHeads));
    set("attention.layer_norm_epsilon", static_cast<float>(kEps));
    set("attention.sliding_window", static_cast<uint32_t>(2 * kHalfWindow));
    set("attention.causal", false);
    set("rope.freq_base", static_cast<float>(kBase));
    set("rope.freq_base_swa", static_cast<float>(kWindowBase));
    return test::SmallFile(tensors_, header);
  }

  Rows rows(const std::vector<TokenId>& tokens) const {
    Rows x;
    for (const TokenId token : tokens) {
      const auto row = values_.at("token_embd").begin() + static_cast<ptrdiff_t>(token * kEmbd);
      x.push_back(norm(Row(row, row + kEmbd), "token_embd_norm"));
    }
    for (size_t i = 0; i < kLayers; ++i) run_layer(i, x);
    for (Row& row : x) row = norm(row, "output_norm");
    return x;
  }

 private:
  void add(const std::string& stem, std::vector<uint64_t> dims, float mean = 0) {
    uint64_t n = 1;
    for (const uint64_t dim : dims) n *= dim;
    std::normal_distribution<float> normal(mean, mean != 0 ? 0.2f : 0.3f);
    std::vector<float> values(n);
    for (float& value : values) value = normal(random_);
    values_[stem] = values;
    tensors_.push_back({stem + ".weight", std::move(dims), std::move(values)});
  }

  Row norm(const Row& x, const std::string& stem) const {
    double mean = 0;
    for (const double value : x) mean += value / static_cast<double>(x.size());
    double variance = 0;
    for (const double value : x) variance += (value - mean) * (value - mean);
    variance /= static_cast<double>(x.size());
    Row y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      y[i] = (x[i] - mean) / std::sqrt(variance + kEps) * values_.at(stem)[i];
    }
    return y;
  }

  Row product(const Row& x, const std::string& stem) const {
    const std::vector<float>& matrix = values_.at(stem);
    Row y(matrix.size() / x.size());
    for (size_t i = 0; i < y.size(); ++i) {
      for (size_t j = 0; j < x.size(); ++j) y[i] += x[j] * matrix[i * x.size() + j];
    }
    return y;
  }

  /// A head that begins at `x`, whose halves are the pairs.
  static void turn(double* x, size_t position, double base) {
    constexpr size_t kHalf = kHeadDim / 2;
    for (size_t i = 0; i < kHalf; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(base, -2.0 * static_cast<double>(i) / double{kHeadDim});
      const double a = x[i];
      const double b = x[i + kHalf];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + kHalf] = a * std::sin(angle) + b * std::cos(angle);
    }
  }

  void run_layer(size_t index, Rows& x) const {
    const std::string layer = "blk." + std::to_string(index) + ".";
    const bool whole = index % 3 == 0;
    Rows qkv;
    for (size_t t = 0; t < x.size(); ++t) {
      qkv.push_back(
          product(index == 0 ? x[t] : norm(x[t], layer + "attn_norm"), layer + "attn_qkv"));
      for (size_t head = 0; head < 2 * kHeads; ++head) {  // of q, then of k
        turn(&qkv[t][head * kHeadDim], t, whole ? kBase : kWindowBase);
      }
    }
    for (size_t t = 0; t < x.size(); ++t) {
      const Row attended = product(attention(qkv, t, whole), layer + "attn_output");
      for (size_t i = 0; i < kEmbd; ++i) x[t][i] += attended[i];
      const Row both = product(norm(x[t], layer + "ffn_norm"), layer + "ffn_up");
      Row gated(kFf);
      for (size_t i = 0; i < kFf; ++i) {
        gated[i] = both[i] * (1 + std::erf(both[i] / std::sqrt(2.0))) / 2 * both[kFf + i];
      }
      const Row down = product(gated, layer + "ffn_down");
      for (size_t i = 0; i < kEmbd; ++i) x[t][i] += down[i];
    }
  }

  static Row attention(const Rows& qkv, size_t t, bool whole) {
    Row result(kEmbd);
    for (size_t head = 0; head < kHeads; ++head) {
      const size_t first = head * kHeadDim;
      Row weights(qkv.size());
      double sum = 0;
      for (size_t k = 0; k < qkv.size(); ++k) {
        if (!whole && std::max(t, k) - std::min(t, k) > kHalfWindow) continue;
        double score = 0;
        for (size_t i = 0; i < kHeadDim; ++i)
          score += qkv[t][first + i] * qkv[k][kEmbd + first + i];
        sum += weights[k] = std::exp(score / std::sqrt(double{kHeadDim}));
      }
      for (size_t k = 0; k < qkv.size(); ++k) {
        for (size_t i = 0; i < kHeadDim; ++i) {
          result[first + i] += weights[k] / sum * qkv[k][2 * kEmbd + first + i];
        }
      }
    }
    return result;
  }

  std::mt19937 random_{11};
  std::map<std::string, std::vector<float>> values_;
  std::vector<test::SmallTensor> tensors_;
};

TEST(ModernBert, IsItsPaper) {
  const ModernBert model;
  const test::SmallFile file = model.file();
  const ModelSource source(file.file());
  const Result<Program> program = build_embedding_program(source);
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_EQ(program->pooling, Pooling::kCls);
  std::vector<TokenId> tokens(30);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * i * 7 % kVocab);
  std::vector<double> expected;
  for (const Row& row : model.rows(tokens)) expected.insert(expected.end(), row.begin(), row.end());
  const std::vector<double> got =
      reference_logits(source, *program, tokens, {.max_threads = 1}).value().logits;
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_LE(test::nmse(got, std::vector<float>(expected.begin(), expected.end())), 1e-13);
}

}  // namespace
}  // namespace pumice
