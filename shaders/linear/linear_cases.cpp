#include "shaders/common/linear_cases.hpp"
#include "shaders/linear/linear.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

/// Two matrices side by side in one y, without a barrier between them: one stacked from two
/// sources, one of another type. A small part size splits them by rows.
Result<PreparedOp> prepare(OpBed& bed, Math math, uint32_t rows, uint64_t part_bytes) {
  constexpr uint32_t kCols = 256;
  const RandomWeights q(weight_type("Q4_K"), 64, kCols, 1);
  const RandomWeights k(weight_type("Q4_K"), 32, kCols, 2);
  const RandomWeights v(weight_type("Q6_K"), 33, kCols, 3);
  const WeightSource stacked[] = {q.source(), k.source()};
  const WeightSource single[] = {v.source()};
  PUMICE_TRY(const auto qk, upload_weights(bed, stacked, part_bytes));
  PUMICE_TRY(const auto last, upload_weights(bed, single, part_bytes));
  const uint32_t stride = qk->matrix.n_rows + last->matrix.n_rows;

  const PaddedInput x(rows, kCols);
  PUMICE_TRY(const vk::BufferRange x_range, bed.input(x.values));
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(uint64_t{rows} * stride * 4));
  const WeightType* types[] = {q.type, v.type, q.type};
  PUMICE_TRY(const Linear op, Linear::plan(bed.pipelines(), types, math));

  vk::BufferRange scratch;
  if (const uint64_t bytes = op.scratch_bytes(rows, kCols); bytes > 0) {
    PUMICE_TRY(scratch, bed.output(bytes));
  }

  Expectation y{.name = "y", .output = y_range, .reference = {}, .bound = {}, .words = {}};
  y.reference.resize(size_t{rows} * stride);
  y.bound.resize(y.reference.size());
  linear_reference(x, q, math, 0, stride, y.reference, y.bound);
  linear_reference(x, k, math, q.n_rows, stride, y.reference, y.bound);
  linear_reference(x, v, math, q.n_rows + k.n_rows, stride, y.reference, y.bound);
  return PreparedOp{.record =
                        [=, x_stride = x.stride](vk::Recorder& recorder) {
                          const LinearArgs matrices[] = {
                              {.weights = qk->matrix,
                               .x = x_range,
                               .x_stride = x_stride,
                               .y = y_range,
                               .y_stride = stride,
                               .rows = rows,
                               .scratch = scratch},
                              {.weights = last->matrix,
                               .x = x_range,
                               .x_stride = x_stride,
                               .y = y_range.from(uint64_t{qk->matrix.n_rows} * 4),
                               .y_stride = stride,
                               .rows = rows,
                               .scratch = scratch}};
                          op.record(recorder, matrices);
                        },
                    .expected = {y}};
}

}  // namespace

std::vector<OpCase> linear_cases() {
  constexpr uint64_t kWhole = 1 << 20;
  constexpr uint64_t kGroup = 8000;  // one group of 32 rows: 4608 bytes of Q4_K, 6784 of Q6_K
  std::vector<OpCase> cases;
  const bool has_i8 = find_spirv("gemm.q4_k.i8").ok();
  for (const uint32_t rows : {1u, 8u, 9u, 40u}) {
    for (const uint64_t part_bytes : {kWhole, kGroup}) {
      for (const Math math : {Math::kF32, Math::kI8}) {
        if (math == Math::kI8 && !has_i8) continue;
        cases.push_back(
            {.op = "linear",
             .name = fmt::format("{} rows={} {}", math_name(math), rows,
                                 part_bytes == kWhole ? "whole" : "split by rows"),
             .prepare = [=](OpBed& bed) { return prepare(bed, math, rows, part_bytes); },
             .supported =
                 [=](const vk::DevicePlan& plan) {
                   return math == Math::kF32 || plan.features.integer_dot;
                 }});
      }
    }
  }
  return cases;
}

}  // namespace pumice::ops
