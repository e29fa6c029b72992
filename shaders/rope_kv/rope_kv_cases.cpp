#include <algorithm>
#include <limits>
#include <numeric>

#include "shaders/common/paged_kv_case.hpp"
#include "shaders/op_case.hpp"
#include "shaders/rope_kv/rope_kv.hpp"
#include "shaders/rope_kv/rope_kv_reference.hpp"
#include "shaders/rope_kv/rope_table.hpp"

namespace pumice::ops {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr uint32_t kLayers = 3;
constexpr uint32_t kLayer = 1;

struct Case {
  RopeKv::Shape shape;
  std::vector<uint32_t> positions;  // of each row
  std::vector<uint32_t> row_seq;
  uint32_t head_lanes = 0;
};

Result<PreparedOp> prepare(OpBed& bed, const Case& test) {
  const RopeKv::Shape& shape = test.shape;
  const auto rows = static_cast<uint32_t>(test.positions.size());
  const uint32_t first_v = (shape.n_heads + shape.n_kv_heads) * shape.head_dim;
  const uint32_t columns = first_v + (shape.has_values ? shape.n_kv_heads * shape.value_dim() : 0);
  const uint32_t stride = columns + 4;
  auto qkv = OpBed::normal_floats(size_t{rows} * stride, 1);
  if (shape.kv_type.v != KvType::kF32 &&
      shape.has_values) {  // beyond the range of a half, below it, and ties
    const float values[] = {1e6f,  -65519.0f,  1.3e-6f,    -3e-8f,
                            -0.0f, 0x1.002p0f, 0x1.006p0f, -0x1.0022p0f};
    std::ranges::copy(values, qkv.begin() + first_v);
  }
  const uint32_t n_positions = *std::ranges::max_element(test.positions) + 1;
  PUMICE_TRY(const RopeFrequencies frequencies, rope_frequencies({.dims = shape.rope_dims}));
  std::vector<float> table(size_t{n_positions} * shape.rope_dims);
  fill_rope_table(frequencies, 0, table);

  std::vector<uint32_t> contexts;
  for (uint32_t row = 0; row < rows; ++row) {
    contexts.resize(std::max<size_t>(contexts.size(), test.row_seq[row] + 1));
    contexts[test.row_seq[row]] = std::max(contexts[test.row_seq[row]], test.positions[row] + 1);
  }
  const PagedKvCase paged({.type = shape.kv_type,
                           .n_layers = kLayers,
                           .n_kv_heads = shape.n_kv_heads,
                           .head_dim = shape.head_dim,
                           .has_values = shape.has_values,
                           .v_dim = shape.v_dim},
                          contexts);

  // An epsilon that can be seen; weights and biases that differ for every head and of q and k.
  constexpr float kEps = 0.25f;
  const auto bias = OpBed::normal_floats(columns, 3);
  const auto q_norm = OpBed::normal_floats(shape.head_dim, 4);
  const auto k_norm = OpBed::normal_floats(shape.head_dim, 5);
  RopeKv::Args args{.rows = rows,
                    .row_stride = stride,
                    .table_stride = paged.table_stride(),
                    .layer_offset_bytes = paged.layout().layer_offset_bytes(kLayer),
                    .norm_eps = kEps};
  PUMICE_TRY(args.bias, bed.input_if(shape.biases, bias));
  PUMICE_TRY(args.q_norm, bed.input_if(shape.head_norms, q_norm));
  PUMICE_TRY(args.k_norm, bed.input_if(shape.head_norms, k_norm));
  PUMICE_TRY(const vk::BufferRange pristine, bed.input(qkv));
  PUMICE_TRY(args.qkv, bed.output(qkv.size() * 4));
  PUMICE_TRY(args.rope_table, bed.input_if(!table.empty(), table));
  PUMICE_TRY(args.positions, bed.input(test.positions));
  PUMICE_TRY(args.row_seq, bed.input(test.row_seq));
  PUMICE_TRY(args.kv, bed.output(paged.size_bytes()));
  PUMICE_TRY(args.block_table, bed.input(paged.table(args.kv.address())));
  PUMICE_TRY(const RopeKv op, RopeKv::plan(bed.pipelines(), shape, test.head_lanes));

  Expectation q_expected{.name = "qkv",
                         .output = args.qkv,
                         .reference = {qkv.begin(), qkv.end()},
                         .bound = std::vector<double>(qkv.size(), 0)};
  const size_t kv_elements = paged.n_rows() * shape.head_dim;
  Expectation kv_expected{
      .name = "kv",
      .output = args.kv,
      .reference = std::vector<double>(kv_elements, kNaN),
      .bound = std::vector<double>(kv_elements, 0),
      .decode = [paged](std::span<const std::byte> memory) { return paged.load_all(memory); }};
  // The head of a row's q, k and v from that column on, before it is rotated.
  const auto head_at = [&](size_t first, size_t column, uint32_t dim, const float* norm) {
    return head_to_rotate(std::span(qkv).subspan(first + column, dim),
                          shape.biases ? &bias[column] : nullptr, shape.head_norms ? norm : nullptr,
                          kEps);
  };
  const auto head_of = [&](size_t first, uint32_t index, const float* norm) {
    return head_at(first, size_t{index} * shape.head_dim, shape.head_dim, norm);
  };
  for (uint32_t row = 0; row < rows; ++row) {
    const float* angles = table.data() + size_t{test.positions[row]} * shape.rope_dims;
    const size_t first = size_t{row} * stride;
    const auto expect_kv = [&](uint32_t head, bool is_v, std::vector<RotatedElement> elements) {
      store_row(is_v ? shape.kv_type.v : shape.kv_type.k, elements);
      uint64_t at = shape.head_dim *
                    paged.row_index(kLayer, test.row_seq[row], test.positions[row], head, is_v);
      for (const RotatedElement& x : elements) {
        kv_expected.reference[at] = x.value;
        kv_expected.bound[at++] = x.bound;
      }
    };
    for (uint32_t head = 0; head < shape.n_heads; ++head) {
      const std::vector<RotatedElement> q = head_of(first, head, q_norm.data());
      for (uint32_t d = 0; d < shape.head_dim; ++d) {
        const size_t at = first + size_t{head} * shape.head_dim + d;
        const RotatedElement x = rotate_element(shape, q, d, angles);
        q_expected.reference[at] = x.value;
        q_expected.bound[at] = x.bound;
      }
    }
    for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      const std::vector<RotatedElement> k = head_of(first, shape.n_heads + head, k_norm.data());
      std::vector<RotatedElement> rotated;
      for (uint32_t d = 0; d < shape.head_dim; ++d) {
        rotated.push_back(rotate_element(shape, k, d, angles));
      }
      expect_kv(head, false, std::move(rotated));
      if (!shape.has_values) continue;
      const uint32_t dim = shape.value_dim();
      expect_kv(head, true, head_at(first, first_v + size_t{head} * dim, dim, nullptr));
    }
  }
  return prepared_op(op, args, {std::move(q_expected), std::move(kv_expected)}, args.qkv, pristine);
}

}  // namespace

std::vector<OpCase> rope_kv_cases() {
  using enum RopePairs;
  using enum KvType;
  const std::vector<uint32_t> chunk = {14, 15, 16, 17, 18};
  const Case tests[] = {
      {{1, 1, 8, 8, kAdjacent, kF32}, {0}, {0}},
      {{8, 4, 8, 8, kAdjacent, kF16}, {40, 0, 15, 16}, {2, 0, 1, 1}},
      {{3, 1, 16, 16, kHalves, kF16}, chunk, {0, 0, 0, 0, 0}},
      {{4, 2, 64, 64, kAdjacent, kF16}, chunk, {1, 1, 1, 1, 1}},
      {{4, 2, 64, 64, kAdjacent, kF32}, chunk, {0, 0, 0, 0, 0}},
      {{5, 5, 80, 32, kHalves, kF32}, {3, 1000, 4}, {0, 1, 0}},
      {{2, 1, 80, 20, kAdjacent, kF16}, {31, 32}, {0, 0}},
      {{2, 2, 40, 40, kHalves, kF16}, {7, 8}, {0, 1}},
      {{32, 8, 128, 128, kAdjacent, kF16}, {130, 255, 5}, {0, 1, 2}},
      {{3, 3, 256, 256, kHalves, kF32}, {33}, {0}},
      {{2, 1, 512, 512, kHalves, kF16}, {33, 2}, {0, 0}},
      {{2, 1, 512, 128, kHalves, {kQ8_0, kQ4_0}, true, false}, {33}, {0}},
      {{2, 1, 64, 0, kAdjacent, kF16}, {2, 3}, {0, 0}},
      {{1, 1, 8, 8, kAdjacent, kF32, true, false}, {3}, {0}},
      {{3, 1, 64, 64, kHalves, kF16, true, false}, chunk, {0, 0, 0, 0, 0}},
      {{4, 2, 128, 128, kHalves, kF32, true, false}, {15, 16, 2}, {0, 0, 1}},
      {{2, 2, 256, 256, kAdjacent, kF32, true, false}, {17, 4}, {0, 1}},
      {{5, 1, 72, 24, kHalves, kF16, true, false}, {31, 32}, {0, 0}},
      {{2, 1, 64, 64, kHalves, kF16, false, true}, chunk, {1, 1, 1, 1, 1}},
      {{7, 7, 40, 40, kAdjacent, kF32, false, true}, {0, 33}, {0, 0}},
      {{3, 3, 80, 32, kHalves, kF32, true, true}, {3, 1000, 4}, {0, 1, 0}},
      {{3, 3, 80, 32, kHalves, kF32, true, true}, {3, 1000, 4}, {0, 1, 0}, 64},
      {{3, 2, 64, 64, kAdjacent, kF16, true, true}, {3, 9, 4}, {0, 1, 0}, 32},
      {{8, 2, 128, 128, kHalves, kF16, true, true}, {130, 255, 5}, {0, 1, 2}},
      {{3, 1, 96, 0, kAdjacent, kF16, true, true}, {2, 3}, {0, 0}},
      {{3, 1, 32, 0, kHalves, kF32, true, false}, {2, 19}, {0, 0}},
      {{2, 2, 48, 0, kHalves, kF32, false, true}, {2, 19}, {0, 1}},
      // Each type beside another, and heads of an odd number of scales.
      {{4, 2, 40, 40, kHalves, {kBF16, kF32}}, chunk, {0, 0, 0, 0, 0}},
      {{2, 1, 64, 64, kAdjacent, {kF16, kBF16}, true, true}, {7, 8}, {0, 1}},
      {{4, 2, 64, 64, kAdjacent, kQ8_0}, chunk, {0, 0, 0, 0, 0}},
      {{3, 1, 96, 32, kHalves, {kQ4_0, kQ8_0}, true, true}, {31, 32, 5}, {0, 0, 1}},
      {{2, 2, 32, 32, kAdjacent, kQ4_0}, {40, 0, 15, 16}, {2, 0, 1, 1}},
      {{8, 2, 256, 256, kHalves, {kQ8_0, kQ4_0}}, {130, 255, 5}, {0, 1, 2}, 64},
      {{4, 1, 128, 128, kAdjacent, {kQ8_0, kF16}, false, true}, {14, 33}, {0, 0}},
      // Keys alone, with queries beside them and without.
      {{0, 1, 80, 0, kAdjacent, kF32, false, false, false}, chunk, {0, 0, 0, 0, 0}},
      {{0, 1, 576, 0, kAdjacent, kF16, false, false, false}, {31, 32, 5}, {0, 0, 1}},
      {{2, 2, 40, 16, kHalves, {kBF16, kQ4_0}, false, false, false}, chunk, {0, 0, 0, 0, 0}},
      {{0, 1, 576, 0, kAdjacent, {kQ8_0, kF16}, false, false, false}, {31, 32}, {0, 0}},
      {{3, 2, 96, 32, kHalves, kQ4_0, true, true, false}, {31, 32, 5}, {0, 0, 1}, 64},
      // Values that are smaller than keys.
      {{2, 1, 16, 8, kHalves, kF32, false, false, true, 8}, chunk, {0, 0, 0, 0, 0}},
      {{8, 4, 192, 64, kHalves, kF16, false, false, true, 128}, chunk, {1, 1, 1, 1, 1}},
      {{3, 3, 40, 0, kAdjacent, {kF32, kBF16}, false, false, true, 24}, {40, 0}, {1, 0}},
      {{4, 2, 96, 32, kAdjacent, {kQ8_0, kQ4_0}, false, false, true, 32}, chunk, {0, 0, 0, 0, 0}},
      {{4, 2, 192, 64, kHalves, kQ8_0, false, false, true, 128}, {31, 32, 5}, {0, 0, 1}},
      {{3, 2, 80, 32, kHalves, {kF16, kQ8_0}, true, true, true, 64}, {31, 32, 5}, {0, 0, 1}, 64},
  };
  std::vector<OpCase> cases;
  for (const Case& test : tests) {
    const RopeKv::Shape& s = test.shape;
    cases.push_back(
        {.op = "rope_kv",
         .name = fmt::format("heads={}/{} head_dim={} dims={} {} {}{}{} rows={}", s.n_heads,
                             s.n_kv_heads, s.head_dim, s.rope_dims,
                             s.pairs == kHalves ? "halves" : "adjacent", s.kv_type.name(),
                             s.biases ? " biases" : "", s.head_norms ? " norms" : "",
                             test.positions.size()) +
                 (s.has_values ? "" : " keys") +
                 (s.v_dim == 0 ? "" : fmt::format(" values={}", s.v_dim)) +
                 (test.head_lanes == 0 ? "" : fmt::format(" lanes={}", test.head_lanes)),
         .prepare = [test](OpBed& bed) { return prepare(bed, test); }});
  }
  return cases;
}

std::vector<OpCase> rope_kv_bench_cases(const BenchScale& scale) {
  std::vector<OpCase> cases;
  const auto add = [&](uint32_t head_dim, bool norms, uint32_t rows) {
    Case test{.shape = {.n_heads = 32,
                        .n_kv_heads = 8,
                        .head_dim = head_dim,
                        .rope_dims = head_dim,
                        .pairs = norms ? RopePairs::kHalves : RopePairs::kAdjacent,
                        .kv_type = KvType::kF16,
                        .head_norms = norms},
              .positions = std::vector<uint32_t>(rows),  // one chunk of a sequence, at its start
              .row_seq = std::vector<uint32_t>(rows)};
    std::iota(test.positions.begin(), test.positions.end(), 0u);
    cases.push_back({.op = "rope_kv",
                     .name = fmt::format("heads=32/8 head_dim={} f16{} rows={}", head_dim,
                                         norms ? " norms" : "", rows),
                     .prepare = [test](OpBed& bed) { return prepare(bed, test); }});
  };
  for (const uint32_t rows : {1u, scale.small ? 64u : 512u}) {
    add(64, false, rows);
    add(128, false, rows);
    add(128, true, rows);
  }
  return cases;
}

}  // namespace pumice::ops
