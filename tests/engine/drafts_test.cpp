// Verified drafts: whatever is guessed of a text, right or wrong, the text and its logits are those of
// a run without guesses.
#include <algorithm>
#include <random>

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
    const auto path =
        test::shared_path(std::string("reference/families/") + GetParam().name + ".gguf");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
    set_up(load(path), {.invariant = GetParam().invariant,
                        .prompt_tokens = kPrompt,
                        .new_tokens = kNew,
                        .context_tokens = 96});
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

TEST_P(Drafts, ThatAreRightUpToAnyTokenChangeNothing) {
  for (size_t wrong = 0; wrong <= kDraft; ++wrong) {
    const auto engine = this->engine({.prefix_cache = false});
    const Told told = run_with(*engine, guess(text(), kDraft, wrong));
    expect_whole(told, "wrong from " + std::to_string(wrong));
    EXPECT_EQ(told.report.generated_tokens, kNew);
    EXPECT_GT(told.report.drafted_tokens, 0u);
    if (wrong == 0) {
      EXPECT_EQ(told.report.accepted_tokens, 0u);
    }
    if (wrong == kDraft) {
      EXPECT_EQ(told.report.accepted_tokens, told.report.drafted_tokens);
      // The prompt's step samples the first token; each after it brings a token and its draft.
      EXPECT_EQ(engine->trace().size(), 1 + (kNew - 1 + kDraft) / (kDraft + 1));
    }
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
  EXPECT_EQ(told.report.drafted_tokens, 0u);
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
  EXPECT_GT(told.report.accepted_tokens, 0u);
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
      EXPECT_EQ(report.accepted_tokens > 0, wrong > 0);
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
