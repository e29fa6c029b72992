// Vectors of texts against an independent implementation's (reference/families-2026.md in the
// shared data), and against themselves: other texts in a step change nothing.
#include "engine/embedder.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string_view>

#include "models/embedding.hpp"
#include "models/reference.hpp"
#include "shaders/spirv.hpp"
#include "tests/engine/engine_fixture.hpp"

namespace pumice {
namespace {

constexpr double kF32Bound = 1e-9;
constexpr double kF16KvBound = 1e-6;
constexpr double kF16MathBound = 2e-6;
constexpr size_t kSequenceOfTokens = 3;  // whose rows the reference has
using Texts = std::vector<std::vector<TokenId>>;
using Vectors = std::vector<std::vector<float>>;

std::vector<float> flat(const Vectors& vectors) {
  std::vector<float> all;
  for (const std::vector<float>& vector : vectors) {
    all.insert(all.end(), vector.begin(), vector.end());
  }
  return all;
}

class EmbedderTest : public test::EngineTest {
 protected:
  /// The model at that place of the shared data, to embed. Null: there is none.
  std::shared_ptr<const Model> load_embedding(const std::string& name,
                                              std::optional<Pooling> pooling = {}) {
    const auto path = test::shared_path("reference/" + name + ".gguf");
    if (!std::filesystem::exists(path)) return nullptr;
    const ModelSource source = ModelSource::open(path).value();
    Result<Program> program = build_embedding_program(source, pooling);
    EXPECT_TRUE(program.ok()) << program.error().message;
    return Model::load(pipelines_->device(), source,
                       ModelPlan::of_program(source, std::move(*program)).value())
        .value();
  }
  static std::unique_ptr<Embedder> make(const std::shared_ptr<const Model>& model,
                                        const EmbedderOptions& options) {
    Result<std::unique_ptr<Embedder>> embedder = Embedder::create(pipelines_, model, options);
    EXPECT_TRUE(embedder.ok()) << embedder.error().message;
    return embedder.ok() ? std::move(*embedder) : nullptr;
  }
  static Vectors embed(Embedder& embedder, std::span<const std::vector<TokenId>> texts) {
    Result<Vectors> vectors = embedder.embed(texts);
    EXPECT_TRUE(vectors.ok()) << vectors.error().message;
    return vectors.ok() ? std::move(*vectors) : Vectors();
  }
};

class Embeddings : public EmbedderTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    EmbedderTest::SetUp();
    if (IsSkipped()) return;
    name_ = std::string("embeddings/") + GetParam();
    stem_ = test::shared_path("reference/" + name_).string();
    model_ = load_embedding(name_);
    if (model_ == nullptr) GTEST_SKIP() << "no shared data: " << stem_;
    texts_ = test::read_json(stem_ + ".json").at("sequences").get<Texts>();
    for (const auto& text : texts_) {
      longest_ = std::max(longest_, static_cast<uint32_t>(text.size()));
    }
  }
  void TearDown() override { model_.reset(); }

  std::string name_;
  std::string stem_;
  std::shared_ptr<const Model> model_;
  Texts texts_;
  uint32_t longest_ = 0;
};

TEST_P(Embeddings, AgreeTogetherAndAlone) {
  const std::vector<float> expected = test::read_floats(stem_ + ".f32");
  // All in one step; then no two in one.
  for (const uint32_t step_tokens : {1024u, 1u}) {
    const auto embedder = make(
        model_, {.math = ops::Math::kF32, .text_tokens = longest_, .step_tokens = step_tokens});
    ASSERT_NE(embedder, nullptr);
    const Vectors vectors = step_tokens == 1u ? [&] {
      Vectors alone;
      for (const auto& text : texts_) alone.push_back(embed(*embedder, {&text, 1}).at(0));
      return alone;
    }() : embed(*embedder, texts_);
    const double error = test::nmse(flat(vectors), expected);
    EXPECT_LE(error, kF32Bound);
    RecordProperty(step_tokens == 1u ? "nmse_alone" : "nmse", fmt::format("{:.2e}", error));
    EXPECT_TRUE(embedder->variants().contains("flash_attention.tile.f32") ||
                embedder->variants().contains("flash_attention.tile.f32.window"));
  }
}

TEST_P(Embeddings, OfTokensAgree) {
  const auto model = load_embedding(name_, Pooling::kNone);
  const auto embedder = make(model, {.math = ops::Math::kF32, .text_tokens = longest_});
  ASSERT_NE(embedder, nullptr);
  const Vectors vectors = embed(*embedder, {&texts_[kSequenceOfTokens], 1});
  const double error = test::nmse(flat(vectors), test::read_floats(stem_ + ".tok.f32"));
  EXPECT_LE(error, kF32Bound);
  RecordProperty("nmse", fmt::format("{:.2e}", error));
}

TEST_P(Embeddings, AgreeInHalfPrecision) {
  const std::vector<float> expected = test::read_floats(stem_ + ".f32");
  const auto kv =
      make(model_, {.kv_type = KvType::kF16, .math = ops::Math::kF32, .text_tokens = longest_});
  ASSERT_NE(kv, nullptr);
  const double kv_error = test::nmse(flat(embed(*kv, texts_)), expected);
  EXPECT_LE(kv_error, kF16KvBound);
  EXPECT_GT(kv_error, 0);
  RecordProperty("nmse_f16_kv", fmt::format("{:.2e}", kv_error));
  const auto variants =
      ops::gemm_variants(pipelines_->device()->plan(), ops::Math::kF16, ops::XRoute::kPortable);
  const bool has_matrix_cores =
      find_spirv("gemm.f16.matrix").ok() &&
      std::ranges::any_of(variants, [](const auto& variant) { return variant.obstacle.empty(); });
  if (!has_matrix_cores) return;
  const auto math = make(model_, {.math = ops::Math::kF16, .text_tokens = longest_});
  ASSERT_NE(math, nullptr);
  const double math_error = test::nmse(flat(embed(*math, texts_)), expected);
  EXPECT_LE(math_error, kF16MathBound);
  RecordProperty("nmse_f16_math", fmt::format("{:.2e}", math_error));
}

TEST_P(Embeddings, InvariantAreTheSameToTheBitBesideOthers) {
  const auto embedder =
      make(model_, {.text_tokens = longest_, .step_tokens = 512, .invariant = true});
  ASSERT_NE(embedder, nullptr);
  const Vectors together = embed(*embedder, texts_);
  Vectors alone;
  for (const auto& text : texts_) alone.push_back(embed(*embedder, {&text, 1}).at(0));
  EXPECT_EQ(together, alone);
}

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name(info.param);
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, Embeddings,
                         ::testing::Values("bert-cls", "nomic-bert", "gemma-embedding",
                                           "qwen3-embedding"),
                         test_name);

using EmbedderMisuse = EmbedderTest;

TEST_F(EmbedderMisuse, IsRefusedAndSaysWhat) {
  const auto model = load_embedding("embeddings/bert-cls");
  if (model == nullptr) GTEST_SKIP() << "no shared data";
  // Positions end at 512, whatever is asked for.
  EXPECT_EQ(longest_text(model->program), 512u);
  EXPECT_EQ(longest_text(model->program, 4096), 512u);
  EXPECT_EQ(longest_text(model->program, 8), 8u);
  const auto embedder = make(model, {.text_tokens = 8});
  ASSERT_NE(embedder, nullptr);
  const auto message = [&](const Texts& texts) {
    const Result<Vectors> vectors = embedder->embed(texts);
    return vectors.ok() ? "" : vectors.error().message;
  };
  EXPECT_EQ(message({{1}, {}}), "text 2 has no tokens");
  EXPECT_EQ(message({std::vector<TokenId>(9)}), "text 1 has 9 tokens, and there is room for 8");
  EXPECT_EQ(message({{1}, {2}, {512}}), "text 3: token 512 is not in the vocabulary of 512");
  EXPECT_EQ(message({{1}, {2}, {511}}), "");

  const Result<std::unique_ptr<Engine>> engine = Engine::create(pipelines_, model, {});
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.error().message.find("pumice embed"), std::string::npos);
}

TEST_F(EmbedderMisuse, AModelThatWritesTextIsNotLoadedForIt) {
  const auto path = test::shared_path("reference/families/qwen3.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data";
  const Result<std::unique_ptr<Embedder>> embedder = Embedder::create(pipelines_, load(path), {});
  ASSERT_FALSE(embedder.ok());
  EXPECT_EQ(embedder.error().message, "the model was loaded to generate text, not to embed it");
  const auto bert = test::shared_path("reference/embeddings/bert-cls.gguf");
  const ModelSource source = ModelSource::open(bert).value();
  EXPECT_EQ(Model::load(pipelines_->device(), source).error().code, ErrorCode::kInvalidArgument);
}

/// Scores of texts by models that rank against the fp64 evaluation, alone and beside others.
class Rankers : public EmbedderTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(Rankers, ScoreAsTheFp64EvaluationDoes) {
  const bool is_encoder = std::string_view(GetParam()) == "bert";
  const SyntheticShape shape{
      .name = "ranker",
      .architecture = GetParam(),
      .extras = is_encoder
                    ? "layer_norm +token_types.weight:256x2 pooling_type=4 +cls.weight +cls.bias "
                      "+cls.output.weight:256x1 +cls.output.bias"
                    : "pooling_type=4 +cls.output.weight:256x2 classifier.output_labels=yes,no"};
  const ModelSource source =
      ModelSource::synthetic(SyntheticModel::create(shape, {}).value()).value();
  const auto plan = ModelPlan::of_program(source, build_embedding_program(source).value()).value();
  const Program& program = plan->program();
  Texts texts(5);
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < 3 + 9 * i; ++j) {
      texts[i].push_back(static_cast<TokenId>((7 + i * 131 + j * 37) % 512));
    }
  }
  std::vector<float> expected;
  for (const auto& text : texts) {
    const std::vector<double> rows =
        reference_logits(source, program, text, {.max_threads = 2}).value().logits;
    const size_t width = program.values[program.logits].width;
    const std::vector<double> scores = pool(*program.pooling, std::span(rows), width);
    expected.insert(expected.end(), scores.begin(), scores.end());
  }
  const auto model = Model::load(pipelines_->device(), source, plan).value();
  for (const uint32_t step_tokens : {512u, 1u}) {
    const auto embedder =
        make(model, {.math = ops::Math::kF32, .text_tokens = 64, .step_tokens = step_tokens});
    ASSERT_NE(embedder, nullptr);
    EXPECT_EQ(embedder->width(), is_encoder ? 1u : 2u);
    EXPECT_LE(test::nmse(flat(embed(*embedder, texts)), expected), kF32Bound);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Rankers, ::testing::Values("bert", "qwen3"), test_name);

TEST_F(EmbedderMisuse, ProgressMayEndIt) {
  const auto model = load_embedding("embeddings/bert-cls");
  if (model == nullptr) GTEST_SKIP() << "no shared data";
  const auto embedder = make(model, {.text_tokens = 16, .step_tokens = 16});
  ASSERT_NE(embedder, nullptr);
  std::vector<size_t> done;
  const Result<Vectors> vectors = embedder->embed(Texts{{1}, {2}, {3}}, [&](size_t n) {
    done.push_back(n);
    return n < 2;
  });
  ASSERT_FALSE(vectors.ok());
  EXPECT_EQ(vectors.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(done, (std::vector<size_t>{1, 2}));
}

/// A model with windows whose blocks a causal engine would let go of: every layer sees its whole
/// text.
TEST_F(EmbedderTest, OfACausalModelWithWindowsIsWhatItsLastNormGives) {
  const auto model = load_embedding("families/gemma2", Pooling::kMean);
  if (model == nullptr) GTEST_SKIP() << "no shared data";
  std::vector<TokenId> text(75);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<TokenId>(3 + i * 37 % 500);
  const auto embedder =
      make(model, {.math = ops::Math::kF32, .text_tokens = static_cast<uint32_t>(text.size())});
  ASSERT_NE(embedder, nullptr);
  const Vectors vectors = embed(*embedder, {&text, 1});
  const ModelSource source =
      ModelSource::open(test::shared_path("reference/families/gemma2.gguf")).value();
  const std::vector<double> rows =
      reference_logits(source, model->program, text, {.max_threads = 2}).value().logits;
  const std::vector<double> expected = pool(Pooling::kMean, std::span(rows), embedder->width());
  EXPECT_LE(test::nmse(vectors.at(0), std::vector<float>(expected.begin(), expected.end())),
            kF32Bound);
}

}  // namespace
}  // namespace pumice
