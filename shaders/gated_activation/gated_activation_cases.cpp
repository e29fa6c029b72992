#include "shaders/gated_activation/gated_activation.hpp"
#include "shaders/gated_activation/gated_activation_reference.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

struct Shape {
  uint32_t rows;
  uint32_t n;
  float scale;  ///< of the gates; ±1e4 and a few special values are mixed in
};

Result<PreparedOp> prepare(OpBed& bed, GatedActivation::Kind kind, const Shape& shape) {
  auto gate_up = OpBed::normal_floats(size_t{shape.rows} * shape.n * 2, 1, shape.scale);
  constexpr float kSpecial[] = {1e4f,   -1e4f, 0.0f,   -0.0f, 88.8f,  -88.8f, -103.0f, 1e-30f,
                                -1e-6f, -5.5f, -13.0f, 1e13f, -1e13f, 1e36f,  -1e36f};
  for (size_t i = 0; i < std::size(kSpecial) && i < shape.n; ++i) gate_up[i] = kSpecial[i];

  GatedActivation::Args args{.rows = shape.rows, .n = shape.n};
  PUMICE_TRY(args.gate_up, bed.input(gate_up));
  PUMICE_TRY(args.y, bed.output(uint64_t{shape.rows} * shape.n * 4));
  PUMICE_TRY(const GatedActivation op, GatedActivation::plan(bed.pipelines(), kind));

  Expectation y{.name = "y", .output = args.y};
  for (uint32_t row = 0; row < shape.rows; ++row) {
    for (uint32_t col = 0; col < shape.n; ++col) {
      const double gate = gate_up[size_t{row} * 2 * shape.n + col];
      const double up = gate_up[size_t{row} * 2 * shape.n + shape.n + col];
      const GatedElement element = gated_element(kind, gate, up);
      y.reference.push_back(element.value);
      y.bound.push_back(element.bound);
    }
  }
  return PreparedOp{.record = [=](vk::Recorder& recorder) { op.record(recorder, args); },
                    .expected = {std::move(y)}};
}

}  // namespace

std::vector<OpCase> gated_activation_cases() {
  using enum ActivationKind;
  constexpr std::pair<GatedActivation::Kind, const char*> kKinds[] = {{kSilu, "silu"},
                                                                      {kGelu, "gelu"},
                                                                      {kGeluTanh, "gelu_tanh"},
                                                                      {kSigmoid, "sigmoid"},
                                                                      {kRelu, "relu"}};
  std::vector<OpCase> cases;
  for (const auto& [kind, name] : kKinds) {
    for (const Shape& shape :
         {Shape{1, 1, 1}, Shape{3, 61, 4}, Shape{5, 172, 1}, Shape{1, 11008, 10}, Shape{7, 257, 30},
          Shape{2, 4098, 1}, Shape{66000, 2, 1}}) {
      cases.push_back(
          {.op = "gated_activation",
           .name = fmt::format("{} rows={} n={} scale={}", name, shape.rows, shape.n, shape.scale),
           .prepare = [kind = kind, shape](OpBed& bed) { return prepare(bed, kind, shape); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
