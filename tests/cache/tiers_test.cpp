// Blocks that leave the device and come back: host memory, and the prompt cache file with every
// kind of damage.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/cache/fake_device.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

constexpr uint32_t kBlockTokens = 4;
constexpr uint64_t kBlockBytes = 8 * kBlockTokens;

class Tiers : public testing::Test {
 protected:
  static KvCacheOptions options(uint32_t n_blocks, uint64_t host_blocks = 0) {
    return {.n_pages = n_blocks,
            .block_tokens = kBlockTokens,
            .model = {11, 22},
            .layout = 33,
            .page_bytes = kBlockBytes,
            .host_bytes = host_blocks * kBlockBytes};
  }
  std::filesystem::path path() const { return folder_.path() / "prompts.cache"; }

  std::string file_bytes() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void set_file_bytes(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
  }
  size_t n_files() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(folder_.path()), {}));
  }

  test::TemporaryFolder folder_;
};

constexpr uint64_t kMuch = kBlockBytes * 1000;

using Rig = CacheRig;

TEST_F(Tiers, AnEvictedPrefixComesBackFromHostMemory) {
  Rig rig(options(6, 8));
  rig.run(counting(18));
  rig.run(counting(24, 100));  // evicts all of it
  EXPECT_EQ(rig.cache.ledger().host_bytes, 5 * kBlockBytes);
  const CacheReport report = rig.run(counting(18));
  EXPECT_EQ(report.cached_tokens, 17u);
  EXPECT_EQ(report.host_tokens, 17u);
  EXPECT_EQ(rig.cache.stats().host_tokens, 17u);
  EXPECT_LE(rig.cache.ledger().host_bytes, rig.cache.ledger().host_limit_bytes);
}

TEST_F(Tiers, HostMemoryGivesUpTailsFirst) {
  Rig rig(options(4, 2));
  rig.run(counting(16));
  rig.run(counting(16, 100));
  EXPECT_EQ(rig.cached(counting(17)), 8u);
}

TEST_F(Tiers, AFailedSaveCostsTheBlockAndNothingElse) {
  Rig rig(options(4, 8));
  rig.run(counting(16));
  rig.device.broken = true;
  HashedPrompt prompt = rig.cache.hash_prompt(counting(8, 100));
  const SequenceId id = *rig.cache.begin(prompt, 8);
  EXPECT_TRUE(rig.device.transfer().empty());
  rig.device.broken = false;
  EXPECT_EQ(rig.cached(counting(17)), 8u);
  EXPECT_WHOLE(rig.cache);
  rig.cache.release(id);
}

TEST_F(Tiers, AFailedRestoreCostsTheSequenceItsContentAndNoOther) {
  Rig rig(options(4, 8));
  rig.run(counting(16));
  rig.run(counting(16, 100));
  HashedPrompt prompt = rig.cache.hash_prompt(counting(13));
  const SequenceId id = *rig.cache.begin(prompt, 13);
  rig.device.broken = true;
  EXPECT_EQ(rig.device.transfer(), std::vector<SequenceId>{id});
  rig.device.broken = false;
  EXPECT_THROW(rig.cache.commit(id, 13), CheckFailure);
  prompt = rig.cache.suspend(id);
  EXPECT_WHOLE(rig.cache);
  EXPECT_EQ(rig.cache.n_free_pages(), 4u);
  EXPECT_EQ(rig.run(counting(13)).cached_tokens, 12u);
}

TEST_F(Tiers, EvictedBlocksGoToTheFileWhereThereIsNoHostMemory) {
  Rig rig(options(6));
  ASSERT_TRUE(rig.cache.open_prompt_cache(path(), kMuch).ok());
  rig.run(counting(18));
  rig.run(counting(24, 100));
  const CacheReport report = rig.run(counting(18));
  EXPECT_EQ(report.cached_tokens, 17u);
  EXPECT_EQ(report.file_tokens, 17u);
  EXPECT_EQ(n_files(), 0u) << "evicted blocks leave no file behind";
}

TEST_F(Tiers, AnEvictedBlockDamagedOnDiskIsAnError) {
  const PromptCacheBinding binding{.block_tokens = kBlockTokens, .page_bytes = kBlockBytes};
  FileTier tier = *FileTier::open(path(), binding, kMuch);
  std::vector<std::byte> bytes(kBlockBytes, std::byte{7});
  for (const uint32_t slot : {0u, 1u, 2u}) ASSERT_TRUE(tier.write(slot, bytes).ok());
  // The file has no name any more; it is still reached through the process's descriptors.
  size_t n_damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (error || !target.starts_with(path().string())) continue;
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(kBlockBytes + 3).put(8);
    ++n_damaged;
  }
  ASSERT_EQ(n_damaged, 1u);
  EXPECT_TRUE(tier.read(0, bytes).ok());
  EXPECT_TRUE(tier.read(2, bytes).ok());
  const Status damaged = tier.read(1, bytes);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, ErrorCode::kBadFile);
}

TEST_F(Tiers, WhatCouldNotBeRestoredWasNotReused) {
  Rig rig(options(6, 8));
  rig.run(counting(18));
  rig.run(counting(24, 100));
  const CacheStats before = rig.cache.stats();
  HashedPrompt prompt = rig.cache.hash_prompt(counting(18));
  const SequenceId id = *rig.cache.begin(prompt);
  EXPECT_EQ(rig.cache.stats().cached_tokens, before.cached_tokens + 17);
  rig.device.broken = true;
  EXPECT_EQ(rig.device.transfer(), std::vector<SequenceId>{id});
  rig.cache.release(id);
  const CacheStats& after = rig.cache.stats();
  EXPECT_EQ(after.queries, before.queries);
  EXPECT_EQ(after.queried_tokens, before.queried_tokens);
  EXPECT_EQ(after.cached_tokens, before.cached_tokens);
  EXPECT_EQ(after.host_tokens, before.host_tokens);
  EXPECT_EQ(after.matched_blocks, before.matched_blocks);
}

TEST_F(Tiers, ALimitOfHostMemoryCostsNothingUntilItIsUsed) {
  Rig rig(options(6, uint64_t{1} << 31));  // two thousand million slots
  EXPECT_EQ(rig.cache.ledger().host_limit_bytes, kBlockBytes << 31);
  EXPECT_EQ(rig.cache.ledger().host_bytes, 0u);
  rig.run(counting(18));
  rig.run(counting(24, 100));
  EXPECT_EQ(rig.cache.ledger().host_bytes, 5 * kBlockBytes);
  EXPECT_EQ(rig.run(counting(18)).host_tokens, 17u);
}

TEST_F(Tiers, WhatHostMemoryGivesUpGoesToTheFile) {
  Rig rig(options(4, 2));
  ASSERT_TRUE(rig.cache.open_prompt_cache(path(), kMuch).ok());
  for (uint32_t i = 0; i < 6; ++i) rig.run(counting(16, 100 * i));
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(rig.run(counting(16, 100 * i)).cached_tokens, 15u) << i;
  }
  EXPECT_GT(rig.cache.stats().file_tokens, rig.cache.stats().host_tokens);
}

TEST_F(Tiers, APromptIsFoundInTheFileByTheNextProcess) {
  {
    Rig rig(options(16, 4));
    ASSERT_TRUE(rig.cache.open_prompt_cache(path(), kMuch).ok());
    rig.run(counting(18));
    rig.run(counting(40, 100));
    rig.run(counting(18, 500), "secret");
    ASSERT_TRUE(save_prompt_cache(rig.cache, rig.device).ok());
  }
  EXPECT_EQ(n_files(), 1u);
  Rig next(options(16));
  ASSERT_TRUE(next.cache.open_prompt_cache(path(), kMuch).ok());
  EXPECT_WHOLE(next.cache);
  EXPECT_EQ(next.cached(counting(18, 500), "secret"), 0u) << "salted prompts are not written";
  EXPECT_EQ(next.cached(counting(18, 500)), 0u);
  const CacheReport report = next.run(counting(18));
  EXPECT_EQ(report.cached_tokens, 17u);
  EXPECT_EQ(report.file_tokens, 17u);
  EXPECT_EQ(next.run(counting(40, 100)).file_tokens, 39u);
  // And once more, from device, host and file together.
  ASSERT_TRUE(save_prompt_cache(next.cache, next.device).ok());
  Rig third(options(16));
  ASSERT_TRUE(third.cache.open_prompt_cache(path(), kMuch).ok());
  EXPECT_EQ(third.run(counting(40, 100)).file_tokens, 39u);
  EXPECT_EQ(third.run(counting(18)).file_tokens, 17u);
}

TEST_F(Tiers, AFileLargerThanTheLimitIsUsedFromItsBeginning) {
  {
    Rig rig(options(16));
    ASSERT_TRUE(rig.cache.open_prompt_cache(path(), kMuch).ok());
    rig.run(counting(40));
    ASSERT_TRUE(save_prompt_cache(rig.cache, rig.device).ok());
  }
  Rig next(options(16));
  ASSERT_TRUE(next.cache.open_prompt_cache(path(), 3 * kBlockBytes).ok());
  EXPECT_EQ(next.run(counting(40)).file_tokens, 12u);
}

class DamagedFile : public Tiers {
 protected:
  void SetUp() override {
    Tiers::SetUp();
    Rig rig(options(16));
    ASSERT_TRUE(rig.cache.open_prompt_cache(path(), kMuch).ok());
    rig.run(counting(18));
    ASSERT_TRUE(save_prompt_cache(rig.cache, rig.device).ok());
    good_ = file_bytes();
  }

  /// Opening must fail as a bad file, saying `what`, and leave a working cache and the file alone.
  void refuses(const std::string& bytes, const KvCacheOptions& cache_options,
               const std::string& what) {
    set_file_bytes(bytes);
    Rig rig(cache_options);
    const Status status = rig.cache.open_prompt_cache(path(), kMuch);
    ASSERT_FALSE(status.ok()) << what;
    EXPECT_EQ(status.error().code, ErrorCode::kBadFile);
    EXPECT_NE(status.error().message.find(what), std::string::npos) << status.error().message;
    EXPECT_EQ(rig.run(counting(18)).cached_tokens, 0u);
    EXPECT_FALSE(save_prompt_cache(rig.cache, rig.device).ok());
    EXPECT_EQ(file_bytes(), bytes);
  }

  std::string good_;
};

TEST_F(DamagedFile, OfAnotherModelLayoutOrVersionIsRefusedWithTheReason) {
  KvCacheOptions other = options(16);
  other.model = {11, 23};
  refuses(good_, other, "another model");
  other = options(16);
  other.layout = 34;
  refuses(good_, other, "another KV layout");
  other = options(16);
  other.page_bytes *= 2;
  refuses(good_, other, "another KV layout");
  std::string bytes = good_;
  bytes[8] = 1;
  refuses(bytes, options(16), "version 1");
  refuses("", options(16), "not a prompt cache");
  refuses(std::string(5000, 'x'), options(16), "not a prompt cache");
}

TEST_F(DamagedFile, CutAnywhereIsRefused) {
  for (size_t n = 0; n < good_.size(); n += n < 300 ? 7 : 211) {
    refuses(good_.substr(0, n), options(16), n < 112 ? "not a prompt cache" : "do not make");
  }
  refuses(good_ + "x", options(16), "do not make");
}

TEST_F(DamagedFile, WithAnyByteChangedNeverHarms) {
  const size_t table_end = 112 + 5 * (16 + 8 + 4 * kBlockTokens);
  constexpr size_t kBytesBegin = 4096;
  ASSERT_EQ(good_.size(), kBytesBegin + 5 * kBlockBytes);
  for (size_t i = 0; i < good_.size(); i += i < table_end ? 1 : i < kBytesBegin ? 80 : 5) {
    std::string bytes = good_;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x40);
    set_file_bytes(bytes);
    Rig rig(options(16));
    const Status status = rig.cache.open_prompt_cache(path(), kMuch);
    EXPECT_EQ(status.ok(), i >= table_end) << i;
    // Whatever is restored is true (the rig compares every position).
    const uint32_t n_cached = rig.run(counting(18)).cached_tokens;
    const bool in_padding = i >= table_end && i < kBytesBegin;
    EXPECT_EQ(n_cached == 17, in_padding) << i;
    EXPECT_EQ(rig.run(counting(18)).cached_tokens, 17u) << "computed again and cached";
  }
}

TEST_F(DamagedFile, ThatClaimsMoreThanItHasTakesNoMemory) {
  std::string bytes = good_;
  for (const size_t field : {48u, 56u, 72u}) {  // records, where their bytes begin, pages
    for (const unsigned char high : {0x01, 0x7f, 0xff}) {
      bytes = good_;
      bytes[field + 7] = static_cast<char>(high);
      refuses(bytes, options(16), "do not make");
    }
  }
}

TEST_F(DamagedFile, ThatIsAFolderOrCannotBeReplacedIsAnError) {
  Rig rig(options(16));
  EXPECT_FALSE(rig.cache.open_prompt_cache(folder_.path(), kMuch).ok());
  Rig other(options(16));
  ASSERT_TRUE(other.cache.open_prompt_cache(folder_.path() / "no" / "such", kMuch).ok());
  other.run(counting(18));
  EXPECT_FALSE(save_prompt_cache(other.cache, other.device).ok());
}

TEST_F(DamagedFile, ADeviceThatCannotBeReadLeavesTheFileAsItWas) {
  Rig rig(options(16));
  ASSERT_TRUE(rig.cache.open_prompt_cache(path(), kMuch).ok());
  rig.run(counting(30, 700));
  rig.device.broken = true;
  EXPECT_FALSE(save_prompt_cache(rig.cache, rig.device).ok());
  EXPECT_EQ(n_files(), 1u);
  Rig next(options(16));
  ASSERT_TRUE(next.cache.open_prompt_cache(path(), kMuch).ok());
  EXPECT_EQ(next.cached(counting(18)), 17u);
  EXPECT_EQ(next.cached(counting(30, 700)), 0u);
}

}  // namespace
}  // namespace pumice
