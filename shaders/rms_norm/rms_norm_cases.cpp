#include "shaders/op_case.hpp"
#include "shaders/rms_norm/rms_norm.hpp"
#include "shaders/rms_norm/rms_norm_reference.hpp"

namespace pumice::ops {
namespace {

struct Shape {
  uint32_t rows;
  uint32_t n;
  bool residual;
  bool gather;
  RmsNorm::Variant variant = RmsNorm::Variant::kPortable;
};

Result<PreparedOp> prepare(OpBed& bed, const Shape& shape) {
  constexpr float kEps = 1e-5f;
  const uint32_t x_rows = shape.gather ? shape.rows + 3 : shape.rows;
  const auto x = OpBed::normal_floats(size_t{x_rows} * shape.n, 1);
  const auto residual = OpBed::normal_floats(x.size(), 2);
  const auto weight = OpBed::normal_floats(shape.n, 3);
  std::vector<uint32_t> row_index(shape.rows);
  for (uint32_t row = 0; row < shape.rows; ++row) row_index[row] = x_rows - 1 - row;

  RmsNorm::Args args{.rows = shape.rows, .n = shape.n, .eps = kEps};
  // x is updated in place, so a pristine copy is restored before each run.
  PUMICE_TRY(const vk::BufferRange pristine, bed.input(x));
  PUMICE_TRY(args.x, bed.output(x.size() * 4));
  if (shape.residual) {
    PUMICE_TRY(args.residual, bed.input(residual));
  }
  PUMICE_TRY(args.weight, bed.input(weight));
  PUMICE_TRY(args.y, bed.output(uint64_t{shape.rows} * shape.n * 4));
  if (shape.gather) {
    PUMICE_TRY(args.row_index, bed.input(row_index));
  }
  PUMICE_TRY(const RmsNorm op, RmsNorm::plan(bed.pipelines(), shape.variant));

  std::vector<double> expected_x(x.begin(), x.end());
  std::vector<double> expected_y(size_t{shape.rows} * shape.n);
  std::vector<double> bound(expected_y.size());
  for (uint32_t row = 0; row < shape.rows; ++row) {
    const size_t first = size_t{shape.gather ? row_index[row] : row} * shape.n;
    rms_norm_row(std::span(expected_x).subspan(first, shape.n),
                 shape.residual ? &residual[first] : nullptr, weight.data(), kEps,
                 &expected_y[size_t{row} * shape.n], &bound[size_t{row} * shape.n]);
  }
  return PreparedOp{
      .record =
          [=](vk::Recorder& recorder) {
            recorder.copy(pristine, args.x);
            op.record(recorder, args);
          },
      .expected = {{.name = "y", .output = args.y, .reference = expected_y, .bound = bound},
                   {.name = "x", .output = args.x, .reference = expected_x, .bound = {1e-6}}}};
}

}  // namespace

std::vector<OpCase> rms_norm_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Shape& shape, const char* variant) {
    cases.push_back(
        {.op = "rms_norm",
         .name = fmt::format("{}rows={} n={}{}{}", variant, shape.rows, shape.n,
                             shape.residual ? " residual" : "", shape.gather ? " gather" : ""),
         .prepare = [shape](OpBed& bed) { return prepare(bed, shape); },
         .supported =
             [shape](const vk::DevicePlan& plan) {
               return RmsNorm::supported(plan, shape.variant);
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
  return cases;
}

}  // namespace pumice::ops
