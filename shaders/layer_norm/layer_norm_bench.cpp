#include "shaders/layer_norm/layer_norm.hpp"
#include "shaders/layer_norm/layer_norm_reference.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

Result<PreparedOp> prepare(OpBed& bed, uint32_t rows, uint32_t n) {
  constexpr float kEps = 1e-5f;
  const auto x = OpBed::uniform_floats(size_t{rows} * n, 1);
  // Small, since timing adds it to x thousands of times.
  const auto residual = OpBed::uniform_floats(x.size(), 2, 1e-3f);
  const auto weight = OpBed::uniform_floats(n, 3);
  const auto bias = OpBed::uniform_floats(n, 4);
  LayerNorm::Args args{.rows = rows, .n = n, .eps = kEps};
  PUMICE_TRY(const vk::BufferRange pristine, bed.input(x));
  PUMICE_TRY(args.x, bed.output(x.size() * 4));
  PUMICE_TRY(args.residual, bed.input(residual));
  PUMICE_TRY(args.weight, bed.input(weight));
  PUMICE_TRY(args.bias, bed.input(bias));
  PUMICE_TRY(args.y, bed.output(x.size() * 4));
  PUMICE_TRY(const LayerNorm op, LayerNorm::plan(bed.pipelines()));

  Expectation y{.name = "y", .output = args.y};
  for (const uint64_t row : sample_elements(rows, 3, 5)) {
    const size_t first = row * n;
    std::vector<double> row_x(&x[first], &x[first] + n);
    const size_t at = y.reference.size();
    y.reference.resize(at + n);
    y.bound.resize(at + n);
    layer_norm_row(row_x, &residual[first], weight.data(), bias.data(), kEps, &y.reference[at],
                   &y.bound[at]);
    for (uint32_t i = 0; i < n; ++i) y.elements.push_back(first + i);
  }
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          recorder.copy(pristine, args.x);
                          op.record(recorder, args);
                        },
                    .expected = {std::move(y)},
                    .rotation = {[=](vk::Recorder& recorder) { op.record(recorder, args); }}};
}

}  // namespace

std::vector<OpCase> layer_norm_bench_cases(const BenchScale& scale) {
  std::vector<OpCase> cases;
  for (const uint32_t rows : {1u, scale.small ? 64u : 512u}) {
    for (const uint32_t n : {768u, 2560u}) {  // BERT, Phi-2
      if (scale.small && n > 768) continue;
      cases.push_back({.op = "layer_norm",
                       .name = fmt::format("rows={} n={} residual", rows, n),
                       .prepare = [=](OpBed& bed) { return prepare(bed, rows, n); }});
    }
  }
  return cases;
}

}  // namespace pumice::ops
