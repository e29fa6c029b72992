#include <algorithm>
#include <cmath>

#include "shaders/op_case.hpp"
#include "shaders/rope/rope.hpp"
#include "shaders/rope_kv/rope_table.hpp"

namespace pumice::ops {
namespace {

struct Case {
  Rope::Shape shape;
  uint32_t n_heads;
  std::vector<uint32_t> positions;
};

Result<PreparedOp> prepare(OpBed& bed, const Case& test) {
  const Rope::Shape& shape = test.shape;
  const auto rows = static_cast<uint32_t>(test.positions.size());
  const uint32_t stride = test.n_heads * shape.head_dim + 4;  // what follows the heads stays
  const auto x = OpBed::normal_floats(size_t{rows} * stride, 1);
  PUMICE_TRY(const RopeFrequencies frequencies, rope_frequencies({.dims = shape.rope_dims}));
  const uint32_t n_positions = *std::ranges::max_element(test.positions) + 1;
  std::vector<float> table(size_t{n_positions} * shape.rope_dims);
  fill_rope_table(frequencies, 0, table);

  Rope::Args args{.rows = rows, .n_heads = test.n_heads, .x_stride = stride};
  PUMICE_TRY(const vk::BufferRange pristine, bed.input(x));
  PUMICE_TRY(args.x, bed.output(x.size() * 4));
  PUMICE_TRY(args.rope_table, bed.input(table));
  PUMICE_TRY(args.positions, bed.input(test.positions));
  PUMICE_TRY(const Rope op, Rope::plan(bed.pipelines(), shape));

  Expectation expected{.name = "x",
                       .output = args.x,
                       .reference = {x.begin(), x.end()},
                       .bound = std::vector<double>(x.size(), 0)};
  const bool halves = shape.pairs == RopePairs::kHalves;
  const size_t half = shape.rope_dims / 2;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t task = 0; task < test.n_heads * half; ++task) {
      const size_t pair = task % half;
      const size_t head = row * stride + task / half * shape.head_dim;
      const size_t first = head + (halves ? pair : 2 * pair);
      const size_t second = first + (halves ? half : 1);
      const double c = table[(test.positions[row] * half + pair) * 2];
      const double s = table[(test.positions[row] * half + pair) * 2 + 1];
      const auto set = [&](size_t at, double straight, double crossed) {
        expected.reference[at] = straight + crossed;
        // Two products and a sum.
        expected.bound[at] = 3 * 0x1p-24 * (std::abs(straight) + std::abs(crossed));
      };
      set(first, x[first] * c, -x[second] * s);
      set(second, x[second] * c, x[first] * s);
    }
  }
  return prepared_op(op, args, {std::move(expected)}, args.x, pristine);
}

}  // namespace

std::vector<OpCase> rope_cases() {
  using enum RopePairs;
  const Case tests[] = {
      {{8, 8, kAdjacent}, 1, {0}},
      {{64, 64, kHalves}, 3, {14, 15, 16, 17}},
      {{80, 20, kAdjacent}, 5, {3, 1000, 4}},
      {{128, 96, kHalves}, 7, {130, 5}},
      {{512, 512, kHalves}, 1, {33}},
  };
  std::vector<OpCase> cases;
  for (const Case& test : tests) {
    cases.push_back({.op = "rope",
                     .name = fmt::format("heads={} head_dim={} dims={} {} rows={}", test.n_heads,
                                         test.shape.head_dim, test.shape.rope_dims,
                                         test.shape.pairs == kHalves ? "halves" : "adjacent",
                                         test.positions.size()),
                     .prepare = [test](OpBed& bed) { return prepare(bed, test); }});
  }
  return cases;
}

}  // namespace pumice::ops
