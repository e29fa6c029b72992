#include "shaders/common/linear_cases.hpp"
#include "shaders/linear/linear.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

/// Two matrices side by side in one y, without a barrier between them: one stacked from two
/// sources, one of another type. A small part size splits them by rows. With 4096 columns, gemv's
/// subgroup kernel splits K.
Result<PreparedOp> prepare(OpBed& bed, Math math, uint32_t rows, uint32_t n_cols,
                           uint64_t part_bytes) {
  const RandomWeights q(weight_type("Q4_K"), 64, n_cols, 1);
  const RandomWeights k(weight_type("Q4_K"), 32, n_cols, 2);
  const RandomWeights v(weight_type("Q6_K"), 33, n_cols, 3);
  const WeightSource stacked[] = {q.source(), k.source()};
  const WeightSource single[] = {v.source()};
  PUMICE_TRY(const auto qk, upload_weights(bed, stacked, part_bytes));
  PUMICE_TRY(const auto last, upload_weights(bed, single, part_bytes));
  const uint32_t stride = qk->matrix.n_rows + last->matrix.n_rows;

  const PaddedInput x(rows, n_cols);
  PUMICE_TRY(const vk::BufferRange x_range, bed.input(x.values));
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(uint64_t{rows} * stride * 4));
  const WeightType* types[] = {q.type, v.type, q.type};
  PUMICE_TRY(const Linear op, Linear::plan(bed.pipelines(), types, math));

  vk::BufferRange scratch;
  const WeightMatrix side_by_side[] = {qk->matrix, last->matrix};
  if (const uint64_t bytes = op.scratch_bytes(rows, side_by_side); bytes > 0) {
    PUMICE_TRY(scratch, bed.output(bytes));
  }

  const Math used = op.math_of(*q.type, rows);
  Expectation y{.name = "y", .output = y_range, .reference = {}, .bound = {}, .words = {}};
  y.reference.resize(size_t{rows} * stride);
  y.bound.resize(y.reference.size());
  linear_reference(x, q, used, op.x_form(*q.type, rows), 0, stride, y.reference, y.bound);
  linear_reference(x, k, used, op.x_form(*k.type, rows), q.n_rows, stride, y.reference, y.bound);
  linear_reference(x, v, used, op.x_form(*v.type, rows), q.n_rows + k.n_rows, stride, y.reference,
                   y.bound);
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
  std::vector<OpCase> cases;
  const bool has_i8 = find_spirv("gemm.q4_k.i8").ok();
  const auto add = [&](Math math, uint32_t rows, uint32_t n_cols, uint64_t part_bytes) {
    cases.push_back(
        {.op = "linear",
         .name = fmt::format("{} rows={} k={} {}", math_name(math), rows, n_cols,
                             part_bytes == kWhole ? "whole" : "split by rows"),
         .prepare = [=](OpBed& bed) { return prepare(bed, math, rows, n_cols, part_bytes); },
         .supported =
             [=](const vk::DevicePlan& plan) {
               return math == Math::kF32 || plan.features.integer_dot;
             }});
  };
  // Parts of one group of 32 rows: 4608 bytes of Q4_K and 6784 of Q6_K a tile of 256 columns.
  for (const uint32_t rows : {1u, 8u, 9u, 40u}) {
    for (const uint64_t part_bytes : {kWhole, uint64_t{8000}}) {
      for (const Math math : {Math::kF32, Math::kI8}) {
        if (math == Math::kF32 || has_i8) add(math, rows, 256, part_bytes);
      }
    }
  }
  for (const uint32_t rows : {1u, 3u, 8u}) {
    for (const uint64_t part_bytes : {kWhole, uint64_t{16 * 8000}}) {
      add(Math::kF32, rows, 4096, part_bytes);
      if (has_i8) add(Math::kI8, rows, 4096, part_bytes);  // in planes where these are preferred
    }
  }
  return cases;
}

}  // namespace pumice::ops
