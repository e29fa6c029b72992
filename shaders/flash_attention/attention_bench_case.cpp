#include "shaders/flash_attention/attention_bench_case.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shaders/flash_attention/flash_attention_reference.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kDistinctBlocks = 64;  // KV blocks that differ; they repeat after that
constexpr uint32_t kSplitTokens = 256;    // the engine's default

/// KV memory of so many blocks of one layer, all rows random.
std::vector<std::byte> random_blocks(const PagedKvCase& paged, uint32_t n_blocks) {
  const KvLayout& layout = paged.layout();
  std::vector<std::byte> memory(n_blocks * layout.block_bytes());
  std::vector<float> values = OpBed::uniform_floats(
      size_t{n_blocks} * 2 * layout.n_kv_heads * kKvBlockTokens * layout.head_dim, 2);
  std::span<float> rest = values;
  for (uint32_t block = 0; block < n_blocks; ++block) {
    for (uint32_t i = 0; i < 2 * layout.n_kv_heads * kKvBlockTokens; ++i) {
      paged.store(memory, paged.row_of_block(block, i), rest.first(layout.head_dim));
      rest = rest.subspan(layout.head_dim);
    }
  }
  return memory;
}

}  // namespace

Result<AttentionBenchInputs> AttentionBenchInputs::make(OpBed& bed, const AttentionBenchCase& test,
                                                        const BenchScale& scale) {
  const FlashAttention::Shape& shape = test.shape;
  const uint32_t context = test.context();
  AttentionBenchInputs inputs(test, PagedKvCase({.type = shape.kv_type,
                                                 .n_layers = 1,
                                                 .n_kv_heads = shape.n_kv_heads,
                                                 .head_dim = shape.head_dim},
                                                std::span(&context, 1)));
  const PagedKvCase& paged = inputs.paged_;
  Call& common = inputs.common_;
  common.q_stride = (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim;
  common.table_stride = paged.table_stride();
  common.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  inputs.q_values_ = OpBed::uniform_floats(size_t{test.rows} * common.q_stride, 1);
  std::vector<uint32_t> positions(test.rows);
  std::iota(positions.begin(), positions.end(), test.before);
  PUMICE_TRY(common.q, bed.input(inputs.q_values_));
  PUMICE_TRY(common.positions, bed.input(positions));

  inputs.kv_pattern_ = random_blocks(paged, kDistinctBlocks);
  // The layers of a model, each with its own KV.
  PUMICE_TRY(const vk::BufferRange pattern, bed.input(inputs.kv_pattern_));
  const uint32_t n_copies = scale.copies(paged.size_bytes());
  PUMICE_TRY(const vk::BufferRange memory, bed.repeat(pattern, n_copies * paged.size_bytes()));
  for (uint32_t copy = 0; copy < n_copies; ++copy) {
    inputs.kv_.push_back(memory.subrange(copy * paged.size_bytes(), paged.size_bytes()));
    PUMICE_TRY(inputs.block_tables_.emplace_back(),
               bed.input(paged.table(inputs.kv_.back().address())));
  }
  return inputs;
}

AttentionBenchInputs::Call AttentionBenchInputs::call(size_t copy) const {
  Call call = common_;
  call.kv = kv_[copy];
  call.block_table = block_tables_[copy];
  return call;
}

void AttentionBenchInputs::append_row(PagedKvCase::Row row, std::vector<float>& values) const {
  row.head_byte %= kv_pattern_.size();  // whole blocks
  for (const double value : paged_.load(kv_pattern_, row)) {
    values.push_back(static_cast<float>(value));
  }
}

uint64_t AttentionBenchInputs::y_bytes() const {
  return uint64_t{test_.rows} * test_.shape.n_heads * test_.shape.head_dim * 4;
}

Expectation AttentionBenchInputs::expect(Math math) const {
  const FlashAttention::Shape& shape = test_.shape;
  const uint32_t n_heads = shape.n_heads;
  const uint32_t head_dim = shape.head_dim;
  Expectation expected{.name = "y"};
  for (const uint64_t pair : sample_elements(uint64_t{test_.rows} * n_heads, 4, 5)) {
    const uint64_t row = pair / n_heads;
    const auto head = static_cast<uint32_t>(pair % n_heads);
    const uint32_t kv_head = head / (n_heads / shape.n_kv_heads);
    const uint64_t n_seen = test_.before + row + 1;
    const uint64_t n_keys = shape.window == 0 ? n_seen : std::min<uint64_t>(n_seen, shape.window);
    const auto first_key = static_cast<uint32_t>(n_seen - n_keys);
    std::vector<float> k;
    std::vector<float> v;
    k.reserve(n_keys * head_dim);  // rows stay where they are
    v.reserve(n_keys * head_dim);
    std::vector<const float*> k_rows;
    std::vector<const float*> v_rows;
    for (uint32_t i = 0; i < n_keys; ++i) {
      const uint32_t position = first_key + i;
      append_row(paged_.k_row(0, 0, position, kv_head), k);
      append_row(paged_.v_row(0, 0, position, kv_head), v);
      k_rows.push_back(&k[size_t{i} * head_dim]);
      v_rows.push_back(&v[size_t{i} * head_dim]);
    }
    expect_attention_row(&q_values_[row * common_.q_stride + size_t{head} * head_dim], k_rows,
                         v_rows, head_dim, head_dim, common_.scale, shape.soft_cap, {}, math,
                         shape.kv_type, expected);
    for (uint32_t d = 0; d < head_dim; ++d) expected.elements.push_back(pair * head_dim + d);
  }
  return expected;
}

Result<FlashAttentionRun> FlashAttentionRun::make(OpBed& bed, const AttentionBenchCase& test,
                                                  const AttentionBenchInputs& inputs,
                                                  const FlashAttention& op,
                                                  const vk::BufferRange& y,
                                                  const Allocate& allocate) {
  const SequenceChunk chunk{.n_rows = test.rows, .first_position = test.before};
  AttentionPlan plan;
  plan_attention(
      std::span(&chunk, 1),
      {.tile_tokens = op.tile_tokens(), .split_tokens = kSplitTokens, .window = test.shape.window},
      plan);
  FlashAttentionRun run(op);
  run.tiles_ = !plan.tile_items.empty();
  const auto& items = run.tiles_ ? plan.tile_items : plan.row_items;
  FlashAttention::Args& args = run.args_;
  const AttentionBenchInputs::Call call = inputs.call(0);
  args.q = call.q;
  args.positions = call.positions;
  args.y = y;
  args.q_stride = call.q_stride;
  args.table_stride = call.table_stride;
  args.scale = call.scale;
  args.n_items = static_cast<uint32_t>(items.size());
  args.keys = run.tiles_ ? plan.tile_keys : plan.row_keys;
  args.scores = run.tiles_ ? plan.tile_scores : plan.row_scores;
  PUMICE_TRY(args.items, bed.input(items));
  run.reduce_ = {.y = y, .n_partials = plan.n_partials};
  if (plan.n_partials > 0) {
    PUMICE_TRY(args.partial_stats, allocate(op.partial_stats_bytes(plan.n_partials)));
    PUMICE_TRY(args.partial_y, allocate(op.partial_y_bytes(plan.n_partials)));
    run.reduce_.partial_stats = args.partial_stats;
    run.reduce_.partial_y = args.partial_y;
    run.reduce_.n_items = static_cast<uint32_t>(plan.reduce_items.size());
    PUMICE_TRY(run.reduce_.items, bed.input(plan.reduce_items));
  }
  return run;
}

void FlashAttentionRun::record(vk::Recorder& recorder,
                               const AttentionBenchInputs::Call& call) const {
  FlashAttention::Args args = args_;
  args.kv = call.kv;
  args.block_table = call.block_table;
  tiles_ ? op_.record_tiles(recorder, args) : op_.record_rows(recorder, args);
  if (reduce_.n_items > 0) op_.record_reduce(recorder, reduce_);
}

}  // namespace pumice::ops
