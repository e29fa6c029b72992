#include <cmath>

#include "shaders/lora/lora.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

struct Case {
  std::vector<uint32_t> adapters;  ///< of each row; 0: none
  uint32_t n_in;
  uint32_t n_out;
  uint32_t rank;  ///< of adapters, before what pads it
  uint32_t first_out = 0;
  uint32_t b_stride = 0;  ///< 0: n_out
};

/// Adapters' matrices one after the other, [rank][n] each, as kernels read them.
std::vector<float> packed(const std::vector<float>& matrices, uint32_t n_adapters, uint32_t rank,
                          uint32_t padded, uint32_t n) {
  std::vector<float> all(size_t{n_adapters} * padded * n);
  for (size_t i = 0; i < n_adapters; ++i) {
    Lora::pack(std::span(matrices).subspan(i * rank * n, size_t{rank} * n), rank, n, n, 1,
               std::span(all).subspan(i * padded * n, size_t{padded} * n));
  }
  return all;
}

Result<PreparedOp> prepare(OpBed& bed, const Case& test) {
  constexpr uint32_t kAdapters = 3;
  const auto rows = static_cast<uint32_t>(test.adapters.size());
  const uint32_t b_stride = test.b_stride == 0 ? test.n_out : test.b_stride;
  const uint32_t padded = (test.rank + Lora::kRankGroup - 1) / Lora::kRankGroup * Lora::kRankGroup;
  const uint32_t x_stride = test.n_in + 3;
  const uint32_t y_stride = test.n_out + 1;
  const auto x = OpBed::normal_floats(size_t{rows} * x_stride, 1);
  const auto a = OpBed::normal_floats(size_t{kAdapters} * test.rank * test.n_in, 2);
  const auto b = OpBed::normal_floats(size_t{kAdapters} * test.rank * b_stride, 3);
  const auto y = OpBed::normal_floats(size_t{rows} * y_stride, 4);
  Lora::Args args{.x_stride = x_stride,
                  .y_stride = y_stride,
                  .rows = rows,
                  .n_in = test.n_in,
                  .n_out = test.n_out,
                  .first_out = test.first_out,
                  .b_stride = b_stride,
                  .rank = padded};
  PUMICE_TRY(args.x, bed.input(x));
  PUMICE_TRY(args.a, bed.input(packed(a, kAdapters, test.rank, padded, test.n_in)));
  PUMICE_TRY(args.b, bed.input(packed(b, kAdapters, test.rank, padded, b_stride)));
  PUMICE_TRY(args.adapters, bed.input(test.adapters));
  PUMICE_TRY(args.t, bed.output(size_t{rows} * padded * sizeof(float)));
  PUMICE_TRY(const vk::BufferRange pristine, bed.input(y));
  PUMICE_TRY(args.y, bed.output(y.size() * sizeof(float)));
  PUMICE_TRY(const Lora op, Lora::plan(bed.pipelines()));

  Expectation expected{.name = "y", .output = args.y};
  for (const float value : y) expected.reference.push_back(value);
  expected.bound.assign(y.size(), 0);  // rows without an adapter keep their bits
  for (size_t row = 0; row < rows; ++row) {
    if (test.adapters[row] == 0) continue;
    const size_t first_rank = size_t{test.adapters[row] - 1} * test.rank;
    std::vector<double> t(test.rank), magnitude(test.rank);
    for (size_t r = 0; r < test.rank; ++r) {
      for (size_t i = 0; i < test.n_in; ++i) {
        const double term = double{a[(first_rank + r) * test.n_in + i]} * x[row * x_stride + i];
        t[r] += term;
        magnitude[r] += std::abs(term);
      }
    }
    for (size_t o = 0; o < test.n_out; ++o) {
      double sum = 0, terms = 0, errors = 0;
      for (size_t r = 0; r < test.rank; ++r) {
        const double weight = b[(first_rank + r) * b_stride + test.first_out + o];
        sum += weight * t[r];
        terms += std::abs(weight * t[r]);
        errors += std::abs(weight) * magnitude[r];
      }
      const size_t at = row * y_stride + o;
      expected.reference[at] += sum;
      expected.bound[at] = 0x1p-24 * ((test.n_in + 8) * errors + (test.rank + 1) * terms +
                                      std::abs(expected.reference[at]));
    }
  }
  return prepared_op(op, args, {std::move(expected)}, args.y, pristine);
}

}  // namespace

std::vector<OpCase> lora_cases() {
  const Case tests[] = {
      {{1}, 4, 1, 1},
      {{0}, 64, 64, 4},
      {{2}, 257, 67, 8},
      {{3, 0, 1, 1, 2, 0, 3}, 128, 130, 5},
      {{1, 2}, 1028, 63, 16},
      {{0, 3, 3}, 96, 40, 64, 24, 72},
      {{1, 1, 1, 1, 0, 0, 0, 0, 3, 3, 2}, 70, 33, 9},
      {std::vector<uint32_t>(130, 2), 36, 65, 3},
  };
  std::vector<OpCase> cases;
  for (const Case& test : tests) {
    cases.push_back(
        {.op = "lora",
         .name = fmt::format("rows={} in={} out={} rank={}{}", test.adapters.size(), test.n_in,
                             test.n_out, test.rank, test.b_stride == 0 ? "" : " part"),
         .prepare = [test](OpBed& bed) { return prepare(bed, test); }});
  }
  return cases;
}

}  // namespace pumice::ops
