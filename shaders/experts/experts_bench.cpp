#include <functional>
#include <numeric>
#include <random>

#include "shaders/common/linear_cases.hpp"
#include "shaders/expert_gemm/expert_gemm.hpp"
#include "shaders/experts/experts.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

constexpr size_t kSampledElements = 64;

struct Shape {
  const WeightType* type;
  uint32_t rows;
  uint32_t n_experts;
  uint32_t n_used;
  uint32_t n;  ///< rows of an expert
  uint32_t k;
  bool grouped = false;  ///< the pairs of an expert together (ExpertGemm), after they are sorted
};

/// Records a product.
using RecordProduct = std::function<void(vk::Recorder&)>;

/// The product of one projection. A row's experts are any, others for each row.
Result<PreparedOp> prepare(OpBed& bed, const Shape& shape) {
  const WeightType& type = *shape.type;
  const uint32_t n_rows = shape.n_experts * shape.n;
  const RandomWeights weights(type, kDistinctRows, shape.k, 1);
  PUMICE_TRY(const auto matrices, repeated_matrices(bed, weights, n_rows));
  const WeightMatrix& matrix = matrices[0];
  const std::vector<float> x = OpBed::uniform_floats(size_t{shape.rows} * shape.k, 2);
  std::vector<uint32_t> routes;
  std::mt19937 engine(5);
  std::vector<uint32_t> experts(shape.n_experts);
  std::iota(experts.begin(), experts.end(), 0u);
  for (uint32_t route = 0; route < shape.rows * shape.n_used; ++route) {
    const uint32_t rank = route % shape.n_used;
    std::swap(experts[rank], experts[rank + engine() % (shape.n_experts - rank)]);
    routes.push_back(experts[rank]);
    routes.push_back(0);  // a weight, which the product does not read
  }
  PUMICE_TRY(const vk::BufferRange x_range, bed.input(x));
  PUMICE_TRY(const vk::BufferRange routes_range, bed.input(routes));
  const uint64_t y_elements = uint64_t{shape.rows} * shape.n_used * shape.n;
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(y_elements * 4));
  RecordProduct record;
  Math math = Math::kF32;
  if (shape.grouped) {
    const WeightType* const types[] = {&type};
    PUMICE_TRY(const ExpertGemm op, ExpertGemm::plan(bed.pipelines(), types, Math::kAuto,
                                                     tuned_x_route(bed.device()->plan())));
    ExpertGemm::Groups groups{
        .rows = shape.rows, .n_used = shape.n_used, .n_experts = shape.n_experts};
    PUMICE_TRY(groups.range, bed.output(op.range_bytes(groups)));
    PUMICE_TRY(const vk::BufferRange scratch, bed.scratch(op.x_bytes(shape.rows, shape.k)));
    record = [=](vk::Recorder& recorder) {
      op.record_groups(recorder, routes_range, groups);
      op.record(recorder, {.weights = matrix,
                           .x = x_range,
                           .x_stride = shape.k,
                           .groups = groups,
                           .scratch = scratch,
                           .y = y_range,
                           .y_stride = shape.n});
    };
    math = op.math();
  } else {
    PUMICE_TRY(const ExpertLinear op, ExpertLinear::plan(bed.pipelines(), type, false));
    record = [=](vk::Recorder& recorder) {
      op.record(recorder, {.weights = matrix,
                           .n_experts = shape.n_experts,
                           .x = x_range,
                           .x_stride = shape.k,
                           .routes = routes_range,
                           .y = y_range,
                           .y_stride = shape.n,
                           .rows = shape.rows,
                           .n_used = shape.n_used});
    };
  }

  Expectation y{.name = "y", .output = y_range};
  y.elements = sample_elements(y_elements, kSampledElements, 3);
  for (const uint64_t at : y.elements) {
    const uint64_t route = at / shape.n;
    const uint64_t weight_row = routes[2 * route] * uint64_t{shape.n} + at % shape.n;
    const LinearElement element = linear_element(
        &x[route / shape.n_used * shape.k], &weights.values[weight_row % kDistinctRows * shape.k],
        shape.k, math, {}, type.has_integers());
    y.reference.push_back(element.value);
    y.bound.push_back(element.bound);
  }
  return PreparedOp{.record = std::move(record), .expected = {std::move(y)}};
}

}  // namespace

std::vector<OpCase> experts_bench_cases(const BenchScale& scale) {
  std::vector<OpCase> cases;
  const auto add = [&](const Shape& shape) {
    cases.push_back({.op = "experts",
                     .name = fmt::format("{} rows={} used={}/{} n={} k={}{}", shape.type->name,
                                         shape.rows, shape.n_used, shape.n_experts, shape.n,
                                         shape.k, shape.grouped ? " grouped" : ""),
                     .prepare = [shape](OpBed& bed) { return prepare(bed, shape); }});
  };
  for (const char* name : {"Q4_K", "Q6_K"}) {
    const WeightType* const type = &weight_type(name);
    // Gate or up of a Qwen3 30B-A3B, and less of it.
    Shape shape =
        scale.small ? Shape{type, 1, 32, 8, 256, 1024} : Shape{type, 1, 128, 8, 768, 2048};
    add(shape);
    // Both ways, whatever the decoder would take.
    for (const uint32_t rows : {16u, 64u, scale.small ? 128u : 512u}) {
      shape.rows = rows;
      for (const bool grouped : {false, true}) {
        shape.grouped = grouped;
        add(shape);
      }
    }
  }
  return cases;
}

}  // namespace pumice::ops
