#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "format/resident_layout.hpp"
#include "shaders/common/linear_cases.hpp"
#include "shaders/experts/experts.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kQuietNaN = std::numeric_limits<float>::quiet_NaN();

// ---- Route

enum class Scores { kRandom, kTies, kInfinite, kNaN };

struct RouteShape {
  uint32_t rows;
  uint32_t n_experts;
  uint32_t n_used;
  Scores scores = Scores::kRandom;
  float score_scale = 2;
  Route::Kind kind = {};
  uint32_t n_groups = 1;
  uint32_t n_used_groups = 1;
  float weight_scale = 1;
};

std::vector<float> scores_of(const RouteShape& shape) {
  auto scores = OpBed::normal_floats(size_t{shape.rows} * shape.n_experts, 1, shape.score_scale);
  for (size_t i = 0; i < scores.size(); ++i) {
    switch (shape.scores) {
      case Scores::kRandom:
        break;
      case Scores::kTies:  // few different ones, both zeros among them
        scores[i] = std::trunc(scores[i]);
        break;
      case Scores::kInfinite:
        if (i % 3 != 0) scores[i] = -kInfinity;
        break;
      case Scores::kNaN:  // all of them in the last row
        if (i % 2 != 0 || i / shape.n_experts + 1 == shape.rows) scores[i] = kQuietNaN;
        break;
    }
  }
  return scores;
}

/// Of those that are numbers.
float highest(std::span<const float> scores) {
  float most = -kInfinity;
  for (const float score : scores) most = score > most ? score : most;
  return most;
}

/// What a row's experts are chosen by, in fp64, and what their weights are parts of.
struct Probabilities {
  std::vector<double> choosing;    ///< higher is better
  std::vector<double> numerators;  ///< of the weights
  double total = 1;                ///< of a softmax
};

Probabilities probabilities_of(const RouteShape& shape, std::span<const float> scores,
                               std::span<const float> bias) {
  Probabilities p{.choosing = {scores.begin(), scores.end()}};
  for (double& score : p.choosing) score = std::isnan(score) ? -kInfinity : score;
  const double most = *std::ranges::max_element(p.choosing);
  const bool softmax = shape.kind.probability == Route::Kind::Probability::kSoftmax;
  for (const double score : p.choosing) {
    p.numerators.push_back(softmax ? std::exp(score - most) : 1 / (1 + std::exp(-score)));
  }
  if (softmax) p.total = std::accumulate(p.numerators.begin(), p.numerators.end(), 0.0);
  if (!shape.kind.biased && !shape.kind.grouped) return p;
  for (size_t e = 0; e < scores.size(); ++e) {
    if (std::isnan(scores[e])) continue;
    p.choosing[e] = p.numerators[e] / p.total + (shape.kind.biased ? double{bias[e]} : 0);
  }
  if (!shape.kind.grouped) return p;
  const size_t size = scores.size() / shape.n_groups;
  std::vector<double> group_scores;
  for (size_t g = 0; g < shape.n_groups; ++g) {
    std::vector<double> group(&p.choosing[g * size], &p.choosing[g * size] + size);
    std::ranges::sort(group, std::greater<>());
    group_scores.push_back(group[0] + group[1]);
  }
  std::vector<size_t> order(shape.n_groups);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t g) { return group_scores[g]; });
  for (size_t i = shape.n_used_groups; i < order.size(); ++i) {
    std::fill_n(&p.choosing[order[i] * size], size, -kInfinity);
  }
  return p;
}

/// The first, the last and other experts, each at most once a row.
std::vector<uint32_t> random_routes(uint32_t rows, uint32_t n_used, uint32_t n_experts) {
  std::mt19937 engine(3);
  std::vector<uint32_t> words;  // ids and weights
  const auto weights = OpBed::normal_floats(size_t{rows} * n_used, 4);
  std::vector<uint32_t> experts(n_experts);
  for (uint32_t row = 0; row < rows; ++row) {
    std::iota(experts.begin(), experts.end(), 0u);
    for (uint32_t i = 0; i < n_used; ++i) {
      std::swap(experts[i], experts[i + engine() % (n_experts - i)]);
    }
    if (row == 0) std::ranges::iter_swap(experts.begin(), std::ranges::max_element(experts));
    for (uint32_t rank = 0; rank < n_used; ++rank) {
      words.push_back(experts[rank]);
      words.push_back(std::bit_cast<uint32_t>(weights[size_t{row} * n_used + rank]));
    }
  }
  return words;
}

Result<PreparedOp> prepare_route(OpBed& bed, const RouteShape& shape) {
  const auto scores = scores_of(shape);
  const auto bias = OpBed::normal_floats(shape.n_experts, 5, 0.3f);
  const auto gains = OpBed::normal_floats(shape.n_experts, 6);
  Route::Args args{.rows = shape.rows,
                   .n_experts = shape.n_experts,
                   .n_used = shape.n_used,
                   .n_groups = shape.n_groups,
                   .n_used_groups = shape.n_used_groups,
                   .scale = shape.weight_scale};
  PUMICE_TRY(args.scores, bed.input(scores));
  PUMICE_TRY(args.bias, bed.input(bias));
  PUMICE_TRY(args.gains, bed.input(gains));
  PUMICE_TRY(args.routes, bed.output(uint64_t{shape.rows} * shape.n_used * kRouteBytes));
  // Routes that are given are overwritten, so a pristine copy is restored before each run.
  const std::vector<uint32_t> given = random_routes(shape.rows, shape.n_used, shape.n_experts);
  PUMICE_TRY(const vk::BufferRange pristine, bed.input(given));
  PUMICE_TRY(const Route op, Route::plan(bed.pipelines(), shape.kind));

  Expectation ids{.name = "experts", .output = args.routes};
  Expectation weights{.name = "weights", .output = args.routes};
  std::vector<uint32_t> order(shape.n_experts);
  for (uint32_t row = 0; row < shape.rows; ++row) {
    const float* const own = &scores[size_t{row} * shape.n_experts];
    const Probabilities p = probabilities_of(shape, {own, shape.n_experts}, bias);
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](uint32_t expert) { return p.choosing[expert]; });
    for (uint32_t rank = 0; shape.kind.given && rank < shape.n_used; ++rank) {
      order[rank] = given[2 * (size_t{row} * shape.n_used + rank)];
    }
    const double most = highest({own, shape.n_experts});
    double sum = p.total;
    if (shape.kind.renormalised) {
      sum = 0;
      for (uint32_t rank = 0; rank < shape.n_used; ++rank) sum += p.numerators[order[rank]];
      sum = std::max(sum, 0x1p-14 * p.total);
    }
    for (uint32_t rank = 0; rank < shape.n_used; ++rank) {
      const size_t at = 2 * (size_t{row} * shape.n_used + rank);
      ids.elements.push_back(at);
      ids.words.push_back(order[rank]);
      if (std::isnan(own[order[rank]])) continue;  // of no score at all
      const double gain = shape.kind.gained ? double{gains[order[rank]]} : 1;
      const double weight = shape.weight_scale * p.numerators[order[rank]] / sum * gain;
      if (std::isnan(weight)) continue;
      const bool softmax = shape.kind.probability == Route::Kind::Probability::kSoftmax;
      const double distance =
          softmax ? double{own[order[rank]]} - most : -std::abs(own[order[rank]]);
      // Of exp() 3 + 2|x| units, of its argument |x| / 2; the sum's own errors are weighted by its
      // terms, which leaves less than a unit for their arguments; divisions of 2.5, and products.
      const double units = 12 + (shape.kind.renormalised ? shape.n_used : shape.n_experts) +
                           (std::isinf(distance) ? 0 : 2.5 * -distance);
      weights.elements.push_back(at + 1);
      weights.reference.push_back(weight);
      weights.bound.push_back(units * 0x1p-23 * std::abs(weight) + 0x1p-126);
    }
  }
  return PreparedOp{.record =
                        [=, restores = shape.kind.given](vk::Recorder& recorder) {
                          if (restores) recorder.copy(pristine, args.routes);
                          op.record(recorder, args);
                        },
                    .expected = {std::move(ids), std::move(weights)}};
}

// ---- ExpertLinear

struct ProductShape {
  uint32_t rows;
  uint32_t n_used;
  uint32_t n_experts;
  uint32_t n;  ///< rows of an expert
  uint32_t k;  ///< rounded up to what the type's blocks allow
  bool x_of_ranks = false;
  uint32_t part_groups = 0;  ///< the weights are split after so many row groups; 0: not
  uint32_t n_slices = 1;
  bool every_type = false;  ///< see LinearShape
  bool has_bias = false;
};

Result<PreparedOp> prepare_product(OpBed& bed, const WeightType& type, const ProductShape& shape) {
  const uint32_t k =
      (shape.k + type.block_elements - 1) / type.block_elements * type.block_elements;
  const RandomWeights weights(type, shape.n_experts * shape.n, k, 1);
  const WeightSource source = weights.source();
  const uint64_t part_bytes = shape.part_groups == 0 ? bed.device()->plan().slab_bytes
                                                     : shape.part_groups * row_group_bytes(type, k);
  PUMICE_TRY(const auto uploaded, upload_weights(bed, std::span(&source, 1), part_bytes));
  const uint32_t n_routes = shape.rows * shape.n_used;
  const std::vector<uint32_t> routes = random_routes(shape.rows, shape.n_used, shape.n_experts);
  // NaN between the rows, which nothing may read.
  const PaddedInput x(shape.x_of_ranks ? n_routes : shape.rows, k);
  PUMICE_TRY(const vk::BufferRange x_range, bed.input(x.values));
  PUMICE_TRY(const vk::BufferRange routes_range, bed.input(routes));
  const uint32_t y_stride = shape.n + 3;
  const size_t y_floats = size_t{n_routes - 1} * y_stride + shape.n;
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(y_floats * 4));
  const auto bias = OpBed::normal_floats(size_t{shape.n_experts} * shape.n, 6);
  PUMICE_TRY(const vk::BufferRange bias_range, bed.input(bias));
  PUMICE_TRY(const ExpertLinear op,
             ExpertLinear::plan(bed.pipelines(), type, shape.has_bias, shape.n_slices));

  Expectation y{.name = "y", .output = y_range};
  y.reference.assign(y_floats, std::numeric_limits<double>::quiet_NaN());  // not to be written
  y.bound.assign(y_floats, 0);
  for (uint32_t route = 0; route < n_routes; ++route) {
    const uint32_t x_row = shape.x_of_ranks ? route : route / shape.n_used;
    for (uint32_t row = 0; row < shape.n; ++row) {
      const size_t weight_row = size_t{routes[2 * route]} * shape.n + row;
      const LinearElement element = linear_element(
          &x.values[size_t{x_row} * x.stride], &weights.values[weight_row * k], k, Math::kF32, {});
      const double value = element.value + (shape.has_bias ? double{bias[weight_row]} : 0);
      y.reference[size_t{route} * y_stride + row] = value;
      y.bound[size_t{route} * y_stride + row] =
          element.bound + (shape.has_bias ? 0x1p-24 * std::abs(value) : 0);
    }
  }
  return PreparedOp{.record =
                        [=, stride = x.stride](vk::Recorder& recorder) {
                          op.record(recorder,
                                    {.weights = uploaded->matrix,
                                     .n_experts = shape.n_experts,
                                     .x = x_range,
                                     .x_stride = shape.x_of_ranks ? shape.n_used * stride : stride,
                                     .x_rank_stride = shape.x_of_ranks ? stride : 0,
                                     .routes = routes_range,
                                     .bias = bias_range,
                                     .y = y_range,
                                     .y_stride = y_stride,
                                     .rows = shape.rows,
                                     .n_used = shape.n_used});
                        },
                    .expected = {std::move(y)}};
}

// ---- Combine

Result<PreparedOp> prepare_sum(OpBed& bed, uint32_t rows, uint32_t n_used, uint32_t n) {
  const auto x = OpBed::normal_floats(size_t{rows} * n_used * n, 1);
  const std::vector<uint32_t> routes = random_routes(rows, n_used, kMostExperts);
  Combine::Args args{.rows = rows, .n_used = n_used, .n = n};
  PUMICE_TRY(args.x, bed.input(x));
  PUMICE_TRY(args.routes, bed.input(routes));
  PUMICE_TRY(args.y, bed.output(uint64_t{rows} * n * 4));
  PUMICE_TRY(const Combine op, Combine::plan(bed.pipelines()));

  Expectation y{.name = "y", .output = args.y};
  for (size_t i = 0; i < size_t{rows} * n; ++i) {
    double sum = 0;
    double magnitude = 0;
    for (uint32_t rank = 0; rank < n_used; ++rank) {
      const size_t route = i / n * n_used + rank;
      const double product =
          double{std::bit_cast<float>(routes[2 * route + 1])} * x[route * n + i % n];
      sum += product;
      magnitude += std::abs(product);
    }
    y.reference.push_back(sum);
    y.bound.push_back((n_used + 1) * 0x1p-24 * magnitude);
  }
  return prepared_op(op, args, {std::move(y)});
}

}  // namespace

std::vector<OpCase> experts_cases() {
  std::vector<OpCase> cases;
  constexpr const char* kScores[] = {"", " ties", " infinite", " nan"};
  using Probability = Route::Kind::Probability;
  constexpr Route::Kind kSigmoid{.probability = Probability::kSigmoid};
  constexpr Route::Kind kBiased{.probability = Probability::kSigmoid, .biased = true};
  constexpr Route::Kind kGrouped{
      .probability = Probability::kSigmoid, .biased = true, .grouped = true};
  constexpr Route::Kind kGiven{
      .probability = Probability::kSigmoid, .biased = true, .grouped = true, .given = true};
  for (const RouteShape& shape :
       {RouteShape{1, 1, 1},
        RouteShape{5, 8, 2},
        RouteShape{3, 61, 7},
        RouteShape{7, 256, 16, Scores::kRandom, 20},
        RouteShape{4, 16, 16},
        RouteShape{9, 128, 8, Scores::kTies},
        RouteShape{3, 67, 16, Scores::kTies, 1e-3f},
        RouteShape{5, 33, 4, Scores::kInfinite},
        RouteShape{5, 65, 9, Scores::kNaN},
        RouteShape{3, 512, 10, Scores::kRandom, 2, {.renormalised = false}},
        RouteShape{2, 16, 2, Scores::kRandom, 2, {.renormalised = false}, 1, 1, 1.75f},
        RouteShape{6, 64, 6, Scores::kRandom, 2, {.biased = true}},
        RouteShape{6, 60, 4, Scores::kRandom, 2, {.biased = true, .renormalised = false}},
        RouteShape{6, 32, 4, Scores::kRandom, 2, kSigmoid, 1, 1, 2.5f},
        RouteShape{3, 32, 4, Scores::kRandom, 1e-3f, {.grouped = true}, 8, 3},
        RouteShape{9, 128, 8, Scores::kRandom, 2, kBiased, 1, 1, 1.5f},
        RouteShape{4, 40, 3, Scores::kNaN, 2, kBiased},
        RouteShape{9, 256, 8, Scores::kRandom, 2, kGrouped, 8, 4, 2.5f},
        RouteShape{5, 16, 2, Scores::kRandom, 2, kGrouped, 4, 1},
        RouteShape{4, 128, 4, Scores::kRandom, 2, kGrouped, 64, 2},
        RouteShape{5, 40, 3, Scores::kRandom, 2, {.gained = true}, 1, 1, 2.5f},
        RouteShape{5, 40, 3, Scores::kRandom, 2, {.given = true}},
        RouteShape{4, 16, 2, Scores::kRandom, 2, {.renormalised = false, .given = true}},
        RouteShape{6, 32, 4, Scores::kRandom, 2, kGiven, 4, 2, 2.5f}}) {
    cases.push_back(
        {.op = "experts",
         .name = fmt::format(
             "route rows={} experts={} used={}{}{}{}{}{}{}{}", shape.rows, shape.n_experts,
             shape.n_used, kScores[static_cast<size_t>(shape.scores)],
             shape.kind.probability == Probability::kSigmoid ? " sigmoid" : "",
             shape.kind.biased ? " biased" : "",
             shape.kind.grouped ? fmt::format(" groups={}/{}", shape.n_used_groups, shape.n_groups)
                                : "",
             shape.kind.renormalised ? "" : " as they are", shape.kind.gained ? " gained" : "",
             shape.kind.given ? " given" : ""),
         .prepare = [shape](OpBed& bed) { return prepare_route(bed, shape); }});
  }
  for (const WeightType* type : linear_types()) {
    for (const ProductShape& shape :
         {ProductShape{3, 2, 5, 33, 76, false}, ProductShape{2, 4, 7, 64, 516, true, 3, 1, true},
          ProductShape{1, 16, 131, 3, 32, true}, ProductShape{5, 1, 2, 96, 1025 * 4, false, 1},
          ProductShape{3, 2, 3, 67, 1000, true, 2, 4, true, true}}) {
      if (!shape.every_type && !takes_all_shapes(*type)) continue;
      cases.push_back(
          {.op = "experts",
           .name = fmt::format("{} rows={} used={} experts={} n={} k={}{}{}", type->name,
                               shape.rows, shape.n_used, shape.n_experts, shape.n, shape.k,
                               shape.x_of_ranks ? " x of ranks" : "",
                               shape.part_groups > 0 ? " parts" : "") +
                   (shape.n_slices == 1 ? "" : fmt::format(" slices={}", shape.n_slices)),
           .prepare = [type, shape](OpBed& bed) { return prepare_product(bed, *type, shape); }});
    }
  }
  for (const auto& [rows, n_used, n] :
       {std::array<uint32_t, 3>{1, 1, 1}, {3, 2, 257}, {5, 8, 260}, {2, 16, 4100}}) {
    cases.push_back({.op = "experts",
                     .name = fmt::format("combine rows={} used={} n={}", rows, n_used, n),
                     .prepare = [rows = rows, n_used = n_used, n = n](OpBed& bed) {
                       return prepare_sum(bed, rows, n_used, n);
                     }});
  }
  return cases;
}

}  // namespace pumice::ops
