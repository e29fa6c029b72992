#include "cache/page_pool.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace pumice {
namespace {

TEST(PagePool, HandsOutEachBlockOnceAndTakesAllBack) {
  PagePool pool(5);
  std::vector<PageId> pages;
  while (pool.can_take(1)) pages.push_back(pool.take());
  EXPECT_EQ(std::set<PageId>(pages.begin(), pages.end()).size(), 5u);
  pool.release(pages);
  EXPECT_EQ(pool.n_free(), 5u);
  EXPECT_TRUE(pool.check_integrity().ok());
}

TEST(PagePool, ASharedBlockIsFreeOnlyWhenBothOwnersAreGone) {
  PagePool pool(2);
  const std::vector<PageId> pages = {pool.take()};
  pool.share(pages[0]);
  pool.release(pages);
  EXPECT_EQ(pool.n_free(), 1u);
  pool.release(pages);
  EXPECT_EQ(pool.n_free(), 2u);
  EXPECT_THROW(pool.release(pages), CheckFailure);
  EXPECT_THROW(pool.share(pages[0]), CheckFailure);
}

TEST(PagePool, StaysWholeThroughRandomUse) {
  PagePool pool(40);
  std::mt19937 random(7);
  std::vector<std::vector<PageId>> owners(8);
  for (int step = 0; step < 5000; ++step) {
    std::vector<PageId>& owner = owners[random() % owners.size()];
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
