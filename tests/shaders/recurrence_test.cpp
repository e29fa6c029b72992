// Which rows of a recurrence come one after another, and which in pieces.
#include "shaders/recurrence/recurrence.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "shaders/op_case.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"
#include "vk/plan_options.hpp"

namespace pumice::ops {
namespace {

constexpr Recurrence::Shape kDeltaNet{
    .n_heads = 2, .n_key_heads = 1, .key_dim = 32, .value_dim = 40, .delta = true};

class RecurrenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = test::GpuEnvironment::device();
    if (!device_) GTEST_SKIP() << "no usable Vulkan device";
    pipelines_ = std::make_unique<vk::PipelineLibrary>(device_, "", spirv_hash());
  }

  /// Of what is recorded for one sequence of so many rows.
  std::vector<vk::CommandInfo> commands(const Recurrence::Tuning& tuning, uint32_t rows,
                                        const vk::SegmentLimit& limit = {}) {
    const auto op = Recurrence::plan(*pipelines_, kDeltaNet, tuning);
    EXPECT_TRUE(op.ok() && pipelines_->compile().ok());
    OpBed bed(device_, *pipelines_);
    const auto range = [&](uint64_t floats) { return *bed.output(floats * 4); };
    const auto matrix = [&](uint32_t n) {
      return Recurrence::Rows{.range = range(uint64_t{rows} * n), .stride = n};
    };
    vk::Recorder recorder(device_, {.segment = limit});
    op->record(recorder, {.q = matrix(32),
                          .k = matrix(32),
                          .v = matrix(80),
                          .step = matrix(2),
                          .beta = matrix(2),
                          .y = matrix(80),
                          .a = range(2),
                          .bias = range(2),
                          .items = range(sizeof(StateItem) / 4),
                          .n_items = 1,
                          .states = range(2 * kDeltaNet.state_floats()),
                          .rows = rows,
                          .item_rows = rows});
    const vk::RecordedWork work = *recorder.finish();
    const auto recorded = work.commands();
    return {recorded.begin(), recorded.end()};
  }

  std::shared_ptr<vk::Device> device_;
  std::unique_ptr<vk::PipelineLibrary> pipelines_;
};

TEST_F(RecurrenceTest, FewRowsComeOneAfterAnother) {
  const Recurrence::Tuning tuning{.piece_rows = 8, .least_rows = 12};
  EXPECT_EQ(commands(tuning, 11).at(0).label, "recurrence");
  EXPECT_EQ(commands(tuning, 12).at(0).label, "recurrence.pieces");
  EXPECT_EQ(commands({}, 600).at(0).label, "recurrence");
}

TEST_F(RecurrenceTest, IsCutBetweenPieces) {
  // Of 21 rows three pieces, two heads each; one after another every row by itself.
  EXPECT_EQ(commands({.piece_rows = 8}, 21, {.bytes = 1}).size(), 3u * 2);
  EXPECT_EQ(commands({}, 21, {.bytes = 1}).size(), 21u * 2);
}

TEST_F(RecurrenceTest, DeclaresTheSameHoweverItIsCutAndComputed) {
  const auto flops = [&](const Recurrence::Tuning& tuning, const vk::SegmentLimit& limit) {
    uint64_t sum = 0;
    for (const vk::CommandInfo& command : commands(tuning, 21, limit)) sum += command.cost.flops;
    return sum;
  };
  const uint64_t expected = 21 * 2 * 40 * (7 * 32);
  EXPECT_EQ(flops({}, {}), expected);
  EXPECT_EQ(flops({.piece_rows = 8}, {}), expected);
  EXPECT_EQ(flops({.piece_rows = 8}, {.bytes = 1}), expected);
}

TEST_F(RecurrenceTest, PiecesThatCannotBeAreRefused) {
  const auto refused = [&](const Recurrence::Shape& shape, uint32_t piece_rows) {
    const auto op = Recurrence::plan(*pipelines_, shape, {.piece_rows = piece_rows});
    return !op.ok() && op.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused(kDeltaNet, 16));
  EXPECT_TRUE(refused(kDeltaNet, 10));
  EXPECT_TRUE(refused(kDeltaNet, 64));
  Recurrence::Shape shape = kDeltaNet;
  shape.decay = Recurrence::Decay::kKey;
  EXPECT_FALSE(refused(shape, 4));
  shape.decay = Recurrence::Decay::kState;
  EXPECT_TRUE(refused(shape, 16));
}

TEST_F(RecurrenceTest, PiecesFitTheSharedMemoryThatEveryDeviceHas) {
  const auto floor = test::GpuEnvironment::open([](const vk::DeviceSnapshot& device) {
    return vk::plan_device(device, vk::floor_options());
  });
  ASSERT_TRUE(floor.ok()) << floor.error().message;
  vk::PipelineLibrary pipelines(*floor, "", spirv_hash());
  for (const uint32_t key_dim : {1u, 64u, 128u, 200u, 256u}) {
    const Recurrence::Shape shape{
        .n_heads = 1, .n_key_heads = 1, .key_dim = key_dim, .value_dim = 64};
    const Recurrence::Tuning tuning = Recurrence::tuned(pipelines, shape);
    EXPECT_GE(tuning.piece_rows, 4u) << key_dim;
    EXPECT_TRUE(Recurrence::plan(pipelines, shape, tuning).ok()) << key_dim;
    EXPECT_FALSE(Recurrence::plan(pipelines, shape, {.piece_rows = 32}).ok()) << key_dim;
  }
  // What rows leave of each key takes as much again as its keys.
  for (const uint32_t key_dim : {1u, 64u, 128u, 256u}) {
    const Recurrence::Shape shape{.n_heads = 1,
                                  .n_key_heads = 1,
                                  .key_dim = key_dim,
                                  .value_dim = 64,
                                  .delta = true,
                                  .decay = Recurrence::Decay::kKey};
    const Recurrence::Tuning tuning = Recurrence::tuned(pipelines, shape);
    EXPECT_EQ(tuning.piece_rows >= 4, key_dim <= 128) << key_dim;
    EXPECT_TRUE(Recurrence::plan(pipelines, shape, tuning).ok()) << key_dim;
  }
}

TEST_F(RecurrenceTest, StatesThatDecayNumberByNumberAreSmallAndTakeNoDelta) {
  Recurrence::Shape shape{.n_heads = 2,
                          .n_key_heads = 1,
                          .key_dim = Recurrence::kMostStateKeyDim,
                          .value_dim = 8,
                          .decay = Recurrence::Decay::kState};
  EXPECT_TRUE(Recurrence::plan(*pipelines_, shape, {}).ok());
  shape.delta = true;
  EXPECT_FALSE(Recurrence::plan(*pipelines_, shape, {}).ok());
  shape.delta = false;
  ++shape.key_dim;
  const auto larger = Recurrence::plan(*pipelines_, shape, {});
  ASSERT_FALSE(larger.ok());
  EXPECT_EQ(larger.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(larger.error().message.find("at most 64"), std::string::npos);
}

TEST_F(RecurrenceTest, StatesThatDecayNumberByNumberHaveNoPieces) {
  Recurrence::Shape shape = kDeltaNet;
  EXPECT_NE(Recurrence::tuned(*pipelines_, shape).piece_rows, 0u);
  shape.decay = Recurrence::Decay::kKey;
  EXPECT_NE(Recurrence::tuned(*pipelines_, shape).piece_rows, 0u);
  shape.decay = Recurrence::Decay::kState;
  EXPECT_EQ(Recurrence::tuned(*pipelines_, shape).piece_rows, 0u);
}

TEST_F(RecurrenceTest, AKernelThatWasRejectedLeavesOneRowAfterAnother) {
  pipelines_->reject({"recurrence.pieces"});
  EXPECT_EQ(Recurrence::tuned(*pipelines_, kDeltaNet).piece_rows, 0u);
}

}  // namespace
}  // namespace pumice::ops
