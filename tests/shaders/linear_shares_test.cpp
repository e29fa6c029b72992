// How matrix products and rows are shared out among dispatches when one would exceed the limit of a
// segment.
// Needs no device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "format/resident_layout.hpp"
#include "shaders/common/linear_args.hpp"
#include "shaders/common/row_shares.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kTileCols[] = {16, 32, 48, 64, 128, 256};

/// A part of a matrix behind `first_row` rows that another part holds.
WeightMatrix matrix_of(const WeightType& type, uint32_t first_row, uint32_t n_rows,
                       uint32_t n_cols) {
  const vk::BufferRange range{.size_bytes = resident_bytes(type, n_rows, n_cols)};
  return {.type = &type,
          .n_rows = first_row + n_rows,
          .n_cols = n_cols,
          .parts = {{.range = range, .first_row = first_row, .n_rows = n_rows}}};
}

/// As declared of a whole part: its weights, x and `copies` of y.
vk::Cost whole_cost(const LinearArgs& args, uint32_t copies) {
  const WeightMatrixPart& part = args.weights.parts[0];
  const uint64_t rows = args.rows;
  const uint64_t k = args.weights.n_cols;
  return {.bytes = part.range.size_bytes + rows * (k + uint64_t{copies} * part.n_rows) * 4,
          .flops = 2 * rows * k * part.n_rows};
}

vk::Cost sum_of(const std::vector<LinearShare>& shares) {
  vk::Cost sum;
  for (const LinearShare& share : shares) sum += share.cost;
  return sum;
}

TEST(LinearShares, AreOneWhereTheLimitHoldsTheCost) {
  const WeightMatrix matrix = matrix_of(weight_type("Q4_K"), 64, 300, 512);
  const LinearArgs args{.weights = matrix, .rows = 5};
  const vk::Cost whole = whole_cost(args, 2);
  const auto shares_of = [&](const vk::SegmentLimit& limit) {
    return linear_shares(args, matrix.parts[0], limit, 128, vk::Arithmetic::kInt8Dot, 2);
  };
  for (const vk::SegmentLimit& limit :
       {vk::SegmentLimit{}, vk::SegmentLimit{.bytes = whole.bytes, .flops = whole.flops}}) {
    const auto shares = shares_of(limit);
    ASSERT_EQ(shares.size(), 1u);
    EXPECT_EQ(shares[0].part.first_row, 64u);
    EXPECT_EQ(shares[0].part.n_rows, 300u);
    EXPECT_EQ(shares[0].part.range.size_bytes, matrix.parts[0].range.size_bytes);
    EXPECT_EQ(shares[0].cost.bytes, whole.bytes);
    EXPECT_EQ(shares[0].cost.flops, whole.flops);
    EXPECT_EQ(shares[0].cost.arithmetic, vk::Arithmetic::kInt8Dot);
  }
  EXPECT_GT(shares_of({.bytes = whole.bytes - 1}).size(), 1u);
  EXPECT_GT(shares_of({.flops = whole.flops - 1}).size(), 1u);
}

TEST(LinearShares, HaveNoMoreWorkgroupsThanEveryDeviceDispatches) {
  for (const uint32_t tile_cols : kTileCols) {
    const uint32_t n_rows = 65536 * tile_cols;
    const WeightMatrix matrix = matrix_of(weight_type("Q8_0"), 0, n_rows, 32);
    const auto shares =
        linear_shares({.weights = matrix, .rows = 1}, matrix.parts[0], {}, tile_cols);
    ASSERT_EQ(shares.size(), 2u);
    uint32_t next = 0;
    for (const LinearShare& share : shares) {
      EXPECT_EQ(share.part.first_row, next);
      EXPECT_LE((share.part.n_rows + tile_cols - 1) / tile_cols, 65535u);
      next += share.part.n_rows;
    }
    EXPECT_EQ(next, n_rows);
  }
}

TEST(Shares, HaveNoMoreWorkgroupsThanEveryDeviceDispatches) {
  EXPECT_EQ(Shares(65535, UINT32_MAX).size(), 1u);
  const Shares two(65536, UINT32_MAX);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1].first, two[0].n);
  EXPECT_EQ(two[0].n + two[1].n, 65536u);
}

TEST(LinearShares, AreOneGranuleEachWhereNothingFits) {
  const WeightMatrix matrix = matrix_of(weight_type("Q8_0"), 0, 300, 64);
  const LinearArgs args{.weights = matrix, .rows = 9};
  EXPECT_EQ(linear_shares(args, matrix.parts[0], {.bytes = 0}, 32).size(), 10u);
  EXPECT_EQ(linear_shares(args, matrix.parts[0], {.flops = 0}, 128).size(), 3u);
  EXPECT_EQ(linear_shares(args, matrix.parts[0], {.bytes = 1}, 16).size(), 10u)
      << "rows of weights are interleaved by 32";
  EXPECT_EQ(linear_shares(args, matrix.parts[0], {.bytes = 1}, 512).size(), 1u);
}

TEST(LinearShares, CoverEveryOutputOnceWithinTheLimitInGranulesAsFewAndAsEqualAsTheyCan) {
  std::mt19937 engine(1);
  const char* kTypes[] = {"F32", "F16", "Q4_0", "Q4_K", "Q6_K", "Q8_0"};
  for (int round = 0; round < 2000; ++round) {
    const WeightType& type = weight_type(kTypes[engine() % 6]);
    const uint32_t n_cols = 256 * (1 + engine() % 4);
    const WeightMatrix matrix =
        matrix_of(type, engine() % 3 * kRowGroup, 1 + engine() % 3000, n_cols);
    const WeightMatrixPart& part = matrix.parts[0];
    const LinearArgs args{.weights = matrix, .rows = 1 + static_cast<uint32_t>(engine() % 70)};
    const uint32_t copies = 1 << engine() % 4;
    const uint32_t tile_cols = kTileCols[engine() % 6];
    const vk::Cost whole = whole_cost(args, copies);
    vk::SegmentLimit limit;
    if (round % 3 != 0) limit.bytes = engine() % (whole.bytes + 1);
    if (round % 3 != 1) limit.flops = engine() % (whole.flops + 1);
    const auto shares = linear_shares(args, part, limit, tile_cols, vk::Arithmetic::kF32, copies);

    const uint32_t granule = std::lcm(tile_cols, uint32_t{kRowGroup});
    uint32_t next_row = part.first_row;
    uint64_t next_byte = 0;
    uint32_t fewest = part.n_rows, most = 0;  // granules of a share
    for (const LinearShare& share : shares) {
      EXPECT_EQ(share.part.first_row, next_row);
      EXPECT_EQ((share.part.first_row - part.first_row) % granule, 0u);
      EXPECT_EQ(share.part.range.offset, next_byte);
      EXPECT_EQ(share.part.range.size_bytes, resident_bytes(type, share.part.n_rows, n_cols));
      EXPECT_TRUE(limit.holds(share.cost) || share.part.n_rows <= granule);
      const uint32_t granules = (share.part.n_rows + granule - 1) / granule;
      fewest = std::min(fewest, granules);
      most = std::max(most, granules);
      next_row += share.part.n_rows;
      next_byte += share.part.range.size_bytes;
    }
    EXPECT_EQ(next_row, part.first_row + part.n_rows);
    EXPECT_EQ(next_byte, part.range.size_bytes);
    EXPECT_LE(most - fewest, 1u);
    EXPECT_EQ(sum_of(shares).bytes, whole.bytes);
    EXPECT_EQ(sum_of(shares).flops, whole.flops);
    if (limit.bytes == vk::SegmentLimit::kNone && shares.size() > 1) {
      const uint64_t granule_flops = 2ull * args.rows * n_cols * granule;
      EXPECT_LT((shares.size() - 1) * (limit.flops / granule_flops * granule), part.n_rows)
          << "one share less would do";
    }
    if (HasFailure()) return;
  }
}

TEST(RowShares, AreTheMostThatTheLimitHolds) {
  std::mt19937 random(5);
  for (int i = 0; i < 10000; ++i) {
    const uint32_t rows = 1 + random() % (i % 2 == 0 ? 8 : 65535);
    const vk::Cost row{.bytes = random() % 1000, .flops = random() % 1000};
    const uint64_t once = random() % 5000;  // weights that every share reads
    const auto cost_of = [&](uint64_t n) {
      return vk::Cost{.bytes = once + n * row.bytes, .flops = n * row.flops};
    };
    vk::SegmentLimit limit;
    if (random() % 2 == 0) limit.bytes = random() % (rows * 1000ull + 6000);
    if (random() % 2 == 0) limit.flops = random() % (rows * 1000ull + 1000);
    const uint32_t most = rows_within(limit, rows, cost_of);
    ASSERT_TRUE(most >= 1 && most <= rows);
    EXPECT_TRUE(most == 1 || limit.holds(cost_of(most)));
    EXPECT_TRUE(most == rows || !limit.holds(cost_of(most + 1)));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace pumice::ops
