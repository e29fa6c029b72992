// Law 1 on models with a full group and a window: what is behind the window is given back while a
// request runs, and what is reused is the part of it that the next position sees.
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/engine_limits.hpp"
#include "tests/engine/windows_fixture.hpp"

namespace pumice {
namespace {

using test::Family;
using test::family_name;
using test::kNew;
using test::kPrompt;
using test::Told;
using test::Windows;

TEST_P(Windows, WhatIsBehindThemIsGivenBackWhileARequestRuns) {
  constexpr uint32_t kChunk = 16;
  const auto engine = this->engine({.token_budget = kChunk, .chunk_tokens = kChunk});
  Told told;
  const auto id = submit(*engine, prompt_, told);
  ASSERT_TRUE(id.ok());
  uint32_t most = 0;
  while (!engine->idle()) {
    keep(step(*engine), {{*id, &told}});
    most = std::max(most, used_pages(*engine));
  }
  expect_whole(told, "in chunks of a block");
  const KvCache& cache = engine->scheduler().cache();
  ASSERT_GE(cache.kinds().size(), 2u);
  const uint64_t all = cache.kinds().size() * kv_blocks_of(kPrompt + kNew);
  EXPECT_LE(most, cache.kinds().pages_for(kPrompt + kNew, kChunk));
  EXPECT_LT(most, all * 3 / 4);
  EXPECT_EQ(used_pages(*engine), 0u);
}

TEST_P(Windows, BatchMatesChangeNothing) {
  const auto engine = this->engine({.n_sequences = 3, .token_budget = 48, .chunk_tokens = 24});
  Told first, second, third;
  const auto b = submit(*engine, tokens(37, 7), second, 30);
  const auto a = submit(*engine, prompt_, first);
  const auto c = submit(*engine, tokens(70, 8), third, 9);
  finish(*engine, {{*a, &first}, {*b, &second}, {*c, &third}});
  expect_whole(first, "with batch mates");
  EXPECT_GE(first.report.prefill_iterations, 6u);
}

TEST_P(Windows, PreemptionChangesNothing) {
  // Room for the prompt and a few blocks of each group besides. While it is read, in chunks of two,
  // the request that came first grows out of those.
  constexpr uint32_t kChunk = 2;
  const auto roomy = engine({});
  const PageKinds& kinds = roomy->scheduler().cache().kinds();
  const auto prompt_pages = static_cast<uint32_t>(kinds.pages_for(kPrompt, kChunk));
  const auto tight = engine({.n_sequences = 2,
                             .kv_blocks = prompt_pages / kinds.size() + 3,
                             .token_budget = 96,
                             .chunk_tokens = kChunk});
  Told small, big;
  const auto a = submit(*tight, tokens(20, 9), small, 120);
  const auto b = submit(*tight, prompt_, big);
  finish(*tight, {{*a, &small}, {*b, &big}});
  EXPECT_GT(big.report.preemptions, 0u);
  expect_whole(big, "preempted");
  EXPECT_EQ(used_pages(*tight), 0u);
}

TEST_P(Windows, BlocksRestoredFromHostMemoryChangeNothingAndAreNotComputed) {
  const auto engine = this->engine({.kv_blocks = 9, .cache_host_bytes = uint64_t{32} << 20});
  for (const uint32_t shared : {40u, 64u, 101u, kPrompt - 1}) {
    const std::string salt = "so much is shared: " + std::to_string(shared);
    Told other;
    ASSERT_TRUE(submit(*engine, beginning(shared), other, 1, salt).ok());
    while (!engine->idle()) step(*engine);
    run(*engine, tokens(kPrompt, shared));  // takes all pages
    const Told again = run(*engine, prompt_, salt);
    expect_whole(again, std::to_string(shared) + " tokens from host memory");
    EXPECT_EQ(again.report.cache.cached_tokens, shared);
    EXPECT_GE(again.report.cache.host_tokens, shared / kKvBlockTokens * kKvBlockTokens);
    EXPECT_EQ(again.rows, rows_after(shared));
  }
}

TEST_P(Windows, BlocksFromAStoreChangeNothingAndAreNotComputed) {
  for (const uint32_t shared : {40u, 101u}) {
    const Told again = run_from_store(beginning(shared));
    expect_whole(again, std::to_string(shared) + " tokens from a store");
    const uint32_t n_stored = shared / kKvBlockTokens * kKvBlockTokens;
    EXPECT_EQ(again.report.cache.cached_tokens, n_stored);
    EXPECT_EQ(again.report.cache.host_tokens, n_stored);
    EXPECT_EQ(again.rows, rows_after(n_stored));
  }
}

TEST_P(Windows, BlocksRestoredFromAFileChangeNothingAndAreNotComputed) {
  const test::TemporaryFile file(std::filesystem::path(::testing::TempDir()) /
                                 ("pumice_windows_" + std::to_string(getpid()) + ".kv"));
  for (const uint32_t shared : {40u, 101u, kPrompt - 1}) {
    std::filesystem::remove(file.path());
    {
      const auto engine = this->engine({.cache_file = file.path()});
      ASSERT_NE(engine, nullptr);
      run(*engine, beginning(shared));
      const Status saved = engine->save_prompt_cache();
      ASSERT_TRUE(saved.ok()) << saved.error().message;
    }
    const auto engine = this->engine({.cache_file = file.path()});
    ASSERT_NE(engine, nullptr);
    const Told again = run(*engine, prompt_);
    expect_whole(again, std::to_string(shared) + " tokens from a file");
    const CacheReport& cache = again.report.cache;
    EXPECT_EQ(cache.cached_tokens, shared);
    EXPECT_GE(cache.file_tokens, shared / kKvBlockTokens * kKvBlockTokens);
    EXPECT_EQ(again.rows, rows_after(shared));
  }
}

TEST_P(Windows, PolledInTheSmallestPiecesNothingChanges) {
  const auto engine = this->engine({.token_budget = 64, .chunk_tokens = 40});
  Told told;
  const auto id = submit(*engine, prompt_, told);
  ASSERT_TRUE(id.ok());
  size_t n_polls = 0;
  for (; !engine->idle(); ++n_polls) {
    const auto events = engine->poll(1e-9);
    ASSERT_TRUE(events.ok()) << events.error().message;
    keep(*events, {{*id, &told}});
    ASSERT_TRUE(engine->check_integrity().ok());
  }
  EXPECT_GT(n_polls, 2 * engine->trace().size());
  expect_whole(told, "polled");
}

INSTANTIATE_TEST_SUITE_P(
    Families, Windows,
    ::testing::Values(Family{"gemma2"}, Family{"gemma3"}, Family{"gemma4"},
                      Family{"gemma2", test::kF16Arithmetic},
                      Family{"gemma2", test::kF32Arithmetic, true},
                      Family{"gemma2", test::kF32Arithmetic, true, {KvType::kQ8_0, KvType::kQ4_0}},
                      Family{test::kSmallValues}, Family{test::kSmallValues, test::kF16Arithmetic},
                      Family{test::kSmallValues, test::kF32Arithmetic, true, KvType::kQ8_0}),
    family_name);

/// Few tokens, for devices on which a second is a thousandth of a second elsewhere: one model whose
/// state group keeps all, one that also has a window, which the text outgrows.
class ShortText : public test::LawTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    set_up(load_family(GetParam()), {.prompt_tokens = 32, .new_tokens = 12, .context_tokens = 48});
  }
};

TEST_P(ShortText, IsTheSameCutAndShared) {
  const auto cut = engine({.token_budget = 16, .chunk_tokens = 7});
  expect_whole(run(*cut, prompt_), "in chunks of 7");
  const Told again = run(*cut, prompt_);
  expect_whole(again, "found");
  EXPECT_EQ(again.report.cache.cached_tokens, 31u);
}

INSTANTIATE_TEST_SUITE_P(Families, ShortText, ::testing::Values("llama", "gemma2"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
}  // namespace pumice
