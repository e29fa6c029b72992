#include "shaders/common/linear_cases.hpp"
#include "shaders/head_linear/head_linear.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

constexpr size_t kSampledElements = 64;

struct BenchShape {
  const WeightType* type;
  uint32_t rows;
  uint32_t n_heads;
  uint32_t n;  ///< rows of a head
  uint32_t k;
};

Result<PreparedOp> prepare(OpBed& bed, const BenchShape& shape) {
  const WeightType& type = *shape.type;
  const uint32_t n_rows = shape.n_heads * shape.n;
  const RandomWeights weights(type, kDistinctRows, shape.k, 1);
  PUMICE_TRY(const auto matrices, repeated_matrices(bed, weights, n_rows));
  const WeightMatrix& matrix = matrices[0];
  const uint32_t x_stride = shape.n_heads * shape.k;
  const uint32_t y_stride = shape.n_heads * shape.n;
  const std::vector<float> x = OpBed::uniform_floats(size_t{shape.rows} * x_stride, 2);
  PUMICE_TRY(const vk::BufferRange x_range, bed.input(x));
  const uint64_t y_elements = uint64_t{shape.rows} * y_stride;
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(y_elements * 4));
  PUMICE_TRY(const HeadLinear op, HeadLinear::plan(bed.pipelines(), type, false));

  Expectation y{.name = "y", .output = y_range};
  y.elements = sample_elements(y_elements, kSampledElements, 3);
  for (const uint64_t at : y.elements) {
    const uint64_t weight_row = at % y_stride;
    const uint64_t head = weight_row / shape.n;
    const LinearElement element = linear_element(
        &x[at / y_stride * x_stride + head * shape.k],
        &weights.values[weight_row % kDistinctRows * shape.k], shape.k, Math::kF32, {});
    y.reference.push_back(element.value);
    y.bound.push_back(element.bound);
  }
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          op.record(recorder, {.weights = matrix,
                                               .n_heads = shape.n_heads,
                                               .n_rows = shape.n,
                                               .x = x_range,
                                               .x_stride = x_stride,
                                               .x_head_stride = shape.k,
                                               .y = y_range,
                                               .y_stride = y_stride,
                                               .rows = shape.rows});
                        },
                    .expected = {std::move(y)}};
}

}  // namespace

std::vector<OpCase> head_linear_bench_cases(const BenchScale& scale) {
  std::vector<OpCase> cases;
  const WeightType* const type = &weight_type("Q8_0");
  for (const uint32_t rows : {1u, scale.small ? 16u : 64u}) {
    // A GLM 4.7 Flash's way to the latent and out of it, and less of it.
    for (const BenchShape& shape :
         {scale.small ? BenchShape{type, rows, 4, 256, 192} : BenchShape{type, rows, 20, 512, 192},
          scale.small ? BenchShape{type, rows, 4, 128, 256}
                      : BenchShape{type, rows, 20, 256, 512}}) {
      cases.push_back({.op = "head_linear",
                       .name = fmt::format("Q8_0 rows={} heads={} n={} k={}", rows, shape.n_heads,
                                           shape.n, shape.k),
                       .prepare = [shape](OpBed& bed) { return prepare(bed, shape); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
