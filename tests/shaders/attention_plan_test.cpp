#include "shaders/flash_attention/attention_plan.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

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

/// Every (row, key) pair that causality allows is covered by exactly one item that writes the row's
/// y or a partial which the row's reduce item combines.
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
  std::map<uint32_t, std::map<uint32_t, uint32_t>> covered;  // row -> key -> times
  std::set<uint32_t> written;
  std::vector<AttentionItem> items = plan.tile_items;
  items.insert(items.end(), plan.row_items.begin(), plan.row_items.end());
  for (const AttentionItem& item : items) {
    EXPECT_LE(item.n_rows, options.tile_tokens);
    EXPECT_LT(item.kv_begin, item.kv_end);
    EXPECT_EQ(item.kv_begin % 16, 0u);
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
  for (const SequenceChunk& chunk : chunks) {
    for (uint32_t i = 0; i < chunk.n_rows; ++i) {
      for (uint32_t key = 0; key <= chunk.first_position + i; ++key) {
        ASSERT_EQ(covered[chunk.first_row + i][key], 1u) << "row " << i << " key " << key;
      }
    }
  }
}

TEST(AttentionPlan, CoversEveryVisibleKeyOnce) {
  const std::vector<SequenceChunk> chunks = {{0, 0, 1, 0},    {1, 1, 1, 200}, {2, 2, 37, 0},
                                             {3, 39, 7, 150}, {5, 46, 0, 3},  {4, 46, 16, 31}};
  for (const uint32_t tile : {1u, 5u, 16u}) {
    for (const uint32_t split : {0u, 16u, 64u}) {
      for (const uint32_t limit : {1u, 8u, UINT32_MAX}) {
        expect_exact_cover(chunks,
                           {.tile_tokens = tile, .split_tokens = split, .max_split_rows = limit});
      }
    }
  }
}

TEST(AttentionPlan, PartialsStayBelowTheirBound) {
  const AttentionPlanOptions options{
      .tile_tokens = 16, .split_tokens = 64, .max_split_rows = UINT32_MAX};
  const AttentionPlan plan = plan_of({{0, 0, 40, 1000}, {1, 40, 1, 1039}}, options);
  EXPECT_LE(plan.n_partials, max_attention_partials(41, 1040, options));
  EXPECT_EQ(max_attention_partials(41, 64, options), 0u);
}

TEST(AttentionPlan, IsReusedWithoutLeftovers) {
  AttentionPlan plan =
      plan_of({{.n_rows = 3, .first_position = 500}}, {.tile_tokens = 2, .split_tokens = 16});
  plan_attention({}, {}, plan);
  EXPECT_TRUE(plan.tile_items.empty() && plan.row_items.empty() && plan.reduce_items.empty());
  EXPECT_EQ(plan.n_partials + plan.tile_keys + plan.tile_scores + plan.row_keys, 0u);
}

}  // namespace
}  // namespace pumice::ops
