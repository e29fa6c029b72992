// Segments of recorded work: cut by cost, submitted in any portions, timed one by one.
#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <random>
#include <vector>

#include "tests/vk/recorder_fixture.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice {
namespace {

using test::RecorderTest;

const uint32_t kNothingToDo[] =
#include "no_interface.inc"
    ;

/// Random fills, copies and dispatches of nothing, of which every conflict shows: ranges of 64
/// bytes, each command's result depends on what ran before it.
class SegmentTest : public RecorderTest {
 protected:
  static constexpr uint64_t kPieceBytes = 64;
  static constexpr uint32_t kPieces = 1024 / kPieceBytes;
  static constexpr size_t kCommands = 60;

  void SetUp() override {
    RecorderTest::SetUp();
    if (IsSkipped()) return;
    pipelines_ = std::make_unique<vk::PipelineLibrary>(device_, "", 0);
    nothing_ = *pipelines_->declare({.module = {"nothing", kNothingToDo}});
    ASSERT_TRUE(pipelines_->compile().ok());
  }

  /// The same commands for the same seed.
  vk::RecordedWork record(uint32_t seed, const vk::RecorderOptions& options) {
    std::mt19937 engine(seed);
    const auto piece = [&] {
      return ranges_[engine() % 3].subrange(engine() % kPieces * kPieceBytes, kPieceBytes);
    };
    vk::Recorder recorder(device_, options);
    for (const vk::BufferRange& range : ranges_) recorder.fill(range, 0);
    for (uint32_t i = 3; i < kCommands; ++i) {
      const vk::BufferRange target = piece();
      const vk::BufferRange source = piece();
      const bool same = source.slab == target.slab && source.offset == target.offset;
      recorder.enter({"part", i});
      if (i % 5 == 0) {
        recorder.dispatch_bytes(*nothing_, {}, {1, 1, 1}, {}, {vk::updates(target)},
                                {.bytes = engine() % 100, .flops = engine() % 1000});
      } else if (i % 2 == 0 && !same) {
        recorder.copy(source, target);
      } else {
        recorder.fill(target, i);
      }
    }
    return *recorder.finish();
  }

  std::vector<std::vector<uint32_t>> results() {
    std::vector<std::vector<uint32_t>> all;
    for (const vk::BufferRange& range : ranges_) all.push_back(words(range));
    return all;
  }

  void run_one_by_one(const vk::RecordedWork& work) {
    for (const vk::RecordedWork::Segment& segment : work.segments()) {
      ASSERT_TRUE(device_->wait(*device_->submit({&segment.commands, 1})).ok());
    }
  }

  std::unique_ptr<vk::PipelineLibrary> pipelines_;
  const vk::Pipeline* nothing_ = nullptr;
};

TEST_F(SegmentTest, CostNoMoreThanTheirLimitAndNoLessThanTheyCould) {
  std::mt19937 engine(1);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const vk::SegmentLimit limit{.bytes = seed % 3 == 0 ? vk::SegmentLimit::kNone : engine() % 4000,
                                 .flops = seed % 3 == 1 ? vk::SegmentLimit::kNone : engine() % 5000,
                                 .command_bytes = seed % 4 == 0 ? 0 : engine() % 200,
                                 .command_flops = seed % 4 == 0 ? 0 : engine() % 200};
    const vk::RecordedWork work = record(seed, {.segment = limit});
    size_t command = 0;
    for (size_t i = 0; i < work.segments().size(); ++i) {
      const vk::RecordedWork::Segment& segment = work.segments()[i];
      ASSERT_GE(segment.n_commands, 1u);
      EXPECT_TRUE(segment.n_commands == 1 || limit.holds(segment.cost, segment.n_commands))
          << "seed " << seed;
      vk::Cost sum;
      if (i > 0) {
        vk::Cost joined = work.segments()[i - 1].cost;
        joined += work.commands()[command].cost;
        EXPECT_FALSE(limit.holds(joined, work.segments()[i - 1].n_commands + 1))
            << "it would have fitted into the one before";
      }
      for (size_t j = 0; j < segment.n_commands; ++j) sum += work.commands()[command++].cost;
      EXPECT_EQ(segment.cost.bytes, sum.bytes);
      EXPECT_EQ(segment.cost.flops, sum.flops);
    }
    EXPECT_EQ(command, kCommands) << "each command is in a segment";
  }
}

TEST_F(SegmentTest, ChangeNeitherCommandsNorResultsHoweverTheyAreCutAndSubmitted) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const vk::RecordedWork whole = record(seed, {});
    EXPECT_EQ(whole.segments().size(), 1u);
    ASSERT_TRUE(vk::run(*device_, whole).ok());
    const auto expected = results();
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{150}, uint64_t{1500}}) {
      for (const bool reversed : {false, true}) {
        const vk::RecordedWork work =
            record(seed, {.reverse_unordered = reversed, .segment = {.bytes = bytes}});
        EXPECT_GT(work.segments().size(), 2u);
        EXPECT_EQ(work.barrier_count(), whole.barrier_count());
        ASSERT_EQ(work.commands().size(), whole.commands().size());
        for (size_t i = 0; i < work.commands().size() && !reversed; ++i) {
          EXPECT_EQ(work.commands()[i].scope.layer, whole.commands()[i].scope.layer);
        }
        ASSERT_TRUE(vk::run(*device_, work).ok());
        EXPECT_EQ(results(), expected) << "at once, " << bytes << " bytes a segment";
        run_one_by_one(work);
        EXPECT_EQ(results(), expected) << "one by one, " << bytes << " bytes a segment";
      }
    }
  }
}

TEST_F(SegmentTest, OfOneCommandShowADroppedBarrierToo) {
  if (test::validation_requested()) GTEST_SKIP() << "the layers would rightly object";
  for (const size_t dropped : {vk::RecorderOptions::kKeepAll, size_t{0}, size_t{1}}) {
    vk::Recorder recorder(
        device_, {.reverse_unordered = true, .drop_barrier = dropped, .segment = {.bytes = 0}});
    recorder.fill(ranges_[0], 5);
    recorder.copy(ranges_[0], ranges_[1]);
    recorder.fill(ranges_[0], 6);
    const vk::RecordedWork work = *recorder.finish();
    EXPECT_EQ(work.segments().size(), 3u);
    ASSERT_TRUE(vk::run(*device_, work).ok());
    const bool right = words(ranges_[1]) == std::vector<uint32_t>(256, 5) &&
                       words(ranges_[0]) == std::vector<uint32_t>(256, 6);
    EXPECT_EQ(right, dropped == vk::RecorderOptions::kKeepAll) << "dropped barrier " << dropped;
  }
}

TEST_F(SegmentTest, OfNothingIsOne) {
  vk::Recorder recorder(device_, {.segment = {.bytes = 0, .flops = 0}});
  const vk::RecordedWork work = *recorder.finish();
  ASSERT_EQ(work.segments().size(), 1u);
  EXPECT_EQ(work.segments()[0].n_commands, 0u);
  EXPECT_TRUE(vk::run(*device_, work).ok());
}

/// Fills of two ranges of 4 MiB, which take a time that every clock sees.
class TimedSegments : public RecorderTest {
 protected:
  static constexpr uint64_t kBytes = 4 << 20;

  void SetUp() override {
    RecorderTest::SetUp();
    if (IsSkipped()) return;
    if (device_->plan().timestamp_valid_bits == 0) GTEST_SKIP() << "no timestamps";
    large_ = std::make_unique<vk::Arena>(device_, vk::MemoryDomain::kDevice, "timed", 2 * kBytes);
    vk::Recorder recorder(device_, {.time_segments = true, .segment = {.bytes = kBytes}});
    recorder.fill(*large_->allocate(kBytes), 1);
    recorder.fill(*large_->allocate(kBytes), 2);
    work_ = *recorder.finish();
    ASSERT_EQ(work_.segments().size(), 2u);
  }

  /// Submit segments and wait. Returns how long that took, in ns.
  double run(std::initializer_list<size_t> segments) {
    const auto start = std::chrono::steady_clock::now();
    uint64_t value = 0;
    for (const size_t i : segments) value = *device_->submit({&work_.segments()[i].commands, 1});
    EXPECT_TRUE(device_->wait(value).ok());
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
        .count();
  }

  std::unique_ptr<vk::Arena> large_;
  vk::RecordedWork work_;
};

TEST_F(TimedSegments, TakeTogetherNoLongerThanTheWhole) {
  for (int repetition = 0; repetition < 3; ++repetition) {
    const double span_ns = run({0, 1});
    const Result<std::vector<double>> times = work_.segment_times_ns();
    ASSERT_TRUE(times.ok()) << times.error().message;
    ASSERT_EQ(times->size(), 2u);
    EXPECT_GT((*times)[0], 0);
    EXPECT_GT((*times)[1], 0);
    EXPECT_LE((*times)[0] + (*times)[1], span_ns);
  }
}

TEST_F(TimedSegments, AreTimedAnewWhenTheyAreSubmittedAlone) {
  run({0, 1});
  const std::vector<double> first = *work_.segment_times_ns();
  std::vector<double> second = first;
  for (int i = 0; i < 100 && second[1] == first[1]; ++i) {  // the same twice by chance at most
    const double span_ns = run({1});
    second = *work_.segment_times_ns();
    EXPECT_GT(second[1], 0);
    EXPECT_LE(second[1], span_ns);
  }
  EXPECT_NE(second[1], first[1]);
  EXPECT_EQ(second[0], first[0]) << "it did not run again";
  run({0});  // later than the one that follows it
  const std::vector<double> third = *work_.segment_times_ns();
  EXPECT_GT(third[0], 0);
  EXPECT_EQ(third[1], second[1]);
}

TEST_F(TimedSegments, AreOneOfThreeKindsOfTimes) {
  EXPECT_ANY_THROW(work_.command_times_ns().ok());
  EXPECT_ANY_THROW(work_.span_ns().ok());
  vk::Recorder untimed(device_);
  EXPECT_ANY_THROW(untimed.finish()->segment_times_ns().ok());
  vk::Recorder both(device_, {.time_span = true, .time_segments = true});
  EXPECT_ANY_THROW(both.finish().ok());
}

TEST(Recorder, TimesNothingOnADeviceWithoutAClock) {
  if (!test::GpuEnvironment::device()) GTEST_SKIP() << "no usable Vulkan device";
  const auto device =
      *test::GpuEnvironment::open([](const vk::DeviceSnapshot& snapshot) -> Result<vk::DevicePlan> {
        PUMICE_TRY(vk::DevicePlan plan, vk::plan_device(snapshot));
        plan.timestamp_valid_bits = 0;
        return plan;
      });
  vk::Recorder recorder(device, {.time_segments = true});
  EXPECT_ANY_THROW(recorder.finish().ok());
}

}  // namespace
}  // namespace pumice
