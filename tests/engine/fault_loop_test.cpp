// The n-th call of the driver fails, in opening, loading, compiling, submitting, polling,
// cancelling, rebuilding and closing: a status each time, and an engine that goes on.
#include <algorithm>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include "tests/engine/fault_fixture.hpp"
#include "tests/host_faults.hpp"

namespace pumice {
namespace {

using test::VulkanFaults;

/// PUMICE_ALL_FAULTS=1: every call up to 2,000, and some of those behind it. CI has time for few.
bool all_faults() {
  const char* asked = std::getenv("PUMICE_ALL_FAULTS");
  return asked != nullptr && std::string_view(asked) == "1";
}

std::vector<uint64_t> faults_of(uint64_t n_calls) {
  constexpr uint64_t kEvery = 2000;
  std::vector<uint64_t> faults;
  if (all_faults()) {
    for (uint64_t n = 0; n < std::min(n_calls, kEvery); ++n) faults.push_back(n);
    for (uint64_t n = kEvery; n < n_calls; n += 1 + n_calls / 200) faults.push_back(n);
    return faults;
  }
  constexpr uint64_t kStrata = 3;
  for (uint64_t i = 0; i < kStrata; ++i) faults.push_back((2 * i + 1) * n_calls / (2 * kStrata));
  return faults;
}

class FaultLoop : public test::FaultTest {
 protected:
  /// What a fault may be answered by.
  void expect_honest(const Error& error) const {
    EXPECT_EQ(error.code, kind_ == Kind::kLost ? ErrorCode::kDeviceLost : ErrorCode::kDoesNotFit)
        << error.message;
  }

  /// A session and an engine of it, over the one failure there is.
  std::pair<Session, std::unique_ptr<Engine>> open_engine() const {
    for (int attempt = 0; attempt < 2; ++attempt) {
      Result<Session> session = open();
      if (!session.ok()) {
        expect_honest(session.error());
        continue;
      }
      auto engine = Engine::create(session->pipelines, session->model, options(false));
      if (!engine.ok()) {
        expect_honest(engine.error());
        if (engine.error().code == ErrorCode::kDeviceLost) continue;
        engine = Engine::create(session->pipelines, session->model, options(false));
        EXPECT_TRUE(engine.ok()) << engine.error().message;
        if (!engine.ok()) break;
      }
      return {std::move(session).value(), std::move(engine).value()};
    }
    ADD_FAILURE() << "nothing could be opened";
    return {};
  }

  static void recover(Engine& engine, Recovery& recovery) {
    Engine* const lost = &engine;
    const Status recovered = recovery.recover({&lost, 1});
    EXPECT_TRUE(recovered.ok()) << recovered.error().message;
  }

  void rebuild(Engine& engine, Recovery& recovery) const {
    const Session now = recovery.session();
    Status status = engine.rebuild(now.pipelines, now.model);
    if (status.ok()) return;
    expect_honest(status.error());
    if (status.error().code == ErrorCode::kDeviceLost) return recover(engine, recovery);
    status = engine.rebuild(now.pipelines, now.model);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }

  /// Everything that is done with an engine, from opening a device to closing it, and what its
  /// requests were told.
  Told run() {
    auto [session, engine] = open_engine();
    if (engine == nullptr) return {};
    Recovery recovery(std::move(session), [this] { return open(); });
    session = {};
    std::map<RequestId, std::string> names;
    for (const Wanted& wanted : batch()) names[*engine->submit(wanted.request)] = wanted.name;
    const Result<RequestId> unwanted =
        engine->submit({.prompt = tokens(40, 9), .max_new_tokens = 40});
    names[*unwanted] = "unwanted";
    Told told;
    for (int i = 0; !engine->idle() && i < 100'000; ++i) {
      if (i == 9) engine->cancel(*unwanted);
      if (i == 15) rebuild(*engine, recovery);
      const auto events = i % 2 == 0 ? engine->step() : engine->poll(1e-9);
      const Status whole = engine->check_integrity();
      EXPECT_TRUE(whole.ok()) << whole.error().message;
      if (events.ok()) {
        keep(*events, names, told);
        continue;
      }
      expect_honest(events.error());
      if (events.error().code == ErrorCode::kDeviceLost) recover(*engine, recovery);
    }
    told.erase("unwanted");
    engine.reset();
    VulkanFaults::disarm();
    expect_closed(recovery);
    return told;
  }

  /// Nothing keeps what the session has.
  static void expect_closed(Recovery& recovery) {
    const std::shared_ptr<vk::Device> device = recovery.session().device;
    EXPECT_TRUE(recovery.replace([]() -> Result<Session> { return Session{}; }, {}).ok());
    EXPECT_EQ(bytes_in_use(device), 0u);
    EXPECT_EQ(device.use_count(), 1);
  }

  Kind kind_ = Kind::kNone;
};

TEST_F(FaultLoop, OfTheDriverLosesNothingAndChangesNoToken) {
  const Told wanted = alone(false);
  for (const Kind kind : {Kind::kHostMemory, Kind::kDeviceMemory, Kind::kLost}) {
    kind_ = kind;
    VulkanFaults::arm(kind, UINT64_MAX);
    ASSERT_EQ(run(), wanted);
    const uint64_t n_calls = VulkanFaults::n_calls();
    for (const uint64_t nth : faults_of(n_calls)) {
      VulkanFaults::arm(kind, nth);
      const Told told = run();
      const std::string struck = VulkanFaults::struck();
      ASSERT_EQ(told, wanted) << "call " << nth << " of " << n_calls << ", " << struck;
      ASSERT_FALSE(HasFailure()) << "call " << nth << " of " << n_calls << ", " << struck;
    }
  }
}

/// The n-th allocation of the host fails, from submitting to closing: a status each time, or
/// std::bad_alloc where nothing was made yet.
class HostFaultLoop : public test::FaultTest {
 protected:
  static void expect_out_of_memory(const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kDoesNotFit) << error.message;
  }

  /// `body` until it does not fail for want of memory, which it does once at most.
  template <typename Body>
  static auto over_the_fault(const Body& body) {
    for (int attempt = 0;; ++attempt) {
      try {
        auto result = body();
        if (result.ok() || attempt > 0) return result;
        expect_out_of_memory(result.error());
      } catch (const std::bad_alloc&) {
        EXPECT_EQ(attempt, 0) << "memory is there again";
        if (attempt > 0) throw;
      }
    }
  }

  /// What a run does with an engine, once one is open.
  Told use(const Session& session, const std::unique_ptr<Engine>& engine) {
    std::map<RequestId, std::string> names;
    const auto submit = [&](const std::string& name, const GenerationRequest& request) {
      const Result<RequestId> id = over_the_fault([&] { return engine->submit(request); });
      const test::HostFaultsPaused paused;
      EXPECT_TRUE(id.ok()) << id.error().message;
      names[*id] = name;
      return *id;
    };
    for (const Wanted& wanted : wanted_) submit(wanted.name, wanted.request);
    const RequestId unwanted = submit("unwanted", unwanted_);
    Told told;
    for (int i = 0; !engine->idle() && i < 100'000; ++i) {
      if (i == 9) engine->cancel(unwanted);
      if (i == 15) {
        const Status status =
            over_the_fault([&] { return engine->rebuild(session.pipelines, session.model); });
        EXPECT_TRUE(status.ok()) << status.error().message;
      }
      const auto events = i % 2 == 0 ? engine->step() : engine->poll(1e-9);
      const test::HostFaultsPaused paused;
      const Status whole = engine->check_integrity();
      EXPECT_TRUE(whole.ok()) << whole.error().message;
      if (events.ok()) {
        keep(*events, names, told);
      } else {
        expect_out_of_memory(events.error());
      }
    }
    told.erase("unwanted");
    return told;
  }

  std::vector<Wanted> wanted_ = batch();
  GenerationRequest unwanted_ = {.prompt = tokens(40, 9), .max_new_tokens = 40};
};

TEST_F(HostFaultLoop, LosesNothingAndChangesNoToken) {
  const Told wanted = alone(false);
  Result<Session> session = open();  // of a driver whose allocations do not count
  ASSERT_TRUE(session.ok()) << session.error().message;
  const uint64_t bytes = bytes_in_use(session->device);
  const auto run = [&]() -> Told {
    auto engine = over_the_fault(
        [&] { return Engine::create(session->pipelines, session->model, options(false)); });
    if (!engine.ok()) return {};
    Told told = use(*session, *engine);
    engine->reset();
    return told;
  };
  test::HostFaults::arm(UINT64_MAX);
  ASSERT_EQ(run(), wanted);
  const uint64_t n_calls = test::HostFaults::n_calls();
  for (const uint64_t nth : faults_of(n_calls)) {
    test::HostFaults::arm(nth);
    const Told told = run();
    test::HostFaults::disarm();
    ASSERT_EQ(told, wanted) << "allocation " << nth << " of " << n_calls;
    ASSERT_EQ(bytes_in_use(session->device), bytes) << "allocation " << nth << " of " << n_calls;
    ASSERT_FALSE(HasFailure()) << "allocation " << nth << " of " << n_calls;
  }
}

TEST_F(HostFaultLoop, OfOpeningAndLoadingLeavesNothingBehind) {
  const auto load = [&](const std::shared_ptr<vk::Device>& device) {
    return over_the_fault([&]() -> Result<std::shared_ptr<const Model>> {
      PUMICE_TRY(const GgufFile file, GgufFile::open(file_->path()));
      return Model::load(device, file);
    });
  };
  Result<Session> session = open();
  ASSERT_TRUE(session.ok()) << session.error().message;
  session->model.reset();
  const uint64_t bytes = bytes_in_use(session->device);
  test::HostFaults::arm(UINT64_MAX);
  ASSERT_TRUE(load(session->device).ok());
  const uint64_t n_calls = test::HostFaults::n_calls();
  for (const uint64_t nth : faults_of(n_calls)) {
    test::HostFaults::arm(nth);
    const bool loaded = load(session->device).ok();
    test::HostFaults::disarm();
    ASSERT_TRUE(loaded) << "allocation " << nth << " of " << n_calls;
    ASSERT_EQ(bytes_in_use(session->device), bytes) << "allocation " << nth << " of " << n_calls;
  }
}

}  // namespace
}  // namespace pumice
