// A step that fails, before the device had it or after: no request loses or gains anything.
#include <map>
#include <utility>

#include "tests/engine/synthetic_fixture.hpp"

namespace pumice {
namespace {

const Error kFault{.code = ErrorCode::kInternal, .message = "a fault for the test"};

class FailedStep : public test::SyntheticEngineTest {
 protected:
  using Told = std::map<RequestId, std::vector<TokenId>>;

  std::unique_ptr<Engine> engine(uint32_t kv_blocks = 0) const {
    return make_engine(model_, {.context_tokens = 96, .n_sequences = 2, .kv_blocks = kv_blocks});
  }

  static void submit_two(Engine& engine) {
    for (const uint32_t seed : {1u, 2u}) {
      EXPECT_TRUE(engine
                      .submit({.prompt = tokens(30, seed),
                               .max_new_tokens = 40,
                               .sampling = with_penalties(seed)})
                      .ok());
    }
  }

  /// Steps until nothing is left, over failures; the number of failures.
  static int finish(Engine& engine, Told& told) {
    int n_failures = 0;
    while (!engine.idle()) {
      const auto events = engine.step();
      const Status whole = engine.check_integrity();
      EXPECT_TRUE(whole.ok()) << whole.error().message;
      if (!events.ok()) {
        EXPECT_EQ(events.error().message, kFault.message);
        ++n_failures;
        continue;
      }
      for (const StepEvent& event : *events) {
        if (event.token) told[event.request].push_back(*event.token);
      }
    }
    return n_failures;
  }

  Told expected() const {
    const auto undisturbed = engine();
    submit_two(*undisturbed);
    Told told;
    EXPECT_EQ(finish(*undisturbed, told), 0);
    EXPECT_EQ(told.begin()->second.size(), 40u);
    return told;
  }
};

TEST_F(FailedStep, AfterTheDeviceRanItChangesNoToken) {
  const auto disturbed = engine();
  int n_lands = 0;
  disturbed->set_hooks({.at_stage = [&](StepStage stage) -> Status {
    if (stage != StepStage::kLand) return {};
    const int phase = n_lands++ % 8;
    if (phase >= 3 && phase < 6) return kFault;  // several in a row
    return {};
  }});
  submit_two(*disturbed);
  Told told;
  EXPECT_GT(finish(*disturbed, told), 6);
  EXPECT_EQ(told, expected());
}

TEST_F(FailedStep, AgainWhileItsRequestsAreSetUpAnewChangesNoToken) {
  const auto disturbed = engine();
  int n_lands = 0;
  bool fails_again = false;
  disturbed->set_hooks({.at_stage = [&](StepStage stage) -> Status {
    if (stage == StepStage::kSubmit)
      return std::exchange(fails_again, false) ? Status(kFault) : Status();
    if (++n_lands % 7 != 0) return {};
    fails_again = true;
    return kFault;
  }});
  submit_two(*disturbed);
  Told told;
  EXPECT_GT(finish(*disturbed, told), 6);
  EXPECT_EQ(told, expected());
}

TEST_F(FailedStep, ForWhichOthersWerePreemptedChangesNoToken) {
  const auto disturbed = engine(7);
  uint64_t n_preemptions = 0;
  disturbed->set_hooks({.at_stage = [&](StepStage stage) -> Status {
    const uint64_t now = disturbed->scheduler().telemetry().preemptions;
    if (stage != StepStage::kSubmit || now == n_preemptions) return {};
    n_preemptions = now;
    return kFault;
  }});
  submit_two(*disturbed);
  Told told;
  EXPECT_GT(finish(*disturbed, told), 0);
  EXPECT_GT(n_preemptions, 0u);
  EXPECT_EQ(told, expected());
}

/// A request is past its deadline when a step is planned that then fails, as all do from now on.
class FailedStepAfterAnEnd : public FailedStep {
 protected:
  void SetUp() override {
    FailedStep::SetUp();
    if (IsSkipped()) return;
    engine_ = engine();
    lasting_ = *engine_->submit({.prompt = tokens(30, 1), .max_new_tokens = 40});
    for (int i = 0; i < 3; ++i) {
      for (const StepEvent& event : step(*engine_)) before_.push_back(*event.token);
    }
    ended_ = *engine_->submit({.prompt = tokens(30, 2), .max_new_tokens = 40, .timeout_s = 0});
    engine_->set_hooks({.at_stage = [](StepStage) -> Status { return kFault; }});
    EXPECT_FALSE(engine_->step().ok());
  }
  void TearDown() override {
    engine_.reset();
    FailedStep::TearDown();
  }

  /// The other request goes on as if nothing had happened.
  void expect_rest() {
    engine_->set_hooks({});
    Told told;
    EXPECT_EQ(finish(*engine_, told), 0);
    ASSERT_EQ(told.size(), 1u);
    before_.insert(before_.end(), told.at(lasting_).begin(), told.at(lasting_).end());
    EXPECT_EQ(before_, greedy(*engine(), tokens(30, 1), 40));
  }

  std::unique_ptr<Engine> engine_;
  RequestId lasting_ = 0;
  RequestId ended_ = 0;
  std::vector<TokenId> before_;
};

TEST_F(FailedStepAfterAnEnd, ItsEventComesNextThoughStepsGoOnFailing) {
  const auto events = engine_->step();
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 1u);
  EXPECT_EQ(events->front().request, ended_);
  EXPECT_TRUE(events->front().finished);
  ASSERT_TRUE(events->front().report);
  EXPECT_EQ(events->front().report->end_reason, EndReason::kDeadline);
  EXPECT_FALSE(engine_->step().ok());
  EXPECT_FALSE(engine_->cancel(ended_)) << "it was told";
  expect_rest();
}

TEST_F(FailedStepAfterAnEnd, CancellingItGivesItsReportInsteadOfTheEvent) {
  const auto report = engine_->cancel(ended_);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->end_reason, EndReason::kDeadline);
  EXPECT_FALSE(engine_->cancel(ended_)) << "an event is left";
  expect_rest();
}

TEST_F(FailedStepAfterAnEnd, TheEngineIsNotIdleBeforeItWasTold) {
  engine_->cancel(lasting_);
  EXPECT_FALSE(engine_->idle());
  EXPECT_EQ(step(*engine_).size(), 1u);
  EXPECT_TRUE(engine_->idle());
}

}  // namespace
}  // namespace pumice
