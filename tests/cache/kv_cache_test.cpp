#include "cache/kv_cache.hpp"

#include <gtest/gtest.h>

#include <random>

#include "tests/cache/fake_device.hpp"

namespace pumice {
namespace {

/// One cache of small blocks and the device it is about.
struct KvCacheRig {
  KvCache cache;
  FakeDevice device{cache};

  explicit KvCacheRig(KvCacheOptions options) : cache(options) {}

  /// Begin, compute everything and leave it running.
  SequenceId run(const std::vector<uint32_t>& tokens, std::string_view salt = {}) {
    HashedPrompt prompt = cache.hash_prompt(tokens, salt);
    const SequenceId id = *cache.begin(prompt, prompt.n_tokens);
    EXPECT_TRUE(device.transfer().empty());
    device.compute(id, tokens, salt, static_cast<uint32_t>(tokens.size()));
    EXPECT_EQ(device.wrong_positions(id, tokens, salt), 0u);
    EXPECT_EQ(cache.check_integrity().ok(), true);
    return id;
  }
  void run_and_release(const std::vector<uint32_t>& tokens, std::string_view salt = {}) {
    cache.release(run(tokens, salt));
  }
  CacheReport look_up(const std::vector<uint32_t>& tokens, std::string_view salt = {}) const {
    return cache.look_up(cache.hash_prompt(tokens, salt));
  }
};

TEST(KvCache, ARepeatedPromptComputesOnlyItsLastTokenWhateverItsLength) {
  for (uint32_t n = 1; n <= 13; ++n) {
    KvCacheRig rig({.n_pages = 16, .block_tokens = 4});
    rig.run_and_release(counting(n));
    const CacheReport report = rig.look_up(counting(n));
    EXPECT_EQ(report.cached_tokens, n - 1);
    EXPECT_EQ(report.shared_tokens, (n - 1) / 4 * 4);
    EXPECT_EQ(report.copied_tokens, (n - 1) % 4);
    EXPECT_EQ(report.miss, MissReason::kNone);
    rig.run_and_release(counting(n));
  }
}

TEST(KvCache, ABlockIsSharedOnlyOnceTheStepThatWroteItCommits) {
  KvCacheRig rig({.n_pages = 16, .block_tokens = 4});
  HashedPrompt prompt = rig.cache.hash_prompt(counting(9));
  const SequenceId id = *rig.cache.begin(prompt, 9);
  EXPECT_EQ(rig.look_up(counting(9)).cached_tokens, 0u);
  rig.device.compute(id, counting(9), "", 7);
  EXPECT_EQ(rig.look_up(counting(9)).cached_tokens, 4u);  // not the three tokens after it
  rig.device.compute(id, counting(9), "", 9);
  EXPECT_EQ(rig.look_up(counting(9)).cached_tokens, 8u);
  HashedPrompt again = rig.cache.hash_prompt(counting(9));
  const SequenceId other = *rig.cache.begin(again, 9);
  EXPECT_EQ(rig.cache.blocks(other)[0], rig.cache.blocks(id)[0]);
  EXPECT_EQ(rig.cache.blocks(other)[1], rig.cache.blocks(id)[1]);
  EXPECT_NE(rig.cache.blocks(other)[2], rig.cache.blocks(id)[2]);
}

TEST(KvCache, ATailIsCopiedFromTheChildWithTheLongestCommonPrefixAndNeverShared) {
  KvCacheRig rig({.n_pages = 32, .block_tokens = 4});
  rig.run_and_release(joined(counting(4), {50, 51, 90, 90, 1}));
  rig.run_and_release(joined(counting(4), {50, 51, 52, 91, 1}));
  rig.run_and_release(joined(counting(4), {50, 90}));
  HashedPrompt prompt = rig.cache.hash_prompt(joined(counting(4), {50, 51, 52, 53, 54}));
  const SequenceId id = *rig.cache.begin(prompt, 9);
  EXPECT_EQ(rig.cache.report(id).cached_tokens, 7u);
  const Transfers transfers = rig.cache.take_transfers();
  ASSERT_EQ(transfers.copies.size(), 1u);
  EXPECT_EQ(transfers.copies[0].n_tokens, 3u);
  EXPECT_EQ(transfers.copies[0].target, rig.cache.blocks(id)[1]);
  EXPECT_NE(transfers.copies[0].source, transfers.copies[0].target);
  EXPECT_EQ(rig.cache.pool().references(transfers.copies[0].target), 1u);
  EXPECT_TRUE(rig.cache.finish_transfers(transfers.batch).empty());
  EXPECT_WHOLE(rig.cache);
}

TEST(KvCache, TheNextTurnOfAConversationReusesAllOfTheLastOne) {
  KvCacheRig rig({.n_pages = 32, .block_tokens = 4});
  std::vector<uint32_t> tokens = counting(6);
  const SequenceId id = rig.run(tokens);
  for (const uint32_t sampled : {70u, 71u, 72u, 73u, 74u}) {
    rig.cache.append(id, {&sampled, 1});
    tokens.push_back(sampled);
    if (sampled == 74) break;  // sampled last, never computed
    ASSERT_TRUE(rig.cache.reserve(id, static_cast<uint32_t>(tokens.size())).ok());
    rig.device.compute(id, tokens, "", static_cast<uint32_t>(tokens.size()));
  }
  rig.cache.release(id);
  tokens = joined(tokens, {80, 81, 82, 83, 84, 85});
  const CacheReport report = rig.look_up(tokens);
  EXPECT_EQ(report.cached_tokens, 10u);
  EXPECT_EQ(report.shared_tokens, 8u);
  EXPECT_EQ(report.miss, MissReason::kNoMatch);
  rig.run_and_release(tokens);
}

TEST(KvCache, TailsAreEvictedFirstAndLeastRecentlyUsedPrefixesBeforeOthers) {
  KvCacheRig rig({.n_pages = 8, .block_tokens = 4});
  rig.run_and_release(counting(16, 100));
  rig.run_and_release(counting(16, 200));
  EXPECT_EQ(rig.look_up(counting(17, 100)).cached_tokens, 16u);
  rig.run_and_release(counting(8, 300));  // takes the two tail blocks of the older prompt
  EXPECT_EQ(rig.look_up(counting(17, 100)).cached_tokens, 8u);
  EXPECT_EQ(rig.look_up(counting(17, 100)).miss, MissReason::kEvicted);
  EXPECT_EQ(rig.look_up(counting(17, 200)).cached_tokens, 16u);
}

TEST(KvCache, BlocksWithoutContentAreReusedBeforeAnyCachedOne) {
  KvCacheRig rig({.n_pages = 8, .block_tokens = 4});
  rig.run_and_release(counting(16));
  HashedPrompt prompt = rig.cache.hash_prompt(counting(16, 500));
  rig.cache.release(*rig.cache.begin(prompt, 16));  // cancelled before it computed anything
  EXPECT_EQ(rig.cache.stats().evicted_blocks, 0u);
  rig.run_and_release(counting(16, 600));
  EXPECT_EQ(rig.cache.stats().evicted_blocks, 0u);
  EXPECT_EQ(rig.look_up(counting(17)).cached_tokens, 16u);
}

TEST(KvCache, AHitTakesItsBlocksOutOfTheFreeList) {
  KvCacheRig rig({.n_pages = 8, .block_tokens = 4});
  rig.run_and_release(counting(12));
  EXPECT_EQ(rig.cache.n_free_pages(), 8u);
  HashedPrompt prompt = rig.cache.hash_prompt(counting(13));
  ASSERT_TRUE(rig.cache.begin(prompt, 13).ok());
  EXPECT_EQ(rig.cache.n_free_pages(), 4u);
}

TEST(KvCache, SaysWhyTheRestOfAPromptMustBeComputed) {
  KvCacheRig rig({.n_pages = 16, .block_tokens = 4, .model = {1, 2}});
  EXPECT_EQ(rig.look_up(counting(9)).miss, MissReason::kNoMatch);
  rig.run_and_release(counting(9), "alice");
  EXPECT_EQ(rig.look_up(counting(9), "alice").miss, MissReason::kNone);
  EXPECT_EQ(rig.look_up(counting(9), "bob").miss, MissReason::kSalt);
  EXPECT_EQ(rig.look_up(counting(9), "bob").cached_tokens, 0u);
  const CacheReport adapted =
      rig.cache.look_up(rig.cache.hash_prompt(counting(9), "alice", {3, 4}));
  EXPECT_EQ(adapted.miss, MissReason::kModel);
  EXPECT_EQ(adapted.cached_tokens, 0u);
  const CacheReport tail = rig.look_up(joined(counting(8), {90, 91, 92}), "alice");
  EXPECT_EQ(tail.cached_tokens, 8u);
  EXPECT_EQ(tail.miss, MissReason::kTail);
  for (uint32_t i = 0; i < 6; ++i) rig.run_and_release(counting(12, 100 * (i + 1)));
  EXPECT_EQ(rig.look_up(counting(9), "alice").miss, MissReason::kEvicted);
  EXPECT_EQ(miss_reason_name(MissReason::kEvicted), "evicted");
}

TEST(KvCache, ACollisionCostsTimeNeverTruth) {
  // One bit of hash: every second block collides with any other.
  KvCacheRig rig({.n_pages = 256, .block_tokens = 4, .hash_bits = 1});
  for (uint32_t i = 0; i < 12; ++i) {
    rig.run_and_release(joined(counting(4, i * 10), counting(9, 1000)));
  }
  for (uint32_t i = 0; i < 12; ++i) {
    // The same tokens after another first block are not the same block.
    EXPECT_EQ(rig.look_up(joined(counting(4, i * 10), counting(9, 1000))).cached_tokens, 12u);
    EXPECT_EQ(rig.look_up(joined(counting(4, i * 10 + 5), counting(9, 1000))).shared_tokens, 0u);
  }
}

TEST(KvCache, ACallThatFailsChangesNothing) {
  KvCacheRig rig({.n_pages = 6, .block_tokens = 4});
  rig.run_and_release(counting(12));
  const SequenceId id = rig.run(counting(8, 100));
  HashedPrompt prompt = rig.cache.hash_prompt(joined(counting(8), counting(12, 300)));
  const HashedPrompt before = prompt;
  const auto result = rig.cache.begin(prompt, 20);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(prompt.content, before.content);
  EXPECT_EQ(prompt.hashes, before.hashes);
  EXPECT_EQ(rig.cache.n_free_pages(), 4u);
  EXPECT_FALSE(rig.cache.reserve(id, 28).ok());
  EXPECT_EQ(rig.cache.blocks(id).size(), 2u);
  EXPECT_EQ(rig.look_up(counting(13)).cached_tokens, 12u);
  EXPECT_TRUE(rig.cache.take_transfers().empty());
  EXPECT_WHOLE(rig.cache);
}

TEST(KvCache, ATailThatDoesNotFitBesideItsSourceIsComputedInstead) {
  KvCacheRig rig({.n_pages = 3, .block_tokens = 4});
  rig.run_and_release(counting(12));
  HashedPrompt prompt = rig.cache.hash_prompt(counting(12));
  const SequenceId id = *rig.cache.begin(prompt, 12);  // the third block is needed for itself
  EXPECT_EQ(rig.cache.report(id).cached_tokens, 8u);
  EXPECT_TRUE(rig.cache.take_transfers().empty());
  rig.device.compute(id, counting(12), "", 12);
  EXPECT_EQ(rig.device.wrong_positions(id, counting(12), ""), 0u);
}

TEST(KvCache, AFailedStepGivesItsBlocksBackAndTheSequenceGoesOnAsCommitted) {
  KvCacheRig rig({.n_pages = 8, .block_tokens = 4});
  HashedPrompt prompt = rig.cache.hash_prompt(counting(20));
  const SequenceId id = *rig.cache.begin(prompt, 8);
  rig.device.compute(id, counting(20), "", 8);
  ASSERT_TRUE(rig.cache.reserve(id, 18).ok());
  EXPECT_EQ(rig.cache.n_free_pages(), 3u);
  rig.cache.shrink(id, 8);
  EXPECT_EQ(rig.cache.n_free_pages(), 6u);
  EXPECT_EQ(rig.cache.blocks(id).size(), 2u);
  EXPECT_EQ(rig.cache.computed_tokens(id), 8u);
  EXPECT_WHOLE(rig.cache);
}

TEST(KvCache, APreemptedSequenceComesBackThroughTheCacheWithoutHashingTwice) {
  KvCacheRig rig({.n_pages = 16, .block_tokens = 4});
  std::vector<uint32_t> tokens = counting(7);
  const SequenceId id = rig.run(tokens);
  const uint32_t sampled = 99;
  rig.cache.append(id, {&sampled, 1});
  tokens.push_back(sampled);
  ASSERT_TRUE(rig.cache.reserve(id, 8).ok());
  rig.device.compute(id, tokens, "", 8);
  HashedPrompt prompt = rig.cache.suspend(id);
  EXPECT_EQ(rig.cache.n_free_pages(), 16u);
  EXPECT_EQ(prompt.content, tokens);
  EXPECT_EQ(prompt.n_tokens, 8u);
  EXPECT_EQ(prompt.hashes, rig.cache.hash_prompt(tokens).hashes);
  const SequenceId again = *rig.cache.begin(prompt, 8);
  EXPECT_EQ(rig.cache.report(again).cached_tokens, 7u);
}

TEST(KvCache, EqualPromptsComputedAtOnceLeaveOneCopyAndStayFindable) {
  KvCacheRig rig({.n_pages = 8, .block_tokens = 4});
  HashedPrompt one = rig.cache.hash_prompt(counting(8));
  HashedPrompt two = rig.cache.hash_prompt(counting(8));
  const SequenceId first = *rig.cache.begin(one, 8);
  const SequenceId second = *rig.cache.begin(two, 8);
  rig.device.compute(first, counting(8), "", 8);
  rig.device.compute(second, counting(8), "", 8);
  EXPECT_NE(rig.cache.blocks(first)[0], rig.cache.blocks(second)[0]);  // tables are append-only
  rig.cache.release(first);
  EXPECT_EQ(rig.look_up(counting(9)).cached_tokens, 8u);
  rig.cache.release(second);
  EXPECT_EQ(rig.look_up(counting(9)).cached_tokens, 8u);
  uint32_t n_cached = 0;
  for (PageId block = 0; block < 8; ++block) n_cached += rig.cache.pool().cached(block) ? 1 : 0;
  EXPECT_EQ(n_cached, 2u);
  rig.run_and_release(counting(24, 100));  // takes every block but the two
  EXPECT_EQ(rig.look_up(counting(9)).cached_tokens, 8u);
}

TEST(KvCache, ACancelledSequenceFreesEverythingEvenWhileItsBytesAreMoved) {
  for (const bool taken : {false, true}) {
    KvCacheRig rig({.n_pages = 16, .block_tokens = 4});
    rig.run_and_release(counting(11));
    HashedPrompt prompt = rig.cache.hash_prompt(counting(11));
    const SequenceId id = *rig.cache.begin(prompt, 11);
    Transfers transfers;
    if (taken) {
      transfers = rig.cache.take_transfers();
      EXPECT_EQ(transfers.copies.size(), 1u);
    }
    rig.cache.release(id);
    EXPECT_EQ(rig.cache.n_free_pages(), 16u);
    EXPECT_WHOLE(rig.cache);
    if (!taken) transfers = rig.cache.take_transfers();
    EXPECT_TRUE(rig.cache.finish_transfers(transfers.batch).empty());
    EXPECT_WHOLE(rig.cache);
    rig.run_and_release(counting(11));
  }
}

TEST(KvCache, TenThousandSequencesEndedAtARandomMomentLeaveThePoolFull) {
  KvCacheRig rig({.n_pages = 64, .block_tokens = 4});
  std::mt19937 random(3);
  for (int i = 0; i < 10000; ++i) {
    const uint32_t n = 1 + random() % 60;
    const std::vector<uint32_t> tokens = counting(n, random() % 4);
    HashedPrompt prompt = rig.cache.hash_prompt(tokens);
    const SequenceId id = *rig.cache.begin(prompt, random() % (n + 1));
    const uint32_t moment = random() % 4;
    if (moment > 0) {
      EXPECT_TRUE(rig.device.transfer().empty());
    }
    if (moment > 1) {
      const uint32_t computed = rig.cache.computed_tokens(id);
      const uint32_t end = computed + random() % (n - computed + 1);
      ASSERT_TRUE(rig.cache.reserve(id, end).ok());
      EXPECT_TRUE(rig.device.transfer().empty());
      if (moment > 2) rig.device.compute(id, tokens, "", end);
    }
    rig.cache.release(id);
    ASSERT_EQ(rig.cache.n_free_pages(), 64u);
  }
  EXPECT_WHOLE(rig.cache);
}

TEST(KvCache, UnlimitedBlocksNeverEvict) {
  KvCacheRig rig({.n_pages = kUnlimitedPages, .block_tokens = 4});
  for (uint32_t i = 0; i < 200; ++i) rig.run_and_release(counting(12, i * 20));
  EXPECT_EQ(rig.cache.stats().evicted_blocks, 0u);
  for (uint32_t i = 0; i < 200; ++i) {
    EXPECT_EQ(rig.look_up(counting(13, i * 20)).cached_tokens, 12u);
  }
}

TEST(KvCache, BlocksCanBeGivenAsKeysInsteadOfTokens) {
  KvCache cache({.n_pages = 64, .block_tokens = 512, .keyed = true});
  const std::vector<uint64_t> keys = {7, uint64_t{1} << 40, 9};
  HashedPrompt prompt = cache.hash_keys(keys, 3 * 512 + 5);
  const SequenceId id = *cache.begin(prompt, 3 * 512 + 5);
  EXPECT_EQ(cache.blocks(id).size(), 4u);
  cache.commit(id, 3 * 512 + 5);
  EXPECT_EQ(cache.look_up(cache.hash_keys(keys, 3 * 512)).cached_tokens, 2u * 512);
  EXPECT_EQ(cache.look_up(cache.hash_keys(keys, 3 * 512 + 1)).cached_tokens, 3u * 512);
  const std::vector<uint64_t> others = {7, 1, 9};
  EXPECT_EQ(cache.look_up(cache.hash_keys(others, 1600)).cached_tokens, 512u);
  cache.release(id);
  EXPECT_WHOLE(cache);
}

TEST(KvCache, WithoutReuseNothingIsFoundAgain) {
  KvCacheRig rig({.n_pages = 16, .block_tokens = 4, .reuse = false});
  rig.run_and_release(counting(12));
  EXPECT_EQ(rig.look_up(counting(12)).cached_tokens, 0u);
  EXPECT_EQ(rig.cache.ledger().device_cached_bytes, 0u);
}

TEST(KvCache, MisuseIsCaught) {
  KvCacheRig rig({.n_pages = 8, .block_tokens = 4});
  EXPECT_THROW(rig.cache.release(0), CheckFailure);
  const SequenceId id = rig.run(counting(6));
  EXPECT_THROW(rig.cache.commit(id, 5), CheckFailure);
  EXPECT_THROW(rig.cache.commit(id, 9), CheckFailure);
  rig.cache.release(id);
  EXPECT_THROW(rig.cache.release(id), CheckFailure);
}

}  // namespace
}  // namespace pumice
