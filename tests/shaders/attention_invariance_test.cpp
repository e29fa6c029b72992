// What a row's attention is worth does not depend on how the rows came: bit for bit.
#include <gtest/gtest.h>

#include "shaders/flash_attention/attention_case.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/flash_attention/matrix_tuning.hpp"
#include "shaders/flash_attention/subgroup_tuning.hpp"
#include "shaders/op_case.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kTokens = 150;
constexpr FlashAttention::Shape kShape{
    .n_heads = 6, .n_kv_heads = 2, .head_dim = 24, .kv_type = KvType::kF32};
// A window that begins anywhere in blocks, KV tiles and splits.
constexpr FlashAttention::Shape kWindowed{.n_heads = 6,
                                          .n_kv_heads = 2,
                                          .head_dim = 24,
                                          .kv_type = KvType::kF32,
                                          .window = 41,
                                          .soft_cap = 2.0f};

constexpr FlashAttention::Shape kManySplits{
    .n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .kv_type = KvType::kF32, .window = 110};

struct AttentionRun {
  FlashAttention::Shape shape;
  uint32_t split_tokens = 0;
  FlashAttention::Tuning tuning;
  std::optional<FlashAttention::Tuning> row_tuning = {};  // of single rows, else as tuning says
  vk::SegmentLimit limit = {};
  uint64_t carried_bytes = FlashAttention::kCarriedBytes;  ///< 0: no item is cut by its keys
  size_t n_segments = 0;                                   ///< that it took
};

/// y of `kTokens` tokens of one sequence that arrive in chunks of these sizes, all in one call.
std::vector<std::byte> attention_in_chunks(OpBed& bed, AttentionRun& run,
                                           const std::vector<uint32_t>& chunk_sizes) {
  const FlashAttention::Shape& shape = run.shape;
  Result<FlashAttention> op =
      FlashAttention::plan(bed.pipelines(), shape, run.tuning, run.row_tuning.value_or(run.tuning));
  EXPECT_TRUE(op.ok() && bed.pipelines().compile().ok());
  std::vector<SequenceChunk> chunks;
  uint32_t rows = 0;
  for (const uint32_t n : chunk_sizes) {
    chunks.push_back({.seq = 0, .first_row = rows, .n_rows = n, .first_position = rows});
    rows += n;
  }
  EXPECT_EQ(rows, kTokens);
  AttentionPlan plan;
  plan_attention(chunks,
                 {.tile_tokens = op->tile_tokens(),
                  .split_tokens = run.split_tokens,
                  .max_split_rows = UINT32_MAX,
                  .window = shape.window},
                 plan);

  const KvLayout layout{.type = shape.kv_type,
                        .n_layers = 1,
                        .n_kv_heads = shape.n_kv_heads,
                        .head_dim = shape.head_dim};
  const uint32_t n_blocks = (kTokens + kKvBlockTokens - 1) / kKvBlockTokens;
  const uint32_t row_elements = shape.n_heads * shape.head_dim;
  std::vector<uint32_t> positions(kTokens);
  for (uint32_t i = 0; i < kTokens; ++i) positions[i] = i;
  FlashAttention::Args args{.q_stride = row_elements, .table_stride = n_blocks, .scale = 0.2f};
  args.q = *bed.input(OpBed::normal_floats(size_t{kTokens} * row_elements, 1));
  args.kv = *bed.input(OpBed::normal_floats(n_blocks * layout.block_bytes() / 4, 2));
  std::vector<uint64_t> table;
  for (uint32_t i = 0; i < n_blocks; ++i) {
    table.push_back(args.kv.address() + i * layout.block_bytes());
  }
  args.block_table = *bed.input(table);
  args.positions = *bed.input(positions);
  args.y = *bed.output(uint64_t{kTokens} * row_elements * 4);
  if (run.carried_bytes > 0) args.carried = *bed.output(run.carried_bytes);
  vk::Recorder recorder(bed.device(), {.segment = run.limit});
  FlashAttention::ReduceArgs reduce{.y = args.y, .n_partials = plan.n_partials};
  if (plan.n_partials > 0) {
    reduce.partial_stats = args.partial_stats =
        *bed.output(op->partial_stats_bytes(plan.n_partials));
    reduce.partial_y = args.partial_y = *bed.output(op->partial_y_bytes(plan.n_partials));
  }
  if (!plan.tile_items.empty()) {
    FlashAttention::Args tiles = args;
    tiles.items = *bed.input(plan.tile_items);
    tiles.n_items = static_cast<uint32_t>(plan.tile_items.size());
    tiles.keys = plan.tile_keys;
    tiles.scores = plan.tile_scores;
    tiles.most_keys = plan.most_tile_keys;
    op->record_tiles(recorder, tiles);
  }
  if (!plan.row_items.empty()) {
    FlashAttention::Args singles = args;
    singles.items = *bed.input(plan.row_items);
    singles.n_items = static_cast<uint32_t>(plan.row_items.size());
    singles.keys = plan.row_keys;
    singles.scores = plan.row_scores;
    singles.most_keys = plan.most_row_keys;
    op->record_rows(recorder, singles);
  }
  if (!plan.reduce_items.empty()) {
    reduce.items = *bed.input(plan.reduce_items);
    reduce.n_items = static_cast<uint32_t>(plan.reduce_items.size());
    op->record_reduce(recorder, reduce);
  }
  Result<vk::RecordedWork> work = recorder.finish();
  EXPECT_TRUE(work.ok() && vk::run(*bed.device(), *work).ok());
  run.n_segments = work->segments().size();
  return *vk::download(bed.device(), args.y);
}

/// Of a row that sees up to 8 splits, from any on, and whose item has more: they are merged by 2
/// groups of lanes that take 2 splits at a time.
void expect_partials_keep_their_order(OpBed& bed, const FlashAttention::Tuning& tuning) {
  AttentionRun run{.shape = kManySplits, .split_tokens = 16, .tuning = tuning};
  run.tuning.reduce_workgroup_size = 32;
  run.tuning.reduce_flight = 2;
  const auto whole = attention_in_chunks(bed, run, {kTokens});
  EXPECT_TRUE(whole == attention_in_chunks(bed, run, std::vector<uint32_t>(kTokens, 1)));
  EXPECT_TRUE(whole == attention_in_chunks(bed, run, {1, 63, 2, 1, 60, 23}));
}

void expect_chunks_change_nothing(const std::shared_ptr<vk::Device>& device,
                                  const FlashAttention::Tuning& tuning) {
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  OpBed bed(device, pipelines);
  expect_partials_keep_their_order(bed, tuning);
  const std::vector<uint32_t> one_by_one(kTokens, 1);
  for (const FlashAttention::Shape& shape : {kShape, kWindowed}) {
    for (const uint32_t split : {0u, 64u}) {
      AttentionRun run{.shape = shape, .split_tokens = split, .tuning = tuning};
      const auto whole = attention_in_chunks(bed, run, {kTokens});
      for (const auto& chunks : {one_by_one, {1, 63, 2, 1, 60, 23}}) {
        EXPECT_EQ(whole, attention_in_chunks(bed, run, chunks))
            << "split " << split << ", window " << shape.window;
      }
    }
  }
}

/// Of lists cut down to one KV tile of one workgroup: each goes on with what the one before has
/// left.
void expect_cuts_change_nothing(const std::shared_ptr<vk::Device>& device,
                                const FlashAttention::Tuning& tuning,
                                const std::optional<FlashAttention::Tuning>& row_tuning = {}) {
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  OpBed bed(device, pipelines);
  for (const FlashAttention::Shape& shape : {kShape, kWindowed}) {
    AttentionRun run{.shape = shape, .tuning = tuning, .row_tuning = row_tuning};
    const std::vector<uint32_t> chunks = {1, 140, 1, 8};
    const auto whole = attention_in_chunks(bed, run, chunks);
    size_t n_before = run.n_segments;
    for (const uint64_t flops : {3'000'000u, 600'000u, 1u}) {
      run.limit = {.flops = flops};
      EXPECT_TRUE(attention_in_chunks(bed, run, chunks) == whole)
          << run.n_segments << " segments, window " << shape.window;
      EXPECT_GT(run.n_segments, n_before) << flops;
      n_before = run.n_segments;
    }
    run.limit = {.flops = 600'000};
    run.carried_bytes = uint64_t{64} << 10;  // of few workgroups
    EXPECT_TRUE(attention_in_chunks(bed, run, chunks) == whole) << "window " << shape.window;
  }
}

TEST(AttentionInvariance, ChunksChangeNoBitOfAnyRow) {
  PUMICE_REQUIRE_DEVICE(device);
  const FlashAttention::Tuning tuning{.path = FlashAttention::Path::kPortable, .max_tile_rows = 8};
  expect_chunks_change_nothing(device, tuning);
  expect_cuts_change_nothing(device, tuning);
}

TEST(AttentionInvariance, CuttingItsItemsByHeadsChangesNoBit) {
  PUMICE_REQUIRE_DEVICE(device);
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  OpBed bed(device, pipelines);
  const FlashAttention::Tuning tuning = FlashAttention::tuned(pipelines);
  const std::vector<uint32_t> chunks = {1, 63, 2, 1, 60, 23};
  AttentionRun run{.shape = kShape, .split_tokens = 64, .tuning = tuning, .carried_bytes = 0};
  const auto whole = attention_in_chunks(bed, run, chunks);
  EXPECT_EQ(run.n_segments, 1u);
  size_t n_before = 1;
  for (const uint64_t flops : {4'000'000u, 1'000'000u, 1u}) {
    run.limit = {.flops = flops};
    EXPECT_TRUE(attention_in_chunks(bed, run, chunks) == whole) << run.n_segments << " segments";
    EXPECT_GT(run.n_segments, n_before) << flops;
    n_before = run.n_segments;
  }
}

TEST(AttentionInvariance, ChunksChangeNoBitOfAnyRowOnTheBroadcastPath) {
  PUMICE_REQUIRE_DEVICE(device);
  if (!FlashAttention::broadcast_supported(device->plan())) {
    GTEST_SKIP() << "no broadcasts in subgroups of a known size";
  }
  const FlashAttention::Tuning tuning{.path = FlashAttention::Path::kBroadcast,
                                      .workgroup_size = device->plan().subgroup_size,
                                      .max_tile_rows = 2};
  expect_chunks_change_nothing(device, tuning);
  expect_cuts_change_nothing(device, tuning);
}

TEST(AttentionInvariance, CuttingItsItemsChangesNoBitOfRowsBySubgroups) {
  PUMICE_REQUIRE_DEVICE(device);
  const FlashAttention::Tuning rows = subgroup_tuning(device->plan(), false);
  const std::string lacking = subgroup_attention_obstacle(device->plan(), rows);
  if (!lacking.empty()) GTEST_SKIP() << lacking;
  expect_cuts_change_nothing(device, {.max_tile_rows = 8}, rows);
}

TEST(AttentionInvariance, ChunksChangeNoBitOfAnyRowOnMatrixCores) {
  PUMICE_REQUIRE_DEVICE(device);
  Result<FlashAttention::Tuning> tuning = matrix_attention_tuning(device->plan(), kShape);
  if (!tuning.ok()) GTEST_SKIP() << tuning.error().message;
  if (!find_spirv("flash_attention.matrix").ok()) GTEST_SKIP() << "not in this build";
  tuning->matrix_rows = true;
  expect_chunks_change_nothing(device, *tuning);
  expect_cuts_change_nothing(device, *tuning);
}

TEST(AttentionInvariance, ChunksChangeNoBitOfAnyRowWhereSubgroupsHaveTheirOwnOnMatrixCores) {
  PUMICE_REQUIRE_DEVICE(device);
  const std::string lacking = half_matrix_obstacle(device->plan());
  if (!lacking.empty()) GTEST_SKIP() << lacking;
  if (!find_spirv("flash_attention.matrix_rows").ok()) GTEST_SKIP() << "not in this build";
  FlashAttention::Tuning tuning = own_rows_tuning(device->plan());
  tuning.matrix_rows = true;
  expect_chunks_change_nothing(device, tuning);
  expect_cuts_change_nothing(device, tuning);
}

}  // namespace
}  // namespace pumice::ops
