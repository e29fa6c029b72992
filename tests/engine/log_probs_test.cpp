// Log probabilities of what a request says, of what it could have said, and of a text that is given.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/engine/synthetic_fixture.hpp"

namespace pumice {
namespace {

using Rows = std::map<uint32_t, std::vector<float>>;

/// In fp64, of all tokens.
std::vector<double> log_softmax(const std::vector<float>& logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  std::vector<double> result;
  for (const float logit : logits) result.push_back(logit - most - std::log(sum));
  return result;
}

void expect_log_probs(const TokenLogProbs& got, TokenId token, const std::vector<float>& logits,
                      size_t n_best, const std::string& what) {
  const std::vector<double> expected = log_softmax(logits);
  const auto close = [&](float log_prob, double reference) {
    return std::abs(log_prob - reference) <= 1e-5 + 0x1p-22 * std::abs(reference);
  };
  EXPECT_TRUE(close(got.log_prob, expected.at(token)))
      << what << ": " << got.log_prob << ", expected " << expected.at(token);
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0u);
  std::ranges::stable_sort(ids, std::greater(), [&](TokenId id) { return logits[id]; });
  ASSERT_EQ(got.best.size(), n_best) << what;
  for (size_t i = 0; i < n_best; ++i) {
    EXPECT_EQ(got.best[i].token, ids[i]) << what << ", number " << i;
    EXPECT_TRUE(close(got.best[i].log_prob, expected[ids[i]])) << what << ", number " << i;
  }
}

class LogProbs : public test::SyntheticEngineTest {
 protected:
  static constexpr uint32_t kNew = 12;

  /// One whose requests may also ask for logits: a request's log probabilities are of those.
  std::unique_ptr<Engine> engine(uint32_t n_sequences = 1) const {
    return make_engine(model_, {.context_tokens = 128,
                                .n_sequences = n_sequences,
                                .invariant = true,
                                .prompt_logits = true});
  }
  static GenerationRequest request(Rows& rows) {
    return {.prompt = tokens(20, 3),
            .max_new_tokens = kNew,
            .sampling = with_penalties(4),
            .on_logits =
                [&rows](uint32_t position, std::span<const float> row) {
                  rows[position].assign(row.begin(), row.end());
                },
            .logits = GenerationRequest::Logits::kComputed};
  }
  static std::vector<StepEvent> run(Engine& engine) {
    std::vector<StepEvent> all;
    while (!engine.idle()) {
      for (StepEvent& event : step(engine)) all.push_back(std::move(event));
    }
    return all;
  }
};

TEST_F(LogProbs, AreThoseOfTheModelsOwnLogits) {
  for (const uint32_t n_best : {0u, 1u, 5u, 20u}) {
    const auto engine = this->engine();
    Rows rows;
    GenerationRequest asked = request(rows);
    asked.log_probs = n_best;
    ASSERT_TRUE(engine->submit(std::move(asked)).ok());
    uint32_t position = 19;
    for (const StepEvent& event : run(*engine)) {
      if (!event.token) continue;
      ASSERT_TRUE(event.log_probs);
      expect_log_probs(*event.log_probs, *event.token, rows.at(position++), n_best,
                       fmt::format("{} best", n_best));
    }
    EXPECT_EQ(position, 19 + kNew);
  }
}

TEST_F(LogProbs, AreByRequestAndChangeNoText) {
  const auto plain_engine = engine();
  Rows rows;
  std::vector<TokenId> plain;
  ASSERT_TRUE(plain_engine->submit(request(rows)).ok());
  for (const StepEvent& event : run(*plain_engine)) {
    EXPECT_FALSE(event.log_probs);
    if (event.token) plain.push_back(*event.token);
  }
  // With run-ahead and replays, beside one that does not ask, and with guesses.
  const auto both =
      make_engine(model_, {.context_tokens = 128, .n_sequences = 3, .invariant = true});
  Rows none;
  std::map<RequestId, std::vector<TokenId>> texts;
  std::vector<TokenId> text = tokens(20, 3);
  text.insert(text.end(), plain.begin(), plain.end());
  RequestId asking[2];
  for (const uint32_t i : {0u, 1u, 2u}) {
    GenerationRequest asked = request(none);
    asked.on_logits = {};
    if (i < 2) asked.log_probs = 3;
    if (i == 1) {
      asked.drafter = [&text](std::span<const TokenId> known, uint32_t) {
        const size_t n = std::min<size_t>(3, text.size() - known.size());
        std::vector<TokenId> draft(text.begin() + static_cast<ptrdiff_t>(known.size()),
                                   text.begin() + static_cast<ptrdiff_t>(known.size() + n));
        if (draft.size() > 2) draft[2] ^= 1;
        return draft;
      };
    }
    const auto id = both->submit(std::move(asked));
    ASSERT_TRUE(id.ok());
    if (i < 2) asking[i] = *id;
  }
  for (const StepEvent& event : run(*both)) {
    if (!event.token) continue;
    const bool asked = event.request == asking[0] || event.request == asking[1];
    ASSERT_EQ(event.log_probs.has_value(), asked);
    std::vector<TokenId>& told = texts[event.request];
    if (asked) {
      expect_log_probs(*event.log_probs, *event.token,
                       rows.at(19 + static_cast<uint32_t>(told.size())), 3, "beside others");
    }
    told.push_back(*event.token);
  }
  ASSERT_EQ(texts.size(), 3u);
  for (const auto& [id, told] : texts) EXPECT_EQ(told, plain);
}

TEST_F(LogProbs, OfTooManyAndOfGreedyEnginesAreRefused) {
  const auto engine = this->engine();
  const auto refused = [](Engine& asked, GenerationRequest request) {
    request.prompt = {1, 2};
    request.max_new_tokens = 1;
    const auto id = asked.submit(std::move(request));
    return !id.ok() && id.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(*engine, {.log_probs = 21}));
  const auto greedy = make_engine(model_, {.context_tokens = 64, .greedy_only = true});
  EXPECT_TRUE(refused(*greedy, {.log_probs = 0}));
  EXPECT_TRUE(refused(*greedy, {.on_score = [](uint32_t, TokenId, const TokenLogProbs&) {}}));
}

TEST_F(LogProbs, OfAGivenTextAreOneForEachTokenButTheFirst) {
  const std::vector<TokenId> text = tokens(50, 8);
  Rows rows;
  {
    const auto engine = this->engine();
    const auto keep = [&rows](uint32_t position, std::span<const float> row) {
      rows[position].assign(row.begin(), row.end());
    };
    ASSERT_TRUE(engine->submit({.prompt = text, .on_logits = keep}).ok());
    run(*engine);
  }
  // Few rows of logits or many, alone or beside one that goes on generating, ahead.
  for (const uint32_t spare : {0u, 7u, 100u}) {
    const auto engine = make_engine(
        model_,
        {.context_tokens = 128, .n_sequences = 2, .invariant = true, .spare_logit_rows = spare});
    Rows unused;
    GenerationRequest other = request(unused);
    other.on_logits = {};
    other.max_new_tokens = 60;
    const auto beside = engine->submit(std::move(other));
    ASSERT_TRUE(beside.ok());
    uint32_t next = 1;
    const auto on_score = [&](uint32_t position, TokenId token, const TokenLogProbs& log_probs) {
      EXPECT_EQ(position, next++);
      EXPECT_EQ(token, text[position]);
      expect_log_probs(log_probs, text[position], rows.at(position - 1), 2,
                       fmt::format("position {} of a text, {} spare rows", position, spare));
    };
    ASSERT_TRUE(engine->submit({.prompt = text, .log_probs = 2, .on_score = on_score}).ok());
    uint32_t n_beside = 0;
    for (const StepEvent& event : run(*engine)) {
      if (event.request == *beside && event.token) ++n_beside;
    }
    EXPECT_EQ(next, text.size());
    EXPECT_EQ(n_beside, 60u);
  }
}

TEST_F(LogProbs, AreScoredAndSampledInOneRequest) {
  const auto engine = this->engine();
  Rows rows;
  GenerationRequest asked = request(rows);
  asked.log_probs = 1;
  uint32_t n_scores = 0;
  std::vector<TokenLogProbs> scores;
  asked.on_score = [&](uint32_t, TokenId, const TokenLogProbs& log_probs) {
    scores.push_back(log_probs);
  };
  const std::vector<TokenId> prompt = asked.prompt;
  ASSERT_TRUE(engine->submit(std::move(asked)).ok());
  for (const StepEvent& event : run(*engine)) n_scores += event.log_probs ? 1 : 0;
  EXPECT_EQ(n_scores, kNew);
  ASSERT_EQ(scores.size(), prompt.size() - 1);
  for (uint32_t i = 0; i < scores.size(); ++i) {
    expect_log_probs(scores[i], prompt[i + 1], rows.at(i), 1, "a score");
  }
}

}  // namespace
}  // namespace pumice
