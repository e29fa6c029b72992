// Recorded steps that are submitted again: what tells them apart, and how many are kept.
#include <algorithm>
#include <map>

#include "engine/replays.hpp"
#include "tests/engine/synthetic_fixture.hpp"

namespace pumice {
namespace {

class Replay : public test::SyntheticEngineTest {
 protected:
  /// What each request is told, in the order of submission.
  static std::vector<std::vector<TokenId>> tell(Engine& engine,
                                                const std::vector<GenerationRequest>& requests) {
    std::map<RequestId, std::vector<TokenId>> told;
    for (const GenerationRequest& request : requests) {
      const Result<RequestId> id = engine.submit(request);
      EXPECT_TRUE(id.ok()) << id.error().message;
      told[*id];
    }
    while (!engine.idle()) {
      for (const StepEvent& event : step(engine)) {
        if (event.token) told[event.request].push_back(*event.token);
      }
    }
    std::vector<std::vector<TokenId>> in_order;
    for (auto& [id, tokens] : told) in_order.push_back(std::move(tokens));
    return in_order;
  }
  std::vector<TokenId> tell_fresh(const GenerationRequest& request) const {
    return tell(*make_engine(model_, {.context_tokens = 128}), {request}).front();
  }

  static GenerationRequest greedy_request() {
    return {.prompt = tokens(20, 1), .max_new_tokens = 30};
  }
  static GenerationRequest sampled_request() {
    return {.prompt = tokens(20, 2), .max_new_tokens = 30, .sampling = with_penalties(7)};
  }
};

TEST_F(Replay, AContextThatOutgrowsItsFirstSplitIsReadWhole) {
  const EngineOptions options{.context_tokens = 128, .split_tokens = 16, .greedy_only = true};
  const auto recorded = make_engine(model_, options);
  recorded->set_hooks(
      {.observer = [](const StepTrace&, const vk::RecordedWork&) {}});  // replays nothing
  const auto replayed = make_engine(model_, options);
  const auto prompt = tokens(6, 1);
  EXPECT_EQ(greedy(*replayed, prompt, 60), greedy(*recorded, prompt, 60));
  EXPECT_EQ(recorded->n_replays(), 0u);
  EXPECT_GT(replayed->n_replays(), 0u);
}

TEST_F(Replay, AGreedyRequestAndASampledOneAreToldAsInFreshEngines) {
  const auto greedy = tell_fresh(greedy_request());
  const auto sampled = tell_fresh(sampled_request());
  GenerationRequest sampled_greedily = sampled_request();
  sampled_greedily.sampling = {};
  ASSERT_NE(sampled, tell_fresh(sampled_greedily)) << "sampling makes no difference";
  for (const bool greedy_first : {true, false}) {
    const auto engine = make_engine(model_, {.context_tokens = 128});
    for (const bool is_greedy : {greedy_first, !greedy_first}) {
      const auto told = tell(*engine, {is_greedy ? greedy_request() : sampled_request()});
      EXPECT_EQ(told.front(), is_greedy ? greedy : sampled) << "greedy first: " << greedy_first;
    }
    const auto batch = make_engine(model_, {.context_tokens = 128, .n_sequences = 2});
    const auto told = greedy_first ? tell(*batch, {greedy_request(), sampled_request()})
                                   : tell(*batch, {sampled_request(), greedy_request()});
    EXPECT_EQ(told[greedy_first ? 0 : 1], greedy) << "in one batch, greedy first: " << greedy_first;
    EXPECT_EQ(told[greedy_first ? 1 : 0], sampled)
        << "in one batch, greedy first: " << greedy_first;
  }
}

TEST_F(Replay, NoMoreRecordingsAreKeptThanTheirBound) {
  // Every number of rows from 40 down to 1, for two steps each: one in either ring.
  constexpr uint32_t kRequests = 40;
  static_assert(2 * kRequests > Replays::kMost);
  const auto engine =
      make_engine(model_, {.context_tokens = 96, .n_sequences = kRequests, .greedy_only = true});
  const auto prompt = tokens(3, 1);
  std::vector<GenerationRequest> requests;
  for (uint32_t i = 0; i < kRequests; ++i) {
    requests.push_back({.prompt = prompt, .max_new_tokens = 4 + 2 * i});
  }
  const auto told = tell(*engine, requests);
  EXPECT_EQ(engine->n_replays(), Replays::kMost);
  for (const auto& tokens : told) {
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), told.back().begin()));
  }
  EXPECT_EQ(greedy(*engine, prompt, 10),
            std::vector<TokenId>(told.back().begin(), told.back().begin() + 10));
  EXPECT_EQ(engine->n_replays(), Replays::kMost);
}

}  // namespace
}  // namespace pumice
