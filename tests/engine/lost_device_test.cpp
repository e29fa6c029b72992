// The device is lost at a random call, amid requests of every kind: they go on, and are told what
// they would have been told.
#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/fault_fixture.hpp"

namespace pumice {
namespace {

using test::VulkanFaults;

/// How often: PUMICE_LOSSES, or what CI has time for.
int n_losses() {
  const char* asked = std::getenv("PUMICE_LOSSES");
  return asked != nullptr ? std::atoi(asked) : 30;
}

class LostDevice : public test::FaultTest {
 protected:
  struct Amid {
    bool prefill = false;
    bool transfer = false;
  };
  static Amid amid(const Engine& engine, const std::map<RequestId, std::string>& names) {
    Amid now{.transfer = engine.moves_blocks()};
    for (const auto& [id, name] : names) {
      if (!engine.sequence(id).ok()) continue;  // it has ended
      const Request& request = engine.scheduler().request(id);
      now.prefill |= request.state == RequestState::kPrefilling && request.computed_tokens > 0;
    }
    return now;
  }

  enum class Aim { kArmed, kPrompt, kTransfer };
  /// Submits, steps and polls in a random order until all have ended; the device is lost as it was
  /// armed to be, or soon after a call amid what is aimed at. The number of losses.
  int run(Engine& engine, host::Recovery& recovery, std::mt19937& random, Told& told,
          Aim aim = Aim::kArmed) {
    std::map<RequestId, std::string> names;
    const std::vector<Wanted> wanted = batch();
    size_t n_submitted = 0;
    int n_lost = 0;
    const auto start = std::chrono::steady_clock::now();
    while (n_submitted < wanted.size() || !engine.idle()) {
      if (std::chrono::steady_clock::now() - start > std::chrono::minutes(5)) {
        ADD_FAILURE() << "the engine does not get on";
        break;
      }
      if (n_submitted < wanted.size() && random() % 4 == 0) {
        const Result<RequestId> id = engine.submit(wanted[n_submitted].request);
        EXPECT_TRUE(id.ok()) << id.error().message;
        names[*id] = wanted[n_submitted++].name;
      }
      const Amid before = amid(engine, names);
      const bool in_sight =
          (aim == Aim::kPrompt && before.prefill) || (aim == Aim::kTransfer && before.transfer);
      if (in_sight && random() % 3 == 0) {
        VulkanFaults::arm(Kind::kLost, random() % 3);
        aim = Aim::kArmed;
      }
      const double budget_s = random() % 2 == 0 ? 1e-9 : Submitter::kNoBudget;
      const auto events = random() % 3 == 0 ? engine.step() : engine.poll(budget_s);
      const Status whole = engine.check_integrity();
      EXPECT_TRUE(whole.ok()) << whole.error().message;
      if (events.ok()) {
        keep(*events, names, told);
        continue;
      }
      EXPECT_EQ(events.error().code, ErrorCode::kDeviceLost) << events.error().message;
      ++n_lost;
      n_amid_prefill_ += before.prefill ? 1 : 0;
      n_amid_transfer_ += before.transfer ? 1 : 0;
      Engine* const lost = &engine;
      const Status recovered = recovery.recover({&lost, 1});
      EXPECT_TRUE(recovered.ok()) << recovered.error().message;
      if (!recovered.ok()) break;
    }
    return n_lost;
  }

  int n_amid_prefill_ = 0;   // losses while part of a prompt was computed
  int n_amid_transfer_ = 0;  // while blocks moved between the device and host memory
};

TEST_F(LostDevice, AtARandomCallChangesNoToken) {
  int n_lost = 0;
  for (const bool invariant : {true, false}) {
    const Told wanted = alone(invariant);
    Result<host::OpenedModel> opened = open();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    auto created = Engine::create(opened->pipelines, opened->model, options(invariant));
    ASSERT_TRUE(created.ok()) << created.error().message;
    const std::unique_ptr<Engine> engine = std::move(created).value();
    const uint64_t bytes = bytes_in_use(opened->device);
    host::Recovery recovery(std::move(opened).value(), [this] { return open(); });
    opened = Error{};

    std::mt19937 random(7);
    Told told;
    uint64_t n_calls = 0;
    for (int i = 0; i < 2; ++i) {  // the second finds prefixes and recorded steps, as those below
      VulkanFaults::arm(Kind::kLost, UINT64_MAX);
      told.clear();
      EXPECT_EQ(run(*engine, recovery, random, told), 0);
      EXPECT_EQ(told, wanted);
      n_calls = VulkanFaults::n_calls();
    }
    int n_struck = 0;
    for (int i = 0; n_struck < n_losses() / 2 && i < 10 * n_losses(); ++i) {
      random.seed(static_cast<uint32_t>(i));
      const Aim aim = std::array{Aim::kArmed, Aim::kPrompt, Aim::kTransfer}[i % 3];
      const uint64_t nth = aim == Aim::kArmed ? random() % n_calls : UINT64_MAX;
      VulkanFaults::arm(Kind::kLost, nth);
      told.clear();
      n_lost += run(*engine, recovery, random, told, aim);
      ASSERT_EQ(told, wanted) << (invariant ? "invariant, " : "") << "seed " << i
                              << ", lost at call " << nth << " of " << n_calls << ", "
                              << VulkanFaults::struck();
      // Polls that find nothing done count as well, so runs differ in their calls.
      if (VulkanFaults::struck().empty())
        n_calls = VulkanFaults::n_calls();
      else
        ++n_struck;
      VulkanFaults::disarm();
      ASSERT_EQ(bytes_in_use(engine->device()), bytes) << "seed " << i;
    }
  }
  EXPECT_GT(n_lost, n_losses() / 2) << "few losses were noticed";
  std::cout << "  " << n_lost << " losses, " << n_amid_prefill_ << " amid prompts, "
            << n_amid_transfer_ << " amid transfers\n";
  EXPECT_GE(n_amid_prefill_, n_lost / 10);
  EXPECT_GE(n_amid_transfer_, n_lost / 10);
}

TEST_F(LostDevice, ThatTwoEnginesShareIsOpenedOnceForBoth) {
  const Told wanted = alone(false);
  Result<host::OpenedModel> opened = open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 0; i < 2; ++i) {
    auto created = Engine::create(opened->pipelines, opened->model, options(false));
    ASSERT_TRUE(created.ok()) << created.error().message;
    engines.push_back(std::move(created).value());
  }
  int n_opened = 0;
  host::Recovery recovery(std::move(opened).value(), [&] {
    ++n_opened;
    return open();
  });
  opened = Error{};
  std::array<Told, 2> told;
  const std::map<RequestId, std::string> names = {{1, "long"}};
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(*engines[i]->submit(batch().front().request), 1u);
    for (int n = 0; n < 4; ++n) keep(step(*engines[i]), names, told[i]);
  }
  VulkanFaults::arm(Kind::kLost, 0);
  for (const auto& engine : engines) {
    const auto events = engine->step();
    ASSERT_FALSE(events.ok()) << "the other engine's loss is not known";
    EXPECT_EQ(events.error().code, ErrorCode::kDeviceLost);
  }
  for (const auto& engine : engines) {
    Engine* const lost = engine.get();
    const Status recovered = recovery.recover({&lost, 1});
    ASSERT_TRUE(recovered.ok()) << recovered.error().message;
  }
  EXPECT_EQ(n_opened, 1);
  EXPECT_EQ(engines[0]->device(), engines[1]->device());
  for (size_t i = 0; i < 2; ++i) {
    while (!engines[i]->idle()) keep(step(*engines[i]), names, told[i]);
    EXPECT_EQ(told[i]["long"], wanted.at("long"));
  }
}

/// As a watchdog does that cancels long work: without the mark that a submission leaves, what was in
/// memory before would be told as text.
TEST_F(LostDevice, ThatEndsASubmissionItDidNotCarryOutChangesNoToken) {
  const Told wanted = alone(false);
  Result<host::OpenedModel> opened = open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  auto engine = Engine::create(opened->pipelines, opened->model, options(false));
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  host::Recovery recovery(std::move(opened).value(), [this] { return open(); });
  opened = Error{};
  std::mt19937 random(7);
  Told told;
  VulkanFaults::arm(Kind::kCancelled, UINT64_MAX);
  EXPECT_EQ(run(**engine, recovery, random, told), 0);
  EXPECT_EQ(told, wanted);
  const uint64_t n_submissions = VulkanFaults::n_calls();
  ASSERT_GT(n_submissions, 10u);
  int n_cancelled = 0;
  for (uint32_t seed = 0; n_cancelled < 8 && seed < 64; ++seed) {
    random.seed(seed);
    VulkanFaults::arm(Kind::kCancelled, random() % (n_submissions / 2));
    told.clear();
    const int n_lost = run(**engine, recovery, random, told);
    // How many submissions a run makes depends on how busy the machine is.
    const int n_struck = VulkanFaults::struck().empty() ? 0 : 1;
    EXPECT_EQ(n_lost, n_struck) << "seed " << seed;
    EXPECT_EQ(told, wanted) << "seed " << seed;
    n_cancelled += n_struck;
  }
  EXPECT_EQ(n_cancelled, 8);
  VulkanFaults::disarm();
}

/// As a host that opens an engine for each level: many may have the same address.
TEST_F(LostDevice, ThatEachOfManyEnginesLosesOnceIsHadAgainEachTime) {
  Result<host::OpenedModel> opened = open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  host::Recovery recovery(std::move(opened).value(), [this] { return open(); });
  opened = Error{};
  std::vector<std::unique_ptr<Engine>> engines;  // a closed one's place goes to the next
  for (int i = 0; i < 4; ++i) {
    engines.clear();
    const host::OpenedModel now = recovery.opened();
    auto created = Engine::create(now.pipelines, now.model, options(false));
    ASSERT_TRUE(created.ok()) << created.error().message;
    engines.push_back(std::move(created).value());
    ASSERT_TRUE(engines.front()->submit(batch().front().request).ok());
    VulkanFaults::arm(Kind::kLost, 0);
    ASSERT_FALSE(engines.front()->step().ok());
    Engine* const lost = engines.front().get();
    const Status recovered = recovery.recover({&lost, 1});
    ASSERT_TRUE(recovered.ok()) << recovered.error().message;
  }
}

TEST_F(LostDevice, ThatCannotBeHadAgainIsAnErrorThatSaysWhy) {
  Result<host::OpenedModel> opened = open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  auto engine = Engine::create(opened->pipelines, opened->model, options(false));
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  int n_opened = 0;
  const auto try_to_open = [&]() -> Result<host::OpenedModel> {
    ++n_opened;
    if (n_opened == 1) return make_error(ErrorCode::kNoDevice, "it is being reset");
    if (n_opened <= 3) return make_error(ErrorCode::kDoesNotFit, "no memory yet");
    return open();
  };
  host::Recovery recovery(std::move(opened).value(), try_to_open);
  opened = Error{};
  ASSERT_TRUE((*engine)->submit(batch().front().request).ok());
  VulkanFaults::arm(Kind::kLost, 0);
  ASSERT_FALSE((*engine)->step().ok());
  Engine* const lost = engine->get();
  for (const char* reason : {"it is being reset", "no memory yet", "no memory yet"}) {
    const Status failed = recovery.recover({&lost, 1});
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, ErrorCode::kDeviceLost);
    EXPECT_EQ(failed.error().message,
              "the device was lost and could not be opened again: " + std::string(reason));
  }
  EXPECT_EQ((*engine)->device(), nullptr);
  EXPECT_EQ(recovery.opened().device, nullptr);
  ASSERT_TRUE(recovery.recover({&lost, 1}).ok()) << "it is tried again when asked again";
  Told told;
  while (!(*engine)->idle()) keep(step(**engine), {{1, "long"}}, told);
  EXPECT_EQ(told["long"].size(), batch().front().request.max_new_tokens);
}

}  // namespace
}  // namespace pumice
