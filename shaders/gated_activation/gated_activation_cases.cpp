#include "shaders/common/activation_reference.hpp"
#include "shaders/gated_activation/gated_activation.hpp"
#include "shaders/gemv/gemv_cases.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

/// A value and what a kernel in fp32 may miss it by.
struct GatedElement {
  double value;
  double bound;
};

GatedElement gated_element(GatedActivation::Kind kind, double gate, double up) {
  const auto activation = static_cast<uint32_t>(kind);
  const double value = activation_value(activation, gate) * up;
  const double bound = activation_bound(activation, gate) * std::abs(up) +
                       0x1p-24 * std::abs(value) + 0x1p-126;  // the product, which may be flushed
  return {value, bound};
}

struct Shape {
  uint32_t rows;
  uint32_t n;
  float scale;                  ///< of the gates; ±1e4 and a few special values are mixed in
  size_t n_checked = SIZE_MAX;  ///< elements
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
  y.elements = sample_elements(uint64_t{shape.rows} * shape.n, shape.n_checked, 2);
  for (const uint64_t at : y.elements) {
    const uint64_t gate_at = at / shape.n * 2 * shape.n + at % shape.n;
    const GatedElement element = gated_element(kind, gate_up[gate_at], gate_up[gate_at + shape.n]);
    y.reference.push_back(element.value);
    y.bound.push_back(element.bound);
  }
  return prepared_op(op, args, {std::move(y)});
}

/// With planes of y, of gates and ups of usual size.
Result<PreparedOp> prepare_planes(OpBed& bed, uint32_t rows, uint32_t n) {
  constexpr auto kKind = ActivationKind::kSilu;
  const auto gate_up = OpBed::normal_floats(size_t{rows} * n * 2, 1);
  GatedActivation::Args args{.rows = rows, .n = n};
  PUMICE_TRY(args.gate_up, bed.input(gate_up));
  PUMICE_TRY(args.y, bed.output(uint64_t{rows} * n * 4));
  PUMICE_TRY(const GatedActivation op,
             GatedActivation::plan(bed.pipelines(), kKind, GatedActivation::Variant::kPlanes));
  PUMICE_TRY(const PlanesProbe probe, PlanesProbe::make(bed, rows, n));
  args.planes = probe.planes;
  Expectation y{.name = "y", .output = args.y};
  for (size_t at = 0; at < size_t{rows} * n; ++at) {
    const size_t gate_at = at / n * 2 * n + at % n;
    const GatedElement element = gated_element(kKind, gate_up[gate_at], gate_up[gate_at + n]);
    y.reference.push_back(element.value);
    y.bound.push_back(element.bound);
  }
  Expectation products = probe.expectation(y.reference, y.bound);
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          op.record(recorder, args);
                          probe.record(recorder);
                        },
                    .expected = {std::move(y), std::move(products)}};
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
  for (const auto& [rows, n] : {std::pair{1u, 32u}, {3u, 288u}, {8u, 1376u}}) {
    cases.push_back(
        {.op = "gated_activation",
         .name = fmt::format("silu planes rows={} n={}", rows, n),
         .prepare = [rows = rows, n = n](OpBed& bed) { return prepare_planes(bed, rows, n); },
         .supported = PlanesProbe::supported});
  }
  return cases;
}

std::vector<OpCase> gated_activation_bench_cases(const BenchScale& scale) {
  std::vector<OpCase> cases;
  for (const uint32_t rows : {1u, scale.small ? 64u : 512u}) {
    for (const uint32_t n : {8192u, 14336u}) {
      if (scale.small && n > 8192) continue;
      cases.push_back({.op = "gated_activation",
                       .name = fmt::format("rows={} n={}", rows, n),
                       .prepare = [=](OpBed& bed) {
                         return prepare(bed, ActivationKind::kSilu, Shape{rows, n, 1, 256});
                       }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
