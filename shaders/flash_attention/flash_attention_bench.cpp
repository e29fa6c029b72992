// Attention of one sequence for timing: inputs of any size at the cost of a small pattern, on
// several copies of KV, and a sample of the expected output.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "shaders/common/paged_kv_case.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/flash_attention/flash_attention_bench.hpp"
#include "shaders/flash_attention/flash_attention_reference.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kDistinctBlocks = 64;  // KV blocks that differ; they repeat after that
constexpr uint32_t kSplitTokens = 256;    // the engine's default

/// `rows` tokens of one sequence after `before` others.
struct AttentionBenchCase {
  FlashAttention::Shape shape;
  uint32_t before = 0;
  uint32_t rows = 0;

  uint32_t context() const { return before + rows; }
};

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

/// The op with what it is called on. Equal arguments give equal inputs.
class AttentionBench {
 public:
  static Result<AttentionBench> make(OpBed& bed, const FlashAttention& op,
                                     const AttentionBenchCase& test, const BenchScale& scale) {
    const FlashAttention::Shape& shape = test.shape;
    const uint32_t context = test.context();
    AttentionBench bench(op, test,
                         PagedKvCase({.type = shape.kv_type,
                                      .n_layers = 1,
                                      .n_kv_heads = shape.n_kv_heads,
                                      .head_dim = shape.head_dim},
                                     std::span(&context, 1)));
    FlashAttention::Args& args = bench.args_;
    args.q_stride = (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim;
    args.table_stride = bench.paged_.table_stride();
    args.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    bench.q_values_ = OpBed::uniform_floats(size_t{test.rows} * args.q_stride, 1);
    std::vector<uint32_t> positions(test.rows);
    std::iota(positions.begin(), positions.end(), test.before);
    PUMICE_TRY(args.q, bed.input(bench.q_values_));
    PUMICE_TRY(args.positions, bed.input(positions));
    PUMICE_TRY(args.y, bed.output(uint64_t{test.rows} * shape.n_heads * shape.head_dim * 4));
    PUMICE_TRY_STATUS(bench.make_kv(bed, scale));
    PUMICE_TRY_STATUS(bench.plan_work(bed));
    return bench;
  }

  size_t n_copies() const { return kv_.size(); }

  void record(vk::Recorder& recorder, size_t copy) const {
    FlashAttention::Args args = args_;
    args.kv = kv_[copy];
    args.block_table = block_tables_[copy];
    tiles_ ? op_.record_tiles(recorder, args) : op_.record_rows(recorder, args);
    if (reduce_.n_items > 0) op_.record_reduce(recorder, reduce_);
  }

  /// All columns of a few (row, head) pairs, of KV's first copy.
  Expectation expect() const {
    const FlashAttention::Shape& shape = test_.shape;
    const uint32_t n_heads = shape.n_heads;
    const uint32_t head_dim = shape.head_dim;
    const Math math = test_.rows > 1 ? op_.tile_math() : op_.row_math();
    Expectation expected{.name = "y", .output = args_.y};
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
      expect_attention_row(&q_values_[row * args_.q_stride + size_t{head} * head_dim], k_rows,
                           v_rows, head_dim, head_dim, args_.scale, shape.soft_cap, {}, math,
                           shape.kv_type, expected);
      for (uint32_t d = 0; d < head_dim; ++d) expected.elements.push_back(pair * head_dim + d);
    }
    return expected;
  }

 private:
  AttentionBench(const FlashAttention& op, const AttentionBenchCase& test, PagedKvCase paged)
      : op_(op), test_(test), paged_(std::move(paged)) {}

  /// The layers of a model, each with its own KV.
  Status make_kv(OpBed& bed, const BenchScale& scale) {
    kv_pattern_ = random_blocks(paged_, kDistinctBlocks);
    PUMICE_TRY(const vk::BufferRange pattern, bed.input(kv_pattern_));
    const uint32_t n_copies = scale.copies(paged_.size_bytes());
    PUMICE_TRY(const vk::BufferRange memory, bed.repeat(pattern, n_copies * paged_.size_bytes()));
    for (uint32_t copy = 0; copy < n_copies; ++copy) {
      kv_.push_back(memory.subrange(copy * paged_.size_bytes(), paged_.size_bytes()));
      PUMICE_TRY(block_tables_.emplace_back(), bed.input(paged_.table(kv_.back().address())));
    }
    return {};
  }

  Status plan_work(OpBed& bed) {
    const SequenceChunk chunk{.n_rows = test_.rows, .first_position = test_.before};
    AttentionPlan plan;
    plan_attention(std::span(&chunk, 1),
                   {.tile_tokens = op_.tile_tokens(),
                    .split_tokens = kSplitTokens,
                    .window = test_.shape.window,
                    .row_splits = op_.row_splits()},
                   plan);
    tiles_ = !plan.tile_items.empty();
    const auto& items = tiles_ ? plan.tile_items : plan.row_items;
    args_.n_items = static_cast<uint32_t>(items.size());
    args_.keys = tiles_ ? plan.tile_keys : plan.row_keys;
    args_.scores = tiles_ ? plan.tile_scores : plan.row_scores;
    PUMICE_TRY(args_.items, bed.input(items));
    if (plan.n_partials == 0) return {};
    PUMICE_TRY(args_.partial_stats, bed.output(op_.partial_stats_bytes(plan.n_partials)));
    PUMICE_TRY(args_.partial_y, bed.output(op_.partial_y_bytes(plan.n_partials)));
    reduce_.partial_stats = args_.partial_stats;
    reduce_.partial_y = args_.partial_y;
    reduce_.y = args_.y;
    reduce_.n_partials = plan.n_partials;
    reduce_.n_items = static_cast<uint32_t>(plan.reduce_items.size());
    PUMICE_TRY(reduce_.items, bed.input(plan.reduce_items));
    return {};
  }

  void append_row(PagedKvCase::Row row, std::vector<float>& values) const {
    row.head_byte %= kv_pattern_.size();  // whole blocks
    for (const double value : paged_.load(kv_pattern_, row)) {
      values.push_back(static_cast<float>(value));
    }
  }

  FlashAttention op_;
  AttentionBenchCase test_;
  PagedKvCase paged_;
  std::vector<std::byte> kv_pattern_;  ///< blocks that KV memory repeats
  std::vector<float> q_values_;
  bool tiles_ = false;
  FlashAttention::Args args_;  ///< on no copy yet
  FlashAttention::ReduceArgs reduce_;
  std::vector<vk::BufferRange> kv_;
  std::vector<vk::BufferRange> block_tables_;
};

Result<PreparedOp> prepare(OpBed& bed, const AttentionBenchCase& test, const BenchScale& scale) {
  PUMICE_TRY(const FlashAttention op,
             FlashAttention::plan(bed.pipelines(), test.shape, Math::kAuto));
  PUMICE_TRY(AttentionBench made, AttentionBench::make(bed, op, test, scale));
  const auto bench = std::make_shared<const AttentionBench>(std::move(made));
  PreparedOp prepared;
  for (size_t copy = 0; copy < bench->n_copies(); ++copy) {
    prepared.rotation.emplace_back([=](vk::Recorder& recorder) { bench->record(recorder, copy); });
  }
  prepared.record = prepared.rotation[0];
  prepared.expected = {bench->expect()};
  return prepared;
}

OpCase case_of(const AttentionBenchCase& test, const BenchScale& scale) {
  const FlashAttention::Shape& shape = test.shape;
  const std::string local =
      shape.window > 0 ? fmt::format(" window={} cap={}", shape.window, shape.soft_cap) : "";
  return {.op = "flash_attention",
          .name = fmt::format("heads={}/{} head_dim={} {} {} rows={} depth={}{}", shape.n_heads,
                              shape.n_kv_heads, shape.head_dim, shape.kv_type.name(),
                              test.rows > 1 ? "prefill" : "decode", test.rows, test.before, local),
          .prepare = [=](OpBed& bed) { return prepare(bed, test, scale); }};
}

}  // namespace

std::vector<OpCase> flash_attention_bench_cases(const BenchScale& scale,
                                                std::span<const FlashAttention::Shape> shapes) {
  std::vector<OpCase> cases;
  for (const FlashAttention::Shape& shape : shapes) {
    const uint32_t depth = scale.small ? 512 : 4096;
    cases.push_back(case_of({shape, 0, scale.small ? 64u : 512u}, scale));
    cases.push_back(case_of({shape, depth, 1}, scale));
  }
  return cases;
}

std::vector<OpCase> flash_attention_bench_cases(const BenchScale& scale) {
  // The last chunk of prompts of 512 and 4096 tokens, and one token after 512, 4096 and 32768; the
  // last with a window and a soft cap too.
  std::vector<AttentionBenchCase> tests;
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
  FlashAttention::Shape local = tests.back().shape;
  local.window = scale.small ? 100 : 4096;
  local.soft_cap = 50;
  tests.push_back({local, tests.back().before, 1});
  std::vector<OpCase> cases;
  for (const AttentionBenchCase& test : tests) cases.push_back(case_of(test, scale));
  return cases;
}

}  // namespace pumice::ops
