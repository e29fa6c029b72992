#include "cache/block_pool.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace pumice {
namespace {

TEST(BlockPool, HandsOutEachBlockOnceAndTakesAllBack) {
  BlockPool pool(5);
  std::vector<BlockId> blocks;
  while (pool.can_take(1)) blocks.push_back(pool.take());
  EXPECT_EQ(std::set<BlockId>(blocks.begin(), blocks.end()).size(), 5u);
  pool.release(blocks);
  EXPECT_EQ(pool.n_free(), 5u);
  EXPECT_TRUE(pool.check_integrity().ok());
}

TEST(BlockPool, ASharedBlockIsFreeOnlyWhenBothOwnersAreGone) {
  BlockPool pool(2);
  const std::vector<BlockId> blocks = {pool.take()};
  pool.share(blocks[0]);
  pool.release(blocks);
  EXPECT_EQ(pool.n_free(), 1u);
  pool.release(blocks);
  EXPECT_EQ(pool.n_free(), 2u);
  EXPECT_THROW(pool.release(blocks), CheckFailure);
  EXPECT_THROW(pool.share(blocks[0]), CheckFailure);
}

TEST(BlockPool, StaysWholeThroughRandomUse) {
  BlockPool pool(40);
  std::mt19937 random(7);
  std::vector<std::vector<BlockId>> owners(8);
  for (int step = 0; step < 5000; ++step) {
    std::vector<BlockId>& owner = owners[random() % owners.size()];
    if (random() % 2 != 0) {
      for (uint32_t n = random() % 9; n > 0 && pool.can_take(1); --n) owner.push_back(pool.take());
    } else {
      pool.release(owner);
      owner.clear();
    }
    ASSERT_TRUE(pool.check_integrity().ok());
  }
  for (const auto& owner : owners) pool.release(owner);
  EXPECT_EQ(pool.n_free(), 40u);
}

}  // namespace
}  // namespace pumice
