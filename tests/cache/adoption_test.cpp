// Prefixes that are taken out of one cache and brought to another, or back: every kind, every
// length, wherever their pages are.
#include <gtest/gtest.h>

#include "tests/cache/fake_device.hpp"

namespace pumice {
namespace {

constexpr uint32_t kBlockTokens = 4;
constexpr uint64_t kBlockBytes = 8 * kBlockTokens;

KvCacheOptions options(uint32_t n_blocks, std::vector<PageKind> kinds = {}) {
  return {.n_pages = n_blocks,
          .block_tokens = kBlockTokens,
          .kinds = std::move(kinds),
          .page_bytes = kBlockBytes};
}

struct Taken {
  uint32_t n_tokens = 0;
  std::vector<std::byte> bytes;
};

Taken take(CacheRig& rig, const std::vector<uint32_t>& tokens, std::string_view salt = {}) {
  const KvCache::CachedPrefix prefix = rig.cache.cached_prefix(rig.cache.hash_prompt(tokens, salt));
  Taken taken{.n_tokens = prefix.n_tokens, .bytes = {}};
  taken.bytes.resize(prefix.pages.size() * kBlockBytes);
  const Status read = read_prefix(rig.cache, prefix, rig.device, taken.bytes);
  EXPECT_TRUE(read.ok()) << read.error().message;
  return taken;
}

Status bring(CacheRig& rig, const std::vector<uint32_t>& tokens, const Taken& taken,
             std::string_view salt = {}) {
  const Status brought = adopt_prefix(rig.cache, rig.cache.hash_prompt(tokens, salt),
                                      taken.n_tokens, taken.bytes, rig.device);
  const Status whole = rig.cache.check_integrity();
  EXPECT_TRUE(whole.ok()) << whole.error().message;
  return brought;
}

struct Groups {
  const char* name;
  std::vector<PageKind> kinds;
};
class Adoption : public testing::TestWithParam<Groups> {};

TEST_P(Adoption, EveryLengthGoesOnInAnotherCacheAsItWould) {
  for (uint32_t n = 1; n <= 4 * kBlockTokens + 1; ++n) {
    CacheRig from(options(64, GetParam().kinds));
    const std::vector<uint32_t> tokens = counting(n);
    from.run(tokens);
    const std::vector<uint32_t> longer = counting(n + 3);
    const Taken taken = take(from, longer);
    ASSERT_EQ(taken.n_tokens, from.cached(longer));
    ASSERT_EQ(taken.n_tokens, n);

    CacheRig to(options(64, GetParam().kinds));
    const Status brought = bring(to, longer, taken);
    ASSERT_TRUE(brought.ok()) << brought.error().message;
    EXPECT_EQ(to.cached(longer), n);
    // `run` compares what every position holds.
    EXPECT_EQ(to.run(longer).cached_tokens, n);
    EXPECT_EQ(to.cache.n_free_pages(), 64u);
  }
}

TEST_P(Adoption, WhatIsThereAlreadyIsNotTakenTwice) {
  CacheRig rig(options(64, GetParam().kinds));
  rig.run(counting(14));
  const Taken taken = take(rig, counting(15));
  const uint64_t before = rig.cache.ledger().device_cached_bytes;
  ASSERT_TRUE(bring(rig, counting(15), taken).ok());
  EXPECT_EQ(rig.cache.ledger().device_cached_bytes, before);
}

TEST_P(Adoption, ThatFailsLeavesNothingToFind) {
  CacheRig from(options(64, GetParam().kinds));
  from.run(counting(14));
  const Taken taken = take(from, counting(15));
  CacheRig to(options(64, GetParam().kinds));
  to.device.broken = true;
  EXPECT_FALSE(bring(to, counting(15), taken).ok());
  EXPECT_EQ(to.cached(counting(15)), 0u);
  EXPECT_EQ(to.cache.ledger().device_cached_bytes, 0u);
  EXPECT_EQ(to.cache.n_free_pages(), 64u);
  to.device.broken = false;
  EXPECT_EQ(to.run(counting(15)).cached_tokens, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Groups, Adoption,
    testing::Values(Groups{"full", {}}, Groups{"window", {{"w", StateForm::kWindow, 6}}},
                    Groups{"both", {{"kv", StateForm::kFull, 0}, {"w", StateForm::kWindow, 5}}},
                    Groups{"recurrent",
                           {{"kv", StateForm::kFull, 0}, {"s", StateForm::kRecurrent, 0}}}),
    [](const auto& tested) { return tested.param.name; });

TEST(Adoptions, AreKeptApartBySalt) {
  CacheRig from(options(16));
  from.run(counting(10), "a");
  EXPECT_EQ(take(from, counting(11)).n_tokens, 0u);
  const Taken taken = take(from, counting(11), "a");
  CacheRig to(options(16));
  ASSERT_TRUE(bring(to, counting(11), taken, "a").ok());
  EXPECT_EQ(to.cached(counting(11)), 0u);
  EXPECT_EQ(to.cached(counting(11), "a"), 10u);
}

TEST(Adoptions, GiveUpWhatIsCachedButNotWhatTheyBeginWith) {
  CacheRig from(options(16));
  from.run(counting(20));
  const Taken taken = take(from, counting(21));
  KvCacheOptions few = options(6);
  few.host_bytes = 8 * kBlockBytes;
  CacheRig to(few);
  to.run(counting(8));        // two blocks of it, used least recently
  to.run(counting(16, 100));  // the other four
  ASSERT_TRUE(bring(to, counting(21), taken).ok());
  EXPECT_EQ(to.cached(counting(21)), 20u);
  EXPECT_EQ(to.run(counting(21)).cached_tokens, 20u);
  // What made room went to host memory first, with its bytes.
  const CacheReport other = to.run(counting(16, 100));
  EXPECT_EQ(other.cached_tokens, 15u);
  EXPECT_GT(other.host_tokens, 0u);
}

TEST(Adoptions, AreRefusedWhereBlocksAreInUse) {
  CacheRig from(options(16));
  from.run(counting(20));
  const Taken taken = take(from, counting(21));
  CacheRig to(options(6));
  HashedPrompt prompt = to.cache.hash_prompt(counting(8, 100));
  const SequenceId running = *to.cache.begin(prompt, 8);
  const Status brought = bring(to, counting(21), taken);
  ASSERT_FALSE(brought.ok());
  EXPECT_EQ(brought.error().code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(to.cached(counting(21)), 0u);
  EXPECT_EQ(to.cache.n_free_pages(), 4u);
  to.cache.release(running);
  EXPECT_TRUE(bring(to, counting(21), taken).ok());
}

TEST(Adoptions, ComeFromHostMemoryToo) {
  KvCacheOptions few = options(6);
  few.host_bytes = 8 * kBlockBytes;
  CacheRig from(few);
  from.run(counting(18));
  from.run(counting(24, 100));  // evicts all of it
  const Taken taken = take(from, counting(19));
  ASSERT_EQ(taken.n_tokens, 18u);
  CacheRig to(options(16));
  ASSERT_TRUE(bring(to, counting(19), taken).ok());
  EXPECT_EQ(to.run(counting(19)).cached_tokens, 18u);
  // Brought where host memory has it, it stays there.
  ASSERT_TRUE(bring(from, counting(19), taken).ok());
  EXPECT_EQ(from.run(counting(19)).host_tokens, 18u);
}

TEST(Adoptions, OfASequenceThatStillRunsAreItsFullBlocks) {
  CacheRig rig(options(16));
  const std::vector<uint32_t> tokens = counting(11);
  const SequenceId running = rig.begin(tokens);
  rig.device.compute(running, tokens, {}, 10);
  const Taken taken = take(rig, tokens);
  EXPECT_EQ(taken.n_tokens, 8u);
  CacheRig to(options(16));
  ASSERT_TRUE(bring(to, tokens, taken).ok());
  EXPECT_EQ(to.run(tokens).cached_tokens, 8u);
  rig.cache.release(running);
}

TEST(Adoptions, AreNoneWhereNothingIsFoundAgain) {
  KvCacheOptions blind = options(16);
  blind.reuse = false;
  CacheRig rig(blind);
  rig.run(counting(10));
  EXPECT_EQ(take(rig, counting(11)).n_tokens, 0u);
  const Status brought = bring(rig, counting(11), {.n_tokens = 0, .bytes = {}});
  ASSERT_FALSE(brought.ok());
  EXPECT_EQ(brought.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pumice
