// Matrix products cut by outputs to fit a segment: as many dispatches as the limit asks for, no
// barrier more, and the bits of the uncut product.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shaders/common/linear_cases.hpp"
#include "shaders/linear/linear.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kOutputs = 673;  // several workgroups of every kernel, the last one cut short
constexpr uint32_t kInputs = 256;

/// A product by weights of one type, and what it gave.
class SegmentLimit : public ::testing::TestWithParam<const WeightType*> {
 protected:
  struct Ran {
    std::vector<std::byte> y;
    std::vector<vk::CommandInfo> commands;
    size_t barriers = 0;

    vk::Cost cost() const {
      vk::Cost sum;
      for (const vk::CommandInfo& command : commands) sum += command.cost;
      return sum;
    }
  };

  void SetUp() override {
    const std::shared_ptr<vk::Device> device = test::GpuEnvironment::device();
    if (!device) GTEST_SKIP() << "no usable Vulkan device";
    pipelines_ = std::make_unique<vk::PipelineLibrary>(device, "", spirv_hash());
    const WeightType* types[] = {GetParam()};
    linear_.emplace(*Linear::plan(*pipelines_, types, Math::kF32));
    ASSERT_TRUE(pipelines_->compile().ok());
  }

  /// Products of `rows` rows, recorded without and with limits.
  void compare(uint32_t rows) {
    const std::shared_ptr<vk::Device> device = pipelines_->device();
    OpBed bed(device, *pipelines_);
    const RandomWeights weights(*GetParam(), kOutputs, kInputs, 1);
    const WeightSource sources[] = {weights.source()};
    // In two slabs' parts, as large matrices are.
    const uint64_t bytes = WeightMatrix::resident_bytes(sources);
    const auto uploaded = *upload_weights(bed, sources, bytes * 2 / 3);
    ASSERT_EQ(uploaded->matrix.parts.size(), 2u);
    const PaddedInput x(rows, kInputs);
    const vk::BufferRange x_range = *bed.input(x.values);
    const vk::BufferRange y = *bed.output(uint64_t{rows} * kOutputs * 4);
    vk::BufferRange scratch;
    if (const uint64_t n = linear_->scratch_bytes(rows, {&uploaded->matrix, 1}); n > 0) {
      scratch = *bed.output(n);
    }
    const auto run = [&](const vk::SegmentLimit& limit) {
      EXPECT_TRUE(bed.poison().ok());
      vk::Recorder recorder(device, {.segment = limit});
      linear_->record(recorder, {.weights = uploaded->matrix,
                                 .x = x_range,
                                 .x_stride = x.stride,
                                 .y = y,
                                 .y_stride = kOutputs,
                                 .rows = rows,
                                 .scratch = scratch});
      const vk::RecordedWork work = *recorder.finish();
      EXPECT_TRUE(vk::run(*device, work).ok());
      EXPECT_TRUE(bed.check_guards().ok());
      const auto commands = work.commands();
      return Ran{.y = *vk::download(device, y),
                 .commands = {commands.begin(), commands.end()},
                 .barriers = work.barrier_count()};
    };

    const Ran whole = run({});
    vk::Cost largest;
    for (const vk::CommandInfo& command : whole.commands) {
      largest.bytes = std::max(largest.bytes, command.cost.bytes);
      largest.flops = std::max(largest.flops, command.cost.flops);
    }
    const Ran same = run({.bytes = largest.bytes, .flops = largest.flops});
    const Ran fewer_bytes = run({.bytes = largest.bytes * 3 / 5});
    const Ran fewer_flops = run({.flops = largest.flops * 3 / 5});
    const Ran most = run({.bytes = 1});
    EXPECT_EQ(same.commands.size(), whole.commands.size());
    EXPECT_GT(fewer_bytes.commands.size(), whole.commands.size());
    EXPECT_GT(fewer_flops.commands.size(), whole.commands.size());
    EXPECT_GT(most.commands.size(), fewer_bytes.commands.size());
    for (const Ran* cut : {&same, &fewer_bytes, &fewer_flops, &most}) {
      const std::string what = fmt::format("{} rows in {} commands", rows, cut->commands.size());
      EXPECT_TRUE(cut->y == whole.y) << what;
      EXPECT_EQ(cut->barriers, whole.barriers) << what;
      EXPECT_EQ(cut->cost().bytes, whole.cost().bytes) << what;
      EXPECT_EQ(cut->cost().flops, whole.cost().flops) << what;
    }
  }

  std::unique_ptr<vk::PipelineLibrary> pipelines_;
  std::optional<Linear> linear_;
};

TEST_P(SegmentLimit, ChangesNoBitOfAProduct) {
  for (const uint32_t rows : {1u, 5u, 8u, 9u, 64u}) compare(rows);
}

std::string type_name(const ::testing::TestParamInfo<const WeightType*>& info) {
  return std::string(info.param->name);
}

INSTANTIATE_TEST_SUITE_P(Types, SegmentLimit, ::testing::ValuesIn(linear_types()), type_name);

}  // namespace
}  // namespace pumice::ops
