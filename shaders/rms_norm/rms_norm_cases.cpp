#include <cmath>
#include <optional>
#include <span>

#include "shaders/gemv/gemv_cases.hpp"
#include "shaders/op_case.hpp"
#include "shaders/rms_norm/rms_norm.hpp"

namespace pumice::ops {
namespace {

/// One row: x += residual (if not null), y = x / sqrt(mean(x^2) + eps) * weight. `bound` receives
/// what a kernel in fp32 may miss each y by.
void rms_norm_row(std::span<double> x, const float* residual, const float* weight, float eps,
                  double* y, double* bound) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (residual != nullptr) x[i] += residual[i];
    sum += x[i] * x[i];
  }
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] * scale * weight[i];
    // Relative error of the scale (a sum of squares, so no cancellation) and of x + residual, which
    // does cancel: hence the absolute part.
    bound[i] = 2e-6 * std::abs(y[i]) + 1e-6 * scale * std::abs(weight[i]);
  }
}

struct Shape {
  uint32_t rows;
  uint32_t n;
  bool residual = false;
  bool gather = false;
  std::optional<RmsNorm::Variant> variant = RmsNorm::Variant::kPortable;  ///< none: the tuned one
  uint32_t n_groups = 1;
  uint32_t padding = 0;  ///< floats between the rows of x, and of y
  bool in_place = false;
  bool weighted = true;
  bool weight_each = false;
  bool planes = false;
};

Result<PreparedOp> prepare(OpBed& bed, const Shape& shape) {
  constexpr float kEps = 1e-5f;
  const uint32_t x_rows = shape.gather ? shape.rows + 3 : shape.rows;
  const uint32_t stride = shape.n_groups * shape.n + shape.padding;
  const auto x = OpBed::normal_floats(size_t{x_rows} * stride, 1);
  const auto residual = OpBed::normal_floats(x.size(), 2);
  const auto weight =
      shape.weighted
          ? OpBed::normal_floats(shape.n * size_t{shape.weight_each ? shape.n_groups : 1}, 3)
          : std::vector<float>(shape.n, 1.0f);
  std::vector<uint32_t> row_index(shape.rows);
  for (uint32_t row = 0; row < shape.rows; ++row) row_index[row] = x_rows - 1 - row;

  RmsNorm::Args args{.rows = shape.rows,
                     .n = shape.n,
                     .eps = kEps,
                     .n_groups = shape.n_groups,
                     .x_stride = shape.padding > 0 ? stride : 0,
                     .y_stride = shape.padding > 0 ? stride : 0,
                     .weight_each = shape.weight_each};
  // x is updated in place, so a pristine copy is restored before each run.
  PUMICE_TRY(const vk::BufferRange pristine, bed.input(x));
  PUMICE_TRY(args.x, bed.output(x.size() * 4));
  PUMICE_TRY(args.residual, bed.input_if(shape.residual, residual));
  PUMICE_TRY(args.weight, bed.input_if(shape.weighted, weight));
  if (shape.in_place) {
    args.y = args.x;
  } else {
    PUMICE_TRY(args.y, bed.output(uint64_t{shape.rows} * stride * 4));
  }
  PUMICE_TRY(args.row_index, bed.input_if(shape.gather, row_index));
  PUMICE_TRY(const RmsNorm op, shape.variant ? RmsNorm::plan(bed.pipelines(), *shape.variant)
                                             : RmsNorm::plan(bed.pipelines()));

  std::vector<double> expected_x(x.begin(), x.end());
  std::vector<double> expected_y(size_t{shape.rows} * stride, std::nan(""));  // not to be written
  if (shape.in_place) expected_y = expected_x;
  std::vector<double> bound(expected_y.size());
  for (uint32_t row = 0; row < shape.rows; ++row) {
    for (uint32_t group = 0; group < shape.n_groups; ++group) {
      const size_t source = size_t{shape.gather ? row_index[row] : row} * stride + group * shape.n;
      const size_t target = size_t{row} * stride + group * shape.n;
      rms_norm_row(std::span(expected_x).subspan(source, shape.n),
                   shape.residual ? &residual[source] : nullptr,
                   &weight[shape.weight_each ? group * shape.n : 0], kEps, &expected_y[target],
                   &bound[target]);
    }
  }
  std::vector<Expectation> expected = {
      {.name = "y", .output = args.y, .reference = expected_y, .bound = bound}};
  if (!shape.in_place) {
    expected.push_back({.name = "x", .output = args.x, .reference = expected_x, .bound = {1e-6}});
  }
  if (!shape.planes) return prepared_op(op, args, std::move(expected), args.x, pristine);
  PUMICE_TRY(const PlanesProbe probe, PlanesProbe::make(bed, shape.rows, shape.n));
  args.planes = probe.planes;
  expected.push_back(probe.expectation(expected_y, bound));
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          recorder.copy(pristine, args.x);
                          op.record(recorder, args);
                          probe.record(recorder);
                        },
                    .expected = std::move(expected)};
}

}  // namespace

std::vector<OpCase> rms_norm_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Shape& shape, const char* variant) {
    cases.push_back(
        {.op = "rms_norm",
         .name = fmt::format("{}rows={} n={}{}{}", variant, shape.rows, shape.n,
                             shape.residual ? " residual" : "", shape.gather ? " gather" : "") +
                 (shape.n_groups == 1 ? "" : fmt::format(" groups={}", shape.n_groups)) +
                 (shape.padding == 0 ? "" : fmt::format(" padding={}", shape.padding)) +
                 (shape.in_place ? " in place" : "") + (shape.weighted ? "" : " no weights") +
                 (shape.planes ? " planes" : ""),
         .prepare = [shape](OpBed& bed) { return prepare(bed, shape); },
         .supported =
             [shape](const vk::DevicePlan& plan) {
               return RmsNorm::supported(plan, *shape.variant) &&
                      (!shape.planes || PlanesProbe::supported(plan));
             }});
  };
  for (const Shape& shape :
       {Shape{1, 1, false, false}, Shape{1, 64, false, false}, Shape{3, 257, true, false},
        Shape{5, 63, true, true}, Shape{2, 4096, false, true}, Shape{7, 4099, true, false}}) {
    add(shape, "");
  }
  // Of each number of values a lane holds one that fills it and one that does not; what is no
  // multiple of 4 or too long takes the portable kernel.
  for (Shape shape :
       {Shape{1, 4, false, false}, Shape{3, 2048, true, false}, Shape{2, 2052, true, true},
        Shape{2, 4096, false, true}, Shape{3, 5120, true, false}, Shape{1, 8192, true, false},
        Shape{2, 12288, true, true}, Shape{2, 4099, true, false}, Shape{1, 16388, true, false}}) {
    shape.variant = RmsNorm::Variant::kWide;
    add(shape, "wide ");
  }
  for (Shape shape : {Shape{1, 32, false, false}, Shape{3, 2080, true, false},
                      Shape{2, 4096, false, true}, Shape{8, 5120, true, true}}) {
    shape.variant = RmsNorm::Variant::kWide;
    shape.planes = true;
    add(shape, "wide ");
  }
  // Heads; the wide kernel takes those whose groups and rows start at multiples of four floats.
  for (Shape shape : {Shape{.rows = 3, .n = 64, .n_groups = 5},
                      Shape{.rows = 4, .n = 128, .n_groups = 3, .padding = 132},
                      Shape{.rows = 2, .n = 80, .residual = true, .n_groups = 2, .padding = 3},
                      Shape{.rows = 3, .n = 61, .gather = true, .n_groups = 7, .padding = 1},
                      Shape{.rows = 5, .n = 96, .n_groups = 4, .padding = 8, .in_place = true},
                      Shape{.rows = 3, .n = 32, .n_groups = 2, .weighted = false},
                      Shape{.rows = 3, .n = 44, .n_groups = 3, .weight_each = true},
                      Shape{.rows = 2, .n = 31, .n_groups = 2, .weight_each = true}}) {
    add(shape, "");
    shape.variant = RmsNorm::Variant::kWide;
    add(shape, "wide ");
  }
  return cases;
}

std::vector<OpCase> rms_norm_bench_cases(const BenchScale& scale) {
  std::vector<OpCase> cases;
  for (const uint32_t rows : {1u, scale.small ? 64u : 512u}) {
    for (const uint32_t n : {2048u, 4096u}) {
      if (scale.small && n > 2048) continue;
      const Shape shape{.rows = rows, .n = n, .residual = true, .variant = std::nullopt};
      cases.push_back({.op = "rms_norm",
                       .name = fmt::format("rows={} n={} residual", rows, n),
                       .prepare = [shape](OpBed& bed) { return prepare(bed, shape); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
