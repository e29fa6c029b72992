// Matrix products cut by outputs to fit a segment, and what is done to rows cut by rows: as many
// dispatches as the limit asks for, no barrier more, and the bits of what is not cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shaders/common/linear_cases.hpp"
#include "shaders/gated_activation/gated_activation.hpp"
#include "shaders/linear/linear.hpp"
#include "shaders/op_case.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kOutputs = 673;  // several workgroups of every kernel, the last one cut short
constexpr uint32_t kInputs = 256;

/// The most that one of the commands costs.
vk::Cost largest_of(std::span<const vk::CommandInfo> commands) {
  vk::Cost largest;
  for (const vk::CommandInfo& command : commands) {
    largest.bytes = std::max(largest.bytes, command.cost.bytes);
    largest.flops = std::max(largest.flops, command.cost.flops);
  }
  return largest;
}

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
    const vk::Cost largest = largest_of(whole.commands);
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

TEST_P(SegmentLimit, IsThatOfARowTileHoweverManyRowsThereAre) {
  const std::shared_ptr<vk::Device> device = pipelines_->device();
  OpBed bed(device, *pipelines_);
  const RandomWeights weights(*GetParam(), kOutputs, kInputs, 1);
  const WeightSource sources[] = {weights.source()};
  const auto uploaded = *upload_weights(bed, sources, device->plan().slab_bytes);
  const auto largest = [&](uint32_t rows) {  // of the smallest pieces
    const vk::BufferRange x = *bed.output(uint64_t{rows} * kInputs * 4);
    const vk::BufferRange y = *bed.output(uint64_t{rows} * kOutputs * 4);
    vk::Recorder recorder(device, {.segment = {.flops = 1}});
    linear_->record(recorder, {.weights = uploaded->matrix,
                               .x = x,
                               .x_stride = kInputs,
                               .y = y,
                               .y_stride = kOutputs,
                               .rows = rows});
    return largest_of(recorder.finish()->commands()).flops;
  };
  EXPECT_EQ(largest(1024), largest(512));
}

std::string type_name(const ::testing::TestParamInfo<const WeightType*>& info) {
  return std::string(info.param->name);
}

INSTANTIATE_TEST_SUITE_P(Types, SegmentLimit, ::testing::ValuesIn(linear_types()), type_name);

/// Some cases of an op: those whose names have `part` in them.
struct Kernel {
  const char* op;
  const char* part = "";
  bool goes_on = false;  ///< shares of its rows follow one another, with barriers between
};

class SegmentLimitOfRows : public ::testing::TestWithParam<Kernel> {};

/// What the cases compute is checked in the smallest pieces by test_ops; here in uneven shares,
/// which give the bits of the whole.
TEST_P(SegmentLimitOfRows, CutsAndChangesNothing) {
  PUMICE_REQUIRE_DEVICE(device);
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  size_t n_cut = 0;
  for (const OpCase& test : all_op_cases()) {
    if (test.op != GetParam().op || test.name.find(GetParam().part) == std::string::npos) continue;
    if (n_cut >= 4 || (test.supported && !test.supported(device->plan()))) continue;
    OpBed bed(device, pipelines);
    const Result<PreparedOp> op = test.prepare(bed);
    ASSERT_TRUE(op.ok() && pipelines.compile().ok()) << test.name;
    const auto ran = [&](const vk::RecordedWork& work) {
      EXPECT_TRUE(bed.poison().ok() && vk::run(*device, work).ok() && bed.check_guards().ok());
      std::vector<std::vector<std::byte>> outputs;
      for (const Expectation& expected : op->expected) {
        outputs.push_back(*vk::download(device, expected.output));
      }
      return outputs;
    };
    const auto whole = record(bed, *op);
    ASSERT_TRUE(whole.ok());
    const auto expected = ran(*whole);
    const vk::Cost largest = largest_of(whole->commands());
    for (const vk::SegmentLimit& limit :
         {vk::SegmentLimit{.bytes = largest.bytes * 2 / 5},
          vk::SegmentLimit{.flops = std::max<uint64_t>(largest.flops, 5) * 2 / 5},
          vk::SegmentLimit{.bytes = largest.bytes / 29}}) {
      const auto cut = record(bed, *op, {.segment = limit});
      ASSERT_TRUE(cut.ok());
      if (cut->commands().size() == whole->commands().size()) continue;
      ++n_cut;
      if (GetParam().goes_on) {
        EXPECT_GE(cut->barrier_count(), whole->barrier_count()) << test.name;
      } else {
        EXPECT_EQ(cut->barrier_count(), whole->barrier_count()) << test.name;
      }
      EXPECT_TRUE(ran(*cut) == expected) << test.name;
    }
  }
  EXPECT_GE(n_cut, 1u) << "none of its cases was cut";
}

INSTANTIATE_TEST_SUITE_P(
    Ops, SegmentLimitOfRows,
    ::testing::Values(Kernel{"causal_conv"}, Kernel{"elementwise"}, Kernel{"embedding"},
                      Kernel{"experts", "route"}, Kernel{"experts", " k="},
                      Kernel{"experts", "combine"}, Kernel{"expert_gemm"},
                      Kernel{"flash_attention", "", true}, Kernel{"gated_activation"},
                      Kernel{"head_linear", "heads"}, Kernel{"head_linear", "transposed"},
                      Kernel{"latent", "rows"}, Kernel{"latent", "keys"},
                      Kernel{"latent", "transpose"}, Kernel{"layer_norm"}, Kernel{"quantize_x"},
                      Kernel{"recurrence", "", true}, Kernel{"recurrence", "pieces", true},
                      Kernel{"rms_norm"}, Kernel{"rope"}, Kernel{"rope_kv"}),
    [](const auto& test) {
      std::string name = std::string(test.param.op) + "_" + test.param.part;
      std::erase_if(name, [](char c) { return c == ' ' || c == '='; });
      return name;
    });

/// Commands of an expert's product, of heads' products, of a recurrence, in the smallest pieces.
size_t smallest_pieces(const char* op, const char* name) {
  const auto device = test::GpuEnvironment::device();
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  for (const OpCase& test : all_op_cases()) {
    if (test.op != op || test.name != name) continue;
    OpBed bed(device, pipelines);
    const Result<PreparedOp> prepared = test.prepare(bed);
    EXPECT_TRUE(prepared.ok() && pipelines.compile().ok());
    return record(bed, *prepared, {.segment = {.bytes = 1}})->commands().size();
  }
  ADD_FAILURE() << "no case " << name;
  return 0;
}

/// A single row of these may be longer than a segment.
TEST(SegmentLimitOfOneRow, IsCutToo) {
  PUMICE_REQUIRE_DEVICE(device);
  // Two groups of 32 outputs of each of three rows' experts.
  EXPECT_EQ(smallest_pieces("experts", "F32 rows=3 used=2 experts=5 n=33 k=76"), 3u * 2);
  EXPECT_EQ(smallest_pieces("head_linear", "F32 rows=1 heads=3 n=33 of 33 from 0 k=76 kept=8"), 3u);
  // After the copy of the states: the longest sequence's five rows, four heads each.
  EXPECT_EQ(smallest_pieces("recurrence", "heads=4/2 dims=48/32 d rows=5,1+,3+"), 1u + 5 * 4);
}

TEST(SegmentLimitOfActivations, ChangesNoBitOfAnActivation) {
  const std::shared_ptr<vk::Device> device = test::GpuEnvironment::device();
  if (!device) GTEST_SKIP() << "no usable Vulkan device";
  vk::PipelineLibrary pipelines(device, "", spirv_hash());
  const auto op = GatedActivation::plan(pipelines, GatedActivation::Kind::kGelu);
  ASSERT_TRUE(op.ok() && pipelines.compile().ok());
  constexpr uint32_t kRows = 23;
  for (const uint32_t n : {640u, 37u}) {
    OpBed bed(device, pipelines);
    std::vector<float> values(size_t{2} * kRows * n);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 101) / 20 - 2.5f;
    const vk::BufferRange x = *bed.input(values);
    const vk::BufferRange y = *bed.output(uint64_t{kRows} * n * 4);
    const auto run = [&](const vk::SegmentLimit& limit, size_t n_commands) {
      EXPECT_TRUE(bed.poison().ok());
      vk::Recorder recorder(device, {.segment = limit});
      op->record(recorder, {.gate_up = x, .y = y, .rows = kRows, .n = n});
      const vk::RecordedWork work = *recorder.finish();
      EXPECT_EQ(work.commands().size(), n_commands);
      EXPECT_EQ(work.barrier_count(), 0u);
      EXPECT_TRUE(vk::run(*device, work).ok() && bed.check_guards().ok());
      uint64_t bytes = 0;
      for (const vk::CommandInfo& command : work.commands()) bytes += command.cost.bytes;
      EXPECT_EQ(bytes, uint64_t{kRows} * n * 12);
      return *vk::download(device, y);
    };
    const auto whole = run({}, 1);
    EXPECT_TRUE(run({.bytes = uint64_t{5} * n * 12}, 5) == whole) << n;
    EXPECT_TRUE(run({.flops = 1}, kRows) == whole) << n;
  }
}

}  // namespace
}  // namespace pumice::ops
