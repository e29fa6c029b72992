#include <cmath>

#include "shaders/attention_reference/attention_reference.hpp"
#include "shaders/flash_attention/attention_case.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

struct Case {
  FlashAttention::Shape shape;
  AttentionChunk chunk;
  float q_scale = 1.0f;
};

Result<PreparedOp> prepare(OpBed& bed, const Case& test) {
  const FlashAttention::Shape& shape = test.shape;
  const AttentionInputs in = attention_inputs(std::span(&test.chunk, 1));
  const PagedKvCase paged({.type = shape.kv_type,
                           .n_layers = kAttentionLayers,
                           .n_kv_heads = shape.n_kv_heads,
                           .head_dim = shape.head_dim},
                          in.contexts);
  PUMICE_TRY(const AttentionReference op,
             AttentionReference::plan(bed.pipelines(), shape,
                                      in.rows == 1 ? 1 : AttentionReference::kTileRows));
  AttentionReference::Args args{
      .n_rows = in.rows,
      .n_keys = in.contexts[0],
      .q_stride = (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim,
      .layer_offset_bytes = paged.layout().layer_offset_bytes(kAttentionLayer),
      .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim))};
  const auto q = OpBed::normal_floats(size_t{in.rows} * args.q_stride, 1, test.q_scale);
  AttentionKv kv;
  PUMICE_TRY(args.q, bed.input(q));
  PUMICE_TRY(args.kv, fill_attention_kv(bed, paged, in, kv));
  PUMICE_TRY(args.block_table, bed.input(paged.table(args.kv.address())));
  PUMICE_TRY(args.positions, bed.input(in.positions));
  PUMICE_TRY(args.scores, bed.output(op.scores_bytes(args.n_rows, args.n_keys)));
  PUMICE_TRY(args.y, bed.output(uint64_t{in.rows} * shape.n_heads * shape.head_dim * 4));
  Expectation expected =
      expect_attention(shape, Math::kF32, Math::kF32, in, q, args.q_stride, args.scale, kv);
  expected.output = args.y;
  return PreparedOp{.record = [=](vk::Recorder& recorder) { op.record(recorder, args); },
                    .expected = {std::move(expected)}};
}

}  // namespace

std::vector<OpCase> attention_reference_cases() {
  using enum KvType;
  // Rows and keys around tiles of 8 and 64, blocks of 16, every kind of head.
  // clang-format off
  const Case tests[] = {
      {{1, 1, 8, kF32}, {0, 1}},
      {{4, 4, 64, kF32}, {0, 17}},
      {{4, 2, 64, kF16}, {63, 1}},
      {{4, 2, 64, kF16}, {60, 9}},
      {{3, 1, 16, kF16}, {199, 8}},
      {{6, 2, 24, kF32}, {5, 131}},
      {{5, 5, 80, kF16}, {100, 20}},
      {{8, 2, 128, kF16}, {0, 40}, 30.0f},
      {{2, 1, 256, kF16}, {1010, 1}},
      {{4, 1, 256, kF32}, {20, 3}},
      {{4, 2, 96, {kQ8_0, kQ4_0}}, {60, 9}},
      {{2, 1, 64, {kQ4_0, kBF16}}, {100, 20}},
  };
  // clang-format on
  std::vector<OpCase> cases;
  for (const Case& test : tests) {
    const FlashAttention::Shape& s = test.shape;
    cases.push_back(
        {.op = "attention_reference",
         .name = fmt::format("heads={}/{} head_dim={} {} context={}+{}{}", s.n_heads, s.n_kv_heads,
                             s.head_dim, s.kv_type.name(), test.chunk.before, test.chunk.rows,
                             test.q_scale != 1 ? " peaked" : ""),
         .prepare = [test](OpBed& bed) { return prepare(bed, test); }});
  }
  return cases;
}

}  // namespace pumice::ops
