// A folder of prefixes that processes share: what comes back is what was put there, whoever writes,
// removes or damages files meanwhile.
#include "cache/prefix_store.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <future>
#include <thread>

#include "cache/prefix_store_file.hpp"
#include "tests/cache/fake_device.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

constexpr uint32_t kBlock = 4;
constexpr uint64_t kPage = 32;
constexpr uint64_t kRoomy = 1 << 20;
namespace fs = std::filesystem;

class PrefixStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<PrefixStore> open(uint64_t limit = kRoomy, uint64_t model = 1,
                                    const std::vector<PageKind>& kinds = {}) {
    const PageKinds all(kinds, kBlock, 0);
    Result<std::unique_ptr<PrefixStore>> store =
        PrefixStore::open({.folder = folder_.path(),
                           .limit_bytes = limit,
                           .binding = {.model = {model, 2},
                                       .layout = 3,
                                       .block_tokens = kBlock,
                                       .page_bytes = kPage,
                                       .n_kinds = all.size(),
                                       .kinds = all.signature()},
                           .logger = Logger([this](LogLevel, std::string_view line) {
                             const std::lock_guard lock(mutex_);
                             lines_.emplace_back(line);
                           })},
                          all);
    EXPECT_TRUE(store.ok()) << store.error().message;
    return std::move(store).value();
  }
  static std::vector<BlockHash> hashes(const std::vector<uint32_t>& tokens) {
    const BlockHasher hasher;
    std::vector<BlockHash> hashes(tokens.size() / kBlock);
    hasher.chain(hasher.root({}, ""), tokens, kBlock, hashes);
    return hashes;
  }
  static std::vector<std::byte> page(uint8_t value) {
    return std::vector<std::byte>(kPage, static_cast<std::byte>(value));
  }
  /// Block i has the bytes first + i.
  static void put(PrefixStore& store, const std::vector<uint32_t>& tokens, uint8_t first = 1,
                  uint32_t kind = 0) {
    const std::vector<BlockHash> names = hashes(tokens);
    for (size_t i = 0; i < names.size(); ++i) {
      const std::vector<uint32_t> prefix(tokens.begin(),
                                         tokens.begin() + static_cast<ptrdiff_t>((i + 1) * kBlock));
      EXPECT_TRUE(store.write({names[i], kind, prefix, page(static_cast<uint8_t>(first + i))}));
    }
    store.flush();
  }
  static PrefixStore::Prefix get(PrefixStore& store, const std::vector<uint32_t>& tokens,
                                 std::vector<KindMask> known = {}) {
    std::promise<void> woken;
    const std::vector<BlockHash> names = hashes(tokens);
    known.resize(names.size());
    const auto reading = store.read(tokens, names, known, [&] { woken.set_value(); });
    EXPECT_EQ(woken.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_TRUE(reading->done());
    return std::move(reading->prefix());
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    std::ranges::sort(found);
    return found;
  }
  fs::path file_of(const std::vector<uint32_t>& tokens, size_t block) const {
    const fs::path name = stored_page_path(hashes(tokens)[block], 0).filename();
    for (const fs::path& path : files()) {
      if (path.filename() == name) return path;
    }
    return {};
  }
  size_t n_lines() {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }

  const test::TemporaryFolder folder_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(PrefixStoreTest, GivesAnotherProcessWhatOneHasWritten) {
  const std::vector<uint32_t> tokens = counting(3 * kBlock);
  put(*open(), tokens);
  const auto store = open();
  const PrefixStore::Prefix prefix = get(*store, tokens);
  ASSERT_EQ(prefix.pages.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(prefix.pages[i].block, i);
    EXPECT_EQ(prefix.pages[i].bytes, page(static_cast<uint8_t>(1 + i)));
  }
  EXPECT_EQ(store->stats().read_pages, 3u);
}

TEST_F(PrefixStoreTest, GivesTheBeginningThatTwoPromptsHaveInCommon) {
  const std::vector<uint32_t> tokens = counting(4 * kBlock);
  const auto store = open();
  put(*store, tokens);
  std::vector<uint32_t> other = tokens;
  other[2 * kBlock] = 77;
  EXPECT_EQ(get(*store, other).pages.size(), 2u);
  EXPECT_TRUE(get(*store, counting(4 * kBlock, 50)).pages.empty());
}

TEST_F(PrefixStoreTest, ReadsNothingThatIsCachedAlready) {
  const std::vector<uint32_t> tokens = counting(4 * kBlock);
  const auto store = open();
  put(*store, tokens);
  const PrefixStore::Prefix prefix = get(*store, tokens, {1, 1, 0, 0});
  ASSERT_EQ(prefix.pages.size(), 2u);
  EXPECT_EQ(prefix.pages[0].block, 2u);
}

TEST_F(PrefixStoreTest, KeepsModelsApart) {
  const std::vector<uint32_t> tokens = counting(2 * kBlock);
  put(*open(kRoomy, 1), tokens);
  EXPECT_TRUE(get(*open(kRoomy, 5), tokens).pages.empty());
  EXPECT_EQ(get(*open(kRoomy, 1), tokens).pages.size(), 2u);
}

TEST_F(PrefixStoreTest, NeverTakesThePageOfOtherTokensWithTheSameHash) {
  const std::vector<uint32_t> tokens = counting(2 * kBlock);
  const auto store = open();
  put(*store, tokens);
  // Other tokens, in the place of the first block or before it, by the names of these.
  for (const uint32_t changed : {0u, 5u}) {
    std::vector<uint32_t> other = tokens;
    other[changed] += 1000;
    std::promise<void> woken;
    const auto reading = store->read(other, hashes(tokens), {0, 0}, [&] { woken.set_value(); });
    woken.get_future().wait();
    EXPECT_EQ(reading->prefix().pages.size(), changed / kBlock) << changed;
  }
  EXPECT_EQ(get(*store, tokens).pages.size(), 2u) << "a collision removes nothing";
  EXPECT_EQ(n_lines(), 0u);
}

TEST_F(PrefixStoreTest, RemovesWhatIsDamagedAndWarnsOnce) {
  const std::vector<uint32_t> tokens = counting(3 * kBlock);
  const auto store = open();
  put(*store, tokens);
  const fs::path last = file_of(tokens, 2);
  fs::resize_file(last, fs::file_size(last) - 1);
  {
    std::fstream file(file_of(tokens, 1), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('x');
  }
  EXPECT_EQ(get(*store, tokens).pages.size(), 1u);
  EXPECT_EQ(files().size(), 2u);
  put(*store, tokens);  // what was removed is written again
  EXPECT_EQ(get(*store, tokens).pages.size(), 2u) << "the last one is damaged too";
  EXPECT_EQ(store->stats().damaged_files, 2u);
  EXPECT_EQ(n_lines(), 1u);
}

TEST_F(PrefixStoreTest, LeavesWhatOthersPutThereAlone) {
  const std::vector<uint32_t> tokens = counting(2 * kBlock);
  const auto store = open(8 * 200);
  put(*store, tokens);
  const fs::path second = file_of(tokens, 1);
  fs::remove(second);
  std::ofstream(second)
      << "somebody's notes, which are longer than the header of a page of a store";
  const fs::path beside = second.parent_path() / "notes.txt";
  std::ofstream(beside) << "more of them";
  EXPECT_EQ(get(*store, tokens).pages.size(), 1u);
  for (uint32_t i = 0; i < 40; ++i) put(*store, counting(kBlock, 100 + 10 * i));
  EXPECT_TRUE(fs::exists(second));
  EXPECT_TRUE(fs::exists(beside));
  EXPECT_EQ(store->stats().foreign_files, 1u);
  EXPECT_EQ(n_lines(), 1u);
}

TEST_F(PrefixStoreTest, StaysWithinItsLimitAndKeepsWhatIsUsed) {
  const std::vector<uint32_t> used = counting(kBlock);
  const auto store = open(20 * 160);
  put(*store, used);
  for (uint32_t i = 0; i < 60; ++i) {
    put(*store, counting(kBlock, 100 + 10 * i));
    EXPECT_EQ(get(*store, used).pages.size(), 1u) << i;
    uint64_t n_bytes = 0;
    for (const fs::path& path : files()) n_bytes += fs::file_size(path);
    ASSERT_LE(n_bytes, 21u * 160) << i;
  }
  EXPECT_GT(store->stats().removed_files, 20u);
  EXPECT_TRUE(get(*store, counting(kBlock, 100)).pages.empty());
}

TEST_F(PrefixStoreTest, IsTakenOverAfterARestartWithItsSize) {
  for (uint32_t i = 0; i < 30; ++i) put(*open(), counting(kBlock, 100 + 10 * i));
  const auto store = open(10 * 160);
  put(*store, counting(kBlock));
  EXPECT_LE(store->stats().bytes, 10u * 160);
  EXPECT_EQ(get(*store, counting(kBlock)).pages.size(), 1u);
  EXPECT_FALSE(store->wants(hashes(counting(kBlock))[0], 0));
  EXPECT_TRUE(store->wants(hashes(counting(kBlock, 100))[0], 0)) << "it is not there any more";
}

TEST_F(PrefixStoreTest, GivesStatesAndWindowsOnlyWhereAllKindsCanGoOn) {
  const std::vector<PageKind> kinds = {{.name = "full"},
                                       {.name = "state", .form = StateForm::kRecurrent}};
  const std::vector<uint32_t> tokens = counting(4 * kBlock);
  const auto store = open(kRoomy, 1, kinds);
  put(*store, tokens);
  EXPECT_TRUE(get(*store, tokens).pages.empty()) << "no state is there";
  // A state behind the second block.
  const std::vector<uint32_t> prefix = counting(2 * kBlock);
  ASSERT_TRUE(store->write({hashes(tokens)[1], 1, prefix, page(9)}));
  store->flush();
  const PrefixStore::Prefix found = get(*store, tokens);
  ASSERT_EQ(found.pages.size(), 3u);
  EXPECT_EQ(found.pages[2].block, 1u);
  EXPECT_EQ(found.pages[2].kind, 1u);
  EXPECT_EQ(found.pages[2].bytes, page(9));
}

TEST_F(PrefixStoreTest, IsSharedByManyWritersAndReaders) {
  std::vector<std::thread> threads;
  std::atomic<uint32_t> n_wrong = 0;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto store = open(40 * 200);  // so small that all of them remove
      for (uint32_t i = 0; i < 60; ++i) {
        const uint32_t which = (i * 7 + t) % 20;
        const std::vector<uint32_t> tokens = counting(3 * kBlock, 1 + 100 * which);
        put(*store, tokens, static_cast<uint8_t>(which));
        for (const auto& found : get(*store, tokens).pages) {
          if (found.bytes != page(static_cast<uint8_t>(which + found.block))) ++n_wrong;
        }
      }
      EXPECT_EQ(store->stats().damaged_files, 0u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, 0u);
  EXPECT_EQ(n_lines(), 0u);
  for (const fs::path& path : files()) EXPECT_EQ(path.extension(), ".page") << path;
}

TEST_F(PrefixStoreTest, RefusesAFolderThatIsAFileAndALimitOfNothing) {
  const fs::path file = folder_.path() / "file";
  std::ofstream(file) << "x";
  const PageKinds kinds({}, kBlock, 0);
  const PromptCacheBinding binding{.block_tokens = kBlock, .page_bytes = kPage};
  const auto a =
      PrefixStore::open({.folder = file, .limit_bytes = kRoomy, .binding = binding}, kinds);
  ASSERT_FALSE(a.ok());
  EXPECT_EQ(a.error().code, ErrorCode::kBadFile);
  const auto b =
      PrefixStore::open({.folder = folder_.path(), .limit_bytes = 10, .binding = binding}, kinds);
  ASSERT_FALSE(b.ok());
  EXPECT_EQ(b.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(PrefixStoreTest, SaysWhatItCannotWriteAndGoesOn) {
  const auto store = open();
  put(*store, counting(kBlock, 900));  // it has looked at the folder, which Windows keeps so long
  fs::remove_all(folder_.path());
  std::ofstream(folder_.path()) << "a file";
  put(*store, counting(2 * kBlock));
  EXPECT_EQ(store->stats().dropped_pages, 2u);
  EXPECT_EQ(n_lines(), 1u);
}

// ---- with a cache

constexpr KvCacheOptions kSmall{.n_pages = 8, .block_tokens = kBlock, .page_bytes = kPage};

TEST(StoredPages, AreThoseOfFullBlocksWithoutASalt) {
  CacheRig rig(kSmall);
  rig.cache.note_new_pages();
  const std::vector<uint32_t> tokens = counting(3 * kBlock + 2);
  (void)rig.run(tokens);
  (void)rig.run(counting(2 * kBlock, 500), "secret");
  const auto all = [](const BlockHash&, uint32_t) { return true; };
  const auto first = rig.cache.take_new_pages(2, all);
  ASSERT_EQ(first.size(), 2u);
  const auto rest = rig.cache.take_new_pages(100, all);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].tokens, counting(3 * kBlock));
  EXPECT_EQ(rest[0].hash, rig.cache.hash_prompt(tokens).hashes[2]);
  EXPECT_EQ(rig.device.block(rest[0].page)[0], FakeDevice::value(tokens, "", 2 * kBlock));
  EXPECT_TRUE(rig.cache.take_new_pages(100, all).empty());
}

TEST(StoredPages, AreForgottenWithTheirPages) {
  KvCacheOptions options = kSmall;
  options.host_bytes = 8 * kPage;  // where those go on being known
  CacheRig rig(options);
  rig.cache.note_new_pages();
  (void)rig.run(counting(4 * kBlock));
  (void)rig.run(counting(8 * kBlock, 500));  // takes all of them
  const auto taken = rig.cache.take_new_pages(100, [](const BlockHash&, uint32_t) { return true; });
  EXPECT_EQ(taken.size(), 8u);
  for (const auto& page : taken) {
    EXPECT_GE(page.tokens[0], 500u);
    EXPECT_NE(page.page, kNoPage);
  }
}

TEST(StoredPages, ThatComeToHostMemoryAreRestored) {
  CacheRig one(kSmall);
  one.cache.note_new_pages();
  const std::vector<uint32_t> tokens = counting(3 * kBlock + 2);
  (void)one.run(tokens);
  const auto pages = one.cache.take_new_pages(100, [](const BlockHash&, uint32_t) { return true; });
  std::vector<std::vector<std::byte>> bytes;
  std::vector<KvCache::HostPage> host;
  for (const auto& page : pages) {
    std::vector<std::byte>& copy = bytes.emplace_back(kPage);
    const PageStore::Item item{page.page, copy};
    ASSERT_TRUE(one.device.read({&item, 1}).ok());
  }
  for (uint32_t i = 0; i < bytes.size(); ++i) host.push_back({i, 0, bytes[i]});

  KvCacheOptions options = kSmall;
  options.host_bytes = 5 * kPage;
  CacheRig two(options);
  const HashedPrompt prompt = two.cache.hash_prompt(tokens);
  EXPECT_EQ(two.cache.known_kinds(prompt), (std::vector<KindMask>{0, 0, 0}));
  EXPECT_EQ(two.cache.adopt_to_host(prompt, host), 3u);
  EXPECT_EQ(two.cache.adopt_to_host(prompt, host), 0u) << "they are there";
  EXPECT_EQ(two.cache.known_kinds(prompt), (std::vector<KindMask>{1, 1, 1}));
  EXPECT_WHOLE(two.cache);
  const CacheReport report = two.run(tokens);  // checks what every position holds
  EXPECT_EQ(report.host_tokens, 3 * kBlock);
  EXPECT_WHOLE(two.cache);
}

TEST(StoredPages, TakeAsMuchHostMemoryAsThereIs) {
  KvCacheOptions options = kSmall;
  options.host_bytes = 2 * kPage;
  CacheRig rig(options);
  const std::vector<uint32_t> tokens = counting(5 * kBlock);
  const std::vector<std::byte> bytes(kPage);
  std::vector<KvCache::HostPage> host;
  for (uint32_t i = 0; i < 5; ++i) host.push_back({i, 0, bytes});
  EXPECT_EQ(rig.cache.adopt_to_host(rig.cache.hash_prompt(tokens), host), 2u);
  EXPECT_EQ(rig.cached(tokens), 2 * kBlock);
  EXPECT_WHOLE(rig.cache);
}

TEST(StoredPages, LeaveAMoveUnderWayAlone) {
  KvCacheOptions options = kSmall;
  options.host_bytes = kPage;
  CacheRig rig(options);
  (void)rig.run(counting(kBlock));
  HashedPrompt prompt = rig.cache.hash_prompt(counting(8 * kBlock, 500));
  const SequenceId id = *rig.cache.begin(prompt, 8 * kBlock);  // the first prompt's page is saved
  const Transfers transfers = rig.cache.take_transfers();
  ASSERT_EQ(transfers.saves.size(), 1u);
  const std::vector<std::byte> bytes(kPage, std::byte{7});
  const std::vector<KvCache::HostPage> host = {{0, 0, bytes}};
  const std::vector<uint32_t> stored = counting(2 * kBlock, 900);
  EXPECT_EQ(rig.cache.adopt_to_host(rig.cache.hash_prompt(stored), host), 0u);
  EXPECT_EQ(rig.cached(stored), 0u);
  EXPECT_TRUE(rig.cache.finish_transfers(transfers.batch).empty());
  EXPECT_EQ(rig.cache.adopt_to_host(rig.cache.hash_prompt(stored), host), 1u);
  rig.cache.release(id);
  EXPECT_WHOLE(rig.cache);
}

}  // namespace
}  // namespace pumice
