// The recorder on a real device: barriers where a hazard is and nowhere else.
#include "vk/recorder.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/vk/recorder_fixture.hpp"
#include "vk/transfer.hpp"

namespace pumice {
namespace {

using test::RecorderTest;

TEST_F(RecorderTest, IndependentCommandsHaveNoBarrier) {
  vk::Recorder recorder(device_);
  recorder.fill(ranges_[0], 1);
  recorder.fill(ranges_[1], 2);
  recorder.fill(ranges_[2].subrange(0, 512), 3);
  recorder.fill(ranges_[2].subrange(512, 512), 4);
  const vk::RecordedWork work = *recorder.finish();
  EXPECT_EQ(work.barrier_count(), 0u);
}

TEST_F(RecorderTest, ReadAfterWriteWriteAfterReadAndWriteAfterWriteAreOrdered) {
  vk::Recorder recorder(device_);
  recorder.fill(ranges_[0], 1);
  recorder.copy(ranges_[0], ranges_[1]);  // reads what was written
  recorder.fill(ranges_[0], 2);           // overwrites what was read
  recorder.fill(ranges_[0], 3);           // overwrites what was written
  const vk::RecordedWork work = *recorder.finish();
  EXPECT_EQ(work.barrier_count(), 3u);
  ASSERT_TRUE(vk::run(*device_, work).ok());
  EXPECT_EQ(words(ranges_[1]), std::vector<uint32_t>(256, 1));
  EXPECT_EQ(words(ranges_[0]), std::vector<uint32_t>(256, 3));
}

TEST_F(RecorderTest, ColumnsOfOneMatrixConflictOnlyWhereTheyOverlap) {
  const auto columns = [&](uint64_t first_byte, uint64_t width_bytes) {
    return vk::writes_columns(ranges_[0].from(first_byte), 4, 64, width_bytes);
  };
  EXPECT_FALSE(vk::conflict(columns(0, 32), columns(32, 32)));
  EXPECT_FALSE(vk::conflict(columns(32, 32), columns(0, 32)));
  EXPECT_TRUE(vk::conflict(columns(0, 36), columns(32, 32)));
  EXPECT_TRUE(vk::conflict(columns(32, 32), columns(0, 36)));
  EXPECT_TRUE(vk::conflict(columns(16, 16), columns(16, 16)));
  EXPECT_TRUE(vk::conflict(columns(0, 32), vk::reads(ranges_[0])));
}

TEST_F(RecorderTest, DroppingABarrierInReverseOrderShowsTheHazard) {
  if (test::validation_requested()) GTEST_SKIP() << "the layers would rightly object";
  for (const size_t dropped : {vk::RecorderOptions::kKeepAll, size_t{0}, size_t{1}}) {
    vk::Recorder recorder(device_, {.reverse_unordered = true, .drop_barrier = dropped});
    recorder.fill(ranges_[0], 5);
    recorder.copy(ranges_[0], ranges_[1]);
    recorder.fill(ranges_[0], 6);
    ASSERT_TRUE(vk::run(*device_, *recorder.finish()).ok());
    const bool right = words(ranges_[1]) == std::vector<uint32_t>(256, 5) &&
                       words(ranges_[0]) == std::vector<uint32_t>(256, 6);
    EXPECT_EQ(right, dropped == vk::RecorderOptions::kKeepAll) << "dropped barrier " << dropped;
  }
}

TEST_F(RecorderTest, RecordedWorkCanBeSubmittedAgain) {
  vk::Recorder recorder(device_);
  recorder.copy(ranges_[0], ranges_[1]);
  const vk::RecordedWork work = *recorder.finish();
  vk::Uploader uploader(device_);
  for (const uint32_t value : {11u, 12u}) {
    const std::vector<uint32_t> values(256, value);
    ASSERT_TRUE(uploader.write(ranges_[0], std::span<const uint32_t>(values)).ok());
    ASSERT_TRUE(vk::run(*device_, work).ok());
    EXPECT_EQ(words(ranges_[1]), values);
  }
}

TEST_F(RecorderTest, WorkAndMemoryDestroyedWhileTheyRunAreRetired) {
  uint64_t value = 0;
  const auto in_use = [&] { return device_->ledger().entries()["retired"].current_bytes; };
  {
    vk::Arena source(device_, vk::MemoryDomain::kDevice, "retired");
    const vk::BufferRange range = *source.allocate(1024);
    vk::Recorder recorder(device_);
    recorder.fill(range, 21);
    recorder.copy(range, ranges_[0]);
    const vk::RecordedWork work = *recorder.finish();
    const VkCommandBuffer commands = work.segments().front().commands;
    value = *device_->submit({&commands, 1});
    EXPECT_GT(in_use(), 0u);
  }
  ASSERT_TRUE(device_->wait(value).ok());
  EXPECT_EQ(words(ranges_[0]), std::vector<uint32_t>(256, 21));  // retires work of its own
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(RecorderTest, TimestampsCoverEveryCommand) {
  if (device_->plan().timestamp_valid_bits == 0) GTEST_SKIP() << "no timestamps";
  vk::Recorder recorder(device_, {.timestamps = true});
  recorder.fill(ranges_[0], 1);
  recorder.copy(ranges_[0], ranges_[1]);
  const vk::RecordedWork work = *recorder.finish();
  ASSERT_TRUE(vk::run(*device_, work).ok());
  const std::vector<double> times = *work.command_times_ns();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(work.commands()[1].label, "copy");
  for (const double time : times) EXPECT_GE(time, 0.0);
}

TEST_F(RecorderTest, CommandsSayWhenTheyRanAndWhatTheyBelongTo) {
  if (device_->plan().timestamp_valid_bits == 0) GTEST_SKIP() << "no timestamps";
  vk::Recorder recorder(device_, {.timestamps = true});
  recorder.fill(ranges_[0], 1);
  recorder.enter({"qkv", 3});
  recorder.copy(ranges_[0], ranges_[1]);
  recorder.copy(ranges_[1], ranges_[2]);
  const vk::RecordedWork work = *recorder.finish();
  ASSERT_TRUE(vk::run(*device_, work).ok());
  const std::vector<vk::CommandTime> times = *work.command_times();
  const std::vector<double> durations = *work.command_times_ns();
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0].begin_ns, 0);
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i].end_ns - times[i].begin_ns, durations[i]);
    if (i > 0) {
      EXPECT_GE(times[i].begin_ns, times[i - 1].end_ns);
    }
  }
  EXPECT_EQ(work.commands()[0].scope.layer, vk::Scope::kNoLayer);
  EXPECT_EQ(work.commands()[1].scope.part, "qkv");
  EXPECT_EQ(work.commands()[2].scope.layer, 3u);
}

TEST_F(RecorderTest, StagedUploadsArriveToo) {
  vk::Uploader uploader(device_, true);
  std::vector<uint32_t> values(256);
  for (uint32_t i = 0; i < values.size(); ++i) values[i] = i * i;
  ASSERT_TRUE(uploader.write(ranges_[2], std::span<const uint32_t>(values)).ok());
  EXPECT_EQ(words(ranges_[2]), values);
}

TEST(Arena, AnAllocationAboveTheSlabIsAnErrorAndTheLedgerKnowsEveryByte) {
  PUMICE_REQUIRE_DEVICE(device);
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "too much");
  const auto result = arena.allocate(device->plan().slab_bytes + 1);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(device->ledger().entries()["too much"].current_bytes, 0u);

  ASSERT_TRUE(arena.allocate(1000).ok());
  const auto second = *arena.allocate(1000);
  EXPECT_EQ(second.offset % 256, 0u);
  EXPECT_EQ(device->ledger().entries()["too much"].current_bytes, arena.allocated_bytes());
}

}  // namespace
}  // namespace pumice
