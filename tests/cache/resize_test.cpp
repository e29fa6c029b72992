// A cache that gets fewer blocks, and more again.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cache/fake_device.hpp"

namespace pumice {
namespace {

constexpr uint32_t kBlockTokens = 4;
constexpr uint64_t kBlockBytes = 8 * kBlockTokens;

KvCacheOptions options(uint32_t n_blocks, uint64_t host_blocks = 0) {
  return {.n_pages = n_blocks,
          .block_tokens = kBlockTokens,
          .page_bytes = kBlockBytes,
          .host_bytes = host_blocks * kBlockBytes};
}

struct ResizedRig : CacheRig {
  using CacheRig::CacheRig;

  bool resize(uint32_t n_blocks, size_t most = 100) {
    const bool resized = device.resize(n_blocks, most, [] { return true; });
    const Status whole = cache.check_integrity();
    EXPECT_TRUE(whole.ok()) << whole.error().message;
    return resized;
  }
  /// A sequence that stays.
  SequenceId hold(const std::vector<uint32_t>& tokens) {
    const SequenceId id = begin(tokens);
    EXPECT_TRUE(device.transfer().empty());
    device.compute(id, tokens, {}, static_cast<uint32_t>(tokens.size()));
    return id;
  }
};

TEST(CacheResize, WhatWasUsedLastStaysAndLiesInTheBlocksThatAreLeft) {
  ResizedRig rig(options(16));
  rig.run(counting(20));
  rig.run(counting(20, 100));
  rig.run(counting(20, 200));
  ASSERT_TRUE(rig.resize(8));
  EXPECT_EQ(rig.cache.n_pages(), 8u);
  EXPECT_EQ(rig.cache.n_free_pages(), 8u);
  EXPECT_EQ(rig.cached(counting(20, 200)), 19u);
  EXPECT_EQ(rig.cached(counting(20, 100)), 12u) << "three of its five blocks, from the beginning";
  EXPECT_EQ(rig.look_up(counting(20)).miss, MissReason::kEvicted);
  EXPECT_EQ(rig.run(counting(20, 200)).cached_tokens, 19u) << "and it is that content";
}

TEST(CacheResize, ASequenceGoesOnInOtherBlocks) {
  ResizedRig rig(options(16));
  rig.run(counting(40, 500));  // the first blocks are another's, which goes
  const std::vector<uint32_t> tokens = counting(22);
  const SequenceId id = rig.hold(tokens);
  HashedPrompt same = rig.cache.hash_prompt(tokens);
  const SequenceId sharing = *rig.cache.begin(same, same.n_tokens);
  EXPECT_TRUE(rig.device.transfer().empty());
  ASSERT_TRUE(rig.resize(8, 2));
  EXPECT_EQ(rig.device.wrong_positions(id, tokens, {}), 0u);
  EXPECT_EQ(rig.device.wrong_positions(sharing, tokens, {}), 0u);
  for (const PageId block : rig.cache.blocks(id)) EXPECT_LT(block, 8u);
  rig.cache.release(id);
  rig.cache.release(sharing);
  EXPECT_EQ(rig.cached(tokens), 21u);
  EXPECT_EQ(rig.cache.n_free_pages(), 8u);
}

TEST(CacheResize, NothingChangesWhileMoreBlocksAreInUse) {
  ResizedRig rig(options(16));
  rig.run(counting(20, 500));
  const SequenceId id = rig.hold(counting(33));
  EXPECT_FALSE(rig.resize(8));
  EXPECT_EQ(rig.cache.n_pages(), 16u);
  EXPECT_EQ(rig.cached(counting(20, 500)), 19u);
  EXPECT_TRUE(rig.resize(9));
  EXPECT_EQ(rig.device.wrong_positions(id, counting(33), {}), 0u);
}

TEST(CacheResize, WhatIsGivenUpGoesToHostMemory) {
  ResizedRig rig(options(16, 20));
  rig.run(counting(20));
  rig.run(counting(20, 100));
  rig.run(counting(20, 200));
  ASSERT_TRUE(rig.resize(5));
  EXPECT_EQ(rig.cached(counting(20, 200)), 19u);
  EXPECT_EQ(rig.look_up(counting(20)).host_tokens, 19u);
  EXPECT_EQ(rig.run(counting(20)).host_tokens, 19u);
}

TEST(CacheResize, BlocksThatCameBackAreUsedAndEmpty) {
  ResizedRig rig(options(16));
  rig.run(counting(60));
  ASSERT_TRUE(rig.resize(4));
  EXPECT_EQ(rig.cached(counting(60)), 16u);
  ASSERT_TRUE(rig.resize(16));
  EXPECT_EQ(rig.cache.n_free_pages(), 16u);
  EXPECT_EQ(rig.cached(counting(60)), 16u) << "what was left is not given up for new blocks";
  rig.run(counting(60));
  EXPECT_EQ(rig.cached(counting(60)), 59u);
}

TEST(CacheResize, MovesThatFailedOrWhoseOwnerEndedMoveNothing) {
  ResizedRig rig(options(16));
  rig.run(counting(40, 500));
  const std::vector<uint32_t> tokens = counting(14);
  const SequenceId id = rig.hold(tokens);
  ASSERT_TRUE(rig.cache.give_up(4));
  ASSERT_TRUE(rig.device.transfer().empty());
  ASSERT_EQ(rig.cache.take_moves(4, 100).size(), 4u);
  EXPECT_WHOLE(rig.cache);
  rig.cache.finish_moves(false);
  EXPECT_WHOLE(rig.cache);
  EXPECT_EQ(rig.device.wrong_positions(id, tokens, {}), 0u);
  EXPECT_FALSE(rig.cache.resize(4));
  ASSERT_EQ(rig.cache.take_moves(4, 2).size(), 2u);
  rig.cache.release(id);  // its blocks stay findable, and what is taken moves
  rig.cache.forget_device();
  EXPECT_WHOLE(rig.cache);
  EXPECT_TRUE(rig.cache.resize(4));
  EXPECT_EQ(rig.cache.n_free_pages(), 4u);
}

}  // namespace
}  // namespace pumice
