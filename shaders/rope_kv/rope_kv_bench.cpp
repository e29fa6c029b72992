#include <numeric>

#include "shaders/common/paged_kv_case.hpp"
#include "shaders/op_case.hpp"
#include "shaders/rope_kv/rope_kv.hpp"
#include "shaders/rope_kv/rope_kv_reference.hpp"
#include "shaders/rope_kv/rope_table.hpp"

namespace pumice::ops {
namespace {

/// One chunk of a sequence, at its start.
Result<PreparedOp> prepare(OpBed& bed, const RopeKv::Shape& shape, uint32_t rows) {
  const uint32_t stride = (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim;
  const auto qkv = OpBed::uniform_floats(size_t{rows} * stride, 1);
  PUMICE_TRY(const RopeFrequencies frequencies, rope_frequencies({.dims = shape.rope_dims}));
  std::vector<float> table(size_t{rows} * shape.rope_dims);
  fill_rope_table(frequencies, 0, table);
  std::vector<uint32_t> positions(rows);
  std::iota(positions.begin(), positions.end(), 0u);
  const PagedKvCase paged({.type = shape.kv_type,
                           .n_layers = 1,
                           .n_kv_heads = shape.n_kv_heads,
                           .head_dim = shape.head_dim},
                          std::span(&rows, 1));

  constexpr float kEps = 1e-6f;
  const auto q_norm = OpBed::uniform_floats(shape.head_dim, 3);
  RopeKv::Args args{
      .rows = rows, .row_stride = stride, .table_stride = paged.table_stride(), .norm_eps = kEps};
  PUMICE_TRY(const vk::BufferRange pristine, bed.input(qkv));
  PUMICE_TRY(args.qkv, bed.output(qkv.size() * 4));
  PUMICE_TRY(args.rope_table, bed.input(table));
  if (shape.head_norms) {
    PUMICE_TRY(args.q_norm, bed.input(q_norm));
    PUMICE_TRY(args.k_norm, bed.input(OpBed::uniform_floats(shape.head_dim, 4)));
  }
  PUMICE_TRY(args.positions, bed.input(positions));
  PUMICE_TRY(args.row_seq, bed.input(std::vector<uint32_t>(rows, 0)));
  const std::vector<std::byte> no_kv(paged.size_bytes());
  PUMICE_TRY(args.kv, bed.input(no_kv));  // its contents are checked by the tests' cases
  PUMICE_TRY(args.block_table, bed.input(paged.table(args.kv.address())));
  PUMICE_TRY(const RopeKv op, RopeKv::plan(bed.pipelines(), shape));

  const uint32_t q_columns = shape.n_heads * shape.head_dim;
  Expectation expected{.name = "qkv", .output = args.qkv};
  expected.elements = sample_elements(uint64_t{rows} * stride, 256, 2);
  for (const uint64_t at : expected.elements) {
    const uint64_t row = at / stride;
    const auto column = static_cast<uint32_t>(at % stride);
    RotatedElement x{.value = qkv[at], .bound = 0};
    if (column < q_columns) {
      const std::span head(&qkv[at - column % shape.head_dim], shape.head_dim);
      const auto q =
          head_to_rotate(head, nullptr, shape.head_norms ? q_norm.data() : nullptr, kEps);
      x = rotate_element(shape, q, column % shape.head_dim, &table[row * shape.rope_dims]);
    }
    expected.reference.push_back(x.value);
    expected.bound.push_back(x.bound);
  }
  return PreparedOp{.record =
                        [=](vk::Recorder& recorder) {
                          recorder.copy(pristine, args.qkv);
                          op.record(recorder, args);
                        },
                    .expected = {std::move(expected)},
                    .rotation = {[=](vk::Recorder& recorder) { op.record(recorder, args); }}};
}

}  // namespace

std::vector<OpCase> rope_kv_bench_cases(const BenchScale& scale) {
  std::vector<OpCase> cases;
  const auto add = [&](uint32_t head_dim, bool norms, uint32_t rows) {
    const RopeKv::Shape shape{.n_heads = 32,
                              .n_kv_heads = 8,
                              .head_dim = head_dim,
                              .rope_dims = head_dim,
                              .pairs = norms ? RopePairs::kHalves : RopePairs::kAdjacent,
                              .kv_type = KvType::kF16,
                              .head_norms = norms};
    cases.push_back({.op = "rope_kv",
                     .name = fmt::format("heads=32/8 head_dim={} f16{} rows={}", head_dim,
                                         norms ? " norms" : "", rows),
                     .prepare = [=](OpBed& bed) { return prepare(bed, shape, rows); }});
  };
  for (const uint32_t rows : {1u, scale.small ? 64u : 512u}) {
    add(64, false, rows);
    add(128, false, rows);
    add(128, true, rows);
  }
  return cases;
}

}  // namespace pumice::ops
