#include <algorithm>
#include <cmath>
#include <span>

#include "shaders/layer_norm/layer_norm.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

/// One row: x += residual, y = (x - mean) / sqrt(variance + eps) * weight + bias; residual and bias
/// may be null. `bound` receives what a kernel in fp32 may miss each y by.
void layer_norm_row(std::span<double> x, const float* residual, const float* weight,
                    const float* bias, float eps, double* y, double* bound) {
  const auto n = static_cast<double>(x.size());
  double mean = 0;
  double rounding = 0;  // the largest of x + residual
  for (size_t i = 0; i < x.size(); ++i) {
    if (residual != nullptr) {
      x[i] += residual[i];
      rounding = std::max(rounding, 0x1p-24 * std::abs(x[i]));
    }
    mean += x[i] / n;
  }
  double variance = 0;
  for (const double value : x) variance += (value - mean) * (value - mean) / n;
  const double scale = 1 / std::sqrt(variance + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    const double normed = (x[i] - mean) * scale * weight[i];
    y[i] = normed + (bias != nullptr ? bias[i] : 0.0f);
    // Roundings relative to deviations of about one, whatever the mean: those of the two means, of
    // the sum of squares, of a division, a square root and five products and sums. A rounded
    // x + residual moves its own deviation, and all of them the mean.
    bound[i] = 3e-6 * std::abs(normed) + 0x1p-23 * std::abs(y[i]) +
               (1e-6 + 2 * rounding * scale) * std::abs(weight[i]);
  }
}

struct Shape {
  uint32_t rows;
  uint32_t n;
  bool bias = true;
  bool residual = false;
  bool gather = false;
  bool in_place = false;
  float mean = 0.5f;
  uint32_t n_groups = 1;
  uint32_t gap = 0;  // floats behind each row of x
};

Result<PreparedOp> prepare(OpBed& bed, const Shape& shape) {
  constexpr float kEps = 0.125f;  // one that can be seen
  const uint32_t x_rows = shape.gather ? shape.rows + 3 : shape.rows;
  const uint32_t width = shape.n_groups * shape.n;
  const size_t x_stride = width + shape.gap;
  const size_t y_stride = shape.in_place ? x_stride : width;
  auto x = OpBed::normal_floats(x_rows * x_stride, 1);
  for (float& value : x) value += shape.mean;
  const auto residual = OpBed::normal_floats(x.size(), 2);
  const auto weight = OpBed::normal_floats(width, 3);
  const auto bias = OpBed::normal_floats(width, 4);
  std::vector<uint32_t> row_index(shape.rows);
  for (uint32_t row = 0; row < shape.rows; ++row) row_index[row] = x_rows - 1 - row;

  LayerNorm::Args args{.rows = shape.rows,
                       .n = shape.n,
                       .eps = kEps,
                       .n_groups = shape.n_groups,
                       .x_stride = static_cast<uint32_t>(x_stride),
                       .y_stride = static_cast<uint32_t>(y_stride)};
  // x may be updated in place, so a pristine copy is restored before each run.
  PUMICE_TRY(const vk::BufferRange pristine, bed.input(x));
  PUMICE_TRY(args.x, bed.output(x.size() * 4));
  PUMICE_TRY(args.residual, bed.input_if(shape.residual, residual));
  PUMICE_TRY(args.weight, bed.input(weight));
  PUMICE_TRY(args.bias, bed.input_if(shape.bias, bias));
  PUMICE_TRY(args.row_index, bed.input_if(shape.gather, row_index));
  if (shape.in_place) {
    args.y = args.x;
  } else {
    PUMICE_TRY(args.y, bed.output(uint64_t{shape.rows} * width * 4));
  }
  PUMICE_TRY(const LayerNorm op, LayerNorm::plan(bed.pipelines()));

  std::vector<double> expected_x(x.begin(), x.end());
  std::vector<double> expected_y(shape.rows * y_stride);
  if (shape.in_place) expected_y = expected_x;  // what lies between rows stays
  std::vector<double> bound(expected_y.size());
  for (uint32_t row = 0; row < shape.rows; ++row) {
    for (uint32_t column = 0; column < width; column += shape.n) {
      const size_t first = (shape.gather ? row_index[row] : row) * x_stride + column;
      layer_norm_row(std::span(expected_x).subspan(first, shape.n),
                     shape.residual ? &residual[first] : nullptr, &weight[column],
                     shape.bias ? &bias[column] : nullptr, kEps,
                     &expected_y[row * y_stride + column], &bound[row * y_stride + column]);
    }
  }
  std::vector<Expectation> expected = {
      {.name = "y", .output = args.y, .reference = expected_y, .bound = bound}};
  if (!shape.in_place) {
    Expectation sums{.name = "x", .output = args.x, .reference = expected_x};
    for (const double value : expected_x) {
      sums.bound.push_back(shape.residual ? 0x1p-24 * std::abs(value) : 0);
    }
    expected.push_back(std::move(sums));
  }
  return prepared_op(op, args, std::move(expected), args.x, pristine);
}

}  // namespace

std::vector<OpCase> layer_norm_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 64, false}, Shape{3, 257, true, true},
                             Shape{5, 63, false, true, true}, Shape{2, 4096, true, false, true},
                             Shape{7, 4099, true, true}, Shape{3, 768, true, false, false, true},
                             Shape{3, 1024, true, false, false, false, 1000},
                             Shape{2, 4099, true, true, false, false, -1000},
                             Shape{3, 1024, false, false, false, false, 1e6f},
                             Shape{3, 16, false, false, false, true, 0.5f, 5, 24},
                             Shape{2, 67, true, true, true, false, 0.5f, 3, 1}}) {
    cases.push_back(
        {.op = "layer_norm",
         .name = fmt::format("rows={} n={}{} mean={}{}{}{}{}", shape.rows, shape.n,
                             shape.n_groups == 1 ? "" : fmt::format(" groups={}", shape.n_groups),
                             shape.mean, shape.bias ? "" : " no bias",
                             shape.residual ? " residual" : "", shape.gather ? " gather" : "",
                             shape.in_place ? " in place" : ""),
         .prepare = [shape](OpBed& bed) { return prepare(bed, shape); }});
  }
  return cases;
}

std::vector<OpCase> layer_norm_bench_cases(const BenchScale& scale) {
  std::vector<OpCase> cases;
  for (const uint32_t rows : {1u, scale.small ? 64u : 512u}) {
    for (const uint32_t n : {768u, 2560u}) {  // BERT, Phi-2
      if (scale.small && n > 768) continue;
      const Shape shape{.rows = rows, .n = n, .residual = true};
      cases.push_back({.op = "layer_norm",
                       .name = fmt::format("rows={} n={} residual", rows, n),
                       .prepare = [shape](OpBed& bed) { return prepare(bed, shape); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
