// Segments go to the device in order, and no more of them than a budget allows.
#include "engine/submitter.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/vk/host_fixture.hpp"
#include "tests/vk/recorder_fixture.hpp"

namespace pumice {
namespace {

class Submitter : public test::RecorderTest {
 protected:
  static constexpr uint32_t kSegments = 6;

  /// Word i becomes i + 1, a segment each.
  std::shared_ptr<const vk::RecordedWork> work() {
    vk::Recorder recorder(device_, {.segment = {.bytes = 1, .flops = 1}});
    recorder.fill(ranges_[0].subrange(0, 4 * kSegments), 0);
    for (uint32_t i = 1; i < kSegments; ++i) recorder.fill(ranges_[0].subrange(4 * i, 4), i + 1);
    auto recorded = recorder.finish();
    EXPECT_TRUE(recorded.ok());
    EXPECT_EQ(recorded->segments().size(), kSegments);
    return std::make_shared<const vk::RecordedWork>(std::move(recorded).value());
  }
  /// Segments of half a slice, before anything is learned.
  vk::SegmentLimit at_first(double slice_s) const {
    const bool is_cpu = device_->plan().device_class == vk::DeviceClass::kCpu;
    return Pace(is_cpu ? Pace::kCpu : Pace::kGpu).limit(slice_s * 1e9 / 2);
  }
  uint32_t n_done() {
    const std::vector<uint32_t> now = words(ranges_[0]);  // waits for what was submitted
    uint32_t n = 0;
    while (n + 1 < kSegments && now[n + 1] == n + 2) ++n;
    return n;
  }
};

TEST_F(Submitter, WithoutABudgetSubmitsOneSegmentWhenTheDeviceHasNone) {
  pumice::Submitter submitter(device_);
  const auto ticket = submitter.add(work());
  for (uint32_t i = 0; i < kSegments; ++i) {
    EXPECT_FALSE(submitter.ended(ticket)->has_value());
    ASSERT_TRUE(submitter.submit(0).ok());
    EXPECT_EQ(n_done(), i);
  }
  EXPECT_TRUE(submitter.ended(ticket)->has_value());
}

TEST_F(Submitter, CountsWhatTheDeviceHasNotFinishedAgainstTheBudget) {
  pumice::Submitter submitter(device_);
  const auto ticket = submitter.add(work());
  ASSERT_TRUE(submitter.submit(1e-12).ok());
  EXPECT_EQ(n_done(), 0u);
  ASSERT_TRUE(submitter.submit(pumice::Submitter::kNoBudget).ok());
  ASSERT_TRUE(submitter.wait(ticket).ok());
  EXPECT_EQ(n_done(), kSegments - 1);
  const auto seconds = submitter.ended(ticket);
  ASSERT_TRUE(seconds.ok() && seconds->has_value());
  EXPECT_FALSE(**seconds < 0);
}

TEST_F(Submitter, SubmitsNoMoreOfWorkThatNobodyWants) {
  pumice::Submitter submitter(device_);
  const auto dropped = submitter.add(work());
  const auto untouched = submitter.add(work());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(submitter.submit(0).ok());
    EXPECT_EQ(n_done(), static_cast<uint32_t>(i));
  }
  submitter.drop_rest(dropped);
  submitter.drop_rest(untouched);
  ASSERT_TRUE(submitter.submit(pumice::Submitter::kNoBudget).ok());
  EXPECT_EQ(n_done(), 1u);
  for (const auto ticket : {dropped, untouched}) {
    const auto seconds = submitter.ended(ticket);
    ASSERT_TRUE(seconds.ok() && seconds->has_value());
    EXPECT_TRUE(std::isnan(**seconds)) << "a part of it teaches nothing";
  }
  const auto whole = submitter.add(work());
  ASSERT_TRUE(submitter.submit(pumice::Submitter::kNoBudget).ok());
  ASSERT_TRUE(submitter.wait(whole).ok());
  EXPECT_EQ(n_done(), kSegments - 1);
}

TEST_F(Submitter, AModeBoundsWhatTheDeviceHas) {
  vk::RecorderOptions fast, polite, again;
  pumice::Submitter cuts(device_);
  cuts.set_segments(fast);
  cuts.set_mode(EngineMode::kBackground);
  cuts.set_segments(polite);
  EXPECT_EQ(polite.segment.bytes, at_first(pumice::Submitter::kPoliteSlice_s).bytes);
  EXPECT_EQ(fast.segment.bytes, at_first(0.1).bytes);
  cuts.set_mode(EngineMode::kFast);
  cuts.set_segments(again);
  EXPECT_EQ(again.segment.bytes, fast.segment.bytes);

  if (device_->plan().device_class != vk::DeviceClass::kCpu) GTEST_SKIP() << "predicted too short";
  // A slice each, by what is thought of CPUs before anything is learned.
  constexpr uint32_t kFills = 4;
  const vk::BufferRange range = *arena_->allocate(8 << 20);
  vk::Recorder recorder(device_, {.segment = {.bytes = 1}});
  for (uint32_t i = 1; i <= kFills; ++i) recorder.fill(range, i);
  const auto fills = std::make_shared<const vk::RecordedWork>(recorder.finish().value());
  const std::pair<EngineMode, uint32_t> most[] = {
      {EngineMode::kBackground, 1}, {EngineMode::kBesideGraphics, 2}, {EngineMode::kFast, kFills}};
  for (const auto& [mode, n_submitted] : most) {
    pumice::Submitter submitter(device_);
    submitter.set_mode(mode);
    const auto ticket = submitter.add(fills);
    ASSERT_TRUE(submitter.submit(pumice::Submitter::kNoBudget).ok());
    EXPECT_EQ(words(range.subrange(0, 4))[0], n_submitted);  // waits for what was submitted
    // Waiting brings the rest, part by part.
    size_t n_waits = 0;
    while (!submitter.ended(ticket)->has_value()) {
      ASSERT_LE(++n_waits, kFills);
      ASSERT_TRUE(submitter.wait(ticket).ok());
    }
    EXPECT_EQ(words(range.subrange(0, 4))[0], kFills);
  }
}

TEST_F(Submitter, HoldsNothingBackBeforeWhatIsWrittenNow) {
  constexpr uint32_t kFills = 4;
  const vk::BufferRange range = *arena_->allocate(8 << 20);
  const auto fills = [&] {
    vk::Recorder recorder(device_, {.segment = {.bytes = 1}});
    for (uint32_t i = 1; i <= kFills; ++i) recorder.fill(range, i);
    return std::make_shared<const vk::RecordedWork>(recorder.finish().value());
  };
  for (const EngineMode mode :
       {EngineMode::kBackground, EngineMode::kBesideGraphics, EngineMode::kFast}) {
    pumice::Submitter submitter(device_);
    submitter.set_mode(mode);
    submitter.add(fills());
    ASSERT_TRUE(submitter.submit(0).ok());
    const auto last = submitter.add(fills());
    EXPECT_FALSE(submitter.all_submitted());
    ASSERT_TRUE(submitter.submit_all().ok());
    EXPECT_TRUE(submitter.all_submitted());
    EXPECT_EQ(words(range.subrange(0, 4))[0], kFills) << "this comes behind all of it";
    EXPECT_TRUE(submitter.ended(last)->has_value());
  }
}

TEST_F(Submitter, CutsSegmentsForTheSmallestBudgetAndTimesThem) {
  pumice::Submitter submitter(device_);
  vk::RecorderOptions without, with;
  submitter.set_segments(without);
  EXPECT_FALSE(without.time_segments);
  ASSERT_TRUE(submitter.submit(2e-3).ok());
  submitter.set_segments(with);
  EXPECT_EQ(with.time_segments, device_->plan().timestamp_valid_bits > 0);
  EXPECT_EQ(without.segment.bytes, at_first(0.1).bytes);
  EXPECT_EQ(with.segment.bytes, at_first(2e-3).bytes);
  ASSERT_TRUE(submitter.submit(0).ok());
  submitter.set_segments(with);
  EXPECT_EQ(with.segment.bytes, at_first(pumice::Submitter::kShortestSlice_s).bytes);
}

/// A guest whose host may hold the queue, or let work wait.
class GuestSubmitter : public Submitter {
 protected:
  using Clock = std::chrono::steady_clock;

  void SetUp() override {
    Submitter::SetUp();
    if (IsSkipped()) return;
    host_.emplace(test::Host::Enables::kRequired);
    vk::HostDevice lent = host_->lent();
    lent.queue_lock = lock_.lent();
    guest_ = *host_->adopt(lent);
    memory_.emplace(guest_, vk::MemoryDomain::kDevice, "test");
    range_ = *memory_->allocate(64);
    ASSERT_TRUE(vk::run(*guest_, *fill(0)).ok());
  }
  void TearDown() override {
    if (host_) host_->signal(2);  // nothing waits for the host any more
    memory_.reset();
    guest_.reset();
    host_.reset();
    Submitter::TearDown();
  }
  std::shared_ptr<const vk::RecordedWork> fill(uint32_t word) const {
    vk::Recorder recorder(guest_);
    recorder.fill(range_, word);
    return std::make_shared<const vk::RecordedWork>(recorder.finish().value());
  }
  uint32_t word() const {
    const auto bytes = *vk::download(guest_, range_);
    uint32_t first = 0;
    std::memcpy(&first, bytes.data(), sizeof first);
    return first;
  }
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  std::optional<test::Host> host_;
  test::QueueLock lock_;
  std::shared_ptr<vk::Device> guest_;
  std::optional<vk::Arena> memory_;
  vk::BufferRange range_;
};

TEST_F(GuestSubmitter, SubmitsNothingWhileAHostHoldsItsQueue) {
  pumice::Submitter submitter(guest_);
  const auto ticket = submitter.add(fill(7));
  const uint64_t before = guest_->submitted().value;
  lock_.held = true;
  for (const double budget_s : {1e-3, pumice::Submitter::kNoBudget}) {
    ASSERT_TRUE(submitter.submit(budget_s).ok());
    EXPECT_EQ(guest_->submitted().value, before);
    EXPECT_FALSE(submitter.ended(ticket)->has_value());
  }
  EXPECT_EQ(lock_.n_refused, 2u);
  lock_.held = false;
  ASSERT_TRUE(submitter.wait(ticket).ok()) << "it submits what was held back";
  EXPECT_TRUE(submitter.ended(ticket)->has_value());
  EXPECT_EQ(guest_->submitted().value, before + 1);
}

TEST_F(GuestSubmitter, WorkThatIsDroppedIsOverOnlyAfterWhatCameBeforeIt) {
  pumice::Submitter submitter(guest_);
  const auto copy = submitter.add(fill(7));
  const auto step = submitter.add(fill(8));
  lock_.held = true;
  ASSERT_TRUE(submitter.submit(1).ok());
  EXPECT_TRUE(submitter.drop_rest(step));
  const auto step_ended = submitter.ended(step);
  ASSERT_TRUE(step_ended.ok());
  EXPECT_FALSE(step_ended->has_value());
  EXPECT_FALSE(*submitter.has_ended(step));
  EXPECT_FALSE(*submitter.has_ended(copy)) << "it has not run";
  lock_.held = false;
  ASSERT_TRUE(submitter.wait(step).ok());
  EXPECT_TRUE(submitter.ended(step)->has_value());
  EXPECT_TRUE(*submitter.has_ended(copy));
  EXPECT_EQ(word(), 7u);
}

TEST_F(GuestSubmitter, AsksAgainForAQueueThatItsHostHoldsAfterAPauseThatAnyThreadCanEnd) {
  pumice::Submitter submitter(guest_);
  const auto ticket = submitter.add(fill(7));
  Waker waker;
  lock_.held = true;
  Clock::time_point start = Clock::now();
  uint32_t n_waits = 0;
  for (; seconds_since(start) < 0.1; ++n_waits) {
    ASSERT_TRUE(submitter.submit(1).ok());
    ASSERT_TRUE(submitter.wait_next(std::chrono::hours(1), waker).ok());
  }
  EXPECT_LT(n_waits, 100u) << "it should sleep between";
  EXPECT_EQ(lock_.n_refused, n_waits);
  waker.wake();
  ASSERT_TRUE(submitter.submit(1).ok());
  ASSERT_TRUE(submitter.wait_next(std::chrono::hours(1), waker).ok());
  lock_.held = false;
  ASSERT_TRUE(submitter.submit(1).ok());
  ASSERT_TRUE(submitter.wait(ticket).ok());
}

TEST_F(GuestSubmitter, WaitsForADeviceAtWorkUntilAnyThreadWakesIt) {
  pumice::Submitter submitter(guest_);
  const auto ticket = submitter.add(fill(7));
  guest_->begin_after({host_->timeline(), 1});
  ASSERT_TRUE(submitter.submit(1).ok());
  Waker waker;
  Clock::time_point start = Clock::now();
  ASSERT_TRUE(submitter.wait_next(std::chrono::milliseconds(20), waker).ok());
  EXPECT_GE(seconds_since(start), 0.02);
  EXPECT_LT(seconds_since(start), 10);

  start = Clock::now();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    waker.wake();
  });
  ASSERT_TRUE(submitter.wait_next(std::chrono::seconds(20), waker).ok());
  EXPECT_LT(seconds_since(start), 10);
  other.join();
  EXPECT_FALSE(*submitter.has_ended(ticket));
  EXPECT_FALSE(submitter.ended(ticket)->has_value());

  host_->signal(1);
  ASSERT_TRUE(submitter.wait_next(std::chrono::seconds(20), waker).ok());
  EXPECT_TRUE(submitter.ended(ticket)->has_value());
}

TEST_F(Submitter, ForgetsASmallBudgetAfterManyLargerOnes) {
  pumice::Submitter submitter(device_);
  const auto segment_bytes = [&] {
    vk::RecorderOptions options;
    submitter.set_segments(options);
    return options.segment.bytes;
  };
  ASSERT_TRUE(submitter.submit(0).ok());
  for (uint32_t i = 1; i < RecentBudgets::kRemembered; ++i)
    ASSERT_TRUE(submitter.submit(5e-3).ok());
  EXPECT_EQ(segment_bytes(), at_first(pumice::Submitter::kShortestSlice_s).bytes);
  for (uint32_t i = 0; i < RecentBudgets::kRemembered + 1; ++i) {
    ASSERT_TRUE(submitter.submit(5e-3).ok());
  }
  EXPECT_EQ(segment_bytes(), at_first(5e-3).bytes);
}

TEST_F(Submitter, LearnsFromTheDeviceWhoseEndsNobodyWaitsFor) {
  if (device_->plan().timestamp_valid_bits == 0) GTEST_SKIP() << "no timestamps";
  pumice::Submitter submitter(device_);
  ASSERT_TRUE(submitter.submit(1).ok());
  const auto record = [&] {
    vk::RecorderOptions options;
    submitter.set_segments(options);
    vk::Recorder recorder(device_, options);
    recorder.fill(ranges_[0], 1);
    return std::make_shared<const vk::RecordedWork>(recorder.finish().value());
  };
  const double before = submitter.in_segments(*record());
  const auto ticket = submitter.add(record());
  ASSERT_TRUE(submitter.submit(1).ok());
  device_->wait_idle();
  const auto seconds = submitter.ended(ticket);
  ASSERT_TRUE(seconds.ok() && seconds->has_value());
  EXPECT_GT(**seconds, 0);
  EXPECT_NE(submitter.in_segments(*record()), before);
}

TEST_F(Submitter, TellsOnceWhatSlicesTook) {
  if (device_->plan().timestamp_valid_bits == 0) GTEST_SKIP() << "no timestamps";
  pumice::Submitter submitter(device_);
  ASSERT_TRUE(submitter.submit(2e-3).ok());
  const auto record = [&](bool timed) {
    vk::Recorder recorder(device_, {.time_segments = timed, .segment = {.bytes = 1}});
    for (uint32_t i = 0; i < kSegments; ++i) recorder.fill(ranges_[0], i);
    return std::make_shared<const vk::RecordedWork>(recorder.finish().value());
  };
  const auto run = [&](std::initializer_list<bool> works) {
    pumice::Submitter::Ticket last = 0;
    for (const bool timed : works) last = submitter.add(record(timed));
    EXPECT_TRUE(submitter.submit(pumice::Submitter::kNoBudget).ok());
    device_->wait_idle();
    EXPECT_TRUE(submitter.ended(last)->has_value());
    return submitter.take_slice_times();
  };
  const std::vector<SliceTime> told = run({true});
  ASSERT_FALSE(told.empty());
  double predicted_ns = 0;
  for (const SliceTime& slice : told) {
    EXPECT_EQ(slice.asked_ns, 2e6);
    EXPECT_LE(slice.predicted_ns, slice.asked_ns);
    EXPECT_GT(slice.measured_ns, 0);
    predicted_ns += slice.predicted_ns;
  }
  EXPECT_GE(predicted_ns, kSegments * 1e3) << "all of them";
  EXPECT_TRUE(submitter.take_slice_times().empty());
  EXPECT_TRUE(run({false}).empty()) << "not timed";
  EXPECT_FALSE(run({true}).empty());
}

}  // namespace
}  // namespace pumice
