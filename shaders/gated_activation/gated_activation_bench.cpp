#include "shaders/gated_activation/gated_activation.hpp"
#include "shaders/gated_activation/gated_activation_reference.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

Result<PreparedOp> prepare(OpBed& bed, uint32_t rows, uint32_t n) {
  const auto gate_up = OpBed::uniform_floats(size_t{rows} * n * 2, 1);
  GatedActivation::Args args{.rows = rows, .n = n};
  PUMICE_TRY(args.gate_up, bed.input(gate_up));
  PUMICE_TRY(args.y, bed.output(uint64_t{rows} * n * 4));
  constexpr auto kKind = GatedActivation::Kind::kSilu;
  PUMICE_TRY(const GatedActivation op, GatedActivation::plan(bed.pipelines(), kKind));

  Expectation y{.name = "y", .output = args.y};
  y.elements = sample_elements(uint64_t{rows} * n, 256, 2);
  for (const uint64_t at : y.elements) {
    const double gate = gate_up[at / n * 2 * n + at % n];
    const double up = gate_up[at / n * 2 * n + n + at % n];
    const GatedElement element = gated_element(kKind, gate, up);
    y.reference.push_back(element.value);
    y.bound.push_back(element.bound);
  }
  return PreparedOp{.record = [=](vk::Recorder& recorder) { op.record(recorder, args); },
                    .expected = {std::move(y)}};
}

}  // namespace

std::vector<OpCase> gated_activation_bench_cases(const BenchScale& scale) {
  std::vector<OpCase> cases;
  for (const uint32_t rows : {1u, scale.small ? 64u : 512u}) {
    for (const uint32_t n : {8192u, 14336u}) {
      if (scale.small && n > 8192) continue;
      cases.push_back({.op = "gated_activation",
                       .name = fmt::format("rows={} n={}", rows, n),
                       .prepare = [=](OpBed& bed) { return prepare(bed, rows, n); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
