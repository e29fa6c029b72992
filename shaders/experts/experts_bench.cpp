#include <algorithm>

#include "format/resident_layout.hpp"
#include "shaders/common/linear_cases.hpp"
#include "shaders/experts/experts.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kDistinctRows = 256;  // weight rows that differ; they repeat after that
constexpr size_t kSampledElements = 64;

struct Shape {
  const WeightType* type;
  uint32_t rows;
  uint32_t n_experts;
  uint32_t n_used;
  uint32_t n;  ///< rows of an expert
  uint32_t k;
};

/// The product of one projection. A row's experts are neighbours, others for each row.
Result<PreparedOp> prepare(OpBed& bed, const Shape& shape) {
  const WeightType& type = *shape.type;
  const uint32_t n_rows = shape.n_experts * shape.n;
  const RandomWeights weights(type, kDistinctRows, shape.k, 1);
  PUMICE_TRY(
      const vk::BufferRange pattern,
      bed.input(resident_bytes(type, kDistinctRows, shape.k), [&](std::span<std::byte> target) {
        repack(type, weights.blocks.data(), kDistinctRows, shape.k, 0, n_row_groups(kDistinctRows),
               target.data());
      }));
  PUMICE_TRY(const vk::BufferRange memory,
             bed.repeat(pattern, resident_bytes(type, n_rows, shape.k)));
  const WeightMatrix matrix{.type = &type,
                            .n_rows = n_rows,
                            .n_cols = shape.k,
                            .parts = {{.range = memory, .first_row = 0, .n_rows = n_rows}}};
  const std::vector<float> x = OpBed::uniform_floats(size_t{shape.rows} * shape.k, 2);
  std::vector<uint32_t> routes;
  for (uint32_t route = 0; route < shape.rows * shape.n_used; ++route) {
    routes.push_back(route % shape.n_experts);
    routes.push_back(0);  // a weight, which the product does not read
  }
  PUMICE_TRY(const vk::BufferRange x_range, bed.input(x));
  PUMICE_TRY(const vk::BufferRange routes_range, bed.input(routes));
  const uint64_t y_elements = uint64_t{shape.rows} * shape.n_used * shape.n;
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(y_elements * 4));
  PUMICE_TRY(const ExpertLinear op, ExpertLinear::plan(bed.pipelines(), type, false));

  Expectation y{.name = "y", .output = y_range};
  y.elements = sample_elements(y_elements, kSampledElements, 3);
  for (const uint64_t at : y.elements) {
    const uint64_t route = at / shape.n;
    const uint64_t weight_row = routes[2 * route] * uint64_t{shape.n} + at % shape.n;
    const LinearElement element = linear_element(
        &x[route / shape.n_used * shape.k], &weights.values[weight_row % kDistinctRows * shape.k],
        shape.k, Math::kF32, {});
    y.reference.push_back(element.value);
    y.bound.push_back(element.bound);
  }
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          op.record(recorder, {.weights = matrix,
                                               .n_experts = shape.n_experts,
                                               .x = x_range,
                                               .x_stride = shape.k,
                                               .routes = routes_range,
                                               .y = y_range,
                                               .y_stride = shape.n,
                                               .rows = shape.rows,
                                               .n_used = shape.n_used});
                        },
                    .expected = {std::move(y)}};
}

}  // namespace

std::vector<OpCase> experts_bench_cases(const BenchScale& scale) {
  std::vector<OpCase> cases;
  for (const char* name : {"Q4_K", "Q6_K"}) {
    const WeightType* const type = &weight_type(name);
    for (const uint32_t rows : {1u, scale.small ? 16u : 64u}) {
      // Gate or up of a Qwen3 30B-A3B, and less of it.
      const Shape shape =
          scale.small ? Shape{type, rows, 16, 8, 256, 1024} : Shape{type, rows, 128, 8, 768, 2048};
      cases.push_back({.op = "experts",
                       .name = fmt::format("{} rows={} used={}/{} n={} k={}", name, rows,
                                           shape.n_used, shape.n_experts, shape.n, shape.k),
                       .prepare = [shape](OpBed& bed) { return prepare(bed, shape); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
