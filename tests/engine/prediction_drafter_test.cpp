// Guesses of prediction blocks: whatever happens to a request, the text is that of a run without
// guesses, and the block guesses as if every token had come alone.
#include "engine/prediction_drafter.hpp"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/families.hpp"
#include "models/synthetic.hpp"
#include "tests/engine/engine_fixture.hpp"

namespace pumice {
namespace {

constexpr uint32_t kPrompt = 45;
constexpr uint32_t kNew = 24;
constexpr uint32_t kDraft = 3;

/// Of each length of the text at which it was asked.
using Guesses = std::map<size_t, std::vector<TokenId>>;

class BlockDrafts : public test::EngineTest, public ::testing::WithParamInterface<const char*> {
 protected:
  struct Asked {
    SamplerOptions sampling = {};
    /// What is verified instead of the block's guess, if it says so: of so many tokens of this text,
    /// number `wrong` is another.
    std::vector<TokenId> text = {};
    uint32_t wrong = 0;
    ServiceClass service_class = ServiceClass::kNormal;
    uint32_t n_prompt = kPrompt;
  };
  struct Told {
    std::vector<TokenId> tokens;
    Guesses guesses;
    RequestReport report;
  };

  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    SyntheticShape shape = find_synthetic_preset(GetParam()).value();
    shape.predicts = true;
    const SyntheticModel made =
        SyntheticModel::create(shape, {.type = &weight_type("F16")}).value();
    source_ = std::make_unique<ModelSource>(ModelSource::synthetic(made).value());
    model_ = load(with_hidden_rows(build_program(*source_).value()));
    for (uint32_t i = 0; i < kPrompt; ++i) prompt_.push_back((i * i + 31 * i) % 300 + 100);
    plain_ = run(*engine({}), {}, nullptr).tokens;
    text_ = prompt_;
    text_.insert(text_.end(), plain_.begin(), plain_.end());
  }

  std::shared_ptr<const Model> load(Result<Program> program) const {
    EXPECT_TRUE(program.ok()) << program.error().message;
    const auto plan = ModelPlan::of_program(*source_, *std::move(program)).value();
    return Model::load(pipelines_->device(), *source_, plan).value();
  }
  std::shared_ptr<PredictionDrafter> drafter() const {
    const auto block = load(with_hidden_rows(build_prediction(*source_).value()));
    return std::make_shared<PredictionDrafter>(
        make_engine(block, {.math = ops::Math::kF32, .context_tokens = 160, .greedy_only = true}),
        Logger());
  }
  std::unique_ptr<Engine> engine(EngineOptions options) const {
    options.math = ops::Math::kF32;
    options.context_tokens = 160;
    return make_engine(model_, options);
  }

  /// `drafter`: null: none.
  RequestId submit(Engine& engine, const Asked& asked,
                   const std::shared_ptr<PredictionDrafter>& drafter, Told& told) const {
    GenerationRequest request{.prompt = prompt_,
                              .max_new_tokens = kNew,
                              .sampling = asked.sampling,
                              .service_class = asked.service_class};
    request.prompt.resize(asked.n_prompt);
    if (drafter != nullptr) {
      request.most_draft_tokens = kDraft;
      PredictionDrafter::draft(drafter, request);
      request.drafter = [&told, asked, block = request.drafter](std::span<const TokenId> tokens,
                                                                uint32_t most) {
        Guess guess = block(tokens, kDraft);
        told.guesses[tokens.size()] = guess.tokens;
        guess.tokens.resize(std::min<size_t>(guess.tokens.size(), most));
        if (asked.text.empty()) return guess;
        guess.tokens.clear();
        for (size_t i = 0; i < most && tokens.size() + i < asked.text.size(); ++i) {
          guess.tokens.push_back(asked.text[tokens.size() + i] ^ (i == asked.wrong ? 1 : 0));
        }
        return guess;
      };
    }
    const auto id = engine.submit(std::move(request));
    EXPECT_TRUE(id.ok()) << id.error().message;
    return *id;
  }
  static void keep(const std::vector<StepEvent>& events, RequestId id, Told& told) {
    for (const StepEvent& event : events) {
      if (event.request != id) continue;
      if (event.token) told.tokens.push_back(*event.token);
      if (event.report) told.report = *event.report;
    }
  }
  Told run(Engine& engine, const Asked& asked,
           const std::shared_ptr<PredictionDrafter>& drafter) const {
    Told told;
    const RequestId id = submit(engine, asked, drafter, told);
    while (!engine.idle()) keep(step(engine), id, told);
    return told;
  }
  /// Each token came alone: guesses are asked for, and nothing is verified.
  Guesses guesses_alone() const {
    Asked nothing;
    nothing.text = {0};
    const Told told = run(*engine({.prefix_cache = false}), nothing, drafter());
    EXPECT_EQ(told.tokens, plain_);
    EXPECT_EQ(told.report.drafts.drafted, 0u);
    EXPECT_GE(told.guesses.size(), size_t{kNew} - 2);
    for (const auto& [n, guess] : told.guesses) EXPECT_EQ(guess.size(), kDraft);
    return told.guesses;
  }
  static void expect_among(const Guesses& some, const Guesses& all) {
    EXPECT_FALSE(some.empty());
    for (const auto& [n, guess] : some) {
      if (!all.contains(n)) continue;
      EXPECT_EQ(guess, all.at(n)) << "of " << n << " tokens";
    }
  }

  std::unique_ptr<ModelSource> source_;
  std::shared_ptr<const Model> model_;
  std::vector<TokenId> prompt_, plain_, text_;
};

TEST_P(BlockDrafts, AreTheSameBehindTokensThatWereGuessed) {
  const Guesses alone = guesses_alone();
  for (uint32_t wrong = 0; wrong <= kDraft; ++wrong) {
    const auto engine = this->engine({});
    const Told told = run(*engine, {.text = text_, .wrong = wrong}, drafter());
    EXPECT_EQ(told.tokens, plain_) << wrong;
    EXPECT_EQ(told.report.drafts.accepted > 0, wrong > 0);
    expect_among(told.guesses, alone);
  }
}

TEST_P(BlockDrafts, ChangeNoTextThatIsChosenAtRandom) {
  const SamplerOptions seeded = {
      .temperature = 1.0f, .top_k = 50, .repeat_penalty = 1.2f, .seed = 7};
  const Told plain = run(*engine({}), {.sampling = seeded}, nullptr);
  const Told told = run(*engine({}), {.sampling = seeded}, drafter());
  EXPECT_EQ(told.tokens, plain.tokens);
  EXPECT_GT(told.report.drafts.drafted, 0u);
}

TEST_P(BlockDrafts, AreTheSameOfChunksFailuresAndAfterMakingWay) {
  const Guesses alone = guesses_alone();
  const auto engine = this->engine({.n_sequences = 1, .chunk_tokens = 16});
  uint32_t n_stages = 0;
  engine->set_hooks({.at_stage = [&](StepStage) -> Status {
    if (++n_stages % 7 == 0) return make_error(ErrorCode::kInternal, "a step fails");
    return {};
  }});
  Told told;
  const RequestId id = submit(
      *engine, {.text = text_, .wrong = 2, .service_class = ServiceClass::kBatch}, drafter(), told);
  for (uint32_t n = 1; !engine->idle(); ++n) {
    const auto events = engine->step();
    ASSERT_TRUE(engine->check_integrity().ok());
    if (events.ok()) keep(*events, id, told);
    if (n % 6 == 0 && n < 20) {
      ASSERT_TRUE(engine->submit({.prompt = {1, 2, 3, n}, .max_new_tokens = 1}).ok());
    }
  }
  EXPECT_EQ(told.tokens, plain_);
  EXPECT_GT(told.report.preemptions, 0u);
  EXPECT_GT(told.report.drafts.accepted, 0u);
  expect_among(told.guesses, alone);
}

TEST_P(BlockDrafts, GoOnWhenTheDeviceWasLost) {
  const auto engine = this->engine({});
  Told told;
  const RequestId id = submit(*engine, {}, drafter(), told);
  for (int i = 0; i < 6; ++i) keep(step(*engine), id, told);
  ASSERT_TRUE(engine->rebuild(pipelines_, model_).ok());
  while (!engine->idle()) keep(step(*engine), id, told);
  EXPECT_EQ(told.tokens, plain_);
}

TEST_P(BlockDrafts, OfSeveralRequestsAreTheirOwn) {
  const Guesses alone = guesses_alone();
  const auto engine = this->engine({.n_sequences = 3});
  const auto block = drafter();
  std::vector<Told> told(3);
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < told.size(); ++i) {
    ids.push_back(
        submit(*engine, {.text = text_, .wrong = 1, .n_prompt = kPrompt - i}, block, told[i]));
  }
  while (!engine->idle()) {
    const std::vector<StepEvent> events = step(*engine);
    for (size_t i = 0; i < told.size(); ++i) keep(events, ids[i], told[i]);
  }
  EXPECT_EQ(told[0].tokens, plain_);
  expect_among(told[0].guesses, alone);
}

/// More rows than are kept: the block's cache has what was read before.
TEST_P(BlockDrafts, OfALongTextAreAsIfItHadBeenReadAtOnce) {
  std::vector<TokenId> prompt;
  for (uint32_t i = 0; i < PredictionDrafter::kMostRows + 100; ++i) {
    prompt.push_back((i * i + 7 * i) % 300 + 100);
  }
  const EngineOptions options{.kv_type = KvType::kF32,
                              .math = ops::Math::kF32,
                              .context_tokens = static_cast<uint32_t>(prompt.size()) + 16};
  const auto engine = make_engine(model_, options);
  const auto block = load(with_hidden_rows(build_prediction(*source_).value()));
  const auto drafter = std::make_shared<PredictionDrafter>(make_engine(block, options), Logger());
  std::vector<float> hidden;
  std::vector<TokenId> first_text, guess;
  GenerationRequest request{.prompt = prompt, .max_new_tokens = 3};
  PredictionDrafter::draft(drafter, request);
  request.on_hidden = [&, add = request.on_hidden](uint32_t position, TokenId token,
                                                   std::span<const float> row) {
    add(position, token, row);
    hidden.insert(hidden.end(), row.begin(), row.end());
  };
  request.drafter = [&, own = request.drafter](std::span<const TokenId> tokens, uint32_t) {
    if (first_text.empty()) {
      first_text.assign(tokens.begin(), tokens.end());
      guess = own(tokens, 1).tokens;
    }
    return Guess();
  };
  ASSERT_TRUE(engine->submit(std::move(request)).ok());
  while (!engine->idle()) step(*engine);
  ASSERT_EQ(guess.size(), 1u);
  const size_t width = hidden.size() / (prompt.size() + 2);
  const auto at_once = make_engine(block, options);
  const auto give = [&](uint32_t first, std::span<float> rows) {
    std::copy_n(hidden.begin() + static_cast<ptrdiff_t>(first * width), rows.size(), rows.begin());
  };
  EXPECT_TRUE(at_once
                  ->submit({.prompt = {first_text.begin() + 1, first_text.end()},
                            .max_new_tokens = 1,
                            .give = give})
                  .ok());
  bool ended = false;
  while (!at_once->idle()) {
    for (const StepEvent& event : step(*at_once)) {
      EXPECT_EQ(event.token.value_or(guess[0]), guess[0]);
      ended = ended || event.finished;
    }
  }
  EXPECT_TRUE(ended);
}

INSTANTIATE_TEST_SUITE_P(Families, BlockDrafts, ::testing::Values("qwen35", "deepseek2", "step35"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
}  // namespace pumice
