// What a request asks for, and what it holds, from its submission to its end.
#include "tests/engine/synthetic_fixture.hpp"

namespace pumice {
namespace {

class Requests : public test::SyntheticEngineTest {
 protected:
  /// Steps until it ends.
  static RequestReport finish(Engine& engine, GenerationRequest request) {
    const Result<RequestId> id = engine.submit(std::move(request));
    EXPECT_TRUE(id.ok()) << id.error().message;
    while (!engine.idle()) {
      for (const StepEvent& event : step(engine)) {
        if (event.request == *id && event.report) return *event.report;
      }
    }
    ADD_FAILURE() << "no report";
    return {};
  }
};

TEST_F(Requests, PrefixesAreSharedWithinASaltOnly) {
  const auto engine =
      make_engine(model_, {.context_tokens = 128, .kv_blocks = 64, .greedy_only = true});
  const auto cached_tokens = [&](const std::string& salt) {
    return finish(*engine, {.prompt = tokens(70, 1), .max_new_tokens = 1, .salt = salt})
        .cache.cached_tokens;
  };
  EXPECT_EQ(cached_tokens("alice"), 0u);
  EXPECT_EQ(cached_tokens("bob"), 0u);
  EXPECT_EQ(cached_tokens(""), 0u);
  EXPECT_EQ(cached_tokens("alice"), 69u);
  EXPECT_EQ(cached_tokens("bob"), 69u);
}

TEST_F(Requests, EndWhenTheirTimeIsUp) {
  const auto engine =
      make_engine(model_, {.context_tokens = 128, .n_sequences = 2, .greedy_only = true});
  const RequestReport late =
      finish(*engine, {.prompt = tokens(9, 1), .max_new_tokens = 20, .timeout_s = 0});
  EXPECT_EQ(late.end_reason, EndReason::kDeadline);
  EXPECT_EQ(late.generated_tokens, 0u);
  const RequestReport in_time =
      finish(*engine, {.prompt = tokens(9, 1), .max_new_tokens = 20, .timeout_s = 1e6});
  EXPECT_EQ(in_time.end_reason, EndReason::kLength);
}

TEST_F(Requests, HaveCountsAndBiasesOfTheirOwn) {
  // More of them, one after the other, than there are slots.
  const EngineOptions options{.context_tokens = 128};
  const auto request = [](uint32_t seed) {
    GenerationRequest asked{
        .prompt = tokens(20, seed), .max_new_tokens = 30, .sampling = with_penalties(seed)};
    asked.sampling.logit_bias = {{seed, -5.0f}, {seed + 40, 2.0f}};
    return asked;
  };
  const auto told = [](Engine& engine, GenerationRequest asked) {
    std::vector<TokenId> all;
    EXPECT_TRUE(engine.submit(std::move(asked)).ok());
    while (!engine.idle()) {
      for (const StepEvent& event : step(engine)) {
        if (event.token) all.push_back(*event.token);
      }
    }
    return all;
  };
  const auto shared = make_engine(model_, options);
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    EXPECT_EQ(told(*shared, request(seed)), told(*make_engine(model_, options), request(seed)));
  }
}

TEST_F(Requests, GetNoSlotThatADiscardedRowMayStillWrite) {
  // The stop token is seen while the next row of that request runs already.
  const auto engine = make_engine(model_, {.context_tokens = 128, .greedy_only = true});
  const auto expected = greedy(*engine, tokens(20, 2), 10);
  const auto first = greedy(*engine, tokens(20, 1), 1);
  ASSERT_TRUE(
      engine->submit({.prompt = tokens(20, 1), .max_new_tokens = 30, .end_tokens = first}).ok());
  const auto next = engine->submit({.prompt = tokens(20, 2), .max_new_tokens = 10});
  ASSERT_TRUE(next.ok());
  std::vector<TokenId> told;
  while (!engine->idle()) {
    const auto events = engine->step();
    ASSERT_TRUE(events.ok());
    const Status whole = engine->check_integrity();
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    for (const StepEvent& event : *events) {
      if (event.request == *next && event.token) told.push_back(*event.token);
    }
  }
  EXPECT_EQ(engine->scheduler().telemetry().discarded_tokens, 1u);
  EXPECT_EQ(told, expected);
}

}  // namespace
}  // namespace pumice
