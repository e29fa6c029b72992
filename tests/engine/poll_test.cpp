// An engine driven by a host with a frame to draw: `poll` gives what `step` gives, in pieces.
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <thread>

#include "tests/engine/synthetic_fixture.hpp"

namespace pumice {
namespace {

constexpr double kTiny = 1e-9;  // one segment at a time

class Poll : public test::SyntheticEngineTest {
 protected:
  using Told = std::map<RequestId, std::vector<TokenId>>;

  /// A prompt that is read in several steps, and one that is sampled with penalties.
  static void submit_two(Engine& engine) {
    EXPECT_TRUE(engine.submit({.prompt = tokens(70, 1), .max_new_tokens = 20}).ok());
    EXPECT_TRUE(
        engine
            .submit({.prompt = tokens(30, 2), .max_new_tokens = 20, .sampling = with_penalties(2)})
            .ok());
  }
  std::unique_ptr<Engine> engine(EngineOptions options = {}) const {
    options.context_tokens = 128;
    options.n_sequences = 2;
    options.token_budget = options.chunk_tokens = 32;
    return make_engine(model_, options);
  }
  static void keep(const std::vector<StepEvent>& events, Told& told) {
    for (const StepEvent& event : events) {
      if (event.token) told[event.request].push_back(*event.token);
    }
  }
  /// All tokens, by `poll`; the number of calls.
  static size_t poll_all(Engine& engine, double budget_s, Told& told) {
    size_t n_polls = 0;
    const auto start = std::chrono::steady_clock::now();
    while (!engine.idle()) {
      const auto events = engine.poll(budget_s);
      EXPECT_TRUE(events.ok()) << events.error().message;
      const Status whole = engine.check_integrity();
      EXPECT_TRUE(whole.ok()) << whole.error().message;
      if (!events.ok()) break;
      keep(*events, told);
      ++n_polls;
      if (std::chrono::steady_clock::now() - start > std::chrono::minutes(5)) {
        ADD_FAILURE() << "polling does not get on";
        break;
      }
    }
    return n_polls;
  }
  Told expected() const {
    const auto undisturbed = engine();
    submit_two(*undisturbed);
    Told told;
    while (!undisturbed->idle()) keep(step(*undisturbed), told);
    EXPECT_EQ(told.begin()->second.size(), 20u);
    return told;
  }
};

TEST_F(Poll, GivesTheTokensOfStepsForEveryBudget) {
  const Told wanted = expected();
  for (const double budget_s : {0.0, kTiny, 1e-3, Submitter::kNoBudget}) {
    const auto polled = engine();
    submit_two(*polled);
    Told told;
    poll_all(*polled, budget_s, told);
    EXPECT_EQ(told, wanted) << budget_s;
  }
}

TEST_F(Poll, GivesTheSameTokensInEveryModeAndSoDoSteps) {
  const Told wanted = expected();
  for (const bool polls : {true, false}) {
    const auto polite = engine();
    submit_two(*polite);
    Told told;
    const EngineMode modes[] = {EngineMode::kBesideGraphics, EngineMode::kBackground,
                                EngineMode::kFast};
    for (size_t i = 0; !polite->idle(); ++i) {
      polite->set_mode(modes[i / 4 % 3]);
      const auto events = polls ? polite->poll(Submitter::kNoBudget) : polite->step();
      ASSERT_TRUE(events.ok()) << events.error().message;
      keep(*events, told);
    }
    EXPECT_EQ(told, wanted) << polls;
  }
}

TEST_F(Poll, MayBeMixedWithSteps) {
  const auto mixed = engine();
  submit_two(*mixed);
  Told told;
  for (int i = 0; !mixed->idle(); ++i) {
    const auto events = i % 3 == 0 ? mixed->step() : mixed->poll(kTiny);
    ASSERT_TRUE(events.ok()) << events.error().message;
    keep(*events, told);
  }
  EXPECT_EQ(told, expected());
}

TEST_F(Poll, IsWaitedForUntilAnyThreadWakesWhoWaits) {
  using Clock = std::chrono::steady_clock;
  const auto idle = engine();
  const auto start = Clock::now();
  ASSERT_TRUE(idle->wait(0.02).ok());
  EXPECT_GE(std::chrono::duration<double>(Clock::now() - start).count(), 0.02);
  idle->wake();  // before the wait: it counts
  ASSERT_TRUE(idle->wait(600).ok());
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    idle->wake();
  });
  ASSERT_TRUE(idle->wait(600).ok());
  other.join();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(60));
  // With something to plan it does not wait at all.
  submit_two(*idle);
  ASSERT_TRUE(idle->wait(600).ok());
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(60));
}

TEST_F(Poll, MovesBlocksBetweenTiersWithoutWaiting) {
  // Room for one of the prompts: the other one's blocks go to host memory and come back.
  const auto tiered = make_engine(model_, {.context_tokens = 128,
                                           .kv_blocks = 7,
                                           .token_budget = 32,
                                           .chunk_tokens = 32,
                                           .cache_host_bytes = uint64_t{8} << 20});
  const auto alone = make_engine(model_, {.context_tokens = 128});
  for (int round = 0; round < 2; ++round) {
    for (const uint32_t seed : {1u, 4u}) {
      const auto id = tiered->submit({.prompt = tokens(90, seed), .max_new_tokens = 5});
      ASSERT_TRUE(id.ok());
      Told told;
      poll_all(*tiered, kTiny, told);
      EXPECT_EQ(told[*id], greedy(*alone, tokens(90, seed), 5));
    }
  }
  EXPECT_GE(tiered->scheduler().cache().stats().host_tokens, 140u);
}

TEST_F(Poll, MayBeFollowedByACancellationAtAnyPoint) {
  const auto tiered = make_engine(model_, {.context_tokens = 128,
                                           .n_sequences = 2,
                                           .kv_blocks = 7,
                                           .token_budget = 32,
                                           .chunk_tokens = 32,
                                           .cache_host_bytes = uint64_t{8} << 20});
  const auto expected = greedy(*make_engine(model_, {.context_tokens = 128}), tokens(90, 1), 2);
  for (size_t n_polls = 0; n_polls < 24; ++n_polls) {
    // What it restores went to host memory when the other one ran.
    const auto cancelled = tiered->submit({.prompt = tokens(90, 4), .max_new_tokens = 5});
    ASSERT_TRUE(cancelled.ok());
    for (size_t i = 0; i < n_polls; ++i) ASSERT_TRUE(tiered->poll(kTiny).ok());
    tiered->cancel(*cancelled);
    const auto lasting = tiered->submit({.prompt = tokens(90, 1), .max_new_tokens = 2});
    ASSERT_TRUE(lasting.ok());
    Told told;
    poll_all(*tiered, kTiny, told);
    EXPECT_EQ(told[*lasting], expected) << n_polls;
  }
  EXPECT_GT(tiered->scheduler().cache().stats().host_tokens, 200u);
}

TEST_F(Poll, SubmitsNothingMoreOfAStepThatNobodyWants) {
  // The device has nothing when it is polled: each call submits a segment.
  const auto finish = [&](Engine& engine) {
    size_t n_polls = 0;
    for (; !engine.idle(); ++n_polls) {
      EXPECT_TRUE(engine.poll(kTiny).ok());
      pipelines_->device()->wait_idle();
    }
    return n_polls;
  };
  const auto submit = [&](Engine& engine, size_t n_prompt) {
    return *engine.submit({.prompt = tokens(n_prompt, 4), .max_new_tokens = 1});
  };
  const auto fresh = [&] {
    return make_engine(model_, {.context_tokens = 512, .token_budget = 512, .chunk_tokens = 512});
  };
  const auto alone = fresh();
  submit(*alone, 9);
  const size_t n_short = finish(*alone);
  const auto whole = fresh();
  submit(*whole, 500);
  const size_t n_long = finish(*whole);
  ASSERT_GT(n_long, 8u) << "too few segments to leave any out";
  const auto engine = fresh();
  const RequestId cancelled = submit(*engine, 500);
  ASSERT_TRUE(engine->poll(kTiny).ok());
  engine->cancel(cancelled);
  submit(*engine, 9);
  EXPECT_LE(finish(*engine), n_short + 3);
}

TEST_F(Poll, AfterAFailureLosesNothing) {
  const auto disturbed = engine();
  int n = 0;
  disturbed->set_hooks({.at_stage = [&](StepStage) -> Status {
    if (++n % 5 != 0) return {};
    return make_error(ErrorCode::kInternal, "a fault for the test");
  }});
  submit_two(*disturbed);
  Told told;
  int n_failures = 0;
  while (!disturbed->idle()) {
    const auto events = disturbed->poll(kTiny);
    ASSERT_TRUE(disturbed->check_integrity().ok());
    if (events.ok()) {
      keep(*events, told);
    } else {
      ++n_failures;
    }
  }
  EXPECT_GT(n_failures, 3);
  EXPECT_EQ(told, expected());
}

/// Kernels are compiled in pieces, by whoever wants them first.
class Prewarm : public Poll {
 protected:
  /// Other tests have compiled these kernels: a library of its own has not.
  void SetUp() override {
    Poll::SetUp();
    if (IsSkipped()) return;
    own_.emplace(pipelines_->device());
  }
  void TearDown() override {
    own_.reset();
    Poll::TearDown();
  }
  static std::unique_ptr<Engine> cold_engine(const std::shared_ptr<const Model>& model) {
    return make_engine(model, {.context_tokens = 64, .greedy_only = true, .prewarm = false});
  }

  std::optional<OnDevice> own_;
};

TEST_F(Prewarm, InPiecesSaysHowFarItIsAndCompilesNothingAfterwards) {
  const auto engine = cold_engine(model_);
  const size_t total = engine->prewarm(0)->total;
  EXPECT_LE(pipelines_->compiled_count(), 1u);
  size_t done = 0;
  for (size_t i = 0; i < 2 * total && done < total; ++i) {
    const auto piece = engine->prewarm(0);
    ASSERT_TRUE(piece.ok()) << piece.error().message;
    EXPECT_GE(piece->done, done);
    EXPECT_EQ(piece->total, total);
    done = piece->done;
  }
  EXPECT_EQ(done, total);
  EXPECT_EQ(pipelines_->compiled_count(), total);
  greedy(*engine, tokens(20, 1), 4);
  EXPECT_EQ(engine->pipelines_compiled_after_prewarm(), 0u);
  EXPECT_EQ(engine->allocations_after_prewarm(), 0u);
  const auto other = make_engine(model_, {.context_tokens = 64, .greedy_only = true});
  EXPECT_GT(engine->allocations_after_prewarm(), 0u) << "another engine is a hitch";
  EXPECT_EQ(other->allocations_after_prewarm(), 0u);
}

TEST_F(Prewarm, IsDoneByPollInItsBudgetAndByStepAtOnce) {
  for (const bool polls : {true, false}) {
    const OnDevice anew(pipelines_->device());
    const auto engine = cold_engine(model_);
    EXPECT_TRUE(step(*engine).empty());
    EXPECT_EQ(pipelines_->compiled_count(), 0u) << "nothing to do, nothing compiled";
    const auto id = engine->submit({.prompt = tokens(9, 1), .max_new_tokens = 2});
    ASSERT_TRUE(id.ok());
    if (!polls) {
      step(*engine);
      EXPECT_TRUE(pipelines_->readiness().complete());
      continue;
    }
    EXPECT_TRUE(engine->poll(0)->empty());
    EXPECT_EQ(pipelines_->compiled_count(), 1u);
    Told told;
    poll_all(*engine, 0, told);
    EXPECT_EQ(told[*id].size(), 2u);
    EXPECT_EQ(engine->pipelines_compiled_after_prewarm(), 0u);
  }
}

/// The device's state is dropped and made anew.
class Rebuild : public Poll {};

TEST_F(Rebuild, GoesOnFromTheTokens) {
  const Told wanted = expected();
  const auto rebuilt = engine();
  submit_two(*rebuilt);
  Told told;
  for (int i = 0; !rebuilt->idle(); ++i) {
    if (i % 5 == 4) {
      const Status status = rebuilt->rebuild(pipelines_, model_);
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
    keep(step(*rebuilt), told);
  }
  EXPECT_EQ(told, wanted);
}

TEST_F(Rebuild, FindsWhatIsInHostMemory) {
  const auto rebuilt = make_engine(
      model_, {.context_tokens = 128, .kv_blocks = 7, .cache_host_bytes = uint64_t{8} << 20});
  const auto first = greedy(*rebuilt, tokens(90, 1), 5);
  greedy(*rebuilt, tokens(105, 4), 5);  // takes all blocks: the first one's go to host memory
  ASSERT_TRUE(rebuilt->rebuild(pipelines_, model_).ok());
  EXPECT_EQ(greedy(*rebuilt, tokens(90, 1), 5), first);
  EXPECT_GE(rebuilt->scheduler().cache().stats().host_tokens, 64u);
}

TEST_F(Rebuild, WithAnotherModelIsAnErrorAndLosesNothing) {
  const Told wanted = expected();
  const auto rebuilt = engine();
  submit_two(*rebuilt);
  Told told;
  for (int i = 0; i < 4; ++i) keep(step(*rebuilt), told);
  const test::TemporaryFile file = test::write_synthetic_model({.seed = 2});
  const Status refused = rebuilt->rebuild(pipelines_, load(file.path()));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(rebuilt->idle());
  for (const auto& events : {rebuilt->poll(1), rebuilt->step()}) {
    ASSERT_FALSE(events.ok());
    EXPECT_EQ(events.error().code, ErrorCode::kDeviceLost);
  }
  EXPECT_TRUE(rebuilt->submit({.prompt = tokens(9, 3), .max_new_tokens = 1}).ok());
  ASSERT_TRUE(rebuilt->rebuild(pipelines_, model_).ok());
  while (!rebuilt->idle()) keep(step(*rebuilt), told);
  EXPECT_EQ(told.size(), 3u);
  for (const auto& request : wanted) EXPECT_EQ(told[request.first], request.second);
}

TEST_F(Rebuild, KeepsItsHooksThoughItFailsOnce) {
  const auto rebuilt = engine();
  int n_stages = 0;
  rebuilt->set_hooks({.at_stage = [&](StepStage) -> Status {
    ++n_stages;
    return {};
  }});
  const test::TemporaryFile file = test::write_synthetic_model({.seed = 2});
  ASSERT_FALSE(rebuilt->rebuild(pipelines_, load(file.path())).ok());
  ASSERT_TRUE(rebuilt->rebuild(pipelines_, model_).ok());
  greedy(*rebuilt, tokens(9, 1), 1);
  EXPECT_GT(n_stages, 0);
}

}  // namespace
}  // namespace pumice
