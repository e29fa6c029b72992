// Law 1 on models whose layers keep a state: however a request is cut, shared, moved or
// interrupted, it goes on from the state behind the tokens before it. Prefixes are found where a
// state was kept.
#include <unistd.h>

#include <bit>
#include <string>
#include <vector>

#include "tests/engine/law_fixture.hpp"

namespace pumice {
namespace {

using test::Told;

constexpr uint32_t kPrompt = 67;
constexpr uint32_t kNew = 6;
constexpr uint32_t kContext = 160;

struct Family {
  const char* name;
  bool invariant = false;
};

void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

std::string family_name(const ::testing::TestParamInfo<Family>& given) {
  std::string name = given.param.name + std::string(given.param.invariant ? "_invariant" : "");
  std::ranges::replace(name, '-', '_');
  return name;
}

class Recurrent : public test::LawTest, public ::testing::WithParamInterface<Family> {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    set_up(load_family(GetParam().name), {.invariant = GetParam().invariant,
                                          .prompt_tokens = kPrompt,
                                          .new_tokens = kNew,
                                          .context_tokens = kContext});
  }

  /// The first tokens of the prompt, and one that is not its next.
  std::vector<TokenId> beginning(uint32_t n_tokens) const {
    std::vector<TokenId> result(prompt_.begin(), prompt_.begin() + n_tokens);
    result.push_back((prompt_[n_tokens] + 1) % model_->program.n_vocab);
    return result;
  }
  /// Of a prompt that shares so many tokens with one that was read, which keeps a state at its last
  /// block's edge.
  uint32_t found(uint32_t shared) const { return shared / block_tokens() * block_tokens(); }
  uint32_t block_tokens() const { return state_layout(model_->program, KvType::kF32).block_tokens; }
  /// Of so many tokens.
  uint32_t n_blocks(uint32_t n_tokens) const {
    return (n_tokens + block_tokens() - 1) / block_tokens();
  }

  uint32_t n_recurrent() const {
    const StateLayout layout = state_layout(model_->program, KvType::kF32);
    return static_cast<uint32_t>(std::popcount(layout.recurrent_kinds()));
  }
  /// An engine's, for that many pages of keys and values and two of each state in all.
  uint32_t kv_blocks(uint32_t n_pages) const {
    const uint32_t n_groups = 1 + n_recurrent();
    return (n_pages + 2 * n_recurrent() + n_groups - 1) / n_groups * block_tokens() /
           kKvBlockTokens;
  }

  static uint32_t used_pages(const Engine& engine) {
    return engine.scheduler().cache().n_pages() - engine.scheduler().cache().n_free_pages();
  }
};

TEST_P(Recurrent, ChunksOfEverySizeChangeNothing) {
  for (uint32_t chunk = 1; chunk < kPrompt; chunk += chunk < 20 ? 1 : 9) {
    const auto engine = this->engine(
        {.token_budget = std::max(chunk, 16u), .chunk_tokens = chunk, .prefix_cache = false});
    const Told cut = run(*engine, prompt_);
    expect_whole(cut, "chunks of " + std::to_string(chunk));
    EXPECT_GE(cut.report.prefill_iterations, (kPrompt + chunk - 1) / chunk);
  }
}

TEST_P(Recurrent, HitsEndWhereAStateWasKeptAndTheRestIsComputed) {
  const auto engine = this->engine({.kv_blocks = 48});
  for (const uint32_t shared : {0u, 5u, 15u, 16u, 17u, 31u, 48u, 63u, 64u, kPrompt - 1}) {
    const std::string salt = "so much is shared: " + std::to_string(shared);
    Told other;
    ASSERT_TRUE(submit(*engine, beginning(shared), other, 1, salt).ok());
    while (!engine->idle()) step(*engine);
    const Told again = run(*engine, prompt_, salt);
    expect_whole(again, std::to_string(shared) + " tokens shared");
    EXPECT_EQ(again.report.cache.cached_tokens, found(shared)) << shared;
    EXPECT_EQ(again.rows, rows_after(found(shared))) << shared;
    // It kept a state of its own before its end.
    const Told third = run(*engine, prompt_, salt);
    expect_whole(third, "again");
    EXPECT_EQ(third.report.cache.cached_tokens, found(kPrompt - 1));
  }
}

TEST_P(Recurrent, EachOfTenTurnsGoesOnFromTheEndOfTheLast) {
  constexpr uint32_t kAnswer = 3;
  const auto engine = this->engine({});
  std::vector<TokenId> text = prompt_;
  uint32_t n_known = 0;
  Told last;
  for (uint32_t turn = 0; turn < 10; ++turn) {
    if (turn > 0) {
      const std::vector<TokenId> question = tokens(5, turn);
      text.insert(text.end(), last.tokens.begin(), last.tokens.end());
      text.insert(text.end(), question.begin(), question.end());
    }
    last = {};
    const auto id = submit(*engine, text, last, kAnswer);
    ASSERT_TRUE(id.ok()) << id.error().message;
    finish(*engine, {{*id, &last}});
    EXPECT_EQ(last.report.cache.cached_tokens, n_known) << turn;
    // The last token was sampled, not read.
    n_known = static_cast<uint32_t>(text.size()) + kAnswer - 1;
  }
  Told alone;
  const auto fresh = this->engine({.prefix_cache = false});
  const auto id = submit(*fresh, text, alone, kAnswer);
  ASSERT_TRUE(id.ok()) << id.error().message;
  finish(*fresh, {{*id, &alone}});
  EXPECT_EQ(last.tokens, alone.tokens);
  for (const auto& [position, row] : last.logits) {
    EXPECT_LE(test::nmse(row, alone.logits.at(position)), law_.arithmetic.bound) << position;
  }
}

TEST_P(Recurrent, ASavedConversationGoesOnElsewhere) {
  const auto here = this->engine({});
  const Told first = run(*here, prompt_);
  std::vector<TokenId> said = prompt_;
  said.insert(said.end(), first.tokens.begin(), first.tokens.end());
  const auto bytes = here->save({.tokens = said});
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  const auto there = this->engine({});
  const auto restored = there->restore(*bytes, {});
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  // The last token was sampled, not read.
  EXPECT_EQ(restored->state_tokens, kPrompt + kNew - 1);
  const Told second = run(*there, said);
  EXPECT_EQ(second.report.cache.cached_tokens, kPrompt + kNew - 1);
  const Told alone = run(*this->engine({.prefix_cache = false}), said);
  EXPECT_EQ(second.tokens, alone.tokens);
  for (const auto& [position, row] : second.logits) {
    EXPECT_LE(test::nmse(row, alone.logits.at(position)), law_.arithmetic.bound) << position;
  }
}

TEST_P(Recurrent, BatchMatesChangeNothing) {
  const auto engine = this->engine({.n_sequences = 3, .token_budget = 48, .chunk_tokens = 24});
  Told first, second, third;
  const auto b = submit(*engine, tokens(37, 7), second, 30);
  const auto a = submit(*engine, prompt_, first);
  const auto c = submit(*engine, tokens(70, 8), third, 9);
  finish(*engine, {{*a, &first}, {*b, &second}, {*c, &third}});
  expect_whole(first, "with batch mates");
  EXPECT_GE(first.report.prefill_iterations, 3u);
  EXPECT_EQ(used_pages(*engine), 0u);
}

TEST_P(Recurrent, PreemptionChangesNothing) {
  // Room for either of them, not for both, and the second is served first.
  const auto tight = engine({.n_sequences = 2,
                             .kv_blocks = kv_blocks(n_blocks(100)),
                             .token_budget = 16,
                             .chunk_tokens = 16});
  Told told, other;
  const auto a = submit(*tight, prompt_, told);
  ASSERT_TRUE(a.ok());
  for (int i = 0; i < 2; ++i) keep(step(*tight), {{*a, &told}});
  const auto b = tight->submit(
      {.prompt = tokens(60, 9), .max_new_tokens = 40, .service_class = ServiceClass::kInteractive});
  ASSERT_TRUE(b.ok()) << b.error().message;
  finish(*tight, {{*a, &told}, {*b, &other}});
  EXPECT_GT(told.report.preemptions, 0u);
  expect_whole(told, "preempted");
  EXPECT_EQ(used_pages(*tight), 0u);
}

TEST_P(Recurrent, StatesRestoredFromHostMemoryChangeNothing) {
  const auto engine =
      this->engine({.kv_blocks = kv_blocks(n_blocks(128)), .cache_host_bytes = uint64_t{32} << 20});
  const KvCache& cache = engine->scheduler().cache();
  const uint32_t n_paged = cache.n_pages() - 2 * n_recurrent();
  const uint32_t filling = std::min(kContext, n_paged * block_tokens()) - kNew;
  for (const uint32_t shared : {40u, 64u}) {
    const std::string salt = "so much is shared: " + std::to_string(shared);
    Told other;
    ASSERT_TRUE(submit(*engine, beginning(shared), other, 1, salt).ok());
    while (!engine->idle()) step(*engine);
    run(*engine, tokens(filling, shared));  // takes all pages
    const Told again = run(*engine, prompt_, salt);
    expect_whole(again, std::to_string(shared) + " tokens from host memory");
    EXPECT_EQ(again.report.cache.cached_tokens, found(shared));
    EXPECT_EQ(again.report.cache.host_tokens > 0, found(shared) > 0);
    EXPECT_EQ(again.rows, rows_after(found(shared)));
  }
}

TEST_P(Recurrent, StatesFromAStoreChangeNothing) {
  // A state is stored where it was kept on the edge of a block: the last before the prompt's end.
  constexpr uint32_t kShared = 40;
  const uint32_t edge = (kShared - 1) / block_tokens() * block_tokens();
  const Told again = run_from_store(beginning(kShared));
  expect_whole(again, "from a store");
  EXPECT_EQ(again.report.cache.cached_tokens, edge);
  EXPECT_EQ(again.rows, rows_after(edge));
}

TEST_P(Recurrent, StatesRestoredFromAFileChangeNothing) {
  const test::TemporaryFile file(std::filesystem::path(::testing::TempDir()) /
                                 ("pumice_recurrent_" + std::to_string(getpid()) + ".kv"));
  {
    const auto engine = this->engine({.cache_file = file.path()});
    ASSERT_NE(engine, nullptr);
    run(*engine, beginning(40));
    const Status saved = engine->save_prompt_cache();
    ASSERT_TRUE(saved.ok()) << saved.error().message;
  }
  const auto engine = this->engine({.cache_file = file.path()});
  ASSERT_NE(engine, nullptr);
  const Told again = run(*engine, prompt_);
  expect_whole(again, "from a file");
  EXPECT_EQ(again.report.cache.cached_tokens, found(40));
  EXPECT_EQ(again.rows, rows_after(found(40)));
}

TEST_P(Recurrent, PolledInTheSmallestPiecesNothingChanges) {
  const auto engine = this->engine({.token_budget = 64, .chunk_tokens = 40});
  Told told;
  const auto id = submit(*engine, prompt_, told);
  ASSERT_TRUE(id.ok());
  while (!engine->idle()) {
    const auto events = engine->poll(1e-9);
    ASSERT_TRUE(events.ok()) << events.error().message;
    keep(*events, {{*id, &told}});
    ASSERT_TRUE(engine->check_integrity().ok());
  }
  expect_whole(told, "polled");
}

TEST_P(Recurrent, HalfOfTheMemoryAmidAGenerationChangesNothing) {
  const auto engine = this->engine(
      {.kv_blocks = kv_blocks(8 * n_blocks(kContext)), .token_budget = 16, .chunk_tokens = 16});
  Told told;
  const auto id = submit(*engine, prompt_, told);
  ASSERT_TRUE(id.ok());
  for (int i = 0; i < 3; ++i) keep(step(*engine), {{*id, &told}});
  const uint64_t budget = engine->memory().used_bytes - engine->memory().kv_bytes / 2;
  ASSERT_TRUE(engine->set_memory_budget(budget).ok());
  while (!engine->idle()) {
    keep(step(*engine), {{*id, &told}});
    ASSERT_TRUE(engine->check_integrity().ok());
    if (told.tokens.size() == kNew / 2) {
      EXPECT_TRUE(engine->memory().met);
      EXPECT_LE(engine->memory().used_bytes, budget);
      ASSERT_TRUE(engine->set_memory_budget(UINT64_MAX).ok());
    }
  }
  expect_whole(told, "half of the memory");
}

/// A step that comes to nothing wrote a page that nobody reads.
TEST_P(Recurrent, AFailedStepLeavesTheStateAsItWas) {
  for (const StepStage stage : {StepStage::kSubmit, StepStage::kLand}) {
    for (int at = 0; at < 8; ++at) {
      const auto engine = this->engine({.token_budget = 32, .chunk_tokens = 16});
      int n = 0;
      engine->set_hooks({.at_stage = [&](StepStage now) -> Status {
        if (now != stage || n++ != at) return {};
        return make_error(ErrorCode::kInternal, "planned");
      }});
      Told told;
      const auto id = submit(*engine, prompt_, told);
      ASSERT_TRUE(id.ok());
      uint32_t n_failed = 0;
      while (!engine->idle()) {
        const auto events = engine->step();
        if (!events.ok()) {
          ++n_failed;
          continue;
        }
        keep(*events, {{*id, &told}});
      }
      EXPECT_EQ(n_failed, 1u);
      expect_whole(told, "a step failed");
    }
  }
}

TEST_P(Recurrent, StepsPlannedAheadReadTheStateOfTheStepBefore) {
  const auto engine = make_engine(model_, {.kv_type = KvType::kF32,
                                           .math = ops::Math::kF32,
                                           .context_tokens = kContext,
                                           .chunk_tokens = 20,
                                           .invariant = GetParam().invariant,
                                           .greedy_only = true});
  EXPECT_EQ(greedy(*engine, prompt_, kNew), whole_.tokens);
  const auto trace = engine->trace();
  const bool overlaps = std::ranges::any_of(trace, [&](const StepTrace& step) {
    return std::ranges::any_of(trace, [&](const StepTrace& before) {
      return before.id + 1 == step.id && step.submitted_s < before.ended_s;
    });
  });
  EXPECT_TRUE(overlaps);
}

INSTANTIATE_TEST_SUITE_P(Families, Recurrent,
                         ::testing::Values(Family{"lfm2"}, Family{"lfm2", true},
                                           Family{"granitehybrid"}, Family{"granitehybrid", true},
                                           Family{"falcon-h1"}, Family{"qwen35"},
                                           Family{"qwen3next", true}, Family{"jamba"},
                                           Family{"kimi-linear", true}),
                         family_name);

}  // namespace
}  // namespace pumice
