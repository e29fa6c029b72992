#include <algorithm>

#include "format/resident_layout.hpp"
#include "shaders/common/linear_cases.hpp"
#include "shaders/linear/linear.hpp"
#include "shaders/linear/linear_bench.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr size_t kSampledElements = 64;

/// Whether gemm has a kernel of that arithmetic here; the rest is planned at run time.
bool math_supported(const vk::DevicePlan& plan, const WeightType& type, Math math) {
  if (math == Math::kAuto) return true;
  return std::ranges::any_of(
      gemm_variants(plan, math, tuned_x_route(plan)), [&](const GemmVariant& variant) {
        return variant.obstacle.empty() &&
               find_spirv(linear_module_name("gemm", type, variant.name)).ok();
      });
}

Result<PreparedOp> prepare(OpBed& bed, const WeightType& type, Math math, const LinearShape& shape,
                           const BenchScale& scale) {
  const RandomWeights weights(type, std::min(shape.n, kDistinctRows), shape.k, 1);
  const uint32_t n_copies = scale.copies(resident_bytes(type, shape.n, shape.k));
  PUMICE_TRY(auto matrices, repeated_matrices(bed, weights, shape.n, n_copies));
  const std::vector<float> x = OpBed::uniform_floats(size_t{shape.rows} * shape.k, 2);
  PUMICE_TRY(const vk::BufferRange x_range, bed.input(x));
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(uint64_t{shape.rows} * shape.n * 4));
  const WeightType* types[] = {&type};
  PUMICE_TRY(const Linear op, Linear::plan(bed.pipelines(), types, math));
  vk::BufferRange scratch;
  if (const uint64_t bytes = op.scratch_bytes(shape.rows, {&matrices[0], 1}); bytes > 0) {
    PUMICE_TRY(scratch, bed.output(bytes));
  }

  const Math used = op.math_of(type, shape.rows);
  Expectation y{.name = "y", .output = y_range};
  y.elements = sample_elements(uint64_t{shape.rows} * shape.n, kSampledElements, 3);
  for (const uint64_t at : y.elements) {
    const float* x_row = &x[at / shape.n * shape.k];
    const LinearElement element = linear_element(
        x_row, &weights.values[at % shape.n % weights.n_rows * shape.k], shape.k, used,
        linear_input_errors({x_row, shape.k}, op.x_form(type, shape.rows)), type.has_integers());
    y.reference.push_back(element.value);
    y.bound.push_back(element.bound);
  }
  PreparedOp prepared{.record = {}, .expected = {std::move(y)}};
  for (WeightMatrix& matrix : matrices) {
    prepared.rotation.emplace_back([=, matrix = std::move(matrix)](vk::Recorder& recorder) {
      op.record(recorder, LinearArgs{.weights = matrix,
                                     .x = x_range,
                                     .x_stride = shape.k,
                                     .y = y_range,
                                     .y_stride = shape.n,
                                     .rows = shape.rows,
                                     .scratch = scratch});
    });
  }
  prepared.record = prepared.rotation[0];
  return prepared;
}

OpCase case_of(const WeightType& type, const LinearShape& shape, Math math,
               const BenchScale& scale) {
  return {
      .op = shape.rows <= Gemv::kMaxRows ? "gemv" : "gemm",
      .name = fmt::format("{} rows={} n={} k={}{}", type.name, shape.rows, shape.n, shape.k,
                          math == Math::kI8 ? " i8" : ""),
      .prepare = [=, type = &type](OpBed& bed) { return prepare(bed, *type, math, shape, scale); },
      .supported = [=, type = &type](
                       const vk::DevicePlan& plan) { return math_supported(plan, *type, math); }};
}

}  // namespace

std::vector<OpCase> linear_bench_cases(const BenchScale& scale,
                                       std::span<const LinearBenchMatrix> matrices) {
  std::vector<OpCase> cases;
  for (const LinearBenchMatrix& matrix : matrices) {
    for (const uint32_t rows : {1u, Gemv::kMaxRows, scale.small ? 64u : 512u}) {
      cases.push_back(
          case_of(*matrix.type, {rows, matrix.n_rows, matrix.n_cols}, Math::kAuto, scale));
    }
  }
  return cases;
}

std::vector<OpCase> linear_bench_cases(const BenchScale& scale) {
  // Rows of x, outputs, inputs. Llama 3.2 1B: a square projection, gate and up, down; Llama 3.1 8B
  // likewise and its keys, of so few outputs that gemv splits K; the output layer of both has
  // 128256 rows.
  std::vector<LinearShape> shapes;
  if (scale.small) {
    shapes = {{1, 2048, 2048}, {1, 2048, 8192}, {8, 2048, 2048}, {64, 2048, 2048}};
  } else {
    shapes = {{1, 2048, 2048},   {1, 16384, 2048}, {1, 2048, 8192},   {1, 1024, 4096},
              {1, 4096, 4096},   {1, 28672, 4096}, {1, 4096, 14336},  {8, 1024, 4096},
              {8, 4096, 4096},   {64, 4096, 4096}, {512, 2048, 2048}, {512, 28672, 4096},
              {512, 4096, 14336}};
  }
  std::vector<OpCase> cases;
  const auto add = [&](const WeightType& type, const LinearShape& shape, Math math) {
    cases.push_back(case_of(type, shape, math, scale));
  };
  for (const LinearShape& shape : shapes) {
    for (const WeightType* type : linear_types()) {
      add(*type, shape, Math::kAuto);
      if (shape.rows > Gemv::kMaxRows && type->has_integers()) add(*type, shape, Math::kI8);
    }
  }
  for (const char* name : {"Q8_0", "Q6_K"}) {
    if (!scale.small) add(weight_type(name), {1, 128256, 2048}, Math::kAuto);
  }
  return cases;
}

}  // namespace pumice::ops
