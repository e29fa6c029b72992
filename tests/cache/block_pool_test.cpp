#include "cache/block_pool.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace pumice {
namespace {

TEST(BlockPool, HandsOutEachBlockOnceAndTakesAllBack) {
  BlockPool pool(5);
  std::vector<BlockId> blocks;
  ASSERT_TRUE(pool.acquire(5, blocks).ok());
  EXPECT_EQ(std::set<BlockId>(blocks.begin(), blocks.end()).size(), 5u);
  pool.release(blocks);
  EXPECT_EQ(pool.n_free(), 5u);
  EXPECT_TRUE(pool.check_integrity().ok());
}

TEST(BlockPool, TooManyBlocksIsAnErrorThatTakesNothing) {
  BlockPool pool(3);
  std::vector<BlockId> blocks;
  const Status status = pool.acquire(4, blocks);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kDoesNotFit);
  EXPECT_TRUE(blocks.empty());
  EXPECT_EQ(pool.n_free(), 3u);
}

TEST(BlockPool, ASharedBlockIsFreeOnlyWhenBothOwnersAreGone) {
  BlockPool pool(2);
  std::vector<BlockId> blocks;
  ASSERT_TRUE(pool.acquire(1, blocks).ok());
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
      const uint32_t free_before = pool.n_free();
      const uint32_t count = random() % 9;
      EXPECT_EQ(pool.acquire(count, owner).ok(), count <= free_before);
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
