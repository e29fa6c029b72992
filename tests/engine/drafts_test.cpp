// Verified drafts: whatever is guessed of a text, right or wrong, the text and its logits are those of
// a run without guesses.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "engine/prompt_lookup.hpp"
#include "tests/engine/law_fixture.hpp"
#include "tests/engine/synthetic_fixture.hpp"

namespace pumice {
namespace {

using test::Told;

constexpr uint32_t kPrompt = 45;  // gemma2's window of 32 tokens slides while the text is written
constexpr uint32_t kNew = 24;
constexpr uint32_t kDraft = 5;

struct Family {
  const char* name;
  bool invariant = false;
};

std::string family_name(const ::testing::TestParamInfo<Family>& given) {
  std::string name = given.param.name + std::string(given.param.invariant ? "_invariant" : "");
  std::ranges::replace(name, '-', '_');
  return name;
}

/// Guesses of a text that is known: `n` tokens, of which number `wrong` is another one.
Drafter guess(std::vector<TokenId> text, size_t n, size_t wrong) {
  return [text = std::move(text), n, wrong](std::span<const TokenId> tokens, uint32_t) {
    std::vector<TokenId> draft;
    for (size_t i = 0; i < n && tokens.size() + i < text.size(); ++i) {
      draft.push_back(text[tokens.size() + i] ^ (i == wrong ? 1 : 0));
    }
    return draft;
  };
}

std::vector<TokenId> joined(std::vector<TokenId> prompt, const std::vector<TokenId>& output) {
  prompt.insert(prompt.end(), output.begin(), output.end());
  return prompt;
}

class Drafts : public test::LawTest, public ::testing::WithParamInterface<Family> {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    set_up(load_family(GetParam().name), {.invariant = GetParam().invariant,
                                          .prompt_tokens = kPrompt,
                                          .new_tokens = kNew,
                                          .context_tokens = 160});
  }

  std::vector<TokenId> text() const { return joined(prompt_, whole_.tokens); }
  Result<RequestId> submit_with(Engine& engine, Drafter drafter, Told& told,
                                ServiceClass service_class = ServiceClass::kNormal) const {
    const auto keep = [&told](uint32_t position, std::span<const float> row) {
      told.logits[position].assign(row.begin(), row.end());
    };
    return engine.submit({.prompt = prompt_,
                          .max_new_tokens = kNew,
                          .service_class = service_class,
                          .drafter = std::move(drafter),
                          .on_logits = keep,
                          .logits = GenerationRequest::Logits::kComputed});
  }
  Told run_with(Engine& engine, Drafter drafter) const {
    Told told;
    const auto id = submit_with(engine, std::move(drafter), told);
    EXPECT_TRUE(id.ok()) << id.error().message;
    finish(engine, {{*id, &told}});
    return told;
  }
};

/// The prompt is read alike in both: then the text's bits are the same, not with --invariant alone.
TEST_P(Drafts, ThatAreRightUpToAnyTokenChangeNoBit) {
  for (size_t wrong = 0; wrong <= kDraft; ++wrong) {
    const auto engine = this->engine({.prefix_cache = false});
    const Told told = run_with(*engine, guess(text(), kDraft, wrong));
    EXPECT_EQ(told.tokens, whole_.tokens);
    EXPECT_TRUE(told.logits == whole_.logits) << "wrong from " << wrong;
    EXPECT_EQ(told.report.generated_tokens, kNew);
    EXPECT_GT(told.report.drafts.drafted, 0u);
    if (wrong == 0) {
      EXPECT_EQ(told.report.drafts.accepted, 0u);
    }
    if (wrong == kDraft) {
      EXPECT_EQ(told.report.drafts.accepted, told.report.drafts.drafted);
      // The prompt's step samples the first token; each after it brings a token and its draft.
      EXPECT_EQ(engine->trace().size(), 1 + (kNew - 1 + kDraft) / (kDraft + 1));
    }
  }
}

TEST_P(Drafts, OfAnyLengthChangeNoBit) {
  for (size_t n = 1; n <= 7; ++n) {
    const auto engine = this->engine({.prefix_cache = false});
    const Told told = run_with(*engine, guess(text(), n, n - 1));
    EXPECT_TRUE(told.logits == whole_.logits) << n << " tokens";
    EXPECT_EQ(told.report.drafts.accepted_at[n - 1], 0u);
    if (n == 1) continue;
    EXPECT_EQ(told.report.drafts.accepted_at[0], told.report.drafts.drafted_at[0]);
  }
}

TEST_P(Drafts, OfThePromptLookupChangeNoBit) {
  for (const bool adapts : {false, true}) {
    const auto engine = this->engine({.prefix_cache = false});
    std::vector<TokenId> twice = text();  // what comes was in the prompt
    twice.insert(twice.end(), prompt_.begin(), prompt_.end());
    const Told plain = run(*this->engine({.prefix_cache = false}), twice);
    Told told;
    const auto keep = [&told](uint32_t position, std::span<const float> row) {
      told.logits[position].assign(row.begin(), row.end());
    };
    const auto id = engine->submit({.prompt = twice,
                                    .max_new_tokens = kNew,
                                    .drafter = prompt_lookup_drafter(),
                                    .adapts_drafts = adapts,
                                    .on_logits = keep,
                                    .logits = GenerationRequest::Logits::kComputed});
    ASSERT_TRUE(id.ok()) << id.error().message;
    finish(*engine, {{*id, &told}});
    EXPECT_EQ(told.tokens, plain.tokens);
    EXPECT_TRUE(told.logits == plain.logits);
    // As it goes on as before, it is found.
    const bool is_found = plain.tokens[0] == whole_.tokens[0];
    EXPECT_TRUE(adapts || !is_found || told.report.drafts.drafted > 0);
  }
}

TEST_P(Drafts, BeyondTheEndAreCutThere) {
  const auto engine = this->engine({});
  // More than asked for, and tokens that the text never reaches.
  std::vector<TokenId> longer = text();
  longer.resize(longer.size() + 50, 3);
  const Told told = run_with(*engine, guess(longer, 50, 50));
  expect_whole(told, "beyond the end");
  EXPECT_EQ(told.report.end_reason, EndReason::kLength);
  EXPECT_EQ(told.report.generated_tokens, kNew);
  EXPECT_EQ(engine->scheduler().telemetry().generated_tokens, kNew);
}

TEST_P(Drafts, OfTokensThatAreNoneAreNoDrafts) {
  const auto engine = this->engine({});
  const auto wild = [&](std::span<const TokenId>, uint32_t) {
    return std::vector<TokenId>{model_->program.n_vocab, ~0u, 1};
  };
  const Told told = run_with(*engine, wild);
  expect_whole(told, "no tokens");
  EXPECT_EQ(told.report.drafts.drafted, 0u);
}

TEST_P(Drafts, WhoseStepFailsAreVerifiedAgain) {
  const auto engine = this->engine({});
  uint32_t n_stages = 0;
  engine->set_hooks({.at_stage = [&](StepStage) -> Status {
    if (++n_stages % 5 == 0) return make_error(ErrorCode::kInternal, "a step fails");
    return {};
  }});
  Told told;
  const auto id = engine->submit(
      {.prompt = prompt_, .max_new_tokens = kNew, .drafter = guess(text(), kDraft, 3)});
  ASSERT_TRUE(id.ok());
  while (!engine->idle()) {
    const auto events = engine->step();
    ASSERT_TRUE(engine->check_integrity().ok());
    if (events.ok()) keep(*events, {{*id, &told}});
  }
  EXPECT_EQ(told.tokens, whole_.tokens);
}

TEST_P(Drafts, OfSeveralRequestsInOneStepChangeNothing) {
  // A budget and spare rows that leave some drafts short, and prompts that are read beside.
  const auto engine = this->engine(
      {.n_sequences = 3, .token_budget = 24, .chunk_tokens = 16, .spare_logit_rows = 5});
  std::map<RequestId, Told*> runs;
  std::vector<Told> told(4);
  for (size_t i = 0; i < told.size(); ++i) {
    const auto id = submit_with(*engine, guess(text(), kDraft, 1 + i), told[i]);
    ASSERT_TRUE(id.ok()) << id.error().message;
    runs[*id] = &told[i];
  }
  finish(*engine, runs);
  for (const Told& one : told) expect_whole(one, "together");
}

TEST_P(Drafts, OfARequestThatMakesWayGoOnAfterwards) {
  const auto engine = this->engine({.n_sequences = 1});
  Told told;
  const auto id = submit_with(*engine, guess(text(), kDraft, 3), told, ServiceClass::kBatch);
  ASSERT_TRUE(id.ok()) << id.error().message;
  for (uint32_t n_others = 1; !engine->idle(); ++n_others) {
    for (int i = 0; i < 3 && !engine->idle(); ++i) {
      for (const StepEvent& event : step(*engine)) {
        if (event.request == *id) keep({event}, {{*id, &told}});
      }
    }
    if (n_others < 4) {
      ASSERT_TRUE(engine->submit({.prompt = tokens(30, n_others), .max_new_tokens = 1}).ok());
    }
  }
  expect_whole(told, "with others between");
  EXPECT_GT(told.report.preemptions, 0u);
  EXPECT_GT(told.report.drafts.accepted, 0u);
}

INSTANTIATE_TEST_SUITE_P(Families, Drafts,
                         ::testing::Values(Family{"llama"}, Family{"llama", true}, Family{"gemma2"},
                                           Family{"gemma2", true}, Family{"lfm2"},
                                           Family{"lfm2", true}, Family{"granitehybrid", true}),
                         family_name);

/// Choices of one prompt, which all say the same here.
class Choices : public Drafts {};

TEST_P(Choices, ComputeTheirPromptOnce) {
  for (const uint32_t n_prompt : {kPrompt, 32u}) {
    const auto alone = this->engine({});
    const std::vector<TokenId> prompt(prompt_.begin(), prompt_.begin() + n_prompt);
    const Told whole = run(*alone, prompt);
    const auto engine = this->engine({.n_sequences = 3, .token_budget = 24, .chunk_tokens = 16});
    std::vector<Told> told(3);
    std::map<RequestId, Told*> runs;
    std::optional<RequestId> first;
    for (Told& one : told) {
      const auto id =
          engine->submit({.prompt = prompt, .max_new_tokens = kNew, .choice_of = first});
      ASSERT_TRUE(id.ok()) << id.error().message;
      if (!first) first = *id;
      runs[*id] = &one;
    }
    finish(*engine, runs);
    for (const Told& one : told) EXPECT_EQ(one.tokens, whole.tokens);
    EXPECT_EQ(told[2].report.cache.cached_tokens, n_prompt);
    EXPECT_EQ(engine->dispatched_rows(), n_prompt + 3 * (kNew - 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Choices,
                         ::testing::Values(Family{"llama", true}, Family{"gemma2", true},
                                           Family{"lfm2", true}, Family{"granitehybrid", true}),
                         family_name);

/// Rows of one seed, whose penalties count what was chosen before.
class SampledDrafts : public test::SyntheticEngineTest {
 protected:
  static GenerationRequest request(SamplerOptions sampling, Drafter drafter = {}) {
    return {.prompt = tokens(20, 3),
            .max_new_tokens = 40,
            .sampling = std::move(sampling),
            .drafter = std::move(drafter)};
  }
  std::unique_ptr<Engine> engine(uint32_t n_sequences = 1) const {
    return make_engine(model_, {.context_tokens = 128,
                                .n_sequences = n_sequences,
                                .invariant = true,
                                .spare_logit_rows = 12});
  }
  std::vector<TokenId> told(Engine& engine, GenerationRequest request, RequestReport* report) {
    const auto id = engine.submit(std::move(request));
    EXPECT_TRUE(id.ok()) << id.error().message;
    std::vector<TokenId> result;
    while (!engine.idle()) {
      for (const StepEvent& event : step(engine)) {
        if (event.token) result.push_back(*event.token);
        if (event.report && report != nullptr) *report = *event.report;
      }
    }
    return result;
  }
};

TEST_F(SampledDrafts, AreWhatTheSeedAndPenaltiesSay) {
  SamplerOptions frequent = with_penalties(11);
  frequent.frequency_penalty = 1.5f;
  frequent.logit_bias = {{5, 2.0f}, {7, -3.0f}};
  const SamplerOptions without{.temperature = 0.9f, .top_p = 0.95f, .seed = 5};
  for (const SamplerOptions& sampling : {with_penalties(7), frequent, without}) {
    const auto plain_engine = engine();
    const std::vector<TokenId> plain = told(*plain_engine, request(sampling), nullptr);
    const std::vector<TokenId> text = joined(tokens(20, 3), plain);
    for (size_t wrong = 0; wrong <= 4; ++wrong) {
      const auto drafting = engine();
      RequestReport report;
      EXPECT_EQ(told(*drafting, request(sampling, guess(text, 4, wrong)), &report), plain) << wrong;
      EXPECT_EQ(report.generated_tokens, 40u);
      EXPECT_EQ(report.drafts.accepted > 0, wrong > 0);
    }
  }
}

TEST_F(SampledDrafts, EndWithTheTokenThatEndsTheText) {
  const std::vector<TokenId> plain = told(*engine(), request(with_penalties(7)), nullptr);
  const std::vector<TokenId> text = joined(tokens(20, 3), plain);
  for (size_t last = 3; last < 12; ++last) {
    if (std::ranges::find(plain.begin(), plain.begin() + static_cast<ptrdiff_t>(last),
                          plain[last]) != plain.begin() + static_cast<ptrdiff_t>(last)) {
      continue;  // it ends before
    }
    GenerationRequest ending = request(with_penalties(7), guess(text, 6, 6));
    ending.end_tokens = {plain[last]};
    RequestReport report;
    const auto drafting = engine();
    const auto got = told(*drafting, std::move(ending), &report);
    EXPECT_EQ(
        got, std::vector<TokenId>(plain.begin(), plain.begin() + static_cast<ptrdiff_t>(last) + 1));
    EXPECT_EQ(report.end_reason, EndReason::kStop);
    EXPECT_EQ(report.generated_tokens, last + 1);
    EXPECT_EQ(drafting->scheduler().telemetry().generated_tokens, last + 1);
  }
}

TEST_F(SampledDrafts, GoOnWhereTheWindowWasFull) {
  for (const OverflowPolicy overflow : {OverflowPolicy::kShift, OverflowPolicy::kTruncateOldest}) {
    const auto text_of = [&](Drafter drafter, bool adapts) {
      const auto engine = make_engine(model_, {.context_tokens = 48, .overflow = overflow});
      GenerationRequest asked = request(with_penalties(7), std::move(drafter));
      asked.prompt = tokens(8, 3);
      for (int i = 0; i < 2; ++i) asked.prompt.insert(asked.prompt.end(), {1, 2, 3, 4, 5, 6});
      asked.max_new_tokens = 90;
      asked.adapts_drafts = adapts;
      RequestReport report;
      const std::vector<TokenId> text = told(*engine, std::move(asked), &report);
      EXPECT_GT(report.shifts, 1u);
      return text;
    };
    const std::vector<TokenId> plain = text_of({}, false);
    EXPECT_EQ(text_of(prompt_lookup_drafter(), false), plain);
    EXPECT_EQ(text_of(prompt_lookup_drafter(), true), plain);
    const auto anything = [](std::span<const TokenId> tokens, uint32_t most) {
      return std::vector<TokenId>(most, tokens.back());
    };
    EXPECT_EQ(text_of(anything, false), plain);
  }
}

/// Behind a token that was guessed rightly.
TEST_F(SampledDrafts, ChooseAsOftenAsTheModelSays) {
  constexpr uint64_t kSeeds = 1200;
  constexpr size_t kBest = 3;
  const auto asked = [](uint64_t seed, Drafter drafter) {
    GenerationRequest one =
        request({.temperature = 1.0f, .top_k = kBest, .seed = seed}, std::move(drafter));
    one.max_new_tokens = 3;
    return one;
  };
  const auto drafting = engine();
  std::vector<TokenId> behind = tokens(20, 3);
  const std::vector<TokenId> begun = told(*drafting, asked(1, {}), nullptr);
  behind.insert(behind.end(), begun.begin(), begun.begin() + 2);
  const std::vector<float> all = logits(model_, behind, {.invariant = true});
  std::vector<std::pair<float, TokenId>> best;
  for (TokenId token = 0; token < 96; ++token)
    best.emplace_back(all[all.size() - 96 + token], token);
  std::ranges::sort(best, std::greater());
  std::map<TokenId, double> expected, counts;
  double sum = 0;
  for (size_t i = 0; i < kBest; ++i) sum += expected[best[i].second] = std::exp(best[i].first);
  double n = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    RequestReport report;
    const std::vector<TokenId> text = told(*drafting, asked(seed, guess(behind, 2, 2)), &report);
    if (text[0] != begun[0] || text[1] != begun[1]) continue;
    EXPECT_EQ(report.drafts.accepted, 1u);
    ++counts[text[2]];
    ++n;
  }
  ASSERT_GT(n, 40) << "one in nine or so";
  double chi_square = 0;
  for (const auto& [token, weight] : expected) {
    const double mean = n * weight / sum;
    chi_square += (counts[token] - mean) * (counts[token] - mean) / mean;
  }
  EXPECT_EQ(counts.size(), kBest);
  EXPECT_LT(chi_square, 13.8) << "2 degrees of freedom: 13.8 has probability 0.001";
}

TEST_F(SampledDrafts, LeaveOthersTheirRunAhead) {
  const auto both = engine(2);
  const std::vector<TokenId> plain = told(*engine(), request(with_penalties(7)), nullptr);
  std::map<RequestId, std::vector<TokenId>> texts;
  const auto with =
      both->submit(request(with_penalties(7), guess(joined(tokens(20, 3), plain), 3, 1)));
  const auto without = both->submit(request(with_penalties(7)));
  ASSERT_TRUE(with.ok() && without.ok());
  while (!both->idle()) {
    for (const StepEvent& event : step(*both)) {
      if (event.token) texts[event.request].push_back(*event.token);
    }
  }
  EXPECT_EQ(texts[*with], plain);
  EXPECT_EQ(texts[*without], plain);
  const std::deque<StepTrace>& steps = both->trace();
  size_t n_ahead = 0;
  for (size_t i = 1; i < steps.size(); ++i) n_ahead += steps[i].planned_s < steps[i - 1].ended_s;
  EXPECT_GT(n_ahead, 20u) << "of 40 tokens";
}

}  // namespace
}  // namespace pumice
