#include "shaders/flash_attention/attention_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "shaders/flash_attention/flash_attention.hpp"

namespace pumice::ops {

bool operator==(const AttentionItem& a, const AttentionItem& b) {
  return a.first_row == b.first_row && a.n_rows == b.n_rows && a.seq == b.seq &&
         a.kv_begin == b.kv_begin && a.kv_end == b.kv_end && a.partial == b.partial;
}

namespace {

constexpr uint32_t kWhole = AttentionItem::kNoPartial;

AttentionPlan plan_of(const std::vector<SequenceChunk>& chunks,
                      const AttentionPlanOptions& options) {
  AttentionPlan plan;
  plan_attention(chunks, options, plan);
  return plan;
}

TEST(AttentionPlan, SingleRowsAndTilesGoToTheirOwnLists) {
  const AttentionPlan plan = plan_of({{.seq = 4, .first_row = 0, .n_rows = 1, .first_position = 9},
                                      {.seq = 2, .first_row = 1, .n_rows = 5, .first_position = 3}},
                                     {.tile_tokens = 4});
  ASSERT_EQ(plan.row_items.size(), 1u);
  EXPECT_EQ(plan.row_items[0], (AttentionItem{0, 1, 4, 0, 10, kWhole}));
  ASSERT_EQ(plan.tile_items.size(), 2u);
  EXPECT_EQ(plan.tile_items[0], (AttentionItem{1, 4, 2, 0, 7, kWhole}));
  EXPECT_EQ(plan.tile_items[1], (AttentionItem{5, 1, 2, 0, 8, kWhole}));
  EXPECT_TRUE(plan.reduce_items.empty());
  EXPECT_EQ(plan.n_partials, 0u);
  EXPECT_EQ(plan.row_keys, 10u);
  EXPECT_EQ(plan.row_scores, 10u);
  EXPECT_EQ(plan.tile_keys, 7u + 8u);
  EXPECT_EQ(plan.tile_scores, 4u + 5u + 6u + 7u + 8u);
}

TEST(AttentionPlan, LongRowsAreSplitAtAbsolutePositions) {
  const AttentionPlanOptions options{.tile_tokens = 4, .split_tokens = 32};
  EXPECT_TRUE(plan_of({{.n_rows = 1, .first_position = 31}}, options).reduce_items.empty());

  const AttentionPlan plan =
      plan_of({{.seq = 1, .first_row = 7, .n_rows = 1, .first_position = 64}}, options);
  ASSERT_EQ(plan.row_items.size(), 3u);
  EXPECT_EQ(plan.row_items[0], (AttentionItem{7, 1, 1, 0, 32, 0}));
  EXPECT_EQ(plan.row_items[1], (AttentionItem{7, 1, 1, 32, 64, 1}));
  EXPECT_EQ(plan.row_items[2], (AttentionItem{7, 1, 1, 64, 65, 2}));
  ASSERT_EQ(plan.reduce_items.size(), 1u);
  EXPECT_EQ(plan.reduce_items[0].row, 7u);
  EXPECT_EQ(plan.reduce_items[0].n_partials, 3u);
  EXPECT_EQ(plan.n_partials, 3u);
}

TEST(AttentionPlan, ChunksAboveTheLimitAreNotSplit) {
  const AttentionPlanOptions options{.tile_tokens = 4, .split_tokens = 16, .max_split_rows = 8};
  EXPECT_EQ(plan_of({{.n_rows = 9, .first_position = 100}}, options).n_partials, 0u);
  EXPECT_EQ(plan_of({{.n_rows = 8, .first_position = 100}}, options).n_partials, 4u * 7 + 4u * 7);
}

TEST(AttentionPlan, KnowsHowManyKeysTheLongestItemOfAListHas) {
  const std::vector<SequenceChunk> chunks = {{.n_rows = 9, .first_position = 100},
                                             {.n_rows = 2, .first_position = 5},
                                             {.n_rows = 1, .first_position = 90},
                                             {.n_rows = 1, .first_position = 7}};
  const AttentionPlan all = plan_of(chunks, {.tile_tokens = 4});
  EXPECT_EQ(all.most_tile_keys, 109u);
  EXPECT_EQ(all.most_row_keys, 91u);
  // Of single rows one split at most, and behind a window nothing but its block's first keys.
  EXPECT_EQ(plan_of(chunks, {.tile_tokens = 4, .split_tokens = 32}).most_row_keys, 32u);
  const AttentionPlan near = plan_of(chunks, {.tile_tokens = 4, .window = 10});
  EXPECT_EQ(near.most_tile_keys, 108u - 80);
  EXPECT_EQ(near.most_row_keys, 91u - 80);
}

TEST(AttentionPlan, RowsSeeAheadUpToTheEndOfTheirText) {
  const AttentionPlan all =
      plan_of({{.seq = 3, .first_row = 2, .n_rows = 6}, {.seq = 9, .first_row = 8, .n_rows = 1}},
              {.tile_tokens = 4, .ahead = UINT32_MAX});
  ASSERT_EQ(all.tile_items.size(), 2u);
  EXPECT_EQ(all.tile_items[0], (AttentionItem{2, 4, 3, 0, 6, kWhole}));
  EXPECT_EQ(all.tile_items[1], (AttentionItem{6, 2, 3, 0, 6, kWhole}));
  ASSERT_EQ(all.row_items.size(), 1u);
  EXPECT_EQ(all.row_items[0], (AttentionItem{8, 1, 9, 0, 1, kWhole}));
  EXPECT_EQ(all.tile_scores, 36u);
  EXPECT_EQ(all.row_scores, 1u);

  // Twenty keys to each side.
  const AttentionPlan near =
      plan_of({{.n_rows = 60}}, {.tile_tokens = 4, .window = 41, .ahead = 20});
  ASSERT_EQ(near.tile_items.size(), 15u);
  EXPECT_EQ(near.tile_items[0], (AttentionItem{0, 4, 0, 0, 24, kWhole}));
  EXPECT_EQ(near.tile_items[9], (AttentionItem{36, 4, 0, 16, 60, kWhole}));   // keys 16 to 59
  EXPECT_EQ(near.tile_items[14], (AttentionItem{56, 4, 0, 32, 60, kWhole}));  // from 36
  uint64_t pairs = 0;
  for (int row = 0; row < 60; ++row) pairs += std::min(row + 20, 59) - std::max(row - 20, 0) + 1;
  EXPECT_EQ(near.tile_scores, pairs);
}

TEST(AttentionPlan, ItemsBeginAtTheBlockOfTheFirstKeyThatARowSees) {
  const AttentionPlan plan =
      plan_of({{.seq = 4, .first_row = 0, .n_rows = 1, .first_position = 99},
               {.seq = 2, .first_row = 1, .n_rows = 5, .first_position = 50}},
              {.tile_tokens = 4, .window = 20});
  ASSERT_EQ(plan.row_items.size(), 1u);
  EXPECT_EQ(plan.row_items[0], (AttentionItem{0, 1, 4, 80, 100, kWhole}));  // keys 80 to 99
  ASSERT_EQ(plan.tile_items.size(), 2u);
  EXPECT_EQ(plan.tile_items[0], (AttentionItem{1, 4, 2, 16, 54, kWhole}));  // from 31
  EXPECT_EQ(plan.tile_items[1], (AttentionItem{5, 1, 2, 32, 55, kWhole}));  // from 35
  EXPECT_EQ(plan.row_keys, 20u);
  EXPECT_EQ(plan.row_scores, 20u);
  EXPECT_EQ(plan.tile_keys, 23u + 20u);
  EXPECT_EQ(plan.tile_scores, 5u * 20);
}

TEST(AttentionPlan, SplitsBehindAWindowAreLeftOut) {
  const AttentionPlanOptions options{.tile_tokens = 4, .split_tokens = 32, .window = 40};
  const AttentionPlan plan =
      plan_of({{.seq = 1, .first_row = 7, .n_rows = 1, .first_position = 127},
               {.seq = 3, .first_row = 8, .n_rows = 1, .first_position = 128}},
              options);
  ASSERT_EQ(plan.row_items.size(), 5u);
  EXPECT_EQ(plan.row_items[0], (AttentionItem{7, 1, 1, 80, 96, 0}));  // keys 88 to 127
  EXPECT_EQ(plan.row_items[1], (AttentionItem{7, 1, 1, 96, 128, 1}));
  EXPECT_EQ(plan.row_items[2], (AttentionItem{8, 1, 3, 80, 96, 2}));  // keys 89 to 128
  EXPECT_EQ(plan.row_items[3], (AttentionItem{8, 1, 3, 96, 128, 3}));
  EXPECT_EQ(plan.row_items[4], (AttentionItem{8, 1, 3, 128, 129, 4}));
  ASSERT_EQ(plan.reduce_items.size(), 2u);
  EXPECT_EQ(plan.reduce_items[0].n_partials, 2u);
  EXPECT_EQ(plan.reduce_items[1].first_partial, 2u);
  EXPECT_EQ(plan.reduce_items[1].n_partials, 3u);

  // A window within one split is not split, wherever it lies.
  EXPECT_TRUE(plan_of({{.n_rows = 1, .first_position = 127}},
                      {.tile_tokens = 4, .split_tokens = 32, .window = 32})
                  .reduce_items.empty());
}

/// Every (row, key) pair that causality and the window allow is covered by exactly one item that
/// writes the row's y or a partial which the row's reduce item combines; items have no block of
/// which their rows see no key; no item crosses a multiple of split_tokens, but for chunks that are
/// never split; keys and scores are what is visible.
void expect_exact_cover(const std::vector<SequenceChunk>& chunks,
                        const AttentionPlanOptions& options) {
  const AttentionPlan plan = plan_of(chunks, options);
  std::map<uint32_t, std::set<uint32_t>> slots;  // of each row, as the reduce items say
  for (const AttentionReduceItem& item : plan.reduce_items) {
    for (uint32_t i = 0; i < item.n_partials; ++i) {
      const uint32_t slot = item.first_partial + i * item.partial_stride;
      EXPECT_LT(slot, plan.n_partials);
      EXPECT_TRUE(slots[item.row].insert(slot).second);
    }
  }
  const auto first_visible = [&](uint32_t position) {
    return options.window == 0 || position < options.window ? 0 : position + 1 - options.window;
  };
  std::map<uint32_t, uint32_t> position_of, chunk_rows_of;  // of each row
  uint64_t scores = 0;
  for (const SequenceChunk& chunk : chunks) {
    for (uint32_t i = 0; i < chunk.n_rows; ++i) {
      const uint32_t position = chunk.first_position + i;
      position_of[chunk.first_row + i] = position;
      chunk_rows_of[chunk.first_row + i] = chunk.n_rows;
      scores += position + 1 - first_visible(position);
    }
  }
  EXPECT_EQ(plan.tile_scores + plan.row_scores, scores);
  uint64_t keys = 0;
  std::map<uint32_t, std::map<uint32_t, uint32_t>> covered;  // row -> key -> times
  std::set<uint32_t> written;
  std::vector<AttentionItem> items = plan.tile_items;
  items.insert(items.end(), plan.row_items.begin(), plan.row_items.end());
  for (const AttentionItem& item : items) {
    EXPECT_LE(item.n_rows, options.tile_tokens);
    EXPECT_LT(item.kv_begin, item.kv_end);
    EXPECT_EQ(item.kv_begin % 16, 0u);
    const uint32_t first_seen = first_visible(position_of[item.first_row]);
    EXPECT_GT(item.kv_begin + 16, first_seen) << "a block that no row sees";
    EXPECT_LE(item.kv_end, position_of[item.first_row] + item.n_rows);
    keys += item.kv_end - std::max(item.kv_begin, first_seen);
    if (options.split_tokens > 0 && chunk_rows_of[item.first_row] <= options.max_split_rows) {
      EXPECT_EQ(item.kv_begin / options.split_tokens, (item.kv_end - 1) / options.split_tokens);
    }
    for (uint32_t i = 0; i < item.n_rows; ++i) {
      const uint32_t row = item.first_row + i;
      if (item.partial == kWhole) {
        EXPECT_FALSE(slots.contains(row)) << "written and reduced";
      } else {
        EXPECT_EQ(slots[row].count(item.partial + i), 1u) << "a partial nobody reads";
        EXPECT_TRUE(written.insert(item.partial + i).second) << "a slot written twice";
      }
      for (uint32_t key = item.kv_begin; key < item.kv_end; ++key) ++covered[row][key];
    }
  }
  EXPECT_EQ(written.size(), plan.n_partials) << "a slot read but not written";
  EXPECT_EQ(plan.tile_keys + plan.row_keys, keys);
  for (const SequenceChunk& chunk : chunks) {
    for (uint32_t i = 0; i < chunk.n_rows; ++i) {
      const uint32_t position = chunk.first_position + i;
      for (uint32_t key = first_visible(position); key <= position; ++key) {
        ASSERT_EQ(covered[chunk.first_row + i][key], 1u) << "row " << i << " key " << key;
      }
    }
  }
}

TEST(AttentionPlan, CoversEveryVisibleKeyOnce) {
  const std::vector<SequenceChunk> chunks = {{0, 0, 1, 0},    {1, 1, 1, 200}, {2, 2, 37, 0},
                                             {3, 39, 7, 150}, {5, 46, 0, 3},  {4, 46, 16, 31},
                                             {6, 62, 1, 1500}};
  for (const uint32_t tile : {1u, 5u, 16u}) {
    for (const uint32_t split : {0u, 16u, 64u, 256u}) {
      for (const uint32_t limit : {1u, 8u, UINT32_MAX}) {
        for (const uint32_t window : {0u, 1u, 5u, 16u, 17u, 100u, 1000u}) {
          for (const uint32_t row_splits : {0u, 3u, 16u}) {
            expect_exact_cover(chunks, {.tile_tokens = tile,
                                        .split_tokens = split,
                                        .max_split_rows = limit,
                                        .window = window,
                                        .row_splits = row_splits});
          }
        }
      }
    }
  }
}

TEST(AttentionPlan, RowsByThemselvesHaveShortSplitsOfShortContexts) {
  struct Want {
    uint32_t keys, n_splits, split_tokens;
  };
  for (const Want& want :
       {Want{256, 1, 256}, Want{257, 5, 64}, Want{1024, 16, 64}, Want{1025, 9, 128},
        Want{2048, 16, 128}, Want{2049, 9, 256}, Want{8192, 32, 256}}) {
    const AttentionPlan plan = plan_of({{.n_rows = 1, .first_position = want.keys - 1}},
                                       {.split_tokens = 256, .row_splits = 16});
    ASSERT_EQ(plan.row_items.size(), want.n_splits) << want.keys;
    for (uint32_t i = 0; i < want.n_splits; ++i) {
      EXPECT_EQ(plan.row_items[i].kv_begin, i * want.split_tokens) << want.keys;
    }
    EXPECT_LE(plan.n_partials,
              max_attention_partials(1, want.keys, {.split_tokens = 256, .row_splits = 16}));
  }
  // Rows of one chunk share keys, and have workgroups enough.
  EXPECT_EQ(plan_of({{.n_rows = 2, .first_position = 510}},
                    {.tile_tokens = 2, .split_tokens = 256, .row_splits = 16})
                .tile_items.size(),
            2u);
  // Of a window it is split what the row sees.
  EXPECT_EQ(plan_of({{.n_rows = 1, .first_position = 5000}},
                    {.split_tokens = 256, .window = 1000, .row_splits = 16})
                .row_items.size(),
            17u);
}

TEST(AttentionPlan, PartialsStayBelowTheirBound) {
  const AttentionPlanOptions options{
      .tile_tokens = 16, .split_tokens = 64, .max_split_rows = UINT32_MAX};
  const AttentionPlan plan = plan_of({{0, 0, 40, 1000}, {1, 40, 1, 1039}}, options);
  EXPECT_LE(plan.n_partials, max_attention_partials(41, 1040, options));
  EXPECT_EQ(max_attention_partials(41, 64, options), 0u);
}

TEST(AttentionPlan, PartialsOfWindowsStayBelowTheirBoundAndReachIt) {
  for (const uint32_t window : {1u, 5u, 16u, 17u, 100u}) {
    for (const uint32_t rows : {1u, 3u, 16u, 40u}) {
      for (const uint32_t limit : {8u, UINT32_MAX}) {
        const AttentionPlanOptions options{
            .tile_tokens = 16, .split_tokens = 32, .max_split_rows = limit, .window = window};
        uint32_t most = 0;
        for (uint32_t position = 0; position < 300; ++position) {
          const AttentionPlan plan = plan_of({{0, 0, rows, position}}, options);
          EXPECT_LE(plan.n_partials, max_attention_partials(rows, position + rows, options))
              << "window " << window << ", " << rows << " rows at " << position;
          most = std::max(most, plan.n_partials);
        }
        // Of tiles of a chunk, not all can lie where they are split most.
        if (rows <= 16 && rows <= limit) {
          EXPECT_EQ(most, max_attention_partials(rows, 1000, options)) << "window " << window;
        }
      }
    }
  }
}

TEST(AttentionPlan, IsReusedWithoutLeftovers) {
  AttentionPlan plan =
      plan_of({{.n_rows = 3, .first_position = 500}}, {.tile_tokens = 2, .split_tokens = 16});
  plan_attention({}, {}, plan);
  EXPECT_TRUE(plan.tile_items.empty() && plan.row_items.empty() && plan.reduce_items.empty());
  EXPECT_EQ(plan.n_partials + plan.tile_keys + plan.tile_scores + plan.row_keys, 0u);
}

TEST(AttentionShape, SoftCapsOutOfRangeAreRefused) {
  FlashAttention::Shape shape{.n_heads = 2, .n_kv_heads = 1, .head_dim = 64};
  for (const float cap : {0.0f, 0.001f, 50.0f, 1e6f}) {
    shape.soft_cap = cap;
    EXPECT_TRUE(FlashAttention::check_shape(shape).ok()) << cap;
  }
  for (const float cap : {-50.0f, 1e-40f, 1e30f, INFINITY, NAN}) {
    shape.soft_cap = cap;
    const Status status = FlashAttention::check_shape(shape);
    ASSERT_FALSE(status.ok()) << cap;
    EXPECT_NE(status.error().message.find("soft_cap"), std::string::npos);
  }
}

}  // namespace
}  // namespace pumice::ops
