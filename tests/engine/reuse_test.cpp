// Reusing KV changes nothing: hits of every length, preemption, copies of partial blocks, host
// memory and the prompt cache file, on a model whose only state group keeps all.
#include <unistd.h>

#include <map>
#include <random>

#include "tests/engine/law_fixture.hpp"

namespace pumice {
namespace {

using test::Told;

constexpr uint32_t kNew = 12;

/// How a suite of these tests computes.
struct Computed {
  test::Arithmetic arithmetic;
  bool invariant = false;
};

class Reuse : public test::LawTest, public ::testing::WithParamInterface<Computed> {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    const auto& [arithmetic, invariant] = GetParam();
    const test::TemporaryFile file =
        test::write_synthetic_model({.type = &weight_type(arithmetic.weight_type)});
    set_up(load(file.path()), {.arithmetic = arithmetic,
                               .invariant = invariant,
                               .prompt_tokens = 83,
                               .new_tokens = kNew,
                               .context_tokens = 112});
  }
};

TEST_P(Reuse, HitsOfEveryLengthChangeNothingAndComputeTheRestOnly) {
  for (uint32_t shared = 0; shared <= prompt_.size(); shared += shared < 36 ? 1 : 9) {
    const auto engine = this->engine({.n_sequences = 2, .token_budget = 64, .chunk_tokens = 48});
    std::vector<TokenId> other(prompt_.begin(), prompt_.begin() + shared);
    other.push_back((shared < prompt_.size() ? prompt_[shared] : 0) + 1);
    run(*engine, other);
    const Told again = run(*engine, prompt_);
    expect_whole(again, std::to_string(shared) + " tokens shared");
    const uint32_t expected = std::min<uint32_t>(shared, static_cast<uint32_t>(prompt_.size()) - 1);
    EXPECT_EQ(again.report.cache.cached_tokens, expected);
    EXPECT_EQ(again.rows, rows_after(expected));
  }
}

TEST_P(Reuse, ChunksAroundEveryEdgeOfBlocksAndTilesChangeNothing) {
  for (const uint32_t chunk : {1u, 7u, 8u, 9u, 15u, 16u, 17u, 31u, 32u, 33u, 63u, 64u, 65u, 82u}) {
    const auto engine = this->engine({.token_budget = std::max(chunk, 16u), .chunk_tokens = chunk});
    expect_whole(run(*engine, prompt_), "chunks of " + std::to_string(chunk));
    expect_whole(run(*engine, prompt_), "again, chunks of " + std::to_string(chunk));
  }
}

TEST_P(Reuse, BatchMatesAndPreemptionChangeNothing) {
  // 3 sequences of 6 to 7 blocks in 10: the last served is preempted, more than once.
  const auto engine =
      this->engine({.n_sequences = 3, .kv_blocks = 10, .token_budget = 64, .chunk_tokens = 32});
  Told first, second, third;
  const auto a = submit(*engine, prompt_, first);
  const auto b = submit(*engine, tokens(40, 7), second);
  const auto c = submit(*engine, tokens(41, 8), third);
  finish(*engine, {{*a, &first}, {*b, &second}, {*c, &third}});
  expect_whole(first, "with batch mates");

  // Two blocks and six of nine: growing twice, the first takes those of the second while it decodes
  // (in chunks of three its prompt takes some 28 steps).
  const auto tight =
      this->engine({.n_sequences = 2, .kv_blocks = 9, .token_budget = 96, .chunk_tokens = 3});
  Told small, big;
  const auto d = submit(*tight, tokens(20, 9), small, 40);
  const auto e = submit(*tight, prompt_, big);
  finish(*tight, {{*d, &small}, {*e, &big}});
  EXPECT_GT(big.report.preemptions, 0u);
  expect_whole(big, "preempted");
  EXPECT_EQ(tight->scheduler().cache().n_free_pages(), 9u);
}

TEST_P(Reuse, BlocksRestoredFromHostMemoryChangeNothingAndAreNotComputed) {
  const auto engine = this->engine({.kv_blocks = 7, .cache_host_bytes = uint64_t{8} << 20});
  run(*engine, prompt_);
  run(*engine, tokens(90, 4));  // takes all blocks
  const Told again = run(*engine, prompt_);
  expect_whole(again, "from host memory");
  EXPECT_GE(again.report.cache.host_tokens, 64u);
  EXPECT_EQ(again.rows, rows_after(again.report.cache.cached_tokens));
}

TEST_P(Reuse, BlocksRestoredFromAFileChangeNothingAndAreNotComputed) {
  const test::TemporaryFile file(std::filesystem::path(::testing::TempDir()) /
                                 ("pumice_reuse_" + std::to_string(getpid()) + ".kv"));
  {
    const auto engine = this->engine({.cache_file = file.path()});
    ASSERT_NE(engine, nullptr);
    run(*engine, prompt_);
    const Status saved = engine->save_prompt_cache();
    ASSERT_TRUE(saved.ok()) << saved.error().message;
  }
  const auto engine = this->engine({.cache_file = file.path()});
  ASSERT_NE(engine, nullptr);
  const Told again = run(*engine, prompt_);
  expect_whole(again, "from a file");
  EXPECT_EQ(again.report.cache.file_tokens + again.report.cache.copied_tokens,
            again.report.cache.cached_tokens);
  EXPECT_GE(again.report.cache.file_tokens, 80u);
  EXPECT_EQ(again.rows, rows_after(again.report.cache.cached_tokens));
}

TEST_P(Reuse, AFailedStepLosesNothing) {
  const auto engine = this->engine({.n_sequences = 2, .token_budget = 32, .chunk_tokens = 32});
  int until_fault = 0;
  engine->set_hooks({.at_stage = [&](StepStage stage) -> Status {
    if (stage != StepStage::kSubmit) return {};
    if (until_fault-- > 0) return {};
    until_fault = 3;
    return make_error(ErrorCode::kInternal, "a fault for the test");
  }});
  Told run;
  const auto id = submit(*engine, prompt_, run);
  int faults = 0;
  while (!engine->idle()) {
    const auto events = engine->step();
    ASSERT_TRUE(engine->check_integrity().ok());
    if (!events.ok()) {
      ++faults;
      continue;
    }
    for (const StepEvent& event : *events) {
      if (event.token) run.tokens.push_back(*event.token);
    }
  }
  EXPECT_GT(faults, 3);
  expect_whole(run, "with faults");
  EXPECT_EQ(engine->scheduler().cache().n_free_pages(), engine->scheduler().cache().n_pages());
}

INSTANTIATE_TEST_SUITE_P(Fast, Reuse,
                         ::testing::Values(Computed{test::kF32Arithmetic},
                                           Computed{test::kF16Arithmetic},
                                           Computed{test::kI8Arithmetic}),
                         [](const auto& given) {
                           return test::arithmetic_name(given.param.arithmetic);
                         });
INSTANTIATE_TEST_SUITE_P(BitForBit, Reuse, ::testing::Values(Computed{test::kF32Arithmetic, true}),
                         [](const auto&) { return "f32"; });

/// Steps that overlap, without logits read back.
class RunAhead : public test::EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    const test::TemporaryFile file = test::write_synthetic_model({});
    model_ = load(file.path());
  }
  void TearDown() override { model_.reset(); }

  static std::vector<TokenId> tokens(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> result(n);
    for (TokenId& token : result) token = static_cast<TokenId>(random() % 96);
    return result;
  }

  std::shared_ptr<const Model> model_;
};

TEST_F(RunAhead, PlansStepNPlusOneBeforeStepNEnds) {
  const auto engine = make_engine(model_, {.context_tokens = 128, .greedy_only = true});
  greedy(*engine, tokens(60, 1), 20);
  const auto& trace = engine->trace();
  ASSERT_GE(trace.size(), 20u);
  for (size_t i = 1; i < trace.size(); ++i) {
    EXPECT_LT(trace[i].planned_s, trace[i - 1].ended_s) << i;
    EXPECT_LT(trace[i].submitted_s, trace[i - 1].ended_s) << i;
  }
}

TEST_F(RunAhead, ChangesNoTokenAndIsDiscardedAfterAStop) {
  const auto ahead = make_engine(model_, {.context_tokens = 128, .greedy_only = true});
  const auto alone =
      make_engine(model_, {.context_tokens = 128, .run_ahead = false, .greedy_only = true});
  const auto prompt = tokens(50, 2);
  const auto expected = greedy(*alone, prompt, 30);
  EXPECT_EQ(greedy(*ahead, prompt, 30), expected);

  const TokenId stop = expected[7];
  const auto first = std::find(expected.begin(), expected.end(), stop) - expected.begin();
  std::vector<TokenId> got;
  ASSERT_TRUE(ahead->submit({.prompt = prompt, .max_new_tokens = 30, .end_tokens = {stop}}).ok());
  std::optional<RequestReport> report;
  while (!ahead->idle()) {
    for (const StepEvent& event : step(*ahead)) {
      if (event.token) got.push_back(*event.token);
      if (event.report) report = event.report;
    }
  }
  EXPECT_EQ(got, std::vector<TokenId>(expected.begin(), expected.begin() + first + 1));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->end_reason, EndReason::kStop);
  EXPECT_EQ(greedy(*ahead, tokens(20, 3), 5), greedy(*alone, tokens(20, 3), 5));
  EXPECT_EQ(ahead->scheduler().telemetry().discarded_tokens, 1u);
}

TEST_F(RunAhead, SampledTokensWithPenaltiesAreThoseOfSingleSteps) {
  const auto tell = [&](bool run_ahead, uint32_t kv_blocks) {
    const auto engine = make_engine(
        model_,
        {.context_tokens = 96, .n_sequences = 2, .kv_blocks = kv_blocks, .run_ahead = run_ahead});
    std::map<RequestId, std::vector<TokenId>> told;
    for (const uint32_t seed : {1u, 2u}) {
      const auto id = engine->submit({.prompt = tokens(30, seed),
                                      .max_new_tokens = 40,
                                      .sampling = {.temperature = 1.0f,
                                                   .top_k = 50,
                                                   .repeat_penalty = 1.2f,
                                                   .frequency_penalty = 0.2f,
                                                   .seed = seed}});
      EXPECT_TRUE(id.ok());
    }
    while (!engine->idle()) {
      for (const StepEvent& event : step(*engine)) {
        if (event.token) told[event.request].push_back(*event.token);
      }
    }
    EXPECT_EQ(engine->scheduler().telemetry().preemptions > 0, kv_blocks != 0);
    return told;
  };
  const auto expected = tell(false, 0);
  EXPECT_EQ(expected.begin()->second.size(), 40u);
  EXPECT_EQ(tell(true, 0), expected);
  EXPECT_EQ(tell(true, 7), expected) << "with preemption";
}

TEST_F(RunAhead, AFullWindowStopsOrShiftsAsAsked) {
  const auto tell = [&](EngineOptions options, RequestReport& report) {
    options.context_tokens = 64;
    options.greedy_only = true;
    const auto engine = make_engine(model_, options);
    std::vector<TokenId> got;
    const uint32_t n = options.overflow == OverflowPolicy::kStop ? 24 : 60;
    const auto id = engine->submit({.prompt = tokens(40, 5), .max_new_tokens = n});
    EXPECT_TRUE(id.ok()) << id.error().message;
    while (!engine->idle()) {
      for (const StepEvent& event : step(*engine)) {
        if (event.token) got.push_back(*event.token);
        if (event.report) report = *event.report;
      }
    }
    return got;
  };
  RequestReport report;
  const auto stopped = tell({}, report);
  EXPECT_EQ(stopped.size(), 24u);
  const auto shifted = tell({.overflow = OverflowPolicy::kShift, .keep_tokens = 4}, report);
  EXPECT_EQ(shifted.size(), 60u);
  EXPECT_GT(report.shifts, 0u);
  EXPECT_TRUE(std::equal(stopped.begin(), stopped.end(), shifted.begin()));

  // After the shift it goes on as a fresh request of the tokens that were kept would.
  std::vector<TokenId> sequence = tokens(40, 5);
  sequence.insert(sequence.end(), shifted.begin(), shifted.begin() + 25);  // 65: one too many
  const auto first = sequence.begin() + 4;
  sequence.erase(first, first + 31);
  const auto fresh = make_engine(model_, {.context_tokens = 64, .greedy_only = true});
  const auto rest = greedy(*fresh, sequence, 10);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), shifted.begin() + 25));

  const auto truncating = make_engine(
      model_,
      {.context_tokens = 64, .overflow = OverflowPolicy::kTruncateOldest, .greedy_only = true});
  EXPECT_EQ(greedy(*truncating, tokens(100, 6), 8).size(), 8u);
}

TEST_F(RunAhead, AFullyCachedLongPromptComputesOneRow) {
  const test::TemporaryFile file =
      test::write_synthetic_model({.n_layers = 1, .context_length = 8192});
  const auto model = load(file.path());
  const auto engine = make_engine(model, {.context_tokens = 4224, .greedy_only = true});
  const auto prompt = tokens(4200, 6);
  const auto cold = greedy(*engine, prompt, 4);
  const uint64_t before = engine->dispatched_rows();
  EXPECT_EQ(greedy(*engine, prompt, 4), cold);
  EXPECT_EQ(engine->dispatched_rows() - before, 4u);
}

}  // namespace
}  // namespace pumice
