// Engines on devices whose calls can be made to fail: what is opened, a batch of requests of every
// kind, and what they are told undisturbed.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/recovery.hpp"
#include "shaders/spirv.hpp"
#include "tests/engine/synthetic_fixture.hpp"
#include "tests/vk_faults.hpp"

namespace pumice::test {

class FaultTest : public SyntheticEngineTest {
 protected:
  using Told = std::map<std::string, std::vector<TokenId>>;
  using Kind = VulkanFaults::Kind;

  void SetUp() override {
    SyntheticEngineTest::SetUp();
    if (IsSkipped()) return;
    file_.reset(new TemporaryFile(write_synthetic_model({})));  // made in place: it cannot be moved
  }
  void TearDown() override {
    VulkanFaults::disarm();
    file_.reset();
    SyntheticEngineTest::TearDown();
  }

  /// A new device and the model on it.
  Result<Session> open() const {
    Session session;
    PUMICE_TRY(session.device,
               GpuEnvironment::open(
                   [](const vk::DeviceSnapshot& snapshot) { return vk::plan_device(snapshot); },
                   VulkanFaults::intercept));
    session.pipelines = std::make_shared<vk::PipelineLibrary>(session.device, "", spirv_hash());
    PUMICE_TRY(const GgufFile file, GgufFile::open(file_->path()));
    PUMICE_TRY(session.model, Model::load(session.device, file));
    return session;
  }

  /// Blocks for about two of the requests: others wait, are preempted, and go to host memory.
  static EngineOptions options(bool invariant) {
    EngineOptions options;
    options.context_tokens = 128;
    options.n_sequences = 3;
    options.kv_blocks = 14;
    options.token_budget = options.chunk_tokens = 32;
    options.cache_host_bytes = uint64_t{8} << 20;
    options.invariant = invariant;
    return options;
  }

  struct Wanted {
    const char* name;
    GenerationRequest request;
  };
  /// Greedy and seeded ones, and prompts that begin alike.
  static std::vector<Wanted> batch() {
    std::vector<TokenId> alike = tokens(80, 1);
    alike.resize(64);
    const std::vector<TokenId> tail = tokens(20, 5);
    alike.insert(alike.end(), tail.begin(), tail.end());
    return {
        {"long", {.prompt = tokens(80, 1), .max_new_tokens = 12}},
        {"seeded", {.prompt = tokens(30, 2), .max_new_tokens = 16, .sampling = with_penalties(2)}},
        {"alike", {.prompt = alike, .max_new_tokens = 8}},
        {"longer", {.prompt = tokens(90, 4), .max_new_tokens = 6, .sampling = with_penalties(3)}},
        {"again", {.prompt = tokens(80, 1), .max_new_tokens = 9, .sampling = with_penalties(4)}},
    };
  }

  static void keep(const std::vector<StepEvent>& events,
                   const std::map<RequestId, std::string>& names, Told& told) {
    for (const StepEvent& event : events) {
      if (event.token) told[names.at(event.request)].push_back(*event.token);
    }
  }

  /// Each request alone, on the tests' own device.
  Told alone(bool invariant) const {
    Told told;
    for (const Wanted& wanted : batch()) {
      const auto engine = make_engine(model_, options(invariant));
      const Result<RequestId> id = engine->submit(wanted.request);
      EXPECT_TRUE(id.ok());
      while (!engine->idle()) keep(step(*engine), {{*id, wanted.name}}, told);
      EXPECT_EQ(told[wanted.name].size(), wanted.request.max_new_tokens);
    }
    return told;
  }

  /// Bytes of a device's memory in use, once what was retired is gone.
  static uint64_t bytes_in_use(const std::shared_ptr<vk::Device>& device) {
    device->wait_idle();
    {
      vk::Arena arena(device, vk::MemoryDomain::kUpload, "test");
      EXPECT_TRUE(arena.allocate(1).ok());
    }
    return device->ledger().total_bytes();
  }

  std::unique_ptr<TemporaryFile> file_;
};

}  // namespace pumice::test
