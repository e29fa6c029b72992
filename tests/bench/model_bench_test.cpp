// What `pumice bench -m` does on a real engine: tests with depth and company, and what is kept when
// something goes wrong.
#include "bench/model_bench.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "bench/advise.hpp"
#include "bench/records.hpp"
#include "models/synthetic.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::bench {
namespace {

constexpr uint32_t kVocab = 512;

class ModelBenchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PUMICE_REQUIRE_DEVICE(device);
    pipelines_ =
        std::make_shared<vk::PipelineLibrary>(device, std::filesystem::path(), spirv_hash());
    const SyntheticModel tiny =
        SyntheticModel::create({.n_vocab = kVocab}, {.type = &weight_type("F16")}).value();
    const auto path = std::filesystem::temp_directory_path() /
                      ("pumice-model-bench-" + std::to_string(::getpid()) + ".gguf");
    ASSERT_TRUE(write_synthetic_model(tiny, path).ok());
    const GgufFile file = GgufFile::open(path).value();
    model_ = Model::load(device, file).value();
    std::filesystem::remove(path);
  }

  ModelBench bench(uint32_t repetitions) {
    return {.make_engine = [this](const TestGroup& group) { return make(group); },
            .n_vocab = kVocab,
            .repetitions = repetitions,
            .stop = [] { return false; }};
  }
  Result<std::unique_ptr<Engine>> make(const TestGroup& group) {
    return Engine::create(pipelines_, model_, engine_options(group, {}));
  }

  std::shared_ptr<vk::PipelineLibrary> pipelines_;
  std::shared_ptr<const Model> model_;
};

TEST_F(ModelBenchTest, EveryCombinationIsMeasured) {
  const TestGrid grid{.n_prompt = {32},
                      .n_gen = {4},
                      .prompt_and_gen = {{16, 3}},
                      .n_depth = {0, 32, 100},
                      .n_parallel = {1, 3}};
  const std::vector<ModelRow> rows = bench_models(grid.tests(), bench(2));
  ASSERT_EQ(rows.size(), 18u);
  for (const ModelRow& row : rows) {
    ASSERT_FALSE(row.error) << row.test.name() << ": " << row.error->message;
    ASSERT_EQ(row.samples.size(), 2u) << row.test.name();
    EXPECT_EQ(row.prefill_rates().size(), row.test.n_prompt > 0 ? 2u : 0u);
    EXPECT_EQ(row.decode_rates().size(), row.test.n_gen > 0 ? 2u : 0u);
    EXPECT_EQ(row.ttft_ns().size(), row.test.n_prompt > 0 ? 2u * row.test.n_parallel : 0u);
    for (const Sample& sample : row.samples) {
      EXPECT_GE(sample.ns, sample.prefill_ns);
      EXPECT_EQ(sample.decode_ns() == 0, row.test.n_gen == 0);
    }
  }
  // One table holds all of them: same columns of the same types.
  const auto declarations = [](const ModelRow& row) {
    const std::string sql = to_sql(std::vector{to_json(row, {})});
    return sql.substr(0, sql.find(';'));
  };
  for (const ModelRow& row : rows) EXPECT_EQ(declarations(row), declarations(rows[0]));
}

TEST_F(ModelBenchTest, WhatDoesNotFitIsARowAndTheOthersAreMeasured) {
  const TestGrid grid{.n_prompt = {16}, .n_depth = {0, 1u << 24}};
  const std::vector<ModelRow> rows = bench_models(grid.tests(), bench(1));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_FALSE(rows[0].error);
  ASSERT_TRUE(rows[1].error);
  EXPECT_EQ(rows[1].error->code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(verdict(rows).error().code, ErrorCode::kDoesNotFit);
  EXPECT_NE(to_markdown(rows, {}).find(rows[1].error->message), std::string::npos);
}

TEST_F(ModelBenchTest, ADeviceThatBeginsToComputeWrongHasNoScoreForThatTestAndEndsTheRun) {
  const TestGrid grid{.n_prompt = {8, 16, 32}};
  ModelBench checked = bench(1);
  int n_checks = 0;
  checked.check = [&]() -> Status {
    if (++n_checks == 1) return {};
    return make_error(ErrorCode::kSelfTestFailed, "no score: logits are off");
  };
  const std::vector<ModelRow> rows = bench_models(grid.tests(), checked);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_FALSE(rows[0].error);
  EXPECT_TRUE(rows[0].checked_after);
  EXPECT_EQ(rows[0].samples.size(), 1u);
  for (const size_t wrong : {1u, 2u}) {
    ASSERT_TRUE(rows[wrong].error);
    EXPECT_EQ(rows[wrong].error->code, ErrorCode::kSelfTestFailed);
    EXPECT_TRUE(rows[wrong].samples.empty());
  }
  EXPECT_EQ(n_checks, 2);
  EXPECT_EQ(exit_code(verdict(rows).error().code), 6);
}

TEST_F(ModelBenchTest, ALostDeviceEndsTheRunAndKeepsTheRowsAlreadyMeasured) {
  const TestGrid grid{.n_prompt = {16, 32}, .n_gen = {4}};
  ModelBench lossy = bench(2);
  int steps_left = 6;  // warm-up and samples of pp16 take three, one more of pp32
  lossy.make_engine = [&](const TestGroup& group) {
    Result<std::unique_ptr<Engine>> engine = make(group);
    if (engine.ok()) {
      (*engine)->set_hooks({.at_stage = [&](StepStage stage) -> Status {
        if (stage != StepStage::kSubmit) return {};
        if (--steps_left >= 0) return {};
        return make_error(ErrorCode::kDeviceLost, "the device was lost");
      }});
    }
    return engine;
  };
  const std::vector<ModelRow> rows = bench_models(grid.tests(), lossy);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_FALSE(rows[0].error);
  EXPECT_EQ(rows[0].samples.size(), 2u);
  ASSERT_TRUE(rows[2].error);
  EXPECT_EQ(rows[2].error->code, ErrorCode::kDeviceLost);
  EXPECT_EQ(exit_code(verdict(rows).error().code), 75);
  EXPECT_EQ(to_json(rows[2], {})["error"], "the device was lost");
  EXPECT_TRUE(to_json(rows[0], {})["error"].is_null());
}

TEST_F(ModelBenchTest, ALeverWithWrongLogitsIsNotMeasured) {
  const auto open_pipelines = [&] {
    return std::make_shared<vk::PipelineLibrary>(pipelines_->device(), std::filesystem::path(),
                                                 spirv_hash());
  };
  AdviseOptions options{
      .ttft_target_s = 1e-9, .n_prompt = 32, .n_gen = 2, .n_streams = 1, .stop = [] {
        return false;
      }};
  options.check = [](const auto&, KvTypes kv_type, ops::Math) -> Result<nlohmann::json> {
    if (kv_type == KvType::kF32) {
      return make_error(ErrorCode::kSelfTestFailed, "logits are off");
    }
    return nlohmann::json{{"passed", true}};
  };
  const Advice advice = advise(pipelines_, open_pipelines, model_, options);
  EXPECT_FALSE(advice.ended) << advice.ended->message;
  const auto wrong = std::ranges::find(advice.levers, "kv=f32", &LeverRow::lever);
  ASSERT_NE(wrong, advice.levers.end());
  EXPECT_FALSE(wrong->measured());
  EXPECT_EQ(wrong->note, "logits are off");
  EXPECT_TRUE(advice.levers.back().measured());
}

}  // namespace
}  // namespace pumice::bench
