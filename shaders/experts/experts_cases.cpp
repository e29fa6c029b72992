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
  Scores kind = Scores::kRandom;
  float scale = 2;
};

std::vector<float> scores_of(const RouteShape& shape) {
  auto scores = OpBed::normal_floats(size_t{shape.rows} * shape.n_experts, 1, shape.scale);
  for (size_t i = 0; i < scores.size(); ++i) {
    switch (shape.kind) {
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

Result<PreparedOp> prepare_route(OpBed& bed, const RouteShape& shape) {
  const auto scores = scores_of(shape);
  Route::Args args{.rows = shape.rows, .n_experts = shape.n_experts, .n_used = shape.n_used};
  PUMICE_TRY(args.scores, bed.input(scores));
  PUMICE_TRY(args.routes, bed.output(uint64_t{shape.rows} * shape.n_used * kRouteBytes));
  PUMICE_TRY(const Route op, Route::plan(bed.pipelines()));

  Expectation ids{.name = "experts", .output = args.routes};
  Expectation weights{.name = "weights", .output = args.routes};
  std::vector<uint32_t> order(shape.n_experts);
  for (uint32_t row = 0; row < shape.rows; ++row) {
    const float* const own = &scores[size_t{row} * shape.n_experts];
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, std::greater<>(), [&](uint32_t expert) {
      return std::isnan(own[expert]) ? -kInfinity : own[expert];
    });
    double sum = 0;
    for (uint32_t rank = 0; rank < shape.n_used; ++rank) {
      sum += std::exp(double{own[order[rank]]} - own[order[0]]);
    }
    for (uint32_t rank = 0; rank < shape.n_used; ++rank) {
      const size_t at = 2 * (size_t{row} * shape.n_used + rank);
      ids.elements.push_back(at);
      ids.words.push_back(order[rank]);
      const double distance = double{own[order[rank]]} - own[order[0]];
      const double weight = std::exp(distance) / sum;
      if (std::isnan(weight)) continue;  // of no score at all
      // Of exp() 3 + 2|x| units, of its argument |x| / 2; the sum's own errors are weighted by its
      // terms, which leaves less than a unit for their arguments; a division of 2.5.
      const double units = 8 + shape.n_used + (std::isinf(distance) ? 0 : 2.5 * -distance);
      weights.elements.push_back(at + 1);
      weights.reference.push_back(weight);
      weights.bound.push_back(units * 0x1p-23 * weight + 0x1p-126);
    }
  }
  return PreparedOp{.record = [=](vk::Recorder& recorder) { op.record(recorder, args); },
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
};

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
  PUMICE_TRY(const ExpertLinear op, ExpertLinear::plan(bed.pipelines(), type, shape.n_slices));

  Expectation y{.name = "y", .output = y_range};
  y.reference.assign(y_floats, std::numeric_limits<double>::quiet_NaN());  // not to be written
  y.bound.assign(y_floats, 0);
  for (uint32_t route = 0; route < n_routes; ++route) {
    const uint32_t x_row = shape.x_of_ranks ? route : route / shape.n_used;
    for (uint32_t row = 0; row < shape.n; ++row) {
      const size_t weight_row = size_t{routes[2 * route]} * shape.n + row;
      const LinearElement element = linear_element(
          &x.values[size_t{x_row} * x.stride], &weights.values[weight_row * k], k, Math::kF32, {});
      y.reference[size_t{route} * y_stride + row] = element.value;
      y.bound[size_t{route} * y_stride + row] = element.bound;
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
  return PreparedOp{.record = [=](vk::Recorder& recorder) { op.record(recorder, args); },
                    .expected = {std::move(y)}};
}

}  // namespace

std::vector<OpCase> experts_cases() {
  std::vector<OpCase> cases;
  constexpr const char* kScores[] = {"", " ties", " infinite", " nan"};
  for (const RouteShape& shape :
       {RouteShape{1, 1, 1}, RouteShape{5, 8, 2}, RouteShape{3, 61, 7},
        RouteShape{7, 256, 16, Scores::kRandom, 20}, RouteShape{4, 16, 16},
        RouteShape{9, 128, 8, Scores::kTies}, RouteShape{3, 67, 16, Scores::kTies, 1e-3f},
        RouteShape{5, 33, 4, Scores::kInfinite}, RouteShape{5, 65, 9, Scores::kNaN}}) {
    cases.push_back(
        {.op = "experts",
         .name = fmt::format("route rows={} experts={} used={}{}", shape.rows, shape.n_experts,
                             shape.n_used, kScores[static_cast<size_t>(shape.kind)]),
         .prepare = [shape](OpBed& bed) { return prepare_route(bed, shape); }});
  }
  for (const WeightType* type : linear_types()) {
    for (const ProductShape& shape :
         {ProductShape{3, 2, 5, 33, 76, false}, ProductShape{2, 4, 7, 64, 516, true, 3, 1, true},
          ProductShape{1, 16, 131, 3, 32, true}, ProductShape{5, 1, 2, 96, 1025 * 4, false, 1},
          ProductShape{3, 2, 3, 67, 1000, true, 2, 4, true}}) {
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
