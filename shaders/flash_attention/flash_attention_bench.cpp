#include <numeric>

#include "shaders/common/paged_kv_case.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/flash_attention/flash_attention_reference.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kDistinctBlocks = 64;  // KV blocks that differ; they repeat after that
constexpr uint32_t kSplitTokens = 256;    // the engine's default

/// `rows` tokens of one sequence after `before` others.
struct Case {
  FlashAttention::Shape shape;
  uint32_t before = 0;
  uint32_t rows = 0;
};

/// Halves, over and over: element i of KV memory is values[i % values.size()].
struct KvPattern {
  std::vector<uint16_t> halves;
  std::vector<float> values;
};

KvPattern random_kv(size_t n) {
  KvPattern pattern{.halves = std::vector<uint16_t>(n), .values = OpBed::uniform_floats(n, 2)};
  for (size_t i = 0; i < n; ++i) {
    pattern.halves[i] = float_to_half(pattern.values[i]);
    pattern.values[i] = half_to_float(pattern.halves[i]);
  }
  return pattern;
}

/// All outputs of a few (row, head) pairs.
Expectation expect(const Case& test, const FlashAttention& op, const PagedKvCase& paged,
                   const KvPattern& kv, const std::vector<float>& q, uint32_t q_stride,
                   double scale) {
  const auto& [n_heads, n_kv_heads, head_dim, kv_type] = test.shape;
  Expectation expected{.name = "y"};
  for (const uint64_t pair : sample_elements(uint64_t{test.rows} * n_heads, 4, 5)) {
    const uint64_t row = pair / n_heads;
    const auto head = static_cast<uint32_t>(pair % n_heads);
    const uint32_t kv_head = head / (n_heads / n_kv_heads);
    const uint64_t n_keys = test.before + row + 1;
    std::vector<float> k(n_keys * head_dim);
    std::vector<float> v(k.size());
    std::vector<const float*> k_rows;
    std::vector<const float*> v_rows;
    for (uint32_t position = 0; position < n_keys; ++position) {
      const size_t first = size_t{position} * head_dim;
      for (uint32_t d = 0; d < head_dim; ++d) {
        const size_t n = kv.values.size();
        k[first + d] = kv.values[paged.k_index(0, 0, position, kv_head, d) % n];
        v[first + d] = kv.values[paged.v_index(0, 0, position, kv_head, d) % n];
      }
      k_rows.push_back(&k[first]);
      v_rows.push_back(&v[first]);
    }
    expect_attention_row(&q[row * q_stride + size_t{head} * head_dim], k_rows, v_rows, head_dim,
                         scale, test.rows > 1 ? op.tile_math() : op.row_math(), kv_type, expected);
    for (uint32_t d = 0; d < head_dim; ++d) expected.elements.push_back(pair * head_dim + d);
  }
  return expected;
}

Result<PreparedOp> prepare(OpBed& bed, const Case& test, const BenchScale& scale) {
  const FlashAttention::Shape& shape = test.shape;
  const uint32_t context = test.before + test.rows;
  const PagedKvCase paged({.type = shape.kv_type,
                           .n_layers = 1,
                           .n_kv_heads = shape.n_kv_heads,
                           .head_dim = shape.head_dim},
                          std::span(&context, 1));
  PUMICE_TRY(const FlashAttention op, FlashAttention::plan(bed.pipelines(), shape, Math::kAuto));
  const SequenceChunk chunk{.n_rows = test.rows, .first_position = test.before};
  AttentionPlan plan;
  plan_attention(std::span(&chunk, 1),
                 {.tile_tokens = op.tile_tokens(), .split_tokens = kSplitTokens}, plan);

  FlashAttention::Args args{.q_stride = (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim,
                            .table_stride = paged.table_stride(),
                            .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim))};
  const auto q = OpBed::uniform_floats(size_t{test.rows} * args.q_stride, 1);
  std::vector<uint32_t> positions(test.rows);
  std::iota(positions.begin(), positions.end(), test.before);
  PUMICE_TRY(args.q, bed.input(q));
  PUMICE_TRY(args.positions, bed.input(positions));
  PUMICE_TRY(args.y, bed.output(uint64_t{test.rows} * shape.n_heads * shape.head_dim * 4));
  FlashAttention::ReduceArgs reduce{.y = args.y, .n_partials = plan.n_partials};
  if (plan.n_partials > 0) {
    PUMICE_TRY(args.partial_stats, bed.output(op.partial_stats_bytes(plan.n_partials)));
    PUMICE_TRY(args.partial_y, bed.output(op.partial_y_bytes(plan.n_partials)));
    reduce.partial_stats = args.partial_stats;
    reduce.partial_y = args.partial_y;
    reduce.n_items = static_cast<uint32_t>(plan.reduce_items.size());
    PUMICE_TRY(reduce.items, bed.input(plan.reduce_items));
  }
  const bool tiles = !plan.tile_items.empty();
  const auto& items = tiles ? plan.tile_items : plan.row_items;
  args.n_items = static_cast<uint32_t>(items.size());
  args.keys = tiles ? plan.tile_keys : plan.row_keys;
  args.scores = tiles ? plan.tile_scores : plan.row_scores;
  PUMICE_TRY(args.items, bed.input(items));

  // The layers of a model, each with its own KV.
  const KvPattern kv = random_kv(kDistinctBlocks * paged.layout().block_bytes() / 2);
  PUMICE_TRY(const vk::BufferRange pattern, bed.input(kv.halves));
  const uint32_t n_layers = scale.copies(paged.size_bytes());
  PUMICE_TRY(const vk::BufferRange memory, bed.repeat(pattern, n_layers * paged.size_bytes()));
  PreparedOp prepared;
  for (uint32_t layer = 0; layer < n_layers; ++layer) {
    FlashAttention::Args call = args;
    call.kv = memory.subrange(layer * paged.size_bytes(), paged.size_bytes());
    PUMICE_TRY(call.block_table, bed.input(paged.table(call.kv.address())));
    prepared.rotation.push_back([=](vk::Recorder& recorder) {
      tiles ? op.record_tiles(recorder, call) : op.record_rows(recorder, call);
      if (reduce.n_items > 0) op.record_reduce(recorder, reduce);
    });
  }
  prepared.record = prepared.rotation[0];
  prepared.expected = {expect(test, op, paged, kv, q, args.q_stride, args.scale)};
  prepared.expected[0].output = args.y;
  return prepared;
}

}  // namespace

std::vector<OpCase> flash_attention_bench_cases(const BenchScale& scale) {
  // The last chunk of prompts of 512 and 4096 tokens, and one token after 512, 4096 and 32768.
  std::vector<Case> tests;
  for (const uint32_t head_dim : {64u, 128u}) {
    const FlashAttention::Shape shape{
        .n_heads = 32, .n_kv_heads = 8, .head_dim = head_dim, .kv_type = KvType::kF16};
    if (scale.small) {
      tests.push_back({shape, 0, 64});
      tests.push_back({shape, 512, 1});
      continue;
    }
    tests.push_back({shape, 0, 512});
    tests.push_back({shape, 3584, 512});
    for (const uint32_t before : {512u, 4096u, 32768u}) tests.push_back({shape, before, 1});
  }
  std::vector<OpCase> cases;
  for (const Case& test : tests) {
    cases.push_back(
        {.op = "flash_attention",
         .name = fmt::format("heads={}/{} head_dim={} f16 {} rows={} depth={}", test.shape.n_heads,
                             test.shape.n_kv_heads, test.shape.head_dim,
                             test.rows > 1 ? "prefill" : "decode", test.rows, test.before),
         .prepare = [=](OpBed& bed) { return prepare(bed, test, scale); }});
  }
  return cases;
}

}  // namespace pumice::ops
