// Running models in tests: files to engines to logits and greedy tokens.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "tests/gpu_fixture.hpp"
#include "tests/shared_data.hpp"

namespace pumice::test {

/// Tests of one program share compiled pipelines and the device.
class EngineTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override {
    if (!pipelines_) GTEST_SKIP() << "no usable Vulkan device";
  }

  /// Errors fail the test.
  static std::shared_ptr<const Model> load(const std::filesystem::path& path);
  /// A family's of the shared data; without it the test is skipped and this is null.
  static std::shared_ptr<const Model> load_family(const std::string& name);
  /// Of the model's vocabulary.
  static std::vector<TokenId> random_tokens(const Model& model, size_t n, uint32_t seed);
  static std::unique_ptr<Engine> make_engine(const std::shared_ptr<const Model>& model,
                                             const EngineOptions& options);

  /// Logits [position][vocabulary] of a prompt.
  static std::vector<float> logits(Engine& engine, const std::vector<TokenId>& tokens);
  static std::vector<float> logits(const std::shared_ptr<const Model>& model,
                                   const std::vector<TokenId>& tokens, EngineOptions options);

  /// The events of one step.
  static std::vector<StepEvent> step(Engine& engine);

  /// What greedy decoding adds to a prompt.
  static std::vector<TokenId> greedy(Engine& engine, const std::vector<TokenId>& prompt,
                                     uint32_t n);

  /// While it lives, everything above happens on another device.
  class OnDevice {
   public:
    explicit OnDevice(const std::shared_ptr<vk::Device>& device);
    ~OnDevice() { pipelines_ = std::move(before_); }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

   private:
    std::shared_ptr<vk::PipelineLibrary> before_;
  };

  static std::shared_ptr<vk::PipelineLibrary> pipelines_;
};

/// Sum of squared differences over sum of squares of `expected`.
double nmse(const std::vector<float>& got, const std::vector<float>& expected);

/// Little-endian float32 values of a file.
std::vector<float> read_floats(const std::filesystem::path& path);

nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace pumice::test
