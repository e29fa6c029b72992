// Conversations that are saved and restored go on as if they had not been: the same tokens, and
// only what follows is computed.
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/engine/synthetic_fixture.hpp"

namespace pumice {
namespace {

using Tokens = std::vector<TokenId>;
using Bytes = std::vector<std::byte>;

class SavedSequences : public test::SyntheticEngineTest {
 protected:
  static EngineOptions options() {
    return {.kv_type = KvType::kF32, .context_tokens = 128, .n_sequences = 3, .invariant = true};
  }
  std::unique_ptr<Engine> engine(const EngineOptions& chosen = options()) const {
    return make_engine(model_, chosen);
  }
  /// All tokens of a request, and its report.
  static Tokens finish(Engine& engine, RequestId id, RequestReport* report = nullptr) {
    Tokens tokens;
    while (!engine.idle()) {
      for (const StepEvent& event : step(engine)) {
        if (event.request != id) continue;
        if (event.token) tokens.push_back(*event.token);
        if (event.report && report != nullptr) *report = *event.report;
      }
    }
    return tokens;
  }
  static Tokens run(Engine& engine, const GenerationRequest& request,
                    RequestReport* report = nullptr) {
    const auto id = engine.submit(request);
    EXPECT_TRUE(id.ok()) << id.error().message;
    return id.ok() ? finish(engine, *id, report) : Tokens{};
  }
  static Bytes save(Engine& engine, const SavedSequence& sequence) {
    const auto bytes = engine.save(sequence);
    EXPECT_TRUE(bytes.ok()) << bytes.error().message;
    return bytes.ok() ? *bytes : Bytes{};
  }
  static SavedSequence restore(Engine& engine, const Bytes& bytes,
                               const RestoreOptions& options = {}) {
    const auto sequence = engine.restore(bytes, options);
    EXPECT_TRUE(sequence.ok()) << sequence.error().message;
    EXPECT_TRUE(engine.check_integrity().ok());
    return sequence.ok() ? *sequence : SavedSequence{};
  }
  /// Tokens of a request, of which the first `n` have landed.
  static RequestId run_until(Engine& engine, const GenerationRequest& request, size_t n) {
    const auto id = engine.submit(request);
    EXPECT_TRUE(id.ok());
    for (size_t n_told = 0; n_told < n;) {
      for (const StepEvent& event : step(engine)) {
        n_told += event.request == *id && event.token ? 1 : 0;
      }
    }
    return *id;
  }
};

TEST_F(SavedSequences, OfEveryLengthGoOnWithoutComputingThemAgain) {
  const auto here = engine();
  const auto there = engine();
  for (size_t n = 1; n <= 2 * kKvBlockTokens + 1; ++n) {
    const Tokens conversation = tokens(n, static_cast<uint32_t>(n));
    greedy(*here, conversation, 1);
    // What is saved: all that was said, and what comes next.
    Tokens said = conversation;
    said.push_back(5);
    const SavedSequence restored = restore(*there, save(*here, {.tokens = said}));
    EXPECT_EQ(restored.tokens, said);
    EXPECT_EQ(restored.state_tokens, n);
    const uint64_t rows = there->dispatched_rows();
    const Tokens there_said = greedy(*there, said, 3);
    EXPECT_EQ(there->dispatched_rows() - rows, 3u) << n;
    EXPECT_EQ(there_said, greedy(*here, said, 3)) << n;
  }
}

TEST_F(SavedSequences, OfARequestUnderWayGoOnAsItDoes) {
  for (const bool seeded : {false, true}) {
    GenerationRequest request{.prompt = tokens(37, 3), .max_new_tokens = 24};
    if (seeded) request.sampling = with_penalties(9);
    const auto undisturbed = engine();
    const Tokens expected = run(*undisturbed, request);
    for (const size_t n_landed : {1u, 4u, 12u}) {
      const auto here = engine();
      const RequestId id = run_until(*here, request, n_landed);
      const auto sequence = here->sequence(id);
      ASSERT_TRUE(sequence.ok());
      ASSERT_EQ(sequence->tokens.size(), request.prompt.size() + n_landed);
      const Bytes bytes = save(*here, *sequence);
      // The one that was saved goes on undisturbed.
      Tokens told(sequence->tokens.begin() + 37, sequence->tokens.end());
      const Tokens rest = finish(*here, id);
      told.insert(told.end(), rest.begin(), rest.end());
      EXPECT_EQ(told, expected);

      const auto there = engine();
      const SavedSequence restored = restore(*there, bytes);
      EXPECT_EQ(restored.next_output_index, n_landed);
      EXPECT_EQ(restored.n_prompt, 37u);
      RequestReport report;
      const Tokens gone_on =
          run(*there, continuation(restored, 24 - static_cast<uint32_t>(n_landed)), &report);
      EXPECT_EQ(gone_on, rest) << seeded << " " << n_landed;
      // At most the block that was not full is computed again.
      EXPECT_LE(restored.tokens.size() - report.cache.cached_tokens, kKvBlockTokens + 1);
    }
  }
}

TEST_F(SavedSequences, AreSavedAndRestoredWhileOthersRun) {
  const GenerationRequest other{
      .prompt = tokens(50, 8), .max_new_tokens = 30, .sampling = with_penalties(4)};
  const auto undisturbed = engine();
  const Tokens expected = run(*undisturbed, other);
  const auto busy = engine();
  greedy(*busy, tokens(40, 1), 1);
  Tokens said = tokens(40, 1);
  said.push_back(5);
  const auto id = busy->submit(other);
  ASSERT_TRUE(id.ok());
  Tokens told;
  while (!busy->idle()) {
    const auto events = busy->poll(1e-9);
    ASSERT_TRUE(events.ok()) << events.error().message;
    for (const StepEvent& event : *events) {
      if (event.token) told.push_back(*event.token);
    }
    const Bytes bytes = save(*busy, {.tokens = said});
    EXPECT_EQ(restore(*busy, bytes).state_tokens, 40u);
  }
  EXPECT_EQ(told, expected);
}

// What the engine gives up to make room may still be written to by steps that are queued.
TEST_F(SavedSequences, AreNotOverwrittenByStepsOfRequestsThatEnded) {
  const auto here = engine();
  greedy(*here, tokens(90, 1), 1);
  Tokens said = tokens(90, 1);
  said.push_back(5);
  const Bytes bytes = save(*here, {.tokens = said});
  const Tokens expected = greedy(*here, said, 4);
  EngineOptions small = options();
  small.n_sequences = 2;
  small.kv_blocks = 8;
  const EngineMode modes[] = {EngineMode::kFast, EngineMode::kBesideGraphics,
                              EngineMode::kBackground};
  for (size_t i_run = 0; i_run < 33; ++i_run) {
    const size_t n_polls = 1 + i_run / 3;
    const auto there = engine(small);
    there->set_mode(modes[i_run % 3]);
    // For this one the step goes on.
    const auto lasting = there->submit({.prompt = tokens(10, 3), .max_new_tokens = 3});
    ASSERT_TRUE(lasting.ok());
    const auto cancelled = there->submit({.prompt = tokens(100, 2), .max_new_tokens = 8});
    ASSERT_TRUE(cancelled.ok());
    for (size_t i = 0; i < n_polls; ++i) ASSERT_TRUE(there->poll(1e-9).ok());
    there->cancel(*cancelled);
    ASSERT_EQ(restore(*there, bytes).state_tokens, 90u);
    finish(*there, *lasting);
    EXPECT_EQ(greedy(*there, said, 4), expected) << n_polls << " in mode " << i_run % 3;
  }
}

// The same where a mode holds back most of a step.
TEST_F(SavedSequences, AreNotOverwrittenByWhatAModeHeldBack) {
  EngineOptions large = options();
  large.context_tokens = 512;
  const auto here = engine(large);
  greedy(*here, tokens(390, 1), 1);
  Tokens said = tokens(390, 1);
  said.push_back(5);
  const Bytes bytes = save(*here, {.tokens = said});
  const Tokens expected = greedy(*here, said, 8);
  large.n_sequences = 2;
  large.kv_blocks = 27;
  for (const EngineMode mode : {EngineMode::kBackground, EngineMode::kBesideGraphics}) {
    for (const size_t n_polls : {1, 2, 4}) {
      const auto there = engine(large);
      there->set_mode(mode);
      const auto lasting = there->submit({.prompt = tokens(10, 3), .max_new_tokens = 3});
      ASSERT_TRUE(lasting.ok());
      const auto cancelled = there->submit({.prompt = tokens(400, 2), .max_new_tokens = 8});
      ASSERT_TRUE(cancelled.ok());
      for (size_t i = 0; i < n_polls; ++i) ASSERT_TRUE(there->poll(1e-9).ok());
      there->cancel(*cancelled);
      ASSERT_EQ(restore(*there, bytes).state_tokens, 390u);
      finish(*there, *lasting);
      EXPECT_EQ(greedy(*there, said, 8), expected) << n_polls;
    }
  }
}

TEST_F(SavedSequences, ShareWhatTheyBeginWith) {
  const auto here = engine();
  const Tokens system = tokens(4 * kKvBlockTokens, 7);
  std::vector<Tokens> characters;
  std::vector<Bytes> saved;
  for (uint32_t i = 0; i < 3; ++i) {
    Tokens said = system;
    for (const TokenId token : tokens(20, 20 + i)) said.push_back(token);
    const uint64_t rows = here->dispatched_rows();
    greedy(*here, said, 1);
    EXPECT_EQ(here->dispatched_rows() - rows, i == 0 ? 84u : 20u) << "the prompt is read once";
    said.push_back(5);
    characters.push_back(said);
    saved.push_back(save(*here, {.tokens = said}));
  }
  const auto there = engine();
  for (const Bytes& bytes : saved) EXPECT_EQ(restore(*there, bytes).state_tokens, 84u);
  const CacheLedger ledger = there->scheduler().cache().ledger();
  const uint64_t page_bytes = there->scheduler().cache().options().page_bytes;
  EXPECT_EQ(ledger.device_cached_bytes, (4 + 3 * 2) * page_bytes) << "the prompt is kept once";
  for (const Tokens& said : characters) EXPECT_EQ(greedy(*there, said, 3), greedy(*here, said, 3));
}

TEST_F(SavedSequences, OfAnotherModelOrArithmeticAreRefusedAndHarmNothing) {
  const auto here = engine();
  greedy(*here, tokens(40, 1), 1);
  Tokens said = tokens(40, 1);
  said.push_back(5);
  const Bytes bytes = save(*here, {.tokens = said});
  EngineOptions narrow = options();
  narrow.kv_type = KvType::kF16;
  const auto other_type = engine(narrow);
  const auto refused = other_type->restore(bytes);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBadFile);
  EXPECT_NE(refused.error().message.find("another KV type"), std::string::npos);
  EXPECT_EQ(other_type->scheduler().cache().ledger().device_cached_bytes, 0u);
  const SavedSequence as_tokens = restore(*other_type, bytes, {.tokens_only = true});
  EXPECT_EQ(as_tokens.tokens, said);
  EXPECT_EQ(as_tokens.state_tokens, 0u);

  const test::TemporaryFile file = test::write_synthetic_model({.seed = 2});
  model_ = load(file.path());
  const auto other_model = engine();
  for (const bool tokens_only : {false, true}) {
    const auto foreign = other_model->restore(bytes, {.tokens_only = tokens_only});
    ASSERT_FALSE(foreign.ok());
    EXPECT_NE(foreign.error().message.find("another model"), std::string::npos);
  }
  EXPECT_EQ(other_model->scheduler().cache().ledger().device_cached_bytes, 0u);
}

// A character's rate is kept by `step` too, which sleeps: no event means that nothing is left.
TEST_F(SavedSequences, GoOnNoFasterThanTheyMay) {
  const auto here = engine();
  GenerationRequest request = continuation({.tokens = tokens(5, 1), .n_prompt = 5}, 4);
  request.max_tokens_per_s = 100;
  RequestReport report;
  EXPECT_EQ(run(*here, request, &report).size(), 4u);
  EXPECT_GE(report.times.last_token - report.times.arrived, 2 / 100.0);
  EXPECT_TRUE(std::isinf(here->next_due_s()));
  const auto late = here->submit(request);
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(here->next_due_s(), 0);
  size_t n_told = 0;
  while (!here->idle()) {
    const auto events = step(*here);
    ASSERT_FALSE(events.empty());
    for (const StepEvent& event : events) n_told += event.token ? 1 : 0;
  }
  EXPECT_EQ(n_told, 4u);
}

TEST_F(SavedSequences, WithoutRoomAreTokens) {
  const auto here = engine();
  greedy(*here, tokens(60, 1), 1);
  Tokens said = tokens(60, 1);
  said.push_back(5);
  const Bytes bytes = save(*here, {.tokens = said});
  EngineOptions small = options();
  small.kv_blocks = 8;
  const auto there = engine(small);
  const RequestId id = run_until(*there, {.prompt = tokens(90, 2), .max_new_tokens = 9}, 2);
  const SavedSequence restored = restore(*there, bytes);
  EXPECT_EQ(restored.state_tokens, 0u);
  EXPECT_EQ(restored.tokens, said);
  EXPECT_EQ(finish(*there, id).size(), 7u);
}

TEST_F(SavedSequences, AreNotMadeOfWhatNobodyCouldRestore) {
  const auto here = engine();
  for (const SavedSequence& wrong :
       {SavedSequence{.tokens = {1, 96}}, SavedSequence{.tokens = {1}, .n_prompt = 2},
        SavedSequence{.tokens = {1}, .sampling = {.top_p = 2}}}) {
    const auto saved = here->save(wrong);
    ASSERT_FALSE(saved.ok());
    EXPECT_EQ(saved.error().code, ErrorCode::kInvalidArgument);
  }
  const auto ended = here->sequence(17);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pumice
