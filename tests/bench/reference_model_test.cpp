// The fp64 decoder says what an independent implementation says.
#include "bench/reference_model.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/shared_data.hpp"

namespace pumice::bench {
namespace {

std::vector<float> read_floats(const std::filesystem::path& path) {
  std::vector<float> values(std::filesystem::file_size(path) / sizeof(float));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

double nmse(std::span<const double> got, std::span<const float> expected) {
  double error = 0;
  double power = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    power += double{expected[i]} * expected[i];
  }
  return error / power;
}

class ReferenceModel : public ::testing::TestWithParam<const char*> {};

TEST_P(ReferenceModel, AgreesWithAnIndependentImplementation) {
  const std::string stem = test::shared_path(std::string("reference/") + GetParam()).string();
  if (!std::filesystem::exists(stem + ".json")) GTEST_SKIP() << "no shared data: " << stem;
  std::ifstream file(stem + ".json");
  const auto tokens = nlohmann::json::parse(file).at("tokens").get<std::vector<TokenId>>();
  const Result<ModelSource> source = ModelSource::open(stem + ".gguf");
  ASSERT_TRUE(source.ok()) << source.error().message;
  const Result<ModelDescription> model = describe_model(*source);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const Result<ReferenceLogits> result = reference_logits(*source, *model, tokens);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->n_layers, model->config.n_layers);
  const std::vector<float> expected = read_floats(stem + ".f32");
  ASSERT_EQ(result->logits.size(), expected.size());
  const double error = nmse(result->logits, expected);
  EXPECT_LE(error, 1e-11);
  RecordProperty("nmse", std::to_string(error * 1e12) + "e-12");
}

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name(info.param);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Everything, ReferenceModel,
                         ::testing::Values("families/llama", "families/llama3-rope",
                                           "families/llama-tied", "families/llama-linear",
                                           "families/llama-yarn", "families/llama-nemo",
                                           "quants/F16", "quants/Q4_K", "quants/mix-Q4_K_M"),
                         test_name);

TEST(ReferenceModelInTime, LeavesLayersOutFromTheLast) {
  const SyntheticModel tiny = SyntheticModel::create({.n_layers = 5}, {}).value();
  const ModelSource source = ModelSource::synthetic(tiny).value();
  ModelDescription model = describe_model(source).value();
  const std::vector<TokenId> tokens{3, 1, 4};
  const ReferenceLogits hurried = reference_logits(source, model, tokens, {.seconds = 0}).value();
  EXPECT_EQ(hurried.n_layers, 1u);
  const ReferenceLogits two = reference_logits(source, model, tokens, {.n_layers = 2}).value();
  EXPECT_EQ(two.n_layers, 2u);
  EXPECT_NE(two.logits, hurried.logits);
  model.config.n_layers = 1;
  EXPECT_EQ(reference_logits(source, model, tokens).value().logits, hurried.logits);
}

}  // namespace
}  // namespace pumice::bench
