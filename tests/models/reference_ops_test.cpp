// Operations of the fp64 evaluation against numbers worked out by hand. What the families' goldens
// (reference_test.cpp) prove is not repeated.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <span>

#include "models/program_builder.hpp"
#include "models/reference.hpp"
#include "tests/models/small_file.hpp"

namespace pumice {
namespace {

using Build = std::function<ValueId(ProgramBuilder&, ValueId x)>;

/// What `build` makes of these rows, which are embeddings, in a model of those other tensors. It
/// must give as many numbers a row as there are rows.
std::vector<double> evaluate(const std::vector<std::vector<float>>& rows, const Build& build,
                             std::vector<test::SmallTensor> tensors = {}) {
  std::vector<float> table;
  std::vector<TokenId> tokens;
  for (const std::vector<float>& row : rows) {
    table.insert(table.end(), row.begin(), row.end());
    tokens.push_back(static_cast<TokenId>(tokens.size()));
  }
  tensors.push_back({"token_embd.weight", {rows[0].size(), rows.size()}, table});
  const test::SmallFile file(tensors);
  const auto n_vocab = static_cast<uint32_t>(rows.size());
  ProgramBuilder p({.architecture = "test", .n_vocab = n_vocab, .context_length = 64});
  const ValueId x = p.embed("token_embd", static_cast<uint32_t>(rows[0].size()), n_vocab);
  const Program program = p.finish(build(p, x)).value();
  return reference_logits(file.file(), program, tokens, {.max_threads = 1}).value().logits;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << i;
}

TEST(ReferenceOps, Gelu) {
  const std::vector<std::vector<float>> rows{{0, 1}, {-1, 0.5}};
  const auto erf_form = [](double x) { return x * (1 + std::erf(x / std::sqrt(2.0))) / 2; };
  expect_near(evaluate(rows, [](auto& p, auto x) { return p.gelu(x); }),
              {0, erf_form(1), erf_form(-1), erf_form(0.5)});
  EXPECT_NEAR(erf_form(1), 0.8413447460685429, 1e-15);  // the normal distribution's integral
  const std::vector<double> tanh_form =
      evaluate(rows, [](auto& p, auto x) { return p.gelu_tanh(x); });
  EXPECT_NEAR(tanh_form[1], 0.841191990608276, 1e-14);
  EXPECT_NEAR(tanh_form[2], -0.158808009391724, 1e-14);
}

TEST(ReferenceOps, LayerNormSubtractsTheMeanAndAddsTheBias) {
  const Build with_bias = [](auto& p, auto x) { return p.layer_norm(x, "norm", 0.75f); };
  // Means 2 and 5, variances 1 and 9: divisors √1.75 and √9.75.
  const double one = std::sqrt(1.75);
  const double other = std::sqrt(9.75);
  const std::vector<std::vector<float>> rows{{1, 3}, {8, 2}};
  expect_near(
      evaluate(rows, with_bias, {{"norm.weight", {2}, {2, 3}}, {"norm.bias", {2}, {10, 20}}}),
      {10 - 2 / one, 20 + 3 / one, 10 + 2 * 3 / other, 20 - 3 * 3 / other});
  const Build without = [](auto& p, auto x) {
    return p.layer_norm(x, "norm", 0.75f, ProgramBuilder::Bias::kNone);
  };
  expect_near(evaluate(rows, without, {{"norm.weight", {2}, {2, 3}}}),
              {-2 / one, 3 / one, 2 * 3 / other, -3 * 3 / other});
}

TEST(ReferenceOps, LayerNormsOfHeadsHaveWeightsOfTheirOwn) {
  const Build build = [](auto& p, auto x) {
    return p.split(p.head_layer_norm(x, "norm", 2, 0.75f), 1, 2);
  };
  // Heads 1, 3 and 8, 2: means 2 and 5, variances 1 and 9. The second token's are all 0.
  expect_near(
      evaluate({{1, 3, 8, 2}, {4, 4, 4, 4}}, build, {{"norm.weight", {2, 2}, {2, 3, 5, 7}}}),
      {3 / std::sqrt(1.75), 5 * 3 / std::sqrt(9.75), 0, 0});
}

TEST(ReferenceOps, SplitTakesNumbersOfEachRow) {
  expect_near(
      evaluate({{1, 2, 3, 4}, {5, 6, 7, 8}}, [](auto& p, auto x) { return p.split(x, 1, 2); }),
      {2, 3, 6, 7});
}

TEST(ReferenceOps, ASinkTakesItsShareOfAttention) {
  const Build build = [](auto& p, auto x) {
    const ValueId kv = p.append(p.state_group("full", 1, 1), x, x);
    return p.attention(x, kv, {.n_heads = 1, .scale = 0.5, .sinks = "attn_sinks"});
  };
  // One number a head and token: scores are half of products.
  const double sink = std::exp(0.25);
  expect_near(evaluate({{2}}, build, {{"attn_sinks.weight", {1}, {0.25f}}}),
              {2 * std::exp(2.0) / (std::exp(2.0) + sink)});
}

TEST(ReferenceOps, AWindowCountsTheTokenItself) {
  const Build build = [](auto& p, auto x) {
    const ValueId q = p.scale(x, 0);  // all scores are equal
    const ValueId kv = p.append(p.state_group("window", 3, 1, 2), x, x);
    return p.attention(q, kv, {.n_heads = 3, .scale = 1, .window = 2});
  };
  expect_near(evaluate({{1, 0, 0}, {3, 2, 0}, {5, 4, 8}}, build), {1, 0, 0, 2, 1, 0, 4, 3, 4});
}

TEST(ReferenceOps, PositionsHaveRowsAndNoMoreThanTheirTable) {
  const test::SmallFile file({{"token_embd.weight", {2, 2}, {1, 2, 10, 20}},
                              {"position_embd.weight", {2, 3}, {0.5f, 0.25f, 3, 4, 5, 6}}});
  ProgramBuilder p({.architecture = "test", .n_vocab = 2, .context_length = 3});
  const ValueId token = p.embed("token_embd", 2, 2);
  const Program program = p.finish(p.add(token, p.embed_position("position_embd", 2, 3))).value();
  EXPECT_EQ(position_limit(program), 3u);
  const std::vector<TokenId> tokens{1, 0, 0, 1};
  const auto logits = [&](size_t n) {
    return reference_logits(file.file(), program, std::span(tokens).first(n), {.max_threads = 1});
  };
  expect_near(logits(3).value().logits, {10.5, 20.25, 4, 6, 6, 8});
  EXPECT_EQ(logits(4).error().message, "4 tokens: the model has position embeddings for 3");
}

TEST(ReferenceOps, APartOfAFusedMatrixHasItsPartOfTheBias) {
  const Build build = [](auto& p, auto x) {
    return p.linear_rows(x, "fused", 4, 1, 2, ProgramBuilder::Bias::kAdded);
  };
  expect_near(evaluate({{1, 2}, {3, 5}}, build,
                       {{"fused.weight", {2, 4}, {9, 9, 1, 0, 0, 1, 9, 9}},
                        {"fused.bias", {4}, {9, 10, 20, 9}}}),
              {11, 22, 13, 25});
}

TEST(ReferenceOps, ALaterLayerMayReadAStateAgain) {
  const Build build = [](auto& p, auto x) {
    const ValueId kv = p.append(p.state_group("full", 2, 1), x, x);
    const ValueId first = p.attention(p.scale(x, 0), kv, {.n_heads = 2, .scale = 1});
    return p.attention(p.scale(first, 0), kv, {.n_heads = 2, .scale = 1});
  };
  expect_near(evaluate({{1, 2}, {3, 6}}, build), {1, 2, 2, 4});
}

TEST(ReferenceOps, EqualScoresRouteToTheLowestIds) {
  // Four experts of one number; each token goes through two, whose matrices are 1, 10, 100, 1000.
  const Build build = [](auto& p, auto x) {
    const ValueId routes = p.route(p.linear(x, "router", 4), 2);
    const ValueId rows = p.expert_linear(x, routes, "experts", {2, 2, 4});
    const ValueId again = p.expert_linear(rows, routes, "identity", {2, 2, 4});
    return p.combine(again, routes);
  };
  std::vector<float> experts;
  std::vector<float> identity;
  for (const float scale : {1.f, 10.f, 100.f, 1000.f}) {
    for (const float diagonal : {1.f, 0.f, 0.f, 1.f}) {
      experts.push_back(scale * diagonal);
      identity.push_back(diagonal);
    }
  }
  // Token 0: all scores 0, so experts 0 and 1, half of each. Token 1: scores 0, 1, 0, 1.
  expect_near(evaluate({{2, 0}, {3, 1}}, build,
                       {{"router.weight", {2, 4}, {0, 0, 0, 1, 0, 0, 0, 1}},
                        {"experts.weight", {2, 2, 4}, experts},
                        {"identity.weight", {2, 2, 4}, identity}}),
              {11, 0, 3 * 505, 505});
}

}  // namespace
}  // namespace pumice
