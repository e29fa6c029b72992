// State kinds: what each needs for a hit, what windows give back, where states are kept, and going
// back.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cache/fake_device.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

constexpr uint64_t kBytes = 4 * 8;
const PageKind kFull{"full", StateForm::kFull};
const PageKind kLatent{"latent", StateForm::kLatent};
const PageKind kState{"state", StateForm::kRecurrent};

PageKind window(uint32_t n_tokens) { return {"local", StateForm::kWindow, n_tokens}; }

KvCacheOptions options(std::vector<PageKind> kinds, uint32_t n_blocks = 64) {
  return {.n_pages = n_blocks, .block_tokens = 4, .kinds = std::move(kinds), .page_bytes = kBytes};
}

/// Small blocks, and a device that checks what is read.
struct KindRig {
  KvCache cache;
  FakeDevice device{cache};

  explicit KindRig(const KvCacheOptions& options) : cache(options) {}

  SequenceId begin(const std::vector<uint32_t>& tokens) {
    HashedPrompt prompt = cache.hash_prompt(tokens);
    const SequenceId id = *cache.begin(prompt);
    EXPECT_TRUE(device.transfer().empty());
    return id;
  }
  /// Compute up to `end` in steps that end where states are kept.
  void compute(SequenceId id, const std::vector<uint32_t>& tokens, uint32_t end) {
    while (cache.computed_tokens(id) < end) {
      const uint32_t next = std::min(end, cache.next_kept_state(id, cache.computed_tokens(id)));
      const Status room = cache.reserve(id, next);
      ASSERT_TRUE(room.ok()) << room.error().message;
      EXPECT_TRUE(device.transfer().empty());
      device.compute(id, tokens, "", next);
      EXPECT_EQ(device.wrong_positions(id, tokens, ""), 0u);
      EXPECT_WHOLE(cache);
    }
  }
  SequenceId run(const std::vector<uint32_t>& tokens) {
    const SequenceId id = begin(tokens);
    compute(id, tokens, static_cast<uint32_t>(tokens.size()));
    return id;
  }
  CacheReport run_and_release(const std::vector<uint32_t>& tokens) {
    const SequenceId id = run(tokens);
    const CacheReport report = cache.report(id);
    cache.release(id);
    EXPECT_TRUE(cache.check_integrity().ok());
    return report;
  }
  CacheReport look_up(const std::vector<uint32_t>& tokens) const {
    return cache.look_up(cache.hash_prompt(tokens));
  }
};

size_t n_behind(std::span<const PageId> blocks) {
  return static_cast<size_t>(std::ranges::count(blocks, kNoPage));
}

TEST(PageKinds, AWindowNeedsItsTokensAndAGroupOfAnotherKindNone) {
  EXPECT_TRUE(PageKinds::check({kFull, window(7), kState, kLatent}).ok());
  const Status without = PageKinds::check({kFull, {"local", StateForm::kWindow}});
  ASSERT_FALSE(without.ok());
  EXPECT_NE(without.error().message.find("local"), std::string::npos) << without.error().message;
  EXPECT_FALSE(PageKinds::check({{"full", StateForm::kFull, 7}}).ok());
  EXPECT_FALSE(PageKinds::check(std::vector<PageKind>(kMaxKinds + 1, kFull)).ok());
}

TEST(PageKinds, EveryFullGroupHasABlockForEveryPosition) {
  KindRig rig(options({kFull, kLatent}));
  const SequenceId id = rig.run(counting(10));
  EXPECT_EQ(rig.cache.blocks(id, 0).size(), 3u);
  EXPECT_EQ(rig.cache.blocks(id, 1).size(), 3u);
  EXPECT_NE(rig.cache.blocks(id, 0)[0], rig.cache.blocks(id, 1)[0]);
  rig.cache.release(id);
  EXPECT_EQ(rig.look_up(counting(10)).cached_tokens, 9u);
  EXPECT_EQ(rig.look_up(counting(10)).copied_tokens, 1u);
  EXPECT_EQ(rig.cache.ledger().kind_cached_bytes, (std::vector<uint64_t>{3 * kBytes, 3 * kBytes}));
}

TEST(PageKinds, AWindowGivesBackWhatTheNextPositionDoesNotSee) {
  KindRig rig(options({window(5)}));
  const std::vector<uint32_t> tokens = counting(40);
  const SequenceId id = rig.begin(tokens);
  for (uint32_t computed = 1; computed <= 40; ++computed) {
    rig.compute(id, tokens, computed);
    // Position `computed` sees itself and the four before it.
    EXPECT_EQ(n_behind(rig.cache.blocks(id)), computed < 4 ? 0 : (computed - 4) / 4) << computed;
  }
  EXPECT_EQ(rig.cache.n_pages() - rig.cache.n_free_pages(), 1u) << "36 to 39";
}

TEST(PageKinds, WhatAWindowGaveBackIsStillFound) {
  KindRig rig(options({window(5)}));
  const SequenceId id = rig.run(counting(40));
  const CacheReport report = rig.look_up(counting(17));
  EXPECT_EQ(report.cached_tokens, 16u);
  EXPECT_EQ(report.shortened_by, kNoKind);
  const SequenceId other = rig.begin(counting(17));
  EXPECT_EQ(n_behind(rig.cache.blocks(other)), 3u) << "position 16 sees 12 to 16";
  EXPECT_EQ(rig.device.wrong_positions(other, counting(17), ""), 0u);
  rig.cache.release(id);
  rig.cache.release(other);
  EXPECT_WHOLE(rig.cache);
}

TEST(PageKinds, AHitNeedsOfAWindowOnlyWhatItsNextPositionSees) {
  KindRig rig(options({kFull, window(5)}, 20));
  const SequenceId first = rig.run(counting(33));  // 9 blocks, and of the window 2 in use
  // Others take of what the window gave back four blocks: 3 to 6.
  rig.run_and_release(counting(12, 500));
  EXPECT_EQ(rig.cache.stats().kinds[1].evicted_blocks, 4u);
  EXPECT_EQ(rig.cache.stats().kinds[0].evicted_blocks, 0u);
  rig.cache.release(first);
  EXPECT_EQ(rig.look_up(counting(33)).cached_tokens, 32u) << "the end is there";
  // In the middle it is not, and the full kind could have more.
  const CacheReport report = rig.look_up(joined(counting(16), {900, 901}));
  EXPECT_EQ(report.cached_tokens, 12u);
  EXPECT_EQ(report.shortened_by, 1u);
  EXPECT_EQ(report.others_tokens, 16u);
  EXPECT_EQ(report.miss, MissReason::kGroup);
  EXPECT_EQ(miss_reason_name(report.miss), "group");
}

TEST(PageKinds, ALongPromptTakesNoMoreOfAWindowThanItSees) {
  KindRig rig(options({window(9)}, 5));
  const std::vector<uint32_t> tokens = counting(200);
  const SequenceId id = rig.begin(tokens);
  for (uint32_t end = 8; end <= 200; end += 8) rig.compute(id, tokens, end);
  EXPECT_EQ(rig.cache.kinds().pages_for(200, 8), 5u);
  rig.cache.release(id);
  EXPECT_WHOLE(rig.cache);
}

TEST(PageKinds, AStateIsFoundWhereItWasKeptAndNowhereElse) {
  KindRig rig(options({kState}));
  rig.run_and_release(counting(11));  // kept at 8, the last edge before its end, and at 11
  EXPECT_EQ(rig.cache.stats().kinds[0].kept_states, 2u);
  EXPECT_EQ(rig.look_up(counting(11)).cached_tokens, 8u);
  EXPECT_EQ(rig.look_up(counting(12)).cached_tokens, 11u) << "the next turn";
  EXPECT_EQ(rig.look_up(counting(10)).cached_tokens, 8u);
  EXPECT_EQ(rig.look_up(counting(8)).cached_tokens, 0u) << "the last token is computed";
  const CacheReport report = rig.look_up(joined(counting(7), {900, 901}));
  EXPECT_EQ(report.cached_tokens, 0u);
}

TEST(PageKinds, AStateIsKeptWhereAPromptLeavesWhatIsKnown) {
  KindRig rig(options({kFull, kState}));
  rig.run_and_release(joined(counting(17), counting(20, 100)));
  const std::vector<uint32_t> second = joined(counting(17), counting(20, 200));
  CacheReport report = rig.run_and_release(second);
  EXPECT_EQ(report.cached_tokens, 0u);
  EXPECT_EQ(report.shortened_by, 1u);
  EXPECT_EQ(report.others_tokens, 17u);
  report = rig.run_and_release(joined(counting(17), counting(20, 300)));
  EXPECT_EQ(report.cached_tokens, 16u) << "the second prompt left it where it branched off";
}

TEST(PageKinds, KeepingAStateCopiesNothing) {
  KindRig rig(options({kState}));
  rig.run_and_release(counting(11));
  HashedPrompt prompt = rig.cache.hash_prompt(counting(12));
  const SequenceId one = *rig.cache.begin(prompt);
  prompt = rig.cache.hash_prompt(counting(12));
  const SequenceId other = *rig.cache.begin(prompt);
  EXPECT_TRUE(rig.cache.take_transfers().empty());
  EXPECT_EQ(rig.cache.state(one, 0, 11), rig.cache.state(other, 0, 11));
  rig.compute(one, counting(12), 12);
  rig.compute(other, counting(12), 12);
}

TEST(PageKinds, AHitIsTheLongestThatAllGroupsAgreeOn) {
  // The full kind has all, the window only the end, and the state the edges at 8 and 28.
  KindRig rig(options({kFull, window(5), kState}, 29));
  rig.run_and_release(counting(10));
  const SequenceId id = rig.run(counting(30));
  EXPECT_EQ(rig.cache.report(id).cached_tokens, 10u);
  EXPECT_EQ(rig.look_up(counting(31)).cached_tokens, 28u) << "28, since the last turn goes on";
  EXPECT_EQ(rig.look_up(counting(29)).cached_tokens, 28u);
  EXPECT_EQ(rig.look_up(counting(28)).cached_tokens, 10u);
  EXPECT_EQ(rig.look_up(counting(28)).shortened_by, 2u);
  EXPECT_EQ(rig.look_up(counting(28)).others_tokens, 27u);
  rig.cache.release(id);
}

TEST(PageKinds, AStepThatDoesNotRunLeavesTheStateAsItWas) {
  KindRig rig(options({kState}));
  const std::vector<uint32_t> tokens = counting(20);
  const SequenceId id = rig.begin(tokens);
  rig.compute(id, tokens, 6);
  const PageId before = rig.cache.state(id, 0, 6);
  ASSERT_TRUE(rig.cache.reserve(id, 9).ok());
  rig.cache.plan(id, 9);
  ASSERT_TRUE(rig.cache.reserve(id, 10).ok());
  rig.cache.plan(id, 10);
  EXPECT_NE(rig.cache.state(id, 0, 9), before);
  EXPECT_NE(rig.cache.state(id, 0, 10), before);
  EXPECT_NE(rig.cache.state(id, 0, 10), rig.cache.state(id, 0, 9));
  rig.cache.unplan(id, 6);
  EXPECT_EQ(rig.cache.state(id, 0, 6), before);
  EXPECT_THROW(rig.cache.state(id, 0, 9), CheckFailure);
  rig.compute(id, tokens, 20);
}

TEST(PageKinds, AStateThatNoStepWasToWriteCannotBeCommitted) {
  KindRig rig(options({kState}));
  const SequenceId id = rig.begin(counting(8));
  EXPECT_THROW(rig.cache.commit(id, 5), CheckFailure);
}

TEST(Rewind, ForgetsPositionsAndTokens) {
  KindRig rig(options({kFull}));
  std::vector<uint32_t> tokens = counting(11);
  const SequenceId id = rig.run(tokens);
  ASSERT_TRUE(rig.cache.rewind(id, 6).ok());
  EXPECT_EQ(rig.cache.computed_tokens(id), 6u);
  EXPECT_EQ(rig.cache.blocks(id).size(), 2u);
  EXPECT_EQ(rig.look_up(counting(11)).cached_tokens, 8u) << "what was shared stays findable";
  tokens = joined(counting(6), {70, 71, 72, 73});
  rig.cache.append(id, std::span(tokens).subspan(6));
  rig.compute(id, tokens, 10);
  rig.cache.release(id);
  EXPECT_EQ(rig.look_up(counting(11)).cached_tokens, 8u);
  EXPECT_EQ(rig.look_up(tokens).cached_tokens, 9u);
  EXPECT_EQ(rig.device.wrong_positions(rig.begin(tokens), tokens, ""), 0u);
}

TEST(Rewind, OfAWindowGoesAsFarAsItKeeps) {
  KvCacheOptions with_window = options({window(5)});
  with_window.rewind_tokens = 3;
  KindRig rig(with_window);
  const std::vector<uint32_t> tokens = counting(40);
  const SequenceId id = rig.run(tokens);  // has what position 37 sees: 33 on
  const Status status = rig.cache.rewind(id, 35);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("local"), std::string::npos) << status.error().message;
  EXPECT_EQ(rig.cache.computed_tokens(id), 40u);
  EXPECT_EQ(rig.device.wrong_positions(id, tokens, ""), 0u);
  ASSERT_TRUE(rig.cache.rewind(id, 37).ok());
  EXPECT_TRUE(rig.device.transfer().empty());
  EXPECT_EQ(rig.device.wrong_positions(id, tokens, ""), 0u);
  EXPECT_WHOLE(rig.cache);
}

TEST(Rewind, OfAStateGoesToTheCommitBeforeAndToKeptOnes) {
  KvCacheOptions with_state = options({kState});
  with_state.rewind_tokens = 4;
  KindRig rig(with_state);
  const std::vector<uint32_t> tokens = counting(30);
  const SequenceId id = rig.begin(tokens);
  rig.compute(id, tokens, 30);  // kept at 28
  ASSERT_FALSE(rig.cache.rewind(id, 27).ok());
  ASSERT_FALSE(rig.cache.rewind(id, 31).ok());
  ASSERT_TRUE(rig.cache.rewind(id, 28).ok());
  rig.cache.append(id, std::vector<uint32_t>{50, 51, 52, 53});
  const std::vector<uint32_t> other = joined(counting(28), {50, 51, 52, 53});
  rig.compute(id, other, 29);
  rig.compute(id, other, 32);
  ASSERT_TRUE(rig.cache.rewind(id, 29).ok()) << "the commit before";
  rig.cache.append(id, std::vector<uint32_t>{60});
  rig.compute(id, joined(counting(28), {50, 60}), 30);
  ASSERT_TRUE(rig.cache.rewind(id, 28).ok()) << "a kept one";
  ASSERT_TRUE(rig.cache.rewind(id, 0).ok());
  rig.cache.release(id);
  EXPECT_WHOLE(rig.cache);
}

TEST(Rewind, WithoutABlockToCopyToIsAnErrorThatChangesNothing) {
  KindRig rig(options({kFull}, 2));
  const std::vector<uint32_t> tokens = counting(8);
  const SequenceId id = rig.run(tokens);
  const Status status = rig.cache.rewind(id, 6);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(rig.cache.computed_tokens(id), 8u);
  EXPECT_EQ(rig.device.wrong_positions(id, tokens, ""), 0u);
  EXPECT_WHOLE(rig.cache);
}

class GroupsInAFile : public testing::Test {
 protected:
  Status open(KindRig& rig) const {
    return rig.cache.open_prompt_cache(folder_.path() / "file", 1000 * kBytes);
  }

  test::TemporaryFolder folder_;
};

TEST_F(GroupsInAFile, AreFoundByTheNextProcess) {
  {
    KindRig rig(options({kFull, window(5), kState}));
    ASSERT_TRUE(open(rig).ok());
    rig.run_and_release(counting(30));
    rig.run_and_release(counting(18, 200));
    ASSERT_TRUE(save_prompt_cache(rig.cache, rig.device).ok());
  }
  KindRig next(options({kFull, window(5), kState}));
  ASSERT_TRUE(open(next).ok());
  EXPECT_WHOLE(next.cache);
  const CacheReport report = next.run_and_release(counting(31));
  EXPECT_EQ(report.cached_tokens, 30u);
  EXPECT_EQ(report.file_tokens, 30u) << "of the window only the end, but of the full group all";
  EXPECT_EQ(next.run_and_release(counting(18, 200)).cached_tokens, 16u);
}

TEST_F(GroupsInAFile, AreFoundWhereNothingElseLeadsToAState) {
  {
    KindRig rig(options({kState}));
    ASSERT_TRUE(open(rig).ok());
    rig.run_and_release(counting(30));
    ASSERT_TRUE(save_prompt_cache(rig.cache, rig.device).ok());
  }
  KindRig next(options({kState}));
  ASSERT_TRUE(open(next).ok());
  EXPECT_EQ(next.run_and_release(counting(31)).cached_tokens, 30u);
}

TEST_F(GroupsInAFile, AStateThatOneCouldNotReadIsStillAnothersWhoCould) {
  {
    KindRig rig(options({kState}));
    ASSERT_TRUE(open(rig).ok());
    rig.run_and_release(counting(11));
    ASSERT_TRUE(save_prompt_cache(rig.cache, rig.device).ok());
  }
  KindRig next(options({kState}));
  ASSERT_TRUE(open(next).ok());
  HashedPrompt prompt = next.cache.hash_prompt(counting(12));
  const SequenceId one = *next.cache.begin(prompt);
  prompt = next.cache.hash_prompt(counting(12));
  const SequenceId other = *next.cache.begin(prompt);
  const Transfers transfers = next.cache.take_transfers();
  ASSERT_EQ(transfers.restores.size(), 2u);
  (void)move_bytes(next.cache, transfers, next.device);
  EXPECT_EQ(next.cache.finish_transfers(transfers.batch, {.restores = {0}}),
            std::vector<SequenceId>{one});
  EXPECT_WHOLE(next.cache);
  next.cache.release(one);
  EXPECT_EQ(next.look_up(counting(12)).cached_tokens, 11u) << "the other has it";
  next.compute(other, counting(12), 12);
  next.cache.release(other);
  EXPECT_WHOLE(next.cache);
}

TEST_F(GroupsInAFile, OfOthersAreRefusedWithTheReason) {
  {
    KindRig rig(options({kFull, window(5)}));
    ASSERT_TRUE(open(rig).ok());
    rig.run_and_release(counting(30));
    ASSERT_TRUE(save_prompt_cache(rig.cache, rig.device).ok());
  }
  for (const std::vector<PageKind>& kinds : std::vector<std::vector<PageKind>>{
           {kFull}, {kFull, window(6)}, {window(5), kFull}, {kFull, kState}}) {
    KindRig next(options(kinds));
    const Status status = open(next);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kBadFile);
    EXPECT_NE(status.error().message.find("other state groups"), std::string::npos);
  }
}

}  // namespace
}  // namespace pumice
