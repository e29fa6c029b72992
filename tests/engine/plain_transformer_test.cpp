// The engine on forms of families that the shared data has no file for, against a plain forward
// pass or another family's logits; and where positions have embeddings, no context is longer than
// those.
#include "tests/models/plain_transformer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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
