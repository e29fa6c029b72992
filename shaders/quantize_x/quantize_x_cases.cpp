#include <fmt/core.h>

#include <algorithm>

#include "base/float16.hpp"
#include "shaders/op_case.hpp"
#include "shaders/quantize_x/quantize_x.hpp"
#include "shaders/quantize_x/quantized_reference.hpp"

namespace pumice::ops {
namespace {

struct Shape {
  uint32_t rows;
  uint32_t k;
  uint32_t padding;  // columns between k and the stride
  float magnitude;
};

Result<PreparedOp> prepare(OpBed& bed, const Shape& shape, XForm form) {
  const uint32_t stride = shape.k + shape.padding;
  auto x = OpBed::normal_floats(size_t{shape.rows} * stride, 1, shape.magnitude);
  // The first row's blocks differ in what they hold: zeros, one value, values past others' scale.
  for (uint32_t i = 0; i < shape.k; ++i) {
    const uint32_t block = i / 32;
    if (block % 4 == 1) x[i] = 0;
    if (block % 4 == 2) x[i] = i % 32 == 31 ? -shape.magnitude : 0;
    if (block % 4 == 3) x[i] *= 1e6f;
  }
  avoid_ties(x, shape.rows, shape.k, stride, form);
  QuantizeX::Args args{.x_stride = stride, .rows = shape.rows, .k = shape.k};
  PUMICE_TRY(args.x, bed.input(x));
  PUMICE_TRY(args.y, bed.output(x_form_bytes(form, shape.rows, shape.k)));
  PUMICE_TRY(const QuantizeX op, QuantizeX::plan(bed.pipelines(), form));
  const QuantizedReference expected(x, shape.rows, shape.k, stride, form);
  Expectation y{.name = "y", .output = args.y, .reference = {}, .bound = {}, .words = {}};
  y.words = expected.words;
  return prepared_op(op, args, {std::move(y)});
}

/// In halves: what float_to_half gives, but for what exceeds them.
Result<PreparedOp> prepare_halves(OpBed& bed, const Shape& shape) {
  const uint32_t stride = shape.k + shape.padding;
  const auto x = OpBed::normal_floats(size_t{shape.rows} * stride, 1, shape.magnitude);
  QuantizeX::Args args{.x_stride = stride, .rows = shape.rows, .k = shape.k};
  PUMICE_TRY(args.x, bed.input(x));
  PUMICE_TRY(args.y, bed.output(HalvedX::size_bytes(shape.rows, shape.k)));
  PUMICE_TRY(const QuantizeX op, QuantizeX::plan(bed.pipelines(), XForm::kHalves));
  Expectation y{.name = "y", .output = args.y, .reference = {}, .bound = {}, .words = {}};
  const auto half = [&](uint32_t row, uint32_t col) -> uint32_t {
    if (col >= shape.k) return 0;
    return float_to_half(std::clamp(x[size_t{row} * stride + col], -65504.0f, 65504.0f));
  };
  for (uint32_t row = 0; row < shape.rows; ++row) {
    for (uint32_t col = 0; col < HalvedX::stride(shape.k); col += 4) {
      y.words.push_back(half(row, col) | half(row, col + 2) << 16);
      y.words.push_back(half(row, col + 1) | half(row, col + 3) << 16);
    }
  }
  return prepared_op(op, args, {std::move(y)});
}

}  // namespace

std::vector<OpCase> quantize_x_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape :
       {Shape{1, 32, 0, 1.0f}, Shape{3, 100, 8, 1e-5f}, Shape{65, 256, 0, 3e4f},
        Shape{70000, 4, 0, 1.0f}, Shape{2, 1092, 4, 1.0f}}) {
    cases.push_back({.op = "quantize_x",
                     .name = fmt::format("halves rows={} k={} magnitude={}", shape.rows, shape.k,
                                         shape.magnitude),
                     .prepare = [shape](OpBed& bed) { return prepare_halves(bed, shape); }});
  }
  for (const XForm form : {XForm::kInt8, XForm::kPlanes}) {
    for (const Shape& shape :
         {Shape{1, 32, 0, 1.0f}, Shape{3, 96, 4, 1.0f}, Shape{5, 256, 0, 1e-3f},
          Shape{17, 2080, 12, 100.0f}, Shape{2, 512, 0, 1e-31f}}) {
      cases.push_back({.op = "quantize_x",
                       .name = fmt::format("{}rows={} k={} magnitude={}",
                                           form == XForm::kPlanes ? "planes " : "", shape.rows,
                                           shape.k, shape.magnitude),
                       .prepare = [=](OpBed& bed) { return prepare(bed, shape, form); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
