// Every case of every op: right within its bound, and the same bits when commands that no barrier
// separates run in reverse, and when each is a submission, as small as the op can make it.
#include <gtest/gtest.h>

#include "shaders/op_case.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice {
namespace {

// Cases share one library, so that a pipeline several cases use is compiled once.
class Ops : public ::testing::TestWithParam<ops::OpCase> {
 protected:
  static void SetUpTestSuite() {
    if (const auto device = test::GpuEnvironment::device()) {
      pipelines_ = std::make_unique<vk::PipelineLibrary>(device, "", spirv_hash());
      pipelines_->accept(unproven_modules());
    }
  }
  static void TearDownTestSuite() { pipelines_.reset(); }

  static std::unique_ptr<vk::PipelineLibrary> pipelines_;
};

std::unique_ptr<vk::PipelineLibrary> Ops::pipelines_;

TEST_P(Ops, MatchesItsReferenceInAnyOrderItsBarriersAllow) {
  PUMICE_REQUIRE_DEVICE(device);
  if (GetParam().supported && !GetParam().supported(device->plan())) {
    GTEST_SKIP() << "the device lacks what this variant needs";
  }
  ops::OpBed bed(device, *pipelines_);
  Result<ops::PreparedOp> op = GetParam().prepare(bed);
  ASSERT_TRUE(op.ok()) << op.error().message;
  const Status compiled = pipelines_->compile();
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;

  const Status in_order = ops::run_and_check(bed, *op);
  EXPECT_TRUE(in_order.ok()) << in_order.error().message;
  const auto outputs = [&] {
    std::vector<std::vector<std::byte>> bytes;
    for (const ops::Expectation& expected : op->expected) {
      bytes.push_back(*vk::download(device, expected.output));
    }
    return bytes;
  };
  const auto first = outputs();
  ASSERT_TRUE(bed.poison().ok());
  const Status reversed = ops::run_and_check(bed, *op, {.reverse_unordered = true});
  EXPECT_TRUE(reversed.ok()) << reversed.error().message;
  EXPECT_EQ(first, outputs()) << "the order of independent commands changed the result";

  ASSERT_TRUE(bed.poison().ok());
  const Result<vk::RecordedWork> pieces = ops::record(bed, *op, {.segment = {.bytes = 1}});
  ASSERT_TRUE(pieces.ok()) << pieces.error().message;
  for (const vk::RecordedWork::Segment& segment : pieces->segments()) {
    ASSERT_TRUE(device->wait(*device->submit({&segment.commands, 1})).ok());
  }
  EXPECT_TRUE(bed.check_guards().ok());
  EXPECT_EQ(first, outputs()) << "smaller dispatches and submissions changed the result";
}

std::string test_name(const ::testing::TestParamInfo<ops::OpCase>& info) {
  std::string name = info.param.op + "_" + info.param.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Ops, ::testing::ValuesIn(ops::all_op_cases()), test_name);

}  // namespace
}  // namespace pumice
