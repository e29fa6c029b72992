// The n-th call of the driver fails, or the n-th allocation of the host, in opening, loading,
// compiling, submitting, polling, saving, restoring, cancelling, shrinking and growing, rebuilding
// and closing: a status each time, and an engine that goes on.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/engine/fault_fixture.hpp"
#include "tests/host_faults.hpp"

namespace pumice {
namespace {

using test::VulkanFaults;

/// PUMICE_ALL_FAULTS=1: every call up to 2,000, and some of those behind it.
bool all_faults() {
  const char* asked = std::getenv("PUMICE_ALL_FAULTS");
  return asked != nullptr && std::string_view(asked) == "1";
}

/// Otherwise so many of each kind, spread over all: PUMICE_FAULTS, or what CI has time for.
uint64_t n_strata() {
  const char* asked = std::getenv("PUMICE_FAULTS");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : 3;
}

std::vector<uint64_t> faults_of(uint64_t n_calls) {
  constexpr uint64_t kEvery = 2000;
  std::vector<uint64_t> faults;
  if (all_faults()) {
    for (uint64_t n = 0; n < std::min(n_calls, kEvery); ++n) faults.push_back(n);
    for (uint64_t n = kEvery; n < n_calls; n += 1 + n_calls / 200) faults.push_back(n);
    return faults;
  }
  const uint64_t strata = std::min(n_strata(), n_calls);
  for (uint64_t i = 0; i < strata; ++i) faults.push_back((2 * i + 1) * n_calls / (2 * strata));
  return faults;
}

/// For who waits for all of them.
void tell_progress(uint64_t nth, uint64_t n_calls) {
  if (all_faults() && nth % 100 == 0) std::cout << "  " << nth << " of " << n_calls << std::endl;
}

class FaultLoop : public test::FaultTest {
 protected:
  /// What a fault may be answered by.
  void expect_honest(const Error& error) const {
    EXPECT_EQ(error.code, kind_ == Kind::kLost ? ErrorCode::kDeviceLost : ErrorCode::kDoesNotFit)
        << error.message;
  }

  void answer(Engine& engine, const Error& error) override {
    expect_honest(error);
    if (error.code != ErrorCode::kDeviceLost) return;
    Engine* const lost = &engine;
    const Status recovered = recovery_->recover({&lost, 1});
    EXPECT_TRUE(recovered.ok()) << recovered.error().message;
  }
  Status rebuild(Engine& engine) override {
    const host::OpenedModel now = recovery_->opened();
    return engine.rebuild(now.pipelines, now.model);
  }

  /// A device, a model and an engine of it, opened and closed, over the one failure there may be.
  void open_and_close() {
    for (int attempt = 0; attempt < 2; ++attempt) {
      Result<host::OpenedModel> opened = open();
      if (!opened.ok()) {
        expect_honest(opened.error());
        continue;
      }
      auto engine = Engine::create(opened->pipelines, opened->model, options(false));
      const bool made = engine.ok();
      if (!made) expect_honest(engine.error());
      engine = Error{};
      const std::shared_ptr<vk::Device> device = opened->device;
      opened = Error{};
      VulkanFaults::disarm();
      EXPECT_EQ(bytes_in_use(device), 0u);
      EXPECT_EQ(device.use_count(), 1);
      if (made) return;
    }
    ADD_FAILURE() << "nothing could be opened";
  }

  void open_again() {
    const Status opened = recovery_->replace();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
  }

  /// Everything that is done with an engine on the model's device, from making to closing it.
  Told run() {
    const auto make = [&] {
      const host::OpenedModel now = recovery_->opened();
      return Engine::create(now.pipelines, now.model, options(false));
    };
    auto engine = make();
    if (!engine.ok()) {
      expect_honest(engine.error());
      if (engine.error().code == ErrorCode::kDeviceLost) open_again();
      engine = make();
    }
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    if (!engine.ok()) return {};
    Told told = play(**engine, budget_bytes_);
    engine = Error{};
    return told;
  }

  /// Tells what failed how often, if much did.
  void tell() const {
    if (!all_faults()) return;
    for (const auto& [call, n] : struck_) std::cout << "  " << n << " times " << call << "\n";
  }

  Kind kind_ = Kind::kNone;
  uint64_t budget_bytes_ = 0;
  std::optional<host::Recovery> recovery_;
  std::map<std::string, int> struck_;
};

TEST_F(FaultLoop, OfOpeningAndClosingLeavesNothingBehind) {
  for (const Kind kind : {Kind::kHostMemory, Kind::kDeviceMemory, Kind::kLost}) {
    kind_ = kind;
    VulkanFaults::arm(kind, UINT64_MAX);
    open_and_close();
    const uint64_t n_calls = VulkanFaults::n_calls();
    for (const uint64_t nth : faults_of(n_calls)) {
      tell_progress(nth, n_calls);
      VulkanFaults::arm(kind, nth);
      open_and_close();
      const std::string struck = VulkanFaults::struck();
      ++struck_[struck];
      ASSERT_FALSE(HasFailure()) << "call " << nth << " of " << n_calls << ", " << struck;
    }
  }
  tell();
}

TEST_F(FaultLoop, OfTheDriverLosesNothingAndChangesNoToken) {
  const Told wanted = alone(false);
  Result<host::OpenedModel> opened = open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const uint64_t bytes = bytes_in_use(opened->device);
  {
    auto engine = Engine::create(opened->pipelines, opened->model, options(false));
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    budget_bytes_ = smallest_budget(**engine);
  }
  recovery_.emplace(std::move(opened).value(), [this] { return open(); });
  opened = Error{};
  for (const Kind kind : {Kind::kHostMemory, Kind::kDeviceMemory, Kind::kLost}) {
    kind_ = kind;
    VulkanFaults::arm(kind, UINT64_MAX);
    ASSERT_EQ(run(), wanted);
    const uint64_t n_calls = VulkanFaults::n_calls();
    for (const uint64_t nth : faults_of(n_calls)) {
      tell_progress(nth, n_calls);
      VulkanFaults::arm(kind, nth);
      const Told told = run();
      const std::string struck = VulkanFaults::struck();
      VulkanFaults::disarm();
      ++struck_[struck];
      ASSERT_EQ(told, wanted) << "call " << nth << " of " << n_calls << ", " << struck;
      ASSERT_FALSE(HasFailure()) << "call " << nth << " of " << n_calls << ", " << struck;
      if (recovery_->opened().device->is_lost()) open_again();  // it was while closing
      ASSERT_EQ(bytes_in_use(recovery_->opened().device), bytes)
          << "call " << nth << " of " << n_calls << ", " << struck;
    }
  }
  recovery_.reset();
  tell();
}

/// The n-th allocation of the host fails, from submitting to closing: a status each time, or
/// std::bad_alloc where nothing was made yet.
class HostFaultLoop : public test::FaultTest {
 protected:
  void answer(Engine&, const Error& error) override {
    EXPECT_EQ(error.code, ErrorCode::kDoesNotFit) << error.message;
  }
  void expose(bool exposed) override {
    exposed ? paused_.reset() : static_cast<void>(paused_.emplace());
  }
  Status rebuild(Engine& engine) override {
    return engine.rebuild(opened_.pipelines, opened_.model);
  }

  /// `body` until it does not fail for want of memory, which it does once at most.
  template <typename Body>
  static auto over_the_fault(const Body& body) {
    for (int attempt = 0;; ++attempt) {
      try {
        auto result = body();
        if (result.ok() || attempt > 0) return result;
        EXPECT_EQ(result.error().code, ErrorCode::kDoesNotFit) << result.error().message;
      } catch (const std::bad_alloc&) {
        EXPECT_EQ(attempt, 0) << "memory is there again";
        if (attempt > 0) throw;
      }
    }
  }

  /// Everything that is done with an engine, from making to closing it.
  Told run() {
    auto engine = over_the_fault(
        [&] { return Engine::create(opened_.pipelines, opened_.model, options(false)); });
    if (!engine.ok()) return {};
    expose(false);
    Told told = play(**engine, budget_bytes_);
    expose(true);
    engine->reset();
    return told;
  }

  host::OpenedModel opened_;  // of a driver whose allocations do not count
  uint64_t budget_bytes_ = 0;
  std::optional<test::HostFaultsPaused> paused_;
};

TEST_F(HostFaultLoop, LosesNothingAndChangesNoToken) {
  const Told wanted = alone(false);
  Result<host::OpenedModel> opened = open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  opened_ = std::move(opened).value();
  const uint64_t bytes = bytes_in_use(opened_.device);
  {
    auto engine = Engine::create(opened_.pipelines, opened_.model, options(false));
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    budget_bytes_ = smallest_budget(**engine);
  }
  test::HostFaults::arm(UINT64_MAX);
  ASSERT_EQ(run(), wanted);
  const uint64_t n_calls = test::HostFaults::n_calls();
  for (const uint64_t nth : faults_of(n_calls)) {
    tell_progress(nth, n_calls);
    test::HostFaults::arm(nth);
    const Told told = run();
    test::HostFaults::disarm();
    ASSERT_EQ(told, wanted) << "allocation " << nth << " of " << n_calls;
    ASSERT_EQ(bytes_in_use(opened_.device), bytes) << "allocation " << nth << " of " << n_calls;
    ASSERT_FALSE(HasFailure()) << "allocation " << nth << " of " << n_calls;
  }
  opened_ = {};
}

TEST_F(HostFaultLoop, OfOpeningAndLoadingLeavesNothingBehind) {
  const auto load = [&](const std::shared_ptr<vk::Device>& device) {
    return over_the_fault([&]() -> Result<std::shared_ptr<const Model>> {
      PUMICE_TRY(const GgufFile file, GgufFile::open(file_->path()));
      return Model::load(device, file);
    });
  };
  Result<host::OpenedModel> opened = open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  opened->model.reset();
  const uint64_t bytes = bytes_in_use(opened->device);
  test::HostFaults::arm(UINT64_MAX);
  ASSERT_TRUE(load(opened->device).ok());
  const uint64_t n_calls = test::HostFaults::n_calls();
  for (const uint64_t nth : faults_of(n_calls)) {
    tell_progress(nth, n_calls);
    test::HostFaults::arm(nth);
    const bool loaded = load(opened->device).ok();
    test::HostFaults::disarm();
    ASSERT_TRUE(loaded) << "allocation " << nth << " of " << n_calls;
    ASSERT_EQ(bytes_in_use(opened->device), bytes) << "allocation " << nth << " of " << n_calls;
  }
}

}  // namespace
}  // namespace pumice
