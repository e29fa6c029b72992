// The engine on forms of families that the shared data has no file for, against a plain forward
// pass or another family's logits; and where positions have embeddings, no context is longer than
// those.
#include "tests/models/plain_transformer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/prediction_drafter.hpp"
#include "models/families.hpp"
#include "tests/engine/engine_fixture.hpp"
#include "tests/models/split_nemotron.hpp"

namespace pumice {
namespace {

constexpr double kF32Bound = 1e-9;
constexpr double kF16KvBound = 1e-6;
constexpr double kDeepF16KvBound = 1e-3;         // 64 layers: 5e-5 here
constexpr double kLargeScoresF16KvBound = 2e-6;  // nothing divides them: rounded keys weigh more

class PlainTransformers : public test::EngineTest {};

class PlainForms : public test::EngineTest,
                   public ::testing::WithParamInterface<test::PlainForm> {};

TEST_P(PlainForms, SayTheSameInChunksAndWithoutFusion) {
  std::vector<TokenId> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 31 % 67);
  const test::PlainTransformer plain(GetParam());
  const auto file = plain.file();
  const auto model = Model::load(pipelines_->device(), file->file());
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<double> exact = plain.logits(tokens);
  const std::vector<float> expected(exact.begin(), exact.end());
  const auto error = [&](EngineOptions options) {
    options.math = ops::Math::kF32;
    return test::nmse(logits(*model, tokens, options), expected);
  };
  EXPECT_LE(error({.kv_type = KvType::kF32}), kF32Bound);
  EXPECT_LE(error({.kv_type = KvType::kF32, .chunk_tokens = 17}), kF32Bound);
  EXPECT_LE(error({.kv_type = KvType::kF32, .fusion = FusionRules::none(), .chunk_tokens = 7}),
            kF32Bound);
  EXPECT_LE(error({.kv_type = KvType::kF16}), GetParam().n_layers >= 64 ? kDeepF16KvBound
                                              : GetParam().scale == 1   ? kLargeScoresF16KvBound
                                                                        : kF16KvBound);
}

INSTANTIATE_TEST_SUITE_P(Forms, PlainForms, ::testing::ValuesIn(test::forms_without_a_file()),
                         [](const auto& given) { return given.param.name; });

/// Blocks that predict, and what drafts with them.
class PlainPredictions : public PlainForms {
 protected:
  static constexpr uint32_t kTokens = 40;

  void SetUp() override {
    PlainForms::SetUp();
    if (IsSkipped()) return;
    plain_.emplace(GetParam());
    file_ = plain_->file();
    for (uint32_t i = 0; i < kTokens; ++i) tokens_.push_back(i * 31 % 67);
  }

  std::shared_ptr<const Model> load(Result<Program> program) const {
    EXPECT_TRUE(program.ok()) << program.error().message;
    const auto plan = ModelPlan::of_program(file_->file(), *std::move(program));
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return Model::load(pipelines_->device(), file_->file(), *plan).value();
  }
  std::shared_ptr<const Model> layers() const {
    return load(with_hidden_rows(build_program(file_->file()).value()));
  }
  std::shared_ptr<const Model> block() const {
    return load(with_hidden_rows(build_prediction(file_->file()).value()));
  }
  static EngineOptions exact() {
    return {.kv_type = KvType::kF32,
            .math = ops::Math::kF32,
            .context_tokens = test::PlainTransformer::kContext};
  }
  static void finish(Engine& engine, GenerationRequest request) {
    const auto id = engine.submit(std::move(request));
    ASSERT_TRUE(id.ok()) << id.error().message;
    while (!engine.idle()) step(engine);
  }

  std::optional<test::PlainTransformer> plain_;
  std::unique_ptr<test::SmallFile> file_;
  std::vector<TokenId> tokens_;
};

TEST_P(PlainPredictions, AreThoseOfABlockThatIsLoadedWhenAskedFor) {
  const auto model = load(build_prediction(file_->file()));
  const std::vector<TokenId> next(tokens_.begin() + 1, tokens_.end());
  const std::vector<double> hidden = plain_->hidden(std::span(tokens_).first(next.size()));
  const std::vector<double> exact = plain_->predicted(next, hidden);
  const size_t width = GetParam().n_embd;
  const auto give = [&](uint32_t first, std::span<float> rows) {
    std::copy_n(hidden.begin() + static_cast<ptrdiff_t>(first * width), rows.size(), rows.begin());
  };
  for (const uint32_t chunk : {39u, 17u, 1u}) {
    EngineOptions options = this->exact();
    options.chunk_tokens = chunk;
    options.prompt_logits = true;
    const auto engine = make_engine(model, options);
    std::vector<float> got;
    const auto keep = [&](uint32_t, std::span<const float> row) {
      got.insert(got.end(), row.begin(), row.end());
    };
    finish(*engine, {.prompt = next, .max_new_tokens = 1, .on_logits = keep, .give = give});
    EXPECT_LE(test::nmse(got, {exact.begin(), exact.end()}), kF32Bound) << chunk;
  }
}

TEST_P(PlainPredictions, NeedWhatTheirModelGives) {
  const GenerationRequest plain{.prompt = tokens_, .max_new_tokens = 1};
  const auto predicts = make_engine(block(), exact());
  const auto refused = predicts->submit(plain);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "this engine's model predicts by rows that a request must give");
  const auto writes = make_engine(load(build_program(file_->file())), exact());
  GenerationRequest asks = plain;
  asks.on_hidden = [](uint32_t, TokenId, std::span<const float>) {};
  EXPECT_FALSE(writes->submit(asks).ok());
  GenerationRequest gives = plain;
  gives.give = [](uint32_t, std::span<float>) {};
  EXPECT_FALSE(writes->submit(gives).ok());
  EXPECT_FALSE(ModelPlan::of_source(test::PlainTransformer({}).file()->file(), true).ok());
}

TEST_P(PlainPredictions, AreGivenTheHiddenRowsOfEveryToken) {
  const std::vector<double> exact = plain_->hidden(tokens_);
  for (const uint32_t chunk : {40u, 17u, 1u}) {
    EngineOptions options = this->exact();
    options.chunk_tokens = chunk;
    const auto engine = make_engine(layers(), options);
    std::vector<TokenId> told;
    std::vector<float> rows;
    const auto keep = [&](uint32_t position, TokenId token, std::span<const float> row) {
      EXPECT_EQ(position, told.size());
      told.push_back(token);
      rows.insert(rows.end(), row.begin(), row.end());
    };
    finish(*engine, {.prompt = tokens_, .max_new_tokens = 1, .on_hidden = keep});
    EXPECT_EQ(told, tokens_);
    EXPECT_LE(test::nmse(rows, {exact.begin(), exact.end()}), kF32Bound) << chunk;
  }
}

/// Each guess as the plain model makes it of the same text, the second of the block's own rows; and
/// the text is as without guesses, a chunk, a cached beginning or a full window in between.
TEST_P(PlainPredictions, DraftWhatTheBlockSaysAndChangeNothing) {
  constexpr uint32_t kNew = 20;
  const std::shared_ptr<const Model> model = layers();
  const auto drafter = std::make_shared<PredictionDrafter>(make_engine(block(), exact()), Logger());
  const auto likeliest = [](const std::vector<double>& logits) {
    const auto last = logits.end() - test::PlainTransformer::kVocab;
    return static_cast<TokenId>(std::max_element(last, logits.end()) - last);
  };
  const auto plain_guess = [&](std::span<const TokenId> text) {
    const size_t width = GetParam().n_embd;
    std::vector<TokenId> next(text.begin() + 1, text.end());
    std::vector<double> hidden = plain_->hidden(text.first(next.size()));
    std::vector<TokenId> guess{likeliest(plain_->predicted(next, hidden))};
    const std::vector<double> own = plain_->predicted_hidden(next, hidden);
    hidden.insert(hidden.end(), own.end() - static_cast<ptrdiff_t>(width), own.end());
    next.push_back(guess[0]);
    guess.push_back(likeliest(plain_->predicted(next, hidden)));
    return guess;
  };
  const auto text_of = [&](Engine& engine, bool drafts, std::vector<TokenId> prompt,
                           bool knows_all) {
    GenerationRequest request{.prompt = std::move(prompt), .max_new_tokens = kNew};
    if (drafts) {
      request.most_draft_tokens = 2;
      PredictionDrafter::draft(drafter, request);
      request.drafter = [&, guesses = request.drafter](std::span<const TokenId> text,
                                                       uint32_t most) {
        Guess guess = guesses(text, most);
        EXPECT_EQ(guess.tokens.size(), most);
        if (knows_all && most == 2) {
          EXPECT_EQ(guess.tokens, plain_guess(text));
        }
        return guess;
      };
    }
    EXPECT_TRUE(engine.submit(std::move(request)).ok());
    std::vector<TokenId> told;
    while (!engine.idle()) {
      for (const StepEvent& event : step(engine)) {
        if (event.token) told.push_back(*event.token);
        if (event.report && drafts) {
          EXPECT_GT(event.report->drafts.drafted, 0u);
        }
      }
    }
    return told;
  };
  const std::span<const TokenId> all = tokens_;
  for (const uint32_t chunk : {40u, 7u}) {
    EngineOptions options = exact();
    options.chunk_tokens = chunk;
    const auto plain_engine = make_engine(model, options);
    const auto engine = make_engine(model, options);
    for (const size_t n : {size_t{20}, size_t{37}, size_t{2}}) {
      const std::vector<TokenId> prompt(all.begin(), all.begin() + static_cast<ptrdiff_t>(n));
      const auto plain = text_of(*plain_engine, false, prompt, true);
      // The second prompt finds its beginning in the model's cache: the block knows the rest only.
      EXPECT_EQ(text_of(*engine, true, prompt, n == 20), plain) << n << " by " << chunk;
    }
  }
  EngineOptions shifting = exact();
  shifting.context_tokens = 32;
  shifting.overflow = OverflowPolicy::kShift;
  const std::vector<TokenId> prompt(all.begin(), all.begin() + 25);
  const auto plain = text_of(*make_engine(model, shifting), false, prompt, true);
  EXPECT_EQ(text_of(*make_engine(model, shifting), true, prompt, false), plain);
}

INSTANTIATE_TEST_SUITE_P(Forms, PlainPredictions, ::testing::ValuesIn(test::forms_that_predict()),
                         [](const auto& given) { return given.param.name; });

TEST_F(PlainTransformers, NemotronsExpertsInALatentSplitAFeedForward) {
  const auto stem = test::shared_path("reference/families/nemotron-h").string();
  if (!std::filesystem::exists(stem + ".gguf")) GTEST_SKIP() << "no shared data: " << stem;
  const auto tokens = test::read_json(stem + ".json").at("tokens").get<std::vector<TokenId>>();
  const auto file = test::split_nemotron(ModelSource::open(stem + ".gguf").value());
  const auto model = Model::load(pipelines_->device(), file->file());
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const uint32_t chunk : {512u, 17u}) {
    const auto got = logits(
        *model, tokens, {.kv_type = KvType::kF32, .math = ops::Math::kF32, .chunk_tokens = chunk});
    EXPECT_LE(test::nmse(got, test::read_floats(stem + ".f32")), kF32Bound) << chunk;
  }
}

TEST_F(PlainTransformers, NoContextIsLongerThanTheTableOfPositions) {
  constexpr uint32_t kMost = test::PlainTransformer::kContext;
  const std::vector<test::PlainForm> forms = test::forms_without_a_file();
  const auto learned = std::ranges::find_if(forms, &test::PlainForm::learned_positions);
  const auto file = test::PlainTransformer(*learned).file();
  const auto model = Model::load(pipelines_->device(), file->file()).value();
  EXPECT_TRUE(Engine::create(pipelines_, model, {.context_tokens = kMost}).ok());
  const auto engine = Engine::create(pipelines_, model, {.context_tokens = kMost + 1});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine.error().message,
            "a context of 65 tokens: the model has position embeddings for 64");
}

}  // namespace
}  // namespace pumice
