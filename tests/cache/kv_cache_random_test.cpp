// Random use of the cache, whole and truthful after every step.
#include <gtest/gtest.h>

#include <random>

#include "tests/cache/fake_device.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

constexpr uint64_t kSlotBytes = 4 * 8;

const std::vector<PageKind> kMixed = {
    {"full", StateForm::kFull}, {"local", StateForm::kWindow, 7}, {"state", StateForm::kRecurrent}};

struct RandomUse {
  const char* name;
  KvCacheOptions options;
  uint32_t file_slots = 0;
};

class KvCacheRandom : public testing::TestWithParam<RandomUse> {};

struct Running {
  SequenceId id;
  std::vector<uint32_t> tokens;
  std::string salt;
};

TEST_P(KvCacheRandom, StaysWholeAndNeverTellsAnUntruth) {
  KvCache cache(GetParam().options);
  FakeDevice device(cache);
  const test::TemporaryFolder folder;
  if (GetParam().file_slots > 0) {
    ASSERT_TRUE(
        cache.open_prompt_cache(folder.path() / "file", GetParam().file_slots * kSlotBytes).ok());
  }
  std::mt19937 random(5);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  std::vector<Running> running;
  std::vector<HashedPrompt> suspended;
  uint64_t n_cached = 0;
  const bool rewinds = GetParam().options.rewind_tokens > 0;

  const auto random_prompt = [&] {
    // Few different tokens and a few shared beginnings, so that prefixes of every length coincide.
    std::vector<uint32_t> tokens = counting(below(20), below(2) * 100);
    for (uint32_t n = below(14) + 1; n > 0; --n) tokens.push_back(below(2));
    return cache.hash_prompt(tokens, below(4) == 0 ? "salt" : "");
  };
  const auto begin = [&](HashedPrompt prompt) {
    const std::vector<uint32_t> tokens = prompt.content;
    const std::string salt = prompt.salt;
    const uint32_t foreseen = cache.look_up(prompt).cached_tokens;
    const uint32_t n_free = cache.n_free_pages();
    const auto id = cache.begin(prompt, below(2) == 0 ? 0 : prompt.n_tokens);
    if (!id.ok()) {
      EXPECT_EQ(id.error().code, ErrorCode::kDoesNotFit);
      EXPECT_EQ(prompt.content, tokens);
      EXPECT_EQ(cache.n_free_pages(), n_free);
      suspended.push_back(std::move(prompt));
      return;
    }
    EXPECT_LE(cache.computed_tokens(*id), foreseen);
    EXPECT_LT(cache.computed_tokens(*id), tokens.size());
    n_cached += cache.computed_tokens(*id);
    running.push_back({*id, tokens, salt});
  };
  const auto take_out = [&](size_t i) {
    const Running taken = running[i];
    running.erase(running.begin() + static_cast<ptrdiff_t>(i));
    return taken;
  };

  // Whoever runs goes on where its blocks are then; some end while they move.
  const auto resize = [&] {
    const uint32_t n_blocks = 4 + below(GetParam().options.n_pages - 3);
    const auto moved = [&] {
      EXPECT_TRUE(cache.check_integrity().ok());
      if (!running.empty() && below(8) == 0) {
        cache.release(take_out(below(static_cast<uint32_t>(running.size()))).id);
      }
      return below(4) > 0;
    };
    while (!device.resize(n_blocks, 1 + below(5), moved)) {
      suspended.push_back(cache.suspend(take_out(running.size() - 1).id));
    }
    EXPECT_EQ(cache.n_pages(), n_blocks);
    for (const Running& each : running) {
      EXPECT_EQ(device.wrong_positions(each.id, each.tokens, each.salt), 0u);
    }
  };

  for (int step = 0; step < 3000; ++step) {
    if (GetParam().options.n_pages != kUnlimitedPages && below(40) == 0) {
      resize();
      EXPECT_WHOLE(cache);
    }
    if (below(150) == 0) {
      while (!running.empty()) suspended.push_back(cache.suspend(take_out(running.size() - 1).id));
      cache.forget_device();
      device.lose();
    }
    const uint32_t action = below(14);
    if (action < 4) {
      begin(random_prompt());
    } else if (action == 4 && !suspended.empty()) {
      HashedPrompt prompt = std::move(suspended.back());
      suspended.pop_back();
      begin(std::move(prompt));
    } else if (action == 5 && !running.empty()) {
      cache.release(take_out(below(static_cast<uint32_t>(running.size()))).id);
    } else if (action == 6 && !running.empty()) {
      const Running ended = take_out(below(static_cast<uint32_t>(running.size())));
      suspended.push_back(cache.suspend(ended.id));
      EXPECT_EQ(suspended.back().content, ended.tokens);
    } else if (action == 7) {
      // A batch that fails: whoever was in it starts again.
      const Transfers transfers = cache.take_transfers();
      for (const SequenceId id : cache.finish_transfers(transfers.batch, {.all = true})) {
        for (size_t i = 0; i < running.size(); ++i) {
          if (running[i].id == id) suspended.push_back(cache.suspend(take_out(i--).id));
        }
      }
    } else if (!running.empty()) {
      // A step: blocks, then bytes, then a chunk of one sequence, then perhaps a sampled token.
      Running& one = running[below(static_cast<uint32_t>(running.size()))];
      const uint32_t computed = cache.computed_tokens(one.id);
      const uint32_t known = static_cast<uint32_t>(one.tokens.size());
      const uint32_t end = computed + below(known - computed + 1);
      if (!cache.reserve(one.id, end).ok()) continue;
      EXPECT_TRUE(device.transfer().empty());
      if (below(8) == 0) {
        cache.shrink(one.id, computed);  // the step failed
      } else if (rewinds && below(6) == 0) {
        const uint32_t n_tokens = computed - below(std::min(computed, 4u) + 1);
        if (cache.rewind(one.id, n_tokens).ok()) {
          EXPECT_TRUE(device.transfer().empty());
          one.tokens.resize(n_tokens);
          one.tokens.push_back(below(3));
          cache.append(one.id, {&one.tokens.back(), 1});
        }
      } else {
        device.compute(one.id, one.tokens, one.salt, end);
        if (end == known) {
          one.tokens.push_back(below(3));
          cache.append(one.id, {&one.tokens.back(), 1});
        }
      }
      for (const Running& each : running) {
        ASSERT_EQ(device.wrong_positions(each.id, each.tokens, each.salt), 0u) << "step " << step;
      }
    }
    if (suspended.size() > 8) suspended.erase(suspended.begin());
    EXPECT_WHOLE(cache);
  }
  for (const Running& each : running) cache.release(each.id);
  EXPECT_WHOLE(cache);
  EXPECT_EQ(cache.pool().n_free(), cache.n_pages());
  EXPECT_EQ(n_cached > 300, GetParam().options.reuse) << n_cached;
}

INSTANTIATE_TEST_SUITE_P(
    All, KvCacheRandom,
    testing::Values(
        RandomUse{"Plain", {.n_pages = 24, .block_tokens = 4}},
        RandomUse{"Tight", {.n_pages = 9, .block_tokens = 4}},
        RandomUse{"Collisions", {.n_pages = 40, .block_tokens = 4, .hash_bits = 1}},
        RandomUse{"EightBitHashes", {.n_pages = 200, .block_tokens = 2, .hash_bits = 8}},
        RandomUse{"HostTier",
                  {.n_pages = 16,
                   .block_tokens = 4,
                   .page_bytes = kSlotBytes,
                   .host_bytes = kSlotBytes * 20}},
        RandomUse{"SmallHostTier",
                  {.n_pages = 12,
                   .block_tokens = 4,
                   .hash_bits = 8,
                   .page_bytes = kSlotBytes,
                   .host_bytes = kSlotBytes * 3}},
        RandomUse{"FileTier", {.n_pages = 12, .block_tokens = 4, .page_bytes = kSlotBytes}, 16},
        RandomUse{"BothTiers",
                  {.n_pages = 12,
                   .block_tokens = 4,
                   .page_bytes = kSlotBytes,
                   .host_bytes = kSlotBytes * 4},
                  9},
        RandomUse{"Groups", {.n_pages = 60, .block_tokens = 4, .kinds = kMixed}},
        RandomUse{"GroupsRewind",
                  {.n_pages = 100, .block_tokens = 4, .kinds = kMixed, .rewind_tokens = 3}},
        RandomUse{"GroupsInTiers",
                  {.n_pages = 48,
                   .block_tokens = 4,
                   .kinds = kMixed,
                   .rewind_tokens = 2,
                   .page_bytes = kSlotBytes,
                   .host_bytes = kSlotBytes * 12},
                  30},
        RandomUse{"WindowsInHostMemory",
                  {.n_pages = 40,
                   .block_tokens = 4,
                   .kinds = {{"local", StateForm::kWindow, 6}, {"wide", StateForm::kWindow, 11}},
                   .page_bytes = kSlotBytes,
                   .host_bytes = kSlotBytes * 20}},
        RandomUse{"StatesInAFile",
                  {.n_pages = 40,
                   .block_tokens = 4,
                   .kinds = {{"state", StateForm::kRecurrent}},
                   .page_bytes = kSlotBytes},
                  20},
        RandomUse{"Unlimited", {.n_pages = kUnlimitedPages, .block_tokens = 8}},
        RandomUse{"NoReuse", {.n_pages = 24, .block_tokens = 4, .reuse = false}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace pumice
