// Operations of the fp64 evaluation against numbers worked out by hand. What the families' goldens
// (reference_test.cpp) prove is not repeated.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

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

TEST(ReferenceOps, CausalConvWeighsItsOwnRowWithTheLastTap) {
  const auto conv = [](ProgramBuilder& p, ValueId x, ProgramBuilder::Bias bias) {
    return p.causal_conv(x, "conv",
                         {.state_group = p.recurrent_group("conv"), .taps = 3, .bias = bias});
  };
  const std::vector<std::vector<float>> rows{
      {1, 10, 0, 0}, {2, 20, 0, 0}, {3, 30, 0, 0}, {4, 40, 0, 0}};
  const std::vector<float> weight{1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0};
  expect_near(
      evaluate(rows, [&](auto& p, auto x) { return conv(p, x, ProgramBuilder::Bias::kAdded); },
               {{"conv.weight", {3, 4}, weight}, {"conv.bias", {4}, {0.5f, 0, 0, 7}}}),
      {3.5, 60, 0, 7,    // 3 · 1
       8.5, 170, 0, 7,   // 2 · 1 + 3 · 2
       14.5, 320, 0, 7,  // 1 · 1 + 2 · 2 + 3 · 3
       20.5, 470, 0, 7});
}

/// Two heads that share a key of one number, so that a state is one number a value.
std::vector<double> recurrence(bool delta, bool by_remainder = false) {
  const auto build = [&](ProgramBuilder& p, ValueId x) {
    const ValueId k = p.split(x, 0, 2);
    const ValueId q = p.split(x, 2, 2);
    const ValueId v = p.split(x, 4, 4);
    const ValueId step = p.split(x, 8, 4);
    const ValueId y =
        p.recurrence(q, k, v, step, delta ? std::optional(p.split(x, 12, 4)) : std::nullopt,
                     {.state_group = p.recurrent_group("s"),
                      .n_heads = 4,
                      .n_key_heads = 2,
                      .key_dim = 1,
                      .value_dim = 1,
                      .by_remainder = by_remainder,
                      .q_scale = 2,
                      .k_scale = 3});
    return p.linear(y, "out", 2);
  };
  // k, q, v, step (softplus(0) = ln 2), beta (sigmoid(0) = 1/2)
  const std::vector<std::vector<float>> rows{{1, 0.5f, 1, 1, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0},
                                             {1, 0.5f, 1, 1, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0}};
  const std::vector<uint64_t> dims = delta ? std::vector<uint64_t>{4} : std::vector<uint64_t>{1, 4};
  // exp(a ln 2) = 1/2. What is given are the results of heads 1 and 2.
  std::vector<test::SmallTensor> tensors{{"ssm_a", dims, {-1, -1, -1, -1}},
                                         {"ssm_dt.bias", {4}, {0, 0, 0, 0}},
                                         {"out.weight", {4, 2}, {0, 1, 0, 0, 0, 0, 1, 0}}};
  if (!delta) tensors.push_back({"ssm_d", dims, {0, 10, 0, 0}});
  return evaluate(rows, build, tensors);
}

TEST(ReferenceOps, ARecurrenceDecaysThenAddsThenIsAsked) {
  const double step = std::log(2.0);
  // Head 1 has the first key, 3 · 1, head 2 the second, 3 · 0.5.
  expect_near(recurrence(false), {2 * step * 2 * 3 + 20, 2 * step * 3 * 1.5,
                                  2 * step * 2 * 3 * 1.5 + 20, 2 * step * 3 * 1.5 * 1.5});
}

TEST(ReferenceOps, ADeltaIsOfWhatTheDecayedStateDoesNotKnow) {
  const double first = 0.5 * 2 * 3;  // S of head 1
  const double second = first / 2 + 0.5 * (2 - first / 2 * 3) * 3;
  const double other = 0.5 * 3 * 1.5;  // of head 2
  const double other_next = other / 2 + 0.5 * (3 - other / 2 * 1.5) * 1.5;
  expect_near(recurrence(true), {2 * first, 2 * other, 2 * second, 2 * other_next});
  // Head 1 has the second key then, head 2 the first.
  expect_near({recurrence(true, true)[0], recurrence(true, true)[1]},
              {2 * 0.5 * 2 * 1.5, 2 * 0.5 * 3 * 3});
}

/// exp(a softplus(x)) = (1 + exp(x))^a
double left(double x, int a) { return std::pow(1 + std::exp(x), a); }

TEST(ReferenceOps, KeysThatDecayHaveAStepEach) {
  const Build build = [](auto& p, auto x) {
    const ValueId k = p.split(x, 0, 4);
    const ValueId q = p.split(x, 4, 4);
    const ValueId v = p.split(x, 8, 2);
    const ValueId step = p.split(x, 10, 4);
    const ValueId beta = p.split(x, 14, 2);
    return p.recurrence(q, k, v, step, beta,
                        {.state_group = p.recurrent_group("s"),
                         .n_heads = 2,
                         .n_key_heads = 2,
                         .key_dim = 2,
                         .value_dim = 1,
                         .decay = StateDecay::kKey});
  };
  const std::vector<std::vector<float>> rows{
      {1, 0.5f, 2, 1, 1, 10, 1, 10, 4, 6, 0, 0, 0, 0, 0, 0},
      {1, 1, 1, 1, 1, 10, 1, 10, 0, 0, 0, 0.5f, 0.25f, 1, 0, 0}};
  // The first states are 2 · (1, 0.5) and 3 · (2, 1).
  const double first[] = {2 * left(0, -1), left(1, -1)};
  const double second[] = {6 * left(0.5, -2), 3 * left(1, -2)};
  const auto asked = [](const double* s) {
    const double u = -(s[0] + s[1]) / 2;  // sigmoid(0) (0 - what is known)
    return s[0] + u + 10 * (s[1] + u);
  };
  expect_near(evaluate(rows, build,
                       {{"ssm_a", {1, 2}, {-1, -2}}, {"ssm_dt.bias", {4}, {0, 0.5f, 0.25f, 0}}}),
              {12, 36, asked(first), asked(second)});
}

TEST(ReferenceOps, StatesThatDecayHaveAStepAValue) {
  const Build build = [](auto& p, auto x) {
    const ValueId k = p.split(x, 0, 2);
    const ValueId q = p.split(x, 2, 2);
    const ValueId v = p.split(x, 4, 4);
    const ValueId y = p.recurrence(q, k, v, p.split(x, 8, 4), std::nullopt,
                                   {.state_group = p.recurrent_group("s"),
                                    .n_heads = 2,
                                    .n_key_heads = 1,
                                    .key_dim = 2,
                                    .value_dim = 2,
                                    .decay = StateDecay::kState});
    return p.linear(y, "out", 2);
  };
  const std::vector<float> row{1, 0.5f, 1, 10, 1, 2, 3, 4, 0, 0.5f, 0, 0};
  // What is given are the results of values 1 and 2, of the first head and of the second.
  const double u = 2 * std::log1p(std::exp(1.0));
  const double other = 3 * std::log(2.0);
  expect_near(evaluate({row, row}, build,
                       {{"ssm_a", {2, 4}, {-1, -1, -1, -2, -2, -3, -1, -1}},
                        {"ssm_dt.bias", {4}, {0, 0.5f, 0, 0}},
                        {"ssm_d", {4}, {0, 10, 100, 0}},
                        {"out.weight", {4, 2}, {0, 1, 0, 0, 0, 0, 1, 0}}}),
              {6 * u + 20, 6 * other + 300,  //
               u * (1 + left(1, -1)) + 5 * u * (1 + left(1, -2)) + 20,
               other * (1 + left(0, -2)) + 5 * other * (1 + left(0, -3)) + 300});
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

TEST(ReferenceOps, EachHeadHasAMatrixOfItsOwnAndKeepsWhatIsBehind) {
  // Heads of two numbers and one behind them; matrices of three rows, the last two of which count.
  const std::vector<float> weights = {9, 9, 1, 2, 3, 4, 9, 9, 10, 20, 30, 40};
  const auto numbers = [&](bool transposed) {
    std::vector<double> all;
    for (uint32_t i = 0; i < 6; ++i) {
      const Build build = [&](auto& p, auto x) {
        const ValueId y = p.head_linear(x, "heads",
                                        {.n_heads = 2,
                                         .n_cols = 2,
                                         .head_rows = 3,
                                         .first_row = 1,
                                         .n_rows = 2,
                                         .transposed = transposed});
        return p.split(y, i, 1);
      };
      all.push_back(
          evaluate({{1, 0, 5, 0, 1, 6}}, build, {{"heads.weight", {2, 3, 2}, weights}})[0]);
    }
    return all;
  };
  expect_near(numbers(false), {1, 3, 5, 20, 40, 6});
  expect_near(numbers(true), {1, 2, 5, 30, 40, 6});
}

TEST(ReferenceOps, ConcatPutsNumbersSideBySide) {
  const Build build = [](auto& p, auto x) {
    const ValueId last = p.split(x, 2, 1);
    return p.concat(last, p.split(x, 0, 2));
  };
  expect_near(evaluate({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, build), {3, 1, 2, 6, 4, 5, 9, 7, 8});
}

TEST(ReferenceOps, ALatentsValuesAreItsFirstNumbers) {
  const Build build = [](auto& p, auto x) {
    const ValueId kv = p.append(p.latent_group("latent", 3, 2), x);
    return p.attention(p.scale(x, 0), kv, {.n_heads = 1, .scale = 1});  // all scores are equal
  };
  expect_near(evaluate({{1, 2, 9}, {3, 6, 9}}, build), {1, 2, 2, 4});
}

TEST(ReferenceOps, ValuesMayHaveFewerNumbersThanKeys) {
  const Build build = [](auto& p, auto x) {
    const ValueId v = p.split(x, 2, 2);
    const ValueId kv = p.append(p.state_group("full", 2, 2, 0, 1), x, v);
    return p.attention(p.scale(x, 0), kv, {.n_heads = 2, .scale = 1});  // all scores are equal
  };
  expect_near(evaluate({{1, 2, 3, 5}, {7, 8, 9, 11}}, build), {3, 5, 6, 8});
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

/// A token's scores are four of its numbers, its experts have one matrix of one number each, 1 to
/// 4, and read a fifth number, 1.
std::vector<double> routed(const Router& router, std::vector<float> bias,
                           std::vector<float> scores) {
  const std::string_view stem = bias.empty() ? "" : "choice";
  const Build build = [&](auto& p, auto x) {
    const ValueId routes = p.route(p.linear(x, "router", 4), 2, router, stem);
    const ValueId one = p.expert_linear(p.linear(x, "one", 1), routes, "experts", {1, 1, 4});
    return p.combine(one, routes);
  };
  std::vector<float> router_rows(20, 0);
  for (size_t i = 0; i < 4; ++i) router_rows[5 * i + i] = 1;
  scores.push_back(1);
  std::vector<test::SmallTensor> tensors = {{"router.weight", {5, 4}, router_rows},
                                            {"one.weight", {5, 1}, {0, 0, 0, 0, 1}},
                                            {"experts.weight", {1, 1, 4}, {1, 2, 3, 4}}};
  if (!bias.empty()) tensors.push_back({"choice.bias", {4}, std::move(bias)});
  return evaluate({std::move(scores)}, build, std::move(tensors));
}

TEST(ReferenceOps, WeightsOfExpertsAreTheirProbabilitiesWithoutTheBias) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<float> scores = {1, 0.5, -0.5, -1};
  const double total = std::exp(1) + std::exp(0.5) + std::exp(-0.5) + std::exp(-1);
  expect_near(routed({.renormalised = false}, {}, scores),
              {(std::exp(1) + 2 * std::exp(0.5)) / total});
  expect_near(routed({.scale = 2}, {}, scores),
              {2 * (std::exp(1) + 2 * std::exp(0.5)) / (std::exp(1) + std::exp(0.5))});
  const Router sigmoids{.probability = Router::Probability::kSigmoid};
  expect_near(routed(sigmoids, {}, scores),
              {(sigmoid(1) + 2 * sigmoid(0.5)) / (sigmoid(1) + sigmoid(0.5))});
  // The bias lifts the last expert to the first place.
  expect_near(routed(sigmoids, {0, 0, 0, 2}, scores),
              {(4 * sigmoid(-1) + sigmoid(1)) / (sigmoid(-1) + sigmoid(1))});
  expect_near(routed({}, {0, 0, 0, 2}, scores),
              {(4 * std::exp(-1) + std::exp(1)) / (std::exp(-1) + std::exp(1))});
}

TEST(ReferenceOps, ExpertsAreOfTheGroupsWhoseTwoBestAreTheBest) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  // The best expert is in the group that is worse together.
  const std::vector<float> scores = {1, -3, 0.5, 0.25};
  const Router grouped{
      .probability = Router::Probability::kSigmoid, .n_groups = 2, .n_used_groups = 1};
  expect_near(routed(grouped, {}, scores),
              {(3 * sigmoid(0.5) + 4 * sigmoid(0.25)) / (sigmoid(0.5) + sigmoid(0.25))});
}

TEST(ReferenceOps, ANarrowerFactorIsThatOfConsecutiveNumbers) {
  const Build build = [](auto& p, auto x) { return p.mul(x, p.sigmoid(p.linear(x, "gates", 2))); };
  // Gates of nearly 1 and nearly 0.
  expect_near(evaluate({{1, 2, 3, 4}, {1, 5, 6, 7}, {1, 8, 9, 1}, {1, 2, 4, 6}}, build,
                       {{"gates.weight", {4, 2}, {100, 0, 0, 0, -100, 0, 0, 0}}}),
              {1, 2, 0, 0, 1, 5, 0, 0, 1, 8, 0, 0, 1, 2, 0, 0});
}

TEST(ReferenceOps, ClampsAreOnOneSideOrBoth) {
  const Build build = [](auto& p, auto x) {
    return p.add(p.at_most(x, 2), p.scale(p.within(x, 2), 10));
  };
  expect_near(evaluate({{-5, -1}, {1, 5}}, build), {-25, -11, 11, 22});
}

}  // namespace
}  // namespace pumice
