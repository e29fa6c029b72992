// Models as an embedding program opens them: a device by name, a model, engines that remember.
#include "host/opened_model.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/memory_plan.hpp"
#include "models/model_plan.hpp"
#include "models/synthetic.hpp"
#include "shaders/gemv/gemv.hpp"
#include "shaders/passport.hpp"
#include "shaders/spirv.hpp"
#include "shaders/tuning_overlay.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::host {
namespace {

constexpr double kAnyTarget = 1000;  // seconds between tokens

class OpenedModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PUMICE_REQUIRE_DEVICE(device);
    const char* selector = std::getenv("PUMICE_DEVICE");
    const char* limit = std::getenv("PUMICE_LIMIT");
    options_.device = {.selector = selector != nullptr ? selector : "",
                       .limits = vk::parse_plan_options(limit != nullptr ? limit : "").value(),
                       .validation = test::validation_requested()};
    options_.cache_directory =
        std::filesystem::temp_directory_path() / ("pumice-opened-" + std::to_string(::getpid()));
    options_.logger = Logger([this](LogLevel, std::string_view line) { (said_ += line) += '\n'; },
                             LogLevel::kWarning);
  }
  void TearDown() override {
    std::error_code error;
    std::filesystem::remove_all(options_.cache_directory, error);
  }

  OpenedModel open() const {
    Result<OpenedModel> opened = OpenedModel::open(options_, source_);
    if (!opened.ok()) throw std::runtime_error(opened.error().message);
    return *std::move(opened);
  }
  static std::unique_ptr<Engine> make(const OpenedModel& opened, EngineOptions options) {
    options.context_tokens = 64;
    options.greedy_only = true;  // fewer kernels to compile
    Result<std::unique_ptr<Engine>> engine = opened.make_engine(options);
    if (!engine.ok()) throw std::runtime_error(engine.error().message);
    return *std::move(engine);
  }
  /// Reads a prompt and generates, so that there is something to learn and to keep.
  static void generate(Engine& engine, uint32_t n_new = 8) {
    std::vector<TokenId> prompt(40);
    std::iota(prompt.begin(), prompt.end(), 1);
    const Result<RequestId> id = engine.submit({.prompt = prompt, .max_new_tokens = n_new});
    ASSERT_TRUE(id.ok()) << id.error().message;
    while (!engine.idle()) {
      const auto events = engine.step();
      ASSERT_TRUE(events.ok()) << events.error().message;
    }
  }
  std::vector<std::filesystem::path> kept(std::string_view prefix) const {
    std::vector<std::filesystem::path> paths;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(options_.cache_directory, error)) {
      if (entry.path().filename().string().starts_with(prefix)) paths.push_back(entry.path());
    }
    return paths;
  }

  OpenOptions options_;
  ModelSource source_ =
      ModelSource::synthetic(SyntheticModel::create({}, {.type = &weight_type("F32")}).value())
          .value();
  std::string said_;
};

TEST_F(OpenedModelTest, ANameThatNoDeviceHasIsAnErrorThatListsThem) {
  options_.device.selector = "no such device";
  const Result<OpenedModel> opened = OpenedModel::open(options_, source_);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kNoDevice);
  const std::string name = test::GpuEnvironment::device()->snapshot().name;
  EXPECT_NE(opened.error().message.find(name), std::string::npos) << opened.error().message;
}

TEST_F(OpenedModelTest, LoadingAndCompilingTellHowFarTheyAre) {
  uint64_t loaded = 0, to_load = 0;
  const Result<OpenedModel> opened =
      OpenedModel::open(options_, source_, [&](uint64_t done, uint64_t total) {
        loaded = done;
        to_load = total;
      });
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_GT(to_load, 0u);
  EXPECT_EQ(loaded, to_load);
  std::atomic<size_t> to_compile = 0;
  const auto engine = opened->make_engine({.context_tokens = 64, .greedy_only = true},
                                          [&](size_t, size_t total) { to_compile = total; });
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_GT(to_compile, 0u);
  const size_t n_compiled = opened->pipelines->compiled_count();
  generate(**engine);
  EXPECT_EQ(opened->pipelines->compiled_count(), n_compiled) << "an engine is ready when made";
  EXPECT_EQ(opened->device->instance()->validation_error_count(), 0u);
}

TEST_F(OpenedModelTest, AModelIsPlannedOnceForAllWhoTakeIt) {
  options_.plan = ModelPlan::of_source(source_).value();
  options_.engine = EngineOptions{.context_tokens = 64};
  const ModelPlan& plan = *options_.plan;
  const OpenedModel opened = open();  // sized, placed and loaded
  EXPECT_EQ(opened.model->plan, options_.plan);
  EXPECT_TRUE(MemoryPlanner::of_loaded(*opened.model, *opened.device).ok());
  const std::unique_ptr<Engine> engine = make(opened, {});
  EXPECT_EQ(plan.n_lowerings(), 1u);
  EngineOptions other;
  other.fusion = FusionRules::none();
  make(opened, other);
  make(opened, other);
  EXPECT_EQ(plan.n_lowerings(), 2u);
  EXPECT_EQ(source_.n_programs(), 1u);
}

TEST_F(OpenedModelTest, WithoutAPlanOneIsMade) {
  const OpenedModel opened = open();
  const std::unique_ptr<Engine> engine = make(opened, {});
  generate(*engine);
  EXPECT_EQ(opened.model->plan->n_lowerings(), 1u);
  EXPECT_EQ(source_.n_programs(), 1u);
}

TEST_F(OpenedModelTest, TheLimitsAskedForAreTheDevices) {
  options_.device.limits = vk::parse_plan_options("no-fp16").value();
  const OpenedModel opened = open();
  EXPECT_EQ(opened.device->plan().limits, options_.device.limits);
}

TEST_F(OpenedModelTest, WithATargetAnEngineIsCalibratedOnceForAllRuns) {
  const EngineOptions wanted{.tpot_target_s = kAnyTarget};
  {
    const OpenedModel opened = open();
    const auto engine = make(opened, wanted);
    EXPECT_TRUE(engine->scheduler().cost().calibrated());
    EXPECT_GT(engine->dispatched_rows(), 0u);
  }
  ASSERT_EQ(kept("cost-").size(), 1u);
  const OpenedModel opened = open();
  EXPECT_TRUE(make(opened, wanted)->options().cost.calibrated());
  EXPECT_EQ(make(opened, wanted)->dispatched_rows(), 0u);
  EXPECT_EQ(said_, "");
}

TEST_F(OpenedModelTest, WhatRunsTeachIsKeptForTheNext) {
  {
    const OpenedModel opened = open();
    const auto engine = make(opened, {});
    EXPECT_EQ(engine->dispatched_rows(), 0u) << "without a target nothing is calibrated";
    generate(*engine, 20);
    EXPECT_TRUE(kept("cost-").empty());
    opened.keep_for_next_run(*engine);
  }
  ASSERT_EQ(kept("cost-").size(), 1u);
  const OpenedModel opened = open();
  const auto next = make(opened, {});
  EXPECT_TRUE(next->options().cost.calibrated());
  ASSERT_TRUE(next->options().pace);
  EXPECT_EQ(next->learned_pace(), next->options().pace) << "what is known needs no learning";
  // With another KV type steps cost something else.
  const auto other = make(opened, {.kv_type = KvType::kF32});
  EXPECT_FALSE(other->options().cost.calibrated());
  EXPECT_FALSE(other->options().pace || other->learned_pace());
}

TEST_F(OpenedModelTest, CostsOfAnotherDeviceOrDamagedOnesAreNotUsed) {
  {
    const OpenedModel opened = open();
    make(opened, {.tpot_target_s = kAnyTarget});
  }
  ASSERT_EQ(kept("cost-").size(), 1u);
  const std::filesystem::path file = kept("cost-")[0];
  std::string name = file.filename().string();
  name[5] = name[5] == '0' ? '1' : '0';  // of the UUID
  std::filesystem::rename(file, options_.cache_directory / name);
  EXPECT_FALSE(make(open(), {})->options().cost.calibrated());
  EXPECT_EQ(said_, "");
  std::ofstream(file) << "{\"fixed\": ";
  EXPECT_FALSE(make(open(), {})->options().cost.calibrated());
  EXPECT_NE(said_.find("is not used"), std::string::npos) << said_;
}

TEST_F(OpenedModelTest, AModelOpenedToRememberNoCostsNeitherReadsNorKeepsThem) {
  const EngineOptions wanted{.tpot_target_s = kAnyTarget};
  make(open(), wanted);
  const std::vector<std::filesystem::path> before = kept("cost-");
  ASSERT_EQ(before.size(), 1u);
  const auto written = std::filesystem::last_write_time(before[0]);
  options_.remember_costs = false;
  const OpenedModel opened = open();
  const auto engine = make(opened, wanted);
  EXPECT_FALSE(engine->options().cost.calibrated());
  EXPECT_GT(engine->dispatched_rows(), 0u) << "the target needs what steps cost all the same";
  opened.keep_for_next_run(*engine);
  EXPECT_EQ(std::filesystem::last_write_time(before[0]), written);
}

TEST_F(OpenedModelTest, WithoutACacheDirectoryNothingIsRemembered) {
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::create_directories(options_.cache_directory);
  std::filesystem::current_path(options_.cache_directory);  // where a bare name would end up
  const std::filesystem::path directory = std::exchange(options_.cache_directory, {});
  {
    const OpenedModel opened = open();
    EXPECT_FALSE(opened.verdict);
    const auto engine = make(opened, {.tpot_target_s = kAnyTarget});
    opened.keep_for_next_run(*engine);
  }
  options_.cache_directory = directory;
  std::filesystem::current_path(here);
  EXPECT_TRUE(kept("").empty());
  EXPECT_EQ(said_, "");
}

TEST_F(OpenedModelTest, ATargetThatOneRowMissesIsAnError) {
  const OpenedModel opened = open();
  const auto engine =
      opened.make_engine({.context_tokens = 64, .tpot_target_s = 1e-9, .greedy_only = true});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(OpenedModelTest, ThePromptCacheFileIsKeptOrAWarningSaysWhyNot) {
  const OpenedModel opened = open();
  const std::filesystem::path file = options_.cache_directory / "prompts.bin";
  std::filesystem::create_directories(options_.cache_directory);
  const auto engine = make(opened, {.cache_file = file});
  generate(*engine);
  opened.keep_for_next_run(*engine);
  EXPECT_TRUE(std::filesystem::is_regular_file(file));
  EXPECT_EQ(said_, "");
  std::filesystem::remove(file);
  std::filesystem::create_directories(file / "a folder in its place");
  opened.keep_for_next_run(*engine);
  EXPECT_NE(said_.find("not saved"), std::string::npos) << said_;
}

TEST_F(OpenedModelTest, AKernelThatThePassportRejectsIsReplacedWithAWarning) {
  const vk::Device& device = *test::GpuEnvironment::device();
  const bool broadcast = ops::tuned_x_route(device.plan()) == ops::XRoute::kBroadcast;
  const std::string preferred = broadcast ? "gemv.f32.broadcast" : "gemv.f32.uniform";
  const EngineOptions wanted{.math = ops::Math::kF32};
  {
    const OpenedModel opened = open();
    EXPECT_FALSE(opened.verdict);
    make(opened, wanted);
    if (!opened.pipelines->declared_modules().contains(preferred)) {
      GTEST_SKIP() << "this device does not use " << preferred;
    }
  }
  SelfTestVerdict verdict;
  for (const vk::ShaderModule& module : spirv_modules()) {
    verdict.modules[std::string(module.name)] = {ModuleVerdict::State::kPassed, 1, ""};
  }
  verdict.modules[preferred] = {ModuleVerdict::State::kFailed, 0, "made up by a test"};
  ASSERT_TRUE(save_passport(options_.cache_directory, device.snapshot(), verdict).ok());
  const OpenedModel opened = open();
  ASSERT_TRUE(opened.verdict);
  EXPECT_TRUE(opened.pipelines->is_rejected(preferred));
  EXPECT_EQ(said_, "");
  make(opened, wanted);
  EXPECT_FALSE(opened.pipelines->declared_modules().contains(preferred));
  EXPECT_NE(said_.find("gemv.f32 uses"), std::string::npos) << said_;
  EXPECT_NE(said_.find(preferred), std::string::npos) << said_;
}

TEST_F(OpenedModelTest, KernelsAreChosenByTheRowsOfTuningThatTheirDeviceHasInTheCacheDirectory) {
  const vk::Device& device = *test::GpuEnvironment::device();
  std::filesystem::create_directories(options_.cache_directory);
  std::ofstream(tuning_overlay_file(options_.cache_directory, device.snapshot()))
      << "gemv uniform if type=f32\n";
  const OpenedModel opened = open();
  ASSERT_EQ(opened.pipelines->preferred().size(), 1u);
  make(opened, {.math = ops::Math::kF32});
  EXPECT_TRUE(opened.pipelines->declared_modules().contains("gemv.f32.uniform"));
}

}  // namespace
}  // namespace pumice::host
