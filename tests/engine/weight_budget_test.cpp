// Under a budget that KV memory alone cannot meet, weights move to memory beside the device's and
// come back: no token changes, and nothing is read where they were.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory_plan.hpp"
#include "host/opened_model.hpp"
#include "tests/engine/synthetic_fixture.hpp"

namespace pumice {
namespace {

constexpr uint32_t kGenerations = 6;
constexpr uint32_t kNew = 40;

/// On a device that takes memory that the host can map for memory of another heap.
class WeightBudget : public test::EngineTest {
 protected:
  using Told = std::map<RequestId, std::vector<TokenId>>;

  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    const auto device = open_with_heaps(UINT64_MAX);
    ASSERT_TRUE(device.ok()) << device.error().message;
    on_device_ = std::make_unique<OnDevice>(*device);
    const test::TemporaryFile file = write_model();
    model_ = load(file.path());
    ASSERT_NE(model_, nullptr);
    ASSERT_GT(model_->weights->n_pieces(), 4u);
  }
  void TearDown() override {
    model_.reset();
    on_device_.reset();
  }

  static Result<std::shared_ptr<vk::Device>> open_with_heaps(uint64_t most_budget_bytes) {
    return test::GpuEnvironment::open(
        [=](const vk::DeviceSnapshot& snapshot) -> Result<vk::DevicePlan> {
          PUMICE_TRY(vk::DevicePlan plan, vk::plan_device(snapshot));
          for (const auto domain : {vk::MemoryDomain::kUpload, vk::MemoryDomain::kReadback}) {
            plan.memory[static_cast<size_t>(domain)].heap = UINT32_MAX;
          }
          plan.device_budget_bytes = std::min(plan.device_budget_bytes, most_budget_bytes);
          return plan;
        });
  }
  static test::TemporaryFile write_model() {
    return test::write_synthetic_model({.n_layers = 4, .n_embd = 128, .n_ff = 256});
  }
  static EngineOptions engine_options() {
    return {.context_tokens = 256,
            .n_sequences = kGenerations,
            .token_budget = 64,
            .chunk_tokens = 32,
            .invariant = true};
  }
  std::unique_ptr<Engine> engine() const { return make_engine(model_, engine_options()); }
  static void submit_all(Engine& engine) {
    for (uint32_t i = 0; i < kGenerations; ++i) {
      std::vector<TokenId> prompt(20 + 5 * i);
      for (size_t n = 0; n < prompt.size(); ++n) prompt[n] = static_cast<TokenId>(7 * n * i % 90);
      GenerationRequest request{.prompt = std::move(prompt), .max_new_tokens = kNew};
      if (i % 2 == 1) {
        request.sampling = {.temperature = 1.0f, .top_k = 50, .repeat_penalty = 1.2f, .seed = i};
      }
      EXPECT_TRUE(engine.submit(std::move(request)).ok());
    }
  }
  static void keep(const std::vector<StepEvent>& events, Told& told) {
    for (const StepEvent& event : events) {
      if (event.token) told[event.request].push_back(*event.token);
      if (event.report) {
        EXPECT_EQ(event.report->end_reason, EndReason::kLength);
      }
    }
  }
  Told undisturbed() const {
    const auto engine = this->engine();
    submit_all(*engine);
    Told told;
    while (!engine->idle()) keep(step(*engine), told);
    return told;
  }
  static uint64_t budgeted_bytes() { return pipelines_->device()->ledger().budgeted_bytes(); }
  static uint64_t bytes_beside() {
    const auto entries = pipelines_->device()->ledger().entries();
    const auto found = entries.find("weights beside the device");
    return found != entries.end() ? found->second.current_bytes : 0;
  }
  /// As the error says.
  static uint64_t smallest_budget(Engine& engine) {
    const Status refused = engine.set_memory_budget(1);
    EXPECT_FALSE(refused.ok());
    const std::string& message = refused.error().message;
    return std::stoull(message.substr(message.find(" (") + 2));
  }
  static void go_on(Engine& engine, Told& told) {
    EXPECT_TRUE(engine.wait(1).ok());
    auto events = engine.poll(2e-5);
    ASSERT_TRUE(events.ok()) << events.error().message;
    keep(*events, told);
    const MemoryStatus& memory = engine.memory();
    if (memory.met && memory.budget_bytes != UINT64_MAX) {
      EXPECT_LE(budgeted_bytes(), memory.budget_bytes);
    }
  }
  static void meet(Engine& engine, Told& told) {
    for (int i = 0; i < 10'000 && !engine.memory().met; ++i) go_on(engine, told);
    EXPECT_TRUE(engine.memory().met);
  }
  static size_t n_told(const Told& told) {
    size_t n = 0;
    for (const auto& [id, tokens] : told) n += tokens.size();
    return n;
  }

  std::unique_ptr<OnDevice> on_device_;
  std::shared_ptr<const Model> model_;
};

TEST_F(WeightBudget, MovesWeightsAmidGenerationsAndChangesNoToken) {
  const Told expected = undisturbed();
  const auto engine = this->engine();
  const uint64_t all_bytes = budgeted_bytes();
  const WeightPlacement& placement = *model_->weights;
  const uint64_t weight_bytes = placement.bytes_of_first(placement.n_pieces());
  const uint64_t smallest = smallest_budget(*engine);
  EXPECT_LT(smallest, all_bytes - weight_bytes);
  submit_all(*engine);
  Told told;
  while (n_told(told) < 20) go_on(*engine, told);
  for (const uint64_t budget :
       {smallest + weight_bytes / 2, smallest, smallest + weight_bytes / 2}) {
    ASSERT_TRUE(engine->set_memory_budget(budget).ok());
    meet(*engine, told);
    ASSERT_FALSE(engine->idle()) << "too slow to be amid anything";
    const uint64_t beside = engine->memory().weight_bytes_beside;
    EXPECT_LE(beside, bytes_beside()) << "a step may still read what came back";
    EXPECT_GE(beside, weight_bytes - (budget - smallest));
    EXPECT_LE(beside, weight_bytes - (budget - smallest) + weight_bytes / 4);
    const size_t until = n_told(told) + 15;
    while (n_told(told) < until) go_on(*engine, told);
  }
  EXPECT_GT(engine->n_replays(), 0u);
  ASSERT_TRUE(engine->set_memory_budget(UINT64_MAX).ok());
  while (!engine->idle()) go_on(*engine, told);
  for (int i = 0; i < 10'000 && bytes_beside() > 0; ++i) go_on(*engine, told);
  EXPECT_EQ(told, expected);
  EXPECT_EQ(budgeted_bytes(), all_bytes);
  EXPECT_EQ(bytes_beside(), 0u);
}

TEST_F(WeightBudget, WhatDoesNotFitIsReadBesideTheDeviceFromTheStart) {
  const Told expected = undisturbed();
  const test::TemporaryFile file = write_model();
  const Result<ModelSource> source = ModelSource::open(file.path());
  ASSERT_TRUE(source.ok());
  const auto planner = MemoryPlanner::of_plan(ModelPlan::of_source(*source).value(),
                                              device_memory(*pipelines_->device()))
                           .value();
  const MemoryPlan all = planner.plan(engine_options()).value();
  const uint64_t free_bytes = all.budgeted_bytes - all.bytes(MemoryUse::kWeights) / 2;
  const auto device = open_with_heaps(free_bytes);
  ASSERT_TRUE(device.ok()) << device.error().message;
  const OnDevice elsewhere(*device);
  const Result<host::OpenedModel> opened =
      host::OpenedModel::open_on(*device, {.engine = engine_options()}, *source);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const uint64_t beside = bytes_beside();
  EXPECT_GE(beside, all.bytes(MemoryUse::kWeights) / 2);
  EXPECT_LT(beside, all.bytes(MemoryUse::kWeights));
  const auto engine = opened->make_engine(engine_options());
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_LE(budgeted_bytes(), free_bytes);
  submit_all(**engine);
  Told told;
  while (n_told(told) < 20) go_on(**engine, told);
  // A smaller budget takes more of them; a larger one brings back no more than there was room for.
  ASSERT_TRUE((*engine)->set_memory_budget(smallest_budget(**engine)).ok());
  meet(**engine, told);
  EXPECT_GT(bytes_beside(), beside);
  ASSERT_TRUE((*engine)->set_memory_budget(UINT64_MAX).ok());
  while (!(*engine)->idle()) go_on(**engine, told);
  for (int i = 0; i < 10'000 && bytes_beside() > beside; ++i) go_on(**engine, told);
  EXPECT_EQ(bytes_beside(), beside);
  EXPECT_EQ(told, expected);
}

TEST_F(WeightBudget, MovesWhatEnginesShareOnceAllHaveFollowed) {
  const Told expected = undisturbed();
  auto tight = engine();
  const auto other = engine();
  const uint64_t smallest = smallest_budget(*tight);
  submit_all(*other);
  Told told, none;
  while (n_told(told) < 20) go_on(*other, told);
  ASSERT_TRUE(tight->set_memory_budget(smallest).ok());
  for (int i = 0; i < 200; ++i) go_on(*tight, none);
  EXPECT_FALSE(tight->memory().met) << "the other engine still reads what moved";
  while (!other->idle() && !tight->memory().met) {
    go_on(*other, told);
    go_on(*tight, none);
  }
  ASSERT_FALSE(other->idle());
  EXPECT_TRUE(tight->memory().met);
  EXPECT_GT(bytes_beside(), 0u);
  tight.reset();  // nobody has a budget any more
  while (!other->idle()) go_on(*other, told);
  for (int i = 0; i < 10'000 && bytes_beside() > 0; ++i) go_on(*other, told);
  EXPECT_EQ(bytes_beside(), 0u);
  EXPECT_EQ(told, expected);
}

}  // namespace
}  // namespace pumice
