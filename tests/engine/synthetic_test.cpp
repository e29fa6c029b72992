// Models with random weights compute like models: logits are finite, spread and about the prompt.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/embedder.hpp"
#include "models/families.hpp"
#include "models/synthetic.hpp"
#include "tests/engine/engine_fixture.hpp"
#include "tests/engine/synthetic_model.hpp"

namespace pumice {
namespace {

class Synthetic : public test::EngineTest {};

TEST_F(Synthetic, LogitsOfEveryWeightTypeAreSane) {
  const std::vector<TokenId> prompt{1, 17, 93, 5, 60};
  const std::vector<TokenId> other{1, 18, 93, 5, 60};
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    const test::TemporaryFile file =
        test::write_synthetic_model({.n_embd = 256, .n_ff = 256, .type = &type});
    const auto model = load(file.path());
    ASSERT_NE(model, nullptr);
    const std::vector<float> values = logits(model, prompt, {.kv_type = KvType::kF32});
    double square = 0;
    for (const float value : values) square += static_cast<double>(value) * value;
    const double deviation = std::sqrt(square / static_cast<double>(values.size()));
    EXPECT_GT(deviation, 1.0) << type.name;  // written with a gain of 1.5
    EXPECT_LT(deviation, 2.0) << type.name;  // not NaN either
    EXPECT_GT(test::nmse(logits(model, other, {.kv_type = KvType::kF32}), values), 1e-3)
        << type.name;
  }
}

TEST_F(Synthetic, MadeInDeviceMemoryTheModelIsThatOfItsFileToTheBit) {
  const std::vector<TokenId> prompt{1, 17, 93, 5, 60, 2, 300};
  const SyntheticShape shapes[] = {
      {.name = "tied, scaled", .n_vocab = 600, .rope_factor = 8, .tied = true},
      {.name = "ragged", .n_embd = 96, .n_heads = 4, .n_kv_heads = 2, .n_ff = 200, .n_vocab = 301}};
  for (const SyntheticShape& shape : shapes) {
    const Result<SyntheticModel> made = SyntheticModel::create(shape, {.seed = 9});
    ASSERT_TRUE(made.ok()) << made.error().message;
    const test::TemporaryFile file(std::filesystem::temp_directory_path() /
                                   fmt::format("pumice-made-{}.gguf", ::getpid()));
    ASSERT_TRUE(write_synthetic_model(*made, file.path()).ok());
    const auto from_file = load(file.path());
    const Result<ModelSource> source = ModelSource::synthetic(*made);
    ASSERT_TRUE(source.ok()) << source.error().message;
    uint64_t last = 0;
    const auto direct =
        Model::load(pipelines_->device(), *source, [&](uint64_t done, uint64_t) { last = done; });
    ASSERT_TRUE(direct.ok()) << direct.error().message;
    EXPECT_GT(last, 0u);
    EXPECT_EQ((*direct)->fingerprint, from_file->fingerprint) << shape.name;
    EXPECT_EQ(logits(*direct, prompt, {}), logits(from_file, prompt, {})) << shape.name;
  }
}

/// The small model of every architecture, on the device.
class SmallModels : public test::EngineTest,
                    public ::testing::WithParamInterface<std::string_view> {
 protected:
  static constexpr uint32_t kTokens = 20;  // beyond the windows, of which such models have 8

  static std::vector<TokenId> prompt() {
    std::vector<TokenId> tokens(kTokens);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 31 % 500);
    return tokens;
  }
};

void expect_spread(std::span<const float> values) {
  double square = 0;
  for (const float value : values) square += double{value} * value;
  const double deviation = std::sqrt(square / static_cast<double>(values.size()));
  EXPECT_GT(deviation, 1e-3);
  EXPECT_LT(deviation, 100);  // not NaN either
}

TEST_P(SmallModels, LoadAndRun) {
  const SyntheticModel made = SyntheticModel::parse(fmt::format("{}:f16", GetParam())).value();
  const ModelSource source = ModelSource::synthetic(made).value();
  const Program program = build_program(source).value();
  const auto plan = ModelPlan::of_program(source, program).value();
  const auto model = Model::load(pipelines_->device(), source, plan);
  ASSERT_TRUE(model.ok()) << model.error().message;
  if (program.pooling) {
    const auto embedder = Embedder::create(pipelines_, *model, {.text_tokens = kTokens});
    ASSERT_TRUE(embedder.ok()) << embedder.error().message;
    const std::vector<std::vector<TokenId>> texts = {prompt()};
    const auto vectors = (*embedder)->embed(texts);
    ASSERT_TRUE(vectors.ok()) << vectors.error().message;
    return expect_spread(vectors->front());
  }
  const auto engine =
      make_engine(*model, {.context_tokens = 32, .prompt_logits = true, .greedy_only = true});
  expect_spread(logits(*engine, prompt()));
  EXPECT_EQ(greedy(*engine, prompt(), 3).size(), 3u);
}

std::vector<std::string_view> architectures() {
  std::vector<std::string_view> names;
  for (const ModelFamily& family : model_families()) names.push_back(family.architecture);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Architectures, SmallModels, ::testing::ValuesIn(architectures()),
                         [](const auto& given) {
                           std::string name(given.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pumice
