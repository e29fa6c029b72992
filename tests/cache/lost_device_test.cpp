// The device's memory is gone: what of the cache is left.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cache/fake_device.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

constexpr uint32_t kBlockTokens = 4;
constexpr uint64_t kBlockBytes = 8 * kBlockTokens;

KvCacheOptions options(uint32_t n_blocks, uint64_t host_blocks) {
  return {.n_pages = n_blocks,
          .block_tokens = kBlockTokens,
          .page_bytes = kBlockBytes,
          .host_bytes = host_blocks * kBlockBytes};
}

struct LostRig : CacheRig {
  using CacheRig::CacheRig;

  void lose() {
    cache.forget_device();
    device.lose();
    EXPECT_WHOLE(cache);
  }
};

TEST(LostDevice, TakesWhatWasNowhereElse) {
  LostRig rig(options(16, 0));
  rig.run(counting(30));
  rig.lose();
  EXPECT_EQ(rig.cache.n_free_pages(), 16u);
  EXPECT_EQ(rig.cache.ledger().device_cached_bytes, 0u);
  EXPECT_EQ(rig.look_up(counting(30)).cached_tokens, 0u);
  EXPECT_EQ(rig.look_up(counting(30)).miss, MissReason::kEvicted);
  EXPECT_EQ(rig.run(counting(30)).cached_tokens, 0u);
  EXPECT_EQ(rig.run(counting(30)).cached_tokens, 29u) << "the cache goes on";
}

TEST(LostDevice, LeavesWhatHostMemoryHasAlsoWhereTheDeviceHadACopy) {
  LostRig rig(options(6, 12));
  rig.run(counting(20));
  rig.run(counting(24, 100));  // evicts the first to host memory
  rig.run(counting(20));       // which is on the device again now, and evicts the second
  rig.lose();
  const CacheReport report = rig.run(counting(20));
  EXPECT_EQ(report.cached_tokens, 19u);
  EXPECT_EQ(report.host_tokens, 19u);
}

TEST(LostDevice, LeavesWhatThePromptCacheFileHas) {
  const test::TemporaryFolder folder;
  LostRig rig(options(6, 0));
  ASSERT_TRUE(rig.cache.open_prompt_cache(folder.path() / "file", 100 * kBlockBytes).ok());
  rig.run(counting(20));
  rig.run(counting(24, 100));
  rig.lose();
  const CacheReport report = rig.run(counting(20));
  EXPECT_EQ(report.cached_tokens, 19u);
  EXPECT_EQ(report.file_tokens, 19u);
}

TEST(LostDevice, LosesSavesThatWereNotReportedDone) {
  for (const bool taken : {false, true}) {
    LostRig rig(options(6, 12));
    rig.run(counting(20));
    const SequenceId id = rig.begin(counting(24, 100));  // evicts all of it
    if (taken) {
      EXPECT_EQ(rig.cache.take_transfers().saves.size(), 5u);
    }
    rig.cache.release(id);
    rig.lose();
    EXPECT_EQ(rig.look_up(counting(20)).cached_tokens, 0u);
    EXPECT_TRUE(rig.cache.take_transfers().empty());
  }
}

TEST(LostDevice, IsNoneOfTheCachesBusinessWhileSequencesLive) {
  LostRig rig(options(6, 0));
  const SequenceId id = rig.begin(counting(8));
  EXPECT_THROW(rig.cache.forget_device(), CheckFailure);
  rig.cache.release(id);
  rig.lose();
}

}  // namespace
}  // namespace pumice
