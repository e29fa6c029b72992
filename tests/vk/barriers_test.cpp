// What barriers say to the driver. Drivers that run on the CPU do everything in order, so a stage
// or an access that is left out shows nowhere but here.
#include <gtest/gtest.h>

#include "tests/gpu_fixture.hpp"
#include "vk/recorder.hpp"

namespace pumice {
namespace {

const uint32_t kNothing[] =
#include "no_interface.inc"
    ;

// Everything the recorder's commands read or write in, and with.
constexpr VkPipelineStageFlags2 kStages = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT |
                                          VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT |
                                          VK_PIPELINE_STAGE_2_DRAW_INDIRECT_BIT;
constexpr VkAccessFlags2 kWrites = VK_ACCESS_2_SHADER_WRITE_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags2 kReads = VK_ACCESS_2_SHADER_READ_BIT | VK_ACCESS_2_TRANSFER_READ_BIT |
                                  VK_ACCESS_2_INDIRECT_COMMAND_READ_BIT;

/// What the driver was told, in order: "barrier", "fill", "copy", "dispatch", "indirect" and, if
/// wanted, "begin" and "end" of command buffers. Entry points carry no state, so it lies here.
struct Told {
  vk::DeviceFunctions driver;
  bool with_segments = false;
  std::vector<std::string> commands;
  std::vector<VkMemoryBarrier2> barriers;
} told;

void listen(vk::DeviceFunctions& fn) {
  told = {.driver = fn};
  fn.vkCmdPipelineBarrier2 = [](VkCommandBuffer commands, const VkDependencyInfo* info) {
    told.commands.emplace_back("barrier");
    ASSERT_EQ(info->memoryBarrierCount, 1u);
    told.barriers.push_back(info->pMemoryBarriers[0]);
    told.driver.vkCmdPipelineBarrier2(commands, info);
  };
  fn.vkBeginCommandBuffer = [](VkCommandBuffer commands, const VkCommandBufferBeginInfo* info) {
    if (told.with_segments) told.commands.emplace_back("begin");
    return told.driver.vkBeginCommandBuffer(commands, info);
  };
  fn.vkEndCommandBuffer = [](VkCommandBuffer commands) {
    if (told.with_segments) told.commands.emplace_back("end");
    return told.driver.vkEndCommandBuffer(commands);
  };
  fn.vkCmdFillBuffer = [](VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset,
                          VkDeviceSize size, uint32_t word) {
    told.commands.emplace_back("fill");
    told.driver.vkCmdFillBuffer(commands, buffer, offset, size, word);
  };
  fn.vkCmdCopyBuffer = [](VkCommandBuffer commands, VkBuffer from, VkBuffer to, uint32_t count,
                          const VkBufferCopy* regions) {
    told.commands.emplace_back("copy");
    told.driver.vkCmdCopyBuffer(commands, from, to, count, regions);
  };
  fn.vkCmdDispatch = [](VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z) {
    told.commands.emplace_back("dispatch");
    told.driver.vkCmdDispatch(commands, x, y, z);
  };
  fn.vkCmdDispatchIndirect = [](VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset) {
    told.commands.emplace_back("indirect");
    told.driver.vkCmdDispatchIndirect(commands, buffer, offset);
  };
}

class RecordedBarriers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::GpuEnvironment::device()) GTEST_SKIP() << "no usable Vulkan device";
    const auto plan = [](const vk::DeviceSnapshot& snapshot) { return vk::plan_device(snapshot); };
    device_ = *test::GpuEnvironment::open(plan, listen);
    arena_ = std::make_unique<vk::Arena>(device_, vk::MemoryDomain::kDevice, "test", 64 * 1024);
    for (vk::BufferRange& range : ranges_) range = *arena_->allocate(1024);
    pipelines_ = std::make_unique<vk::PipelineLibrary>(device_, "", 0);
    nothing_ = *pipelines_->declare({.module = {"nothing", kNothing}});
    ASSERT_TRUE(pipelines_->compile().ok());
    vk::Recorder first(device_);
    record(first);
    ASSERT_TRUE(vk::run(*device_, *first.finish()).ok());
    told.commands.clear();  // and those that end every submission, which are recorded once
    told.barriers.clear();
  }

  /// Record a fill, a copy of what it wrote, and a dispatch.
  void record(vk::Recorder& recorder) {
    recorder.fill(ranges_[0], 1);
    recorder.copy(ranges_[0], ranges_[1]);
    recorder.dispatch_bytes(*nothing_, {}, {1, 1, 1}, {}, {vk::updates(ranges_[1])}, {});
  }

  std::shared_ptr<vk::Device> device_;
  std::unique_ptr<vk::Arena> arena_;
  vk::BufferRange ranges_[2];
  std::unique_ptr<vk::PipelineLibrary> pipelines_;
  const vk::Pipeline* nothing_ = nullptr;
};

TEST_F(RecordedBarriers, EveryRecordingBeginsAfterEarlierSubmissionsAndEndsVisibleToTheHost) {
  const std::vector<std::string> expected = {"barrier", "fill",     "barrier", "copy",
                                             "barrier", "dispatch", "barrier"};
  vk::Recorder recorder(device_);
  for (int i = 0; i < 2; ++i) {  // a recorder is used again
    told.commands.clear();
    record(recorder);
    ASSERT_TRUE(vk::run(*device_, *recorder.finish()).ok());
    EXPECT_EQ(told.commands, expected);
  }
}

TEST_F(RecordedBarriers, OfAHazardAcrossSegmentsIsAtTheStartOfTheLaterOne) {
  const std::vector<std::string> expected = {"begin",   "barrier", "fill",    "end", "begin",
                                             "barrier", "copy",    "barrier", "end"};
  vk::Recorder recorder(device_, {.segment = {.bytes = 0}});
  recorder.fill(ranges_[0], 1);
  recorder.copy(ranges_[0], ranges_[1]);
  told.with_segments = true;
  ASSERT_TRUE(vk::run(*device_, *recorder.finish()).ok());
  EXPECT_EQ(told.commands, expected);
}

TEST_F(RecordedBarriers, StayWhereTheyAreWhenWhatTheySeparateIsReversed) {
  vk::Recorder recorder(device_, {.reverse_unordered = true});
  recorder.fill(ranges_[0], 1);
  recorder.copy(ranges_[0].subrange(0, 512), ranges_[1].subrange(0, 512));
  recorder.copy(ranges_[0].subrange(512, 512), ranges_[1].subrange(512, 512));
  ASSERT_TRUE(vk::run(*device_, *recorder.finish()).ok());
  EXPECT_EQ(told.commands,
            (std::vector<std::string>{"barrier", "fill", "barrier", "copy", "copy", "barrier"}));
}

TEST_F(RecordedBarriers, TheFirstAndTheLastOrderAllStagesAndAccessesOfTheRecordersCommands) {
  vk::Recorder recorder(device_);
  record(recorder);
  ASSERT_TRUE(vk::run(*device_, *recorder.finish()).ok());
  ASSERT_EQ(told.barriers.size(), 4u);
  for (const VkMemoryBarrier2& barrier : {told.barriers.front(), told.barriers.back()}) {
    EXPECT_EQ(barrier.srcStageMask & kStages, kStages) << "waits for every stage";
    EXPECT_EQ(barrier.srcAccessMask & kWrites, kWrites) << "makes every write available";
    EXPECT_EQ(barrier.dstStageMask & kStages, kStages) << "holds back every stage";
    EXPECT_EQ(barrier.dstAccessMask & (kReads | kWrites), kReads | kWrites);
  }
  EXPECT_TRUE((told.barriers.back().dstStageMask & VK_PIPELINE_STAGE_2_HOST_BIT) != 0);
  EXPECT_TRUE((told.barriers.back().dstAccessMask & VK_ACCESS_2_HOST_READ_BIT) != 0);
}

TEST_F(RecordedBarriers, OneBetweenCommandsOrdersWhatRunsOnItsTwoSides) {
  constexpr VkPipelineStageFlags2 kCompute = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT;
  constexpr VkPipelineStageFlags2 kTransfer = VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT;
  constexpr VkPipelineStageFlags2 kGrid = VK_PIPELINE_STAGE_2_DRAW_INDIRECT_BIT;
  vk::Recorder recorder(device_);
  const auto dispatch = [&](size_t range, const vk::BufferRange& grid = {}) {
    recorder.dispatch_bytes(*nothing_, {}, {1, 1, 1}, grid, {vk::updates(ranges_[range])}, {});
  };
  dispatch(0);
  dispatch(0);
  recorder.copy(ranges_[0].subrange(0, 512), ranges_[1].subrange(0, 512));
  recorder.fill(ranges_[1].subrange(512, 512), 1);
  dispatch(1, ranges_[0]);
  dispatch(0);
  ASSERT_TRUE((*recorder.finish()).barrier_count() == 4u);
  using Stages = std::vector<std::pair<VkPipelineStageFlags2, VkPipelineStageFlags2>>;
  Stages stages;
  for (const VkMemoryBarrier2& barrier : told.barriers) {
    stages.emplace_back(barrier.srcStageMask, barrier.dstStageMask);
  }
  ASSERT_EQ(stages.size(), 6u);
  EXPECT_EQ(Stages(stages.begin() + 1, stages.end() - 1), (Stages{{kCompute, kCompute},
                                                                  {kCompute, kTransfer},
                                                                  {kTransfer, kCompute | kGrid},
                                                                  {kCompute | kGrid, kCompute}}));
  EXPECT_EQ(told.barriers[1].srcAccessMask, VK_ACCESS_2_SHADER_WRITE_BIT);
  EXPECT_EQ(told.barriers[1].dstAccessMask,
            VK_ACCESS_2_SHADER_READ_BIT | VK_ACCESS_2_SHADER_WRITE_BIT);
  EXPECT_EQ(told.barriers[3].srcAccessMask, VK_ACCESS_2_TRANSFER_WRITE_BIT);
  EXPECT_TRUE((told.barriers[3].dstAccessMask & VK_ACCESS_2_INDIRECT_COMMAND_READ_BIT) != 0);
}

TEST_F(RecordedBarriers, AGridIsReadAfterItWasWrittenAndBeforeItIsOverwritten) {
  vk::Recorder recorder(device_);
  recorder.fill(ranges_[0], 1);
  recorder.dispatch_bytes(*nothing_, {}, {}, ranges_[0], {}, {});
  recorder.fill(ranges_[0], 2);
  ASSERT_TRUE(vk::run(*device_, *recorder.finish()).ok());
  EXPECT_EQ(told.commands, (std::vector<std::string>{"barrier", "fill", "barrier", "indirect",
                                                     "barrier", "fill", "barrier"}));
}

}  // namespace
}  // namespace pumice
