#include <cmath>

#include "shaders/causal_conv/causal_conv.hpp"
#include "shaders/common/activation_reference.hpp"
#include "shaders/common/state_case.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

struct Case {
  CausalConv::Shape shape;
  uint32_t n;
  bool bias;
  std::vector<StateCase::Sequence> sequences;
};

/// A row's sum and the sum of its terms' magnitudes.
struct Sum {
  double value = 0;
  double magnitude = 0;
  void add(double term) {
    value += term;
    magnitude += std::abs(term);
  }
};

Result<PreparedOp> prepare(OpBed& bed, const Case& test) {
  const uint32_t taps = test.shape.taps;
  const bool silu = test.shape.silu;
  const uint32_t n = test.n;
  const StateCase states(test.sequences, (taps - 1) * n, 2);
  const uint32_t rows = states.n_rows();
  const uint32_t x_stride = n + 3;
  const uint32_t y_stride = n + 1;
  const auto x = OpBed::normal_floats(size_t{rows} * x_stride, 1);
  const auto weight = OpBed::normal_floats(size_t{n} * taps, 2);
  const auto bias = OpBed::normal_floats(n, 3);

  CausalConv::Args args{.x_stride = x_stride, .y_stride = y_stride, .rows = rows, .n = n};
  PUMICE_TRY(args.x, bed.input(x));
  PUMICE_TRY(args.weight, bed.input(weight));
  PUMICE_TRY(args.bias, bed.input_if(test.bias, bias));
  PUMICE_TRY(args.y, bed.output(size_t{rows} * y_stride * 4));
  PUMICE_TRY(const StateCase::Memory memory, states.memory(bed));
  args.items = memory.items;
  args.n_items = states.n_sequences();
  args.row_item = memory.row_item;
  args.states = memory.pages;
  args.state_offset_bytes = states.offset_bytes();
  PUMICE_TRY(const CausalConv op, CausalConv::plan(bed.pipelines(), test.shape));

  Expectation y{.name = "y",
                .output = args.y,
                .reference = std::vector<double>(size_t{rows} * y_stride, NAN),
                .bound = std::vector<double>(size_t{rows} * y_stride, 0)};
  Expectation after = states.expectation(memory);
  for (uint32_t seq = 0; seq < states.n_sequences(); ++seq) {
    const StateCase::Sequence& sequence = test.sequences[seq];
    const uint32_t first = states.first_row(seq);
    // Of the row so many after the sequence's first, before which the state lies.
    const auto x_at = [&](int64_t row, uint32_t col) -> double {
      if (row >= 0) return x[(first + static_cast<size_t>(row)) * x_stride + col];
      if (sequence.begins) return 0;
      return states.before(seq)[static_cast<size_t>(row + taps - 1) * n + col];
    };
    for (uint32_t row = 0; row < sequence.n_rows; ++row) {
      for (uint32_t col = 0; col < n; ++col) {
        Sum sum;
        if (test.bias) sum.add(bias[col]);
        for (uint32_t k = 0; k < taps; ++k) {
          sum.add(double{weight[col * taps + k]} * x_at(int64_t{row} + k + 1 - taps, col));
        }
        const size_t at = size_t{first + row} * y_stride + col;
        const double bound = (taps + 1) * 0x1p-24 * sum.magnitude;
        // Silu's slope is below 1.1.
        y.reference[at] = silu ? activation_value(ACTIVATION_SILU, sum.value) : sum.value;
        y.bound[at] = silu ? 1.1 * bound + activation_bound(ACTIVATION_SILU, sum.value) : bound;
      }
    }
    for (uint32_t i = 0; i + 1 < taps; ++i) {
      for (uint32_t col = 0; col < n; ++col) {
        const int64_t row = int64_t{sequence.n_rows} + i + 1 - taps;
        after.reference[states.after_index(seq) + i * n + col] = x_at(row, col);
      }
    }
  }
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          states.restore(recorder, memory);
                          op.record(recorder, args);
                        },
                    .expected = {std::move(y), std::move(after)}};
}

}  // namespace

std::vector<OpCase> causal_conv_cases() {
  const Case tests[] = {
      {{3, false}, 1, false, {{1, true}}},
      {{3, false}, 128, false, {{7, true}, {1, false}, {2, false}}},
      {{4, true}, 67, true, {{1, false}, {3, true}, {1, false}, {1, true}, {2, false}}},
      {{4, true}, 320, true, {{33, false}, {17, true}}},
      {{2, false}, 65, true, {{1, false}}},
      {{16, true}, 40, false, {{3, false}, {20, false}, {5, true}}},
  };
  std::vector<OpCase> cases;
  for (const Case& test : tests) {
    cases.push_back({.op = "causal_conv",
                     .name = fmt::format("n={} taps={}{}{} {}", test.n, test.shape.taps,
                                         test.bias ? " bias" : "", test.shape.silu ? " silu" : "",
                                         StateCase::name(test.sequences)),
                     .prepare = [test](OpBed& bed) { return prepare(bed, test); }});
  }
  return cases;
}

}  // namespace pumice::ops
