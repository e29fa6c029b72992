// What routers are told of a cache: events replayed are what it has, and only what can be resumed.
#include "tools/serve/fleet/kv_view.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/cache/fake_device.hpp"
#include "tools/serve/fleet/kv_publisher.hpp"

namespace pumice::serve {
namespace {

constexpr uint32_t kBlock = 4;
constexpr uint64_t kPage = 32;

/// A subscriber: what is cached after which prefix.
struct Told {
  struct Block {
    bool has_parent = false;
    uint64_t parent = 0;
    std::vector<uint32_t> tokens;
    bool on_device = true;
  };
  std::map<uint64_t, Block> blocks;

  void take(const std::vector<KvEvent>& events) {
    for (const KvEvent& event : events) {
      if (event.kind == KvEvent::Kind::kCleared) {
        blocks.clear();
      } else if (event.kind == KvEvent::Kind::kRemoved) {
        for (const uint64_t id : event.blocks) {
          ASSERT_EQ(blocks.at(id).on_device, event.on_device);
          blocks.erase(id);
        }
      } else {
        uint64_t parent = event.parent;
        bool has_parent = event.has_parent;
        ASSERT_EQ(event.tokens.size(), event.blocks.size() * event.block_tokens);
        for (size_t i = 0; i < event.blocks.size(); ++i) {
          ASSERT_TRUE(!has_parent || blocks.contains(parent)) << "a block comes behind its parent";
          const auto first = event.tokens.begin() + static_cast<ptrdiff_t>(i * kBlock);
          const bool is_new =
              blocks
                  .emplace(event.blocks[i],
                           Block{has_parent, parent, {first, first + kBlock}, event.on_device})
                  .second;
          ASSERT_TRUE(is_new);
          parent = event.blocks[i];
          has_parent = true;
        }
      }
    }
  }
  uint32_t n_cached(const std::vector<uint32_t>& tokens) const {
    uint32_t n = 0;
    uint64_t at = 0;
    while (n + kBlock < tokens.size()) {
      const auto next = std::ranges::find_if(blocks, [&](const auto& entry) {
        const Block& block = entry.second;
        return block.has_parent == (n > 0) && (n == 0 || block.parent == at) &&
               std::equal(block.tokens.begin(), block.tokens.end(), tokens.begin() + n);
      });
      if (next == blocks.end()) break;
      at = next->first;
      n += kBlock;
    }
    return n;
  }
};

TEST(KvView, TellsWhatAPlainCacheHas) {
  CacheRig rig({.n_pages = 8, .block_tokens = kBlock, .page_bytes = kPage});
  KvView view;
  EXPECT_TRUE(view.look(rig.cache).empty());
  (void)rig.run(counting(3 * kBlock + 1));
  const std::vector<KvEvent> first = view.look(rig.cache);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].blocks.size(), 3u);
  EXPECT_EQ(first[0].tokens, counting(3 * kBlock));
  EXPECT_FALSE(first[0].has_parent);
  EXPECT_TRUE(view.look(rig.cache).empty()) << "nothing changed";
  // Another prompt parts behind the first block.
  const std::vector<uint32_t> other = joined(counting(kBlock), counting(kBlock + 1, 90));
  (void)rig.run(other);
  const std::vector<KvEvent> second = view.look(rig.cache);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_TRUE(second[0].has_parent);
  EXPECT_EQ(second[0].parent, first[0].blocks[0]);
  (void)rig.run(counting(kBlock, 500), "a salt");
  EXPECT_TRUE(view.look(rig.cache).empty()) << "salted prompts are not told";
  rig.cache.forget_device();
  const std::vector<KvEvent> third = view.look(rig.cache);
  ASSERT_EQ(third.size(), 1u);
  EXPECT_EQ(third[0].kind, KvEvent::Kind::kCleared);
}

TEST(KvView, TellsBlocksOfAHybridOnlyBeforeAStateThatWasKept) {
  CacheRig rig({.n_pages = 32,
                .block_tokens = kBlock,
                .kinds = {{.name = "full"}, {.name = "state", .form = StateForm::kRecurrent}},
                .kept_states = KeptStates::kNone,
                .page_bytes = kPage});
  KvView view;
  HashedPrompt prompt = rig.cache.hash_prompt(counting(3 * kBlock));
  const SequenceId id = *rig.cache.begin(prompt, 3 * kBlock);
  rig.device.compute(id, counting(3 * kBlock), "", 3 * kBlock);
  EXPECT_TRUE(view.look(rig.cache).empty()) << "nothing can go on from these blocks";
  rig.cache.release(id);  // keeps the state there
  Told told;
  told.take(view.look(rig.cache));
  EXPECT_EQ(told.blocks.size(), 3u);
  EXPECT_EQ(rig.cached(counting(3 * kBlock + 1)), 3 * kBlock);
}

class KvViews : public ::testing::TestWithParam<int> {};

TEST_P(KvViews, ReplayedAreTheCacheAfterRandomLoad) {
  KvCacheOptions options{.n_pages = 24, .block_tokens = kBlock, .page_bytes = kPage};
  if (GetParam() == 1) options.host_bytes = 10 * kPage;
  if (GetParam() == 2) {
    options.kinds = {{.name = "full"},
                     {.name = "window", .form = StateForm::kWindow, .window_tokens = 6}};
  }
  CacheRig rig(options);
  KvView view;
  Told told;
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    const std::vector<uint32_t> prompt =
        joined(counting(kBlock * (random() % 4), 1 + 100 * (random() % 3)),
               counting(1 + random() % 12, 1000 + 50 * (random() % 4)));
    (void)rig.run(prompt, random() % 8 == 0 ? "salt" : "");
    if (random() % 3 != 0) continue;
    ASSERT_NO_FATAL_FAILURE(told.take(view.look(rig.cache)));
    EXPECT_EQ(told.blocks.size(), view.n_blocks());
    // Windows may go on in fewer places than are before them; never in more.
    const uint32_t cached = rig.cached(prompt) / kBlock * kBlock;
    if (GetParam() == 2) {
      EXPECT_GE(told.n_cached(prompt), cached);
    } else {
      EXPECT_EQ(told.n_cached(prompt), cached) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Caches, KvViews, ::testing::Values(0, 1, 2));

TEST(KvView, TellsWhoseAdapterABlockIs) {
  CacheRig rig({.n_pages = 16, .block_tokens = kBlock, .page_bytes = kPage});
  const ModelFingerprint adapted = {7, 8};
  KvView view({{"tales", adapted}});
  const std::vector<uint32_t> tokens = counting(2 * kBlock + 1);
  (void)rig.run(tokens);
  EXPECT_EQ(view.look(rig.cache).size(), 1u);
  HashedPrompt prompt = rig.cache.hash_prompt(tokens, "", adapted);
  const SequenceId id = *rig.cache.begin(prompt, prompt.n_tokens);
  ASSERT_TRUE(rig.cache.reserve(id, 2 * kBlock + 1).ok());
  rig.cache.commit(id, 2 * kBlock + 1);
  rig.cache.release(id);
  const std::vector<KvEvent> events = view.look(rig.cache);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks.size(), 2u);
  EXPECT_FALSE(events[0].has_parent);
  EXPECT_EQ(events[0].adapter, 1u);
  EXPECT_EQ(events[0].adapter_name, "tales");
  EXPECT_TRUE(view.look(rig.cache).empty());
}

TEST(KvBatches, NameAnAdapter) {
  const std::vector<KvEvent> events = {
      {.blocks = {1}, .tokens = {5}, .block_tokens = 1, .adapter = 2, .adapter_name = "tales"}};
  const std::vector<uint8_t> bytes = kv_batch(1.1, events, false);
  EXPECT_EQ(std::string(bytes.begin() + 11, bytes.end()),
            "\x98\xab"
            "BlockStored"
            "\x91\x01\xc0\x91\x05\x01\x02\xa3"
            "GPU"
            "\xa5"
            "tales");
}

TEST(KvBatches, AreAsRoutersReadThem) {
  const std::vector<KvEvent> events = {
      {.blocks = {1, 2}, .tokens = {5, 6}, .block_tokens = 1},
      {.kind = KvEvent::Kind::kRemoved, .blocks = {~uint64_t{0}}, .on_device = false},
      {.kind = KvEvent::Kind::kCleared}};
  const auto text = [](const std::vector<uint8_t>& bytes) {
    return std::string(bytes.begin(), bytes.end());
  };
  const std::string arrays = text(kv_batch(1.1, events, false));
  EXPECT_EQ(arrays[0], '\x92') << "time and events";
  EXPECT_EQ(arrays[1], '\xcb') << "a double";
  EXPECT_EQ(arrays[10], '\x93');
  EXPECT_EQ(arrays.substr(11),
            text({0x97, 0xab}) + "BlockStored" +
                text({0x92, 1, 2, 0xc0, 0x92, 5, 6, 1, 0xc0, 0xa3}) + "GPU" + text({0x93, 0xac}) +
                "BlockRemoved" + text({0x91, 0xcf, 255, 255, 255, 255, 255, 255, 255, 255, 0xa3}) +
                "cpu" + text({0x91, 0xb0}) + "AllBlocksCleared");
  const std::string maps = text(kv_batch(1.1, events, true));
  EXPECT_NE(maps.find(text({0x87, 0xa4}) + "type" + text({0xab}) + "BlockStored"),
            std::string::npos);
  EXPECT_NE(maps.find("parent_block_hash"), std::string::npos);
}

}  // namespace
}  // namespace pumice::serve
