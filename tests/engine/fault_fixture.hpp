// Engines on devices whose calls can be made to fail: what is opened, a batch of requests of every
// kind, and what they are told undisturbed.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/prompt_lookup.hpp"
#include "engine/saved_sequence.hpp"
#include "host/recovery.hpp"
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

  /// A new device and the model on it. What the host can map counts for memory of another heap, so
  /// that weights can move there.
  Result<host::OpenedModel> open() const {
    host::OpenedModel opened;
    PUMICE_TRY(
        opened.device,
        GpuEnvironment::open(
            [](const vk::DeviceSnapshot& snapshot) -> Result<vk::DevicePlan> {
              PUMICE_TRY(vk::DevicePlan plan, vk::plan_device(snapshot));
              for (const auto domain : {vk::MemoryDomain::kUpload, vk::MemoryDomain::kReadback}) {
                plan.memory[static_cast<size_t>(domain)].heap = UINT32_MAX;
              }
              return plan;
            },
            VulkanFaults::intercept));
    opened.pipelines = std::make_shared<vk::PipelineLibrary>(opened.device, "", spirv_hash());
    PUMICE_TRY(const GgufFile file, GgufFile::open(file_->path()));
    PUMICE_TRY(opened.model, Model::load(opened.device, file));
    return opened;
  }

  /// Blocks for about two of the requests: others wait, are preempted, and go to host memory. They
  /// are two slabs.
  static EngineOptions options(bool invariant) {
    EngineOptions options;
    options.kv_type = KvType::kF32;
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
  static std::vector<TokenId> repeated(const std::vector<TokenId>& some, size_t n) {
    std::vector<TokenId> all;
    for (size_t i = 0; i < n; ++i) all.insert(all.end(), some.begin(), some.end());
    return all;
  }
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
        {"guessed",
         {.prompt = repeated(tokens(8, 6), 3),
          .max_new_tokens = 8,
          .drafter = prompt_lookup_drafter()}},
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

  // ---- all that is done with an engine

  /// An error where a call was made to fail: it is one that there may be, and the engine can go on.
  virtual void answer(Engine&, const Error& error) { ADD_FAILURE() << error.message; }
  /// From here on calls may fail, or may not.
  virtual void expose(bool) {}
  /// Make what the engine has on a device anew.
  virtual Status rebuild(Engine&) { return {}; }

  /// A call, with its error if it failed, which was answered.
  template <typename Body>
  auto attempt(Engine& engine, const Body& body) -> decltype(body()) {
    const auto exposed = [&]() -> decltype(body()) {
      expose(true);
      try {
        auto result = body();
        expose(false);
        return result;
      } catch (const std::bad_alloc&) {  // before the engine was asked
        expose(false);
        return Error{ErrorCode::kDoesNotFit, "out of memory"};
      }
    };
    auto result = exposed();
    if (!result.ok()) answer(engine, result.error());
    const Status whole = engine.check_integrity();
    EXPECT_TRUE(whole.ok()) << whole.error().message;
    return result;
  }
  /// The same again if it failed: there is one failure.
  template <typename Body>
  auto over(Engine& engine, const Body& body) -> decltype(body()) {
    auto result = attempt(engine, body);
    return result.ok() ? std::move(result) : attempt(engine, body);
  }

  /// The smallest memory budget that this engine can meet now, as its error says.
  static uint64_t smallest_budget(Engine& engine) {
    const Status refused = engine.set_memory_budget(1);
    EXPECT_FALSE(refused.ok());
    const std::string& message = refused.error().message;
    return std::stoull(message.substr(message.find(" (") + 2));
  }

  /// Submits, polls, saves, cancels, shrinks to `budget_bytes`, rebuilds, restores, grows, and what
  /// its requests were told: what was restored goes on with "long" as that did.
  Told play(Engine& engine, uint64_t budget_bytes) {
    std::map<RequestId, std::string> names;
    const auto submit = [&](const std::string& name, const GenerationRequest& request) {
      const Result<RequestId> id = over(engine, [&] { return engine.submit(request); });
      EXPECT_TRUE(id.ok()) << id.error().message;
      if (id.ok()) names[*id] = name;
      return id.ok() ? *id : RequestId{};
    };
    const auto succeeds = [&](const auto& body) {
      const Status status = over(engine, body);
      EXPECT_TRUE(status.ok()) << status.error().message;
    };
    RequestId saved_id = 0;
    for (const Wanted& wanted : batch()) {
      const RequestId id = submit(wanted.name, wanted.request);
      if (saved_id == 0) saved_id = id;
    }
    const RequestId unwanted = submit("unwanted", {.prompt = tokens(40, 9), .max_new_tokens = 40});
    Told told;
    std::vector<std::byte> saved;
    for (int i = 0; !engine.idle() || i <= 31; ++i) {
      if (i == 7) {
        auto bytes = over(engine, [&]() -> Result<std::vector<std::byte>> {
          PUMICE_TRY(SavedSequence sequence, engine.sequence(saved_id));
          return engine.save(std::move(sequence));
        });
        EXPECT_TRUE(bytes.ok()) << bytes.error().message;
        if (bytes.ok()) saved = std::move(bytes).value();
      }
      if (i == 9) {
        expose(true);
        engine.cancel(unwanted);
        expose(false);
      }
      if (i == 11) succeeds([&] { return engine.set_memory_budget(budget_bytes); });
      if (i == 15) succeeds([&] { return rebuild(engine); });
      if (i == 25) {
        auto sequence = over(engine, [&] { return engine.restore(saved); });
        EXPECT_TRUE(sequence.ok()) << sequence.error().message;
        if (!sequence.ok()) break;
        const Wanted wanted = batch().front();
        const size_t n_before = sequence->tokens.size() - wanted.request.prompt.size();
        told["restored"] = {sequence->tokens.begin() + wanted.request.prompt.size(),
                            sequence->tokens.end()};
        submit("restored",
               continuation(std::move(sequence).value(),
                            wanted.request.max_new_tokens - static_cast<uint32_t>(n_before)));
      }
      if (i == 31) succeeds([&] { return engine.set_memory_budget(UINT64_MAX); });
      const auto events =
          attempt(engine, [&] { return i % 2 == 0 ? engine.step() : engine.poll(1e-9); });
      if (events.ok()) keep(*events, names, told);
      if (i == 100'000) {
        ADD_FAILURE() << "the engine does not get on";
        break;
      }
    }
    EXPECT_EQ(told["restored"], told["long"]);
    told.erase("restored");
    told.erase("unwanted");
    return told;
  }

  std::unique_ptr<TemporaryFile> file_;
};

}  // namespace pumice::test
