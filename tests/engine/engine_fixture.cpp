#include "tests/engine/engine_fixture.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <random>

#include "shaders/spirv.hpp"

namespace pumice::test {

std::shared_ptr<vk::PipelineLibrary> EngineTest::pipelines_;

void EngineTest::SetUpTestSuite() {
  if (const auto device = GpuEnvironment::device()) {
    pipelines_ = std::make_shared<vk::PipelineLibrary>(device, "", spirv_hash());
  }
}

void EngineTest::TearDownTestSuite() { pipelines_.reset(); }

EngineTest::OnDevice::OnDevice(const std::shared_ptr<vk::Device>& device)
    : before_(std::exchange(pipelines_,
                            std::make_shared<vk::PipelineLibrary>(device, "", spirv_hash()))) {}

std::shared_ptr<const Model> EngineTest::load(const std::filesystem::path& path) {
  const Result<GgufFile> file = GgufFile::open(path);
  if (!file.ok()) {
    ADD_FAILURE() << file.error().message;
    return nullptr;
  }
  Result<std::shared_ptr<const Model>> model = Model::load(pipelines_->device(), *file);
  if (!model.ok()) {
    ADD_FAILURE() << model.error().message;
    return nullptr;
  }
  return *model;
}

std::shared_ptr<const Model> EngineTest::load_family(const std::string& name) {
  const auto path = shared_path("reference/families/" + name + ".gguf");
  if (std::filesystem::exists(path)) return load(path);
  [&] { GTEST_SKIP() << "no shared data: " << path; }();
  return nullptr;
}

std::vector<TokenId> EngineTest::random_tokens(const Model& model, size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % model.program.n_vocab);
  return tokens;
}

std::unique_ptr<Engine> EngineTest::make_engine(const std::shared_ptr<const Model>& model,
                                                const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::create(pipelines_, model, options);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.error().message;
    return nullptr;
  }
  return std::move(engine).value();
}

std::vector<float> EngineTest::logits(Engine& engine, const std::vector<TokenId>& tokens) {
  std::vector<float> result;
  uint32_t next_position = 0;
  const auto append = [&](uint32_t position, std::span<const float> row) {
    EXPECT_EQ(position, next_position++);
    result.insert(result.end(), row.begin(), row.end());
  };
  const Result<RequestId> id = engine.submit({.prompt = tokens, .on_logits = append});
  EXPECT_TRUE(id.ok()) << id.error().message;
  while (!engine.idle() && !step(engine).empty()) {
  }
  EXPECT_EQ(next_position, tokens.size());
  return result;
}

std::vector<float> EngineTest::logits(const std::shared_ptr<const Model>& model,
                                      const std::vector<TokenId>& tokens, EngineOptions options) {
  options.prompt_logits = true;
  options.greedy_only = true;
  if (options.context_tokens == 0) options.context_tokens = static_cast<uint32_t>(tokens.size());
  const std::unique_ptr<Engine> engine = make_engine(model, options);
  return engine ? logits(*engine, tokens) : std::vector<float>{};
}

std::vector<StepEvent> EngineTest::step(Engine& engine) {
  Result<std::vector<StepEvent>> events = engine.step();
  if (!events.ok()) {
    ADD_FAILURE() << events.error().message;
    return {};
  }
  EXPECT_TRUE(engine.check_integrity().ok());
  return std::move(events).value();
}

std::vector<TokenId> EngineTest::greedy(Engine& engine, const std::vector<TokenId>& prompt,
                                        uint32_t n) {
  const Result<RequestId> id = engine.submit({.prompt = prompt, .max_new_tokens = n});
  EXPECT_TRUE(id.ok()) << id.error().message;
  std::vector<TokenId> tokens;
  while (!engine.idle()) {
    const std::vector<StepEvent> events = step(engine);
    if (events.empty()) break;
    for (const StepEvent& event : events) {
      if (event.token) tokens.push_back(*event.token);
    }
  }
  EXPECT_EQ(tokens.size(), n);
  return tokens;
}

double nmse(const std::vector<float>& got, const std::vector<float>& expected) {
  if (got.size() != expected.size()) {
    ADD_FAILURE() << got.size() << " values, expected " << expected.size();
    return INFINITY;
  }
  double error = 0;
  double power = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - expected[i];
    error += difference * difference;
    power += static_cast<double>(expected[i]) * expected[i];
  }
  return error / power;
}

std::vector<float> read_floats(const std::filesystem::path& path) {
  std::vector<float> values(std::filesystem::file_size(path) / sizeof(float));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  EXPECT_TRUE(file) << path;
  return values;
}

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

}  // namespace pumice::test
