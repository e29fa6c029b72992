// What is planned is what is allocated, line by line of the device's ledger.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory_plan.hpp"
#include "models/families.hpp"
#include "models/lowering.hpp"
#include "models/model_source.hpp"
#include "models/synthetic.hpp"
#include "models/synthetic_adapter.hpp"
#include "tests/engine/engine_fixture.hpp"
#include "tests/shared_data.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

class MemoryLedger : public test::EngineTest {
 protected:
  static std::shared_ptr<const Model> load(const ModelSource& source) {
    return Model::load(pipelines_->device(), source).value();
  }
  /// Plans before anything is loaded, then makes an engine, and compares.
  static void compare(const ModelSource& source, const std::vector<EngineOptions>& all) {
    vk::Device& device = *pipelines_->device();
    ASSERT_EQ(device.ledger().total_bytes(), 0u);
    const MemoryPlanner planner =
        MemoryPlanner::of_plan(ModelPlan::of_source(source).value(), device_memory(device)).value();
    const std::shared_ptr<const Model> model = load(source);
    for (const EngineOptions& options : all) {
      const MemoryPlan plan = planner.plan(options).value();
      EXPECT_GE(plan.total_bytes(), 100'000'000u) << "too small to be worth it";
      const auto engine = make_engine(model, options);
      ASSERT_NE(engine, nullptr);
      check(plan, device);
      EXPECT_EQ(engine->step().value().size(), 0u);
    }
  }
  static void check(const MemoryPlan& plan, vk::Device& device) {
    const auto entries = device.ledger().entries();
    uint64_t known_bytes = 0;
    for (const MemoryLine& line : plan.lines) {
      if (line.passing) continue;
      const uint64_t bytes = entries.at(std::string(line.purpose)).current_bytes;
      EXPECT_EQ(line.bytes, bytes) << line.purpose << " of " << plan.context_tokens;
      known_bytes += bytes;
    }
    EXPECT_EQ(known_bytes, device.ledger().total_bytes()) << "a purpose that no plan has";
    EXPECT_EQ(plan.total_bytes(false), known_bytes);
  }
  static EngineOptions greedy(EngineOptions options) {
    options.greedy_only = true;  // fewer kernels to compile
    return options;
  }
};

TEST_F(MemoryLedger, OfADenseModelIsThePlan) {
  const ModelSource source =
      ModelSource::synthetic(
          SyntheticModel::create({.n_embd = 512, .n_vocab = 16384}, {.type = &weight_type("Q8_0")})
              .value())
          .value();
  compare(source, {greedy({.context_tokens = 65536}),
                   {.context_tokens = 30000, .n_sequences = 3, .token_budget = 64},
                   greedy({.context_tokens = 20000, .run_ahead = false, .prompt_logits = true}),
                   greedy({.context_tokens = 4096, .kv_blocks = 8000, .invariant = true})});
}

TEST_F(MemoryLedger, OfExpertsIsThePlan) {
  const ModelSource source =
      ModelSource::synthetic(SyntheticModel::create({.n_experts = 8, .n_experts_used = 2},
                                                    {.type = &weight_type("Q8_0")})
                                 .value())
          .value();
  compare(source, {greedy({.kv_type = KvType::kF32, .context_tokens = 65536})});
}

TEST_F(MemoryLedger, OfAdaptersIsThePlan) {
  const ModelSource base =
      ModelSource::synthetic(
          SyntheticModel::create({.n_embd = 512, .n_vocab = 4096}, {.type = &weight_type("Q8_0")})
              .value())
          .value();
  const test::TemporaryFolder folder;
  std::vector<AdapterSource> adapters;
  for (const uint32_t rank : {33u, 64u}) {
    const auto path = folder.path() / (std::to_string(rank) + ".gguf");
    ASSERT_TRUE(write_synthetic_adapter(base, {.rank = rank}, path).ok());
    adapters.push_back(AdapterSource::open(std::to_string(rank), path).value());
  }
  compare(base.with_adapters(std::move(adapters)),
          {greedy({.context_tokens = 65536}), {.context_tokens = 60000, .n_sequences = 3}});
}

TEST_F(MemoryLedger, OfWindowsIsThePlan) {
  PUMICE_REQUIRE_SHARED(path, "reference/families/gemma3.gguf");
  const ModelSource source = ModelSource::open(path).value();
  compare(source, {greedy({.context_tokens = 131072, .n_sequences = 4})});
}

TEST_F(MemoryLedger, OfLatentsIsThePlan) {
  PUMICE_REQUIRE_SHARED(path, "reference/families/deepseek2.gguf");
  const ModelSource source = ModelSource::open(path).value();
  compare(source, {greedy({.context_tokens = 131072, .n_sequences = 4})});
}

TEST_F(MemoryLedger, OfWeightsInSmallSlabsIsThePlanWithWhatIsLeftOverAtTheirEnds) {
  vk::PlanOptions limits = pipelines_->device()->plan().limits;
  limits.slab_bytes = 1 << 20;
  const auto device = test::GpuEnvironment::open(
      [&](const vk::DeviceSnapshot& snapshot) { return vk::plan_device(snapshot, limits); });
  ASSERT_TRUE(device.ok()) << device.error().message;
  const OnDevice on(*device);
  const ModelSource source =
      ModelSource::synthetic(
          SyntheticModel::create({.n_embd = 768, .n_vocab = 2000}, {.type = &weight_type("F16")})
              .value())
          .value();
  const auto plan = ModelPlan::of_source(source).value();
  const uint64_t planned = plan->weights().memory((*device)->plan().slab_bytes).allocated_bytes();
  EXPECT_GT(planned, plan->weights().resident_bytes() + (100 << 10));
  const std::shared_ptr<const Model> model = load(source);
  EXPECT_EQ(model->weights->now()->allocated_bytes(), planned);
  EXPECT_EQ((*device)->ledger().entries().at("weights").current_bytes, planned);
}

}  // namespace
}  // namespace pumice
