// Segments go to the device in order, and no more of them than a budget allows.
#include "engine/submitter.hpp"

#include <cmath>
#include <initializer_list>
#include <memory>
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

TEST_F(Submitter, SubmitsNothingWhileAHostHoldsItsQueue) {
  const test::Host host(test::Host::Enables::kRequired);
  test::QueueLock lock;
  vk::HostDevice lent = host.lent();
  lent.queue_lock = lock.lent();
  const auto guest = *host.adopt(lent);
  vk::Arena arena(guest, vk::MemoryDomain::kDevice, "test");
  vk::Recorder recorder(guest);
  const vk::BufferRange range = *arena.allocate(64);
  recorder.fill(range, 7);
  pumice::Submitter submitter(guest);
  const auto ticket =
      submitter.add(std::make_shared<const vk::RecordedWork>(recorder.finish().value()));
  lock.held = true;
  for (const double budget_s : {1e-3, pumice::Submitter::kNoBudget}) {
    ASSERT_TRUE(submitter.submit(budget_s).ok());
    EXPECT_EQ(guest->submitted().value, 0u);
    EXPECT_FALSE(submitter.ended(ticket)->has_value());
  }
  EXPECT_EQ(lock.n_refused, 2u);
  lock.held = false;
  ASSERT_TRUE(submitter.wait(ticket).ok()) << "it submits what was held back";
  EXPECT_TRUE(submitter.ended(ticket)->has_value());
  EXPECT_EQ(guest->submitted().value, 1u);
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
