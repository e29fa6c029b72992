// K split over workgroups: what is dispatched, what keeps it in order, and what happens where the
// sums cannot be added. The device is planned as a GPU, so that a CPU driver runs a GPU's kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "shaders/common/tuning.hpp"
#include "shaders/gemv/gemv_cases.hpp"
#include "shaders/linear/linear.hpp"
#include "shaders/op_case.hpp"
#include "shaders/self_test.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::ops {
namespace {

class GemvSplit : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto shared = test::GpuEnvironment::device();
    if (!shared) GTEST_SKIP() << "no usable Vulkan device";
    if (!gemv_runs(shared->plan(), GemvKernel::kSubgroup, weight_type("Q4_K"))) {
      GTEST_SKIP() << "this driver compiles the kernels for minutes";
    }
    const auto device = test::GpuEnvironment::open_as_gpu();
    ASSERT_TRUE(device.ok()) << device.error().message;
    if (!gemv_kernel_supported((*device)->plan(), GemvKernel::kSubgroup)) {
      GTEST_SKIP() << "the device lacks what the subgroup kernel needs";
    }
    pipelines_ = std::make_unique<vk::PipelineLibrary>(*device, "", spirv_hash());
  }

  static std::vector<OpCase> cases(std::string_view op, std::string_view words,
                                   std::string_view more_words = "") {
    std::vector<OpCase> chosen = all_op_cases();
    std::erase_if(chosen, [&](const OpCase& test) {
      return test.op != op || test.name.find(words) == test.name.npos ||
             test.name.find(more_words) == test.name.npos;
    });
    EXPECT_FALSE(chosen.empty()) << op << ' ' << words;
    return chosen;
  }

  /// Ready to be recorded.
  PreparedOp prepare(OpBed& bed, const OpCase& test) const {
    PreparedOp op = test.prepare(bed).value();
    EXPECT_TRUE(pipelines_->compile().ok());
    return op;
  }

  static std::vector<std::string> labels(const vk::RecordedWork& work) {
    std::vector<std::string> result;
    for (const vk::CommandInfo& command : work.commands()) result.emplace_back(command.label);
    return result;
  }

  std::unique_ptr<vk::PipelineLibrary> pipelines_;
};

TEST_F(GemvSplit, OfTwoMatricesWaitsOnceForBothAndForNothingElse) {
  for (const OpCase& test : cases("linear", "f32 rows=1 k=4096 whole")) {
    OpBed bed(pipelines_->device(), *pipelines_);
    const PreparedOp op = prepare(bed, test);
    const vk::RecordedWork work = record(bed, op).value();
    EXPECT_EQ(work.barrier_count(), 1u);
    EXPECT_EQ(labels(work), (std::vector<std::string>{"gemv.q4_k.subgroup", "gemv.q6_k.subgroup",
                                                      "gemv_reduce", "gemv_reduce"}));
    const auto commands = work.commands();  // of two splits each
    EXPECT_EQ(commands[0].cost.bytes, 96 * 16 * 144 + (4096 + 2 * 96) * 4u);
    EXPECT_EQ(commands[2].cost.bytes, (2 + 1) * 96 * 4u);
    EXPECT_EQ(commands[3].cost.bytes, (2 + 1) * 33 * 4u);

    EXPECT_TRUE(run_and_check(bed, op, work).ok());
    ASSERT_TRUE(bed.poison().ok());
    const Status reversed = run_and_check(bed, op, {.reverse_unordered = true});
    EXPECT_TRUE(reversed.ok()) << reversed.error().message;
    ASSERT_TRUE(bed.poison().ok());
    EXPECT_FALSE(run_and_check(bed, op, {.reverse_unordered = true, .drop_barrier = 0}).ok())
        << "sums of what is not there yet";
  }
}

TEST_F(GemvSplit, ComesToTheSameBitsWhereOutputsAreCutToFitASegment) {
  for (const OpCase& test : cases("linear", "f32", "k=4096 whole")) {
    OpBed bed(pipelines_->device(), *pipelines_);
    const PreparedOp op = prepare(bed, test);
    ASSERT_TRUE(run_and_check(bed, op).ok());
    const auto y = [&] { return *vk::download(pipelines_->device(), op.expected[0].output); };
    const std::vector<std::byte> whole = y();
    for (const bool reversed : {false, true}) {
      const vk::RecordedWork work =
          record(bed, op, {.reverse_unordered = reversed, .segment = {.bytes = 1}}).value();
      EXPECT_EQ(work.barrier_count(), 1u);
      const size_t n_products = 3 + 2;  // groups of 32 outputs
      ASSERT_EQ(work.commands().size(), n_products + 2);
      EXPECT_EQ(labels(work)[n_products], "gemv_reduce");
      EXPECT_EQ(work.segments().size(), n_products + 2);
      ASSERT_TRUE(bed.poison().ok());
      const Status right = run_and_check(bed, op, work);
      EXPECT_TRUE(right.ok()) << right.error().message;
      EXPECT_TRUE(y() == whole) << test.name;
    }
  }
}

TEST_F(GemvSplit, OfPlanesMakesXOnceForMatricesOfTwoTypes) {
  if (!gemv_runs(pipelines_->device()->plan(), GemvKernel::kPlanes, weight_type("Q4_K"))) {
    GTEST_SKIP() << "this device or build lacks the kernel";
  }
  pipelines_->prefer(*vk::parse_tuning_rows("mine.tune", "gemv planes", tuning_tables()));
  for (const OpCase& test : cases("linear", "i8", "k=4096 whole")) {
    OpBed bed(pipelines_->device(), *pipelines_);
    const PreparedOp op = prepare(bed, test);
    const vk::RecordedWork work = record(bed, op).value();
    EXPECT_EQ(work.barrier_count(), 2u);
    EXPECT_EQ(labels(work),
              (std::vector<std::string>{"quantize_x.planes", "gemv.q4_k.planes", "gemv.q6_k.planes",
                                        "gemv_reduce", "gemv_reduce"}));
    const Status right = run_and_check(bed, op, work);
    EXPECT_TRUE(right.ok()) << test.name << ": " << right.error().message;
    for (const size_t barrier : {0u, 1u}) {
      ASSERT_TRUE(bed.poison().ok());
      EXPECT_FALSE(
          run_and_check(bed, op, {.reverse_unordered = true, .drop_barrier = barrier}).ok())
          << "products of x that is not there yet, or sums of such products";
    }
  }
}

TEST_F(GemvSplit, IsLeftOutWhereItsSumsAreWrong) {
  pipelines_->reject({"gemv_reduce"});
  for (const OpCase& test : cases("linear", "f32 rows=1 k=4096 whole")) {
    OpBed bed(pipelines_->device(), *pipelines_);
    const PreparedOp op = prepare(bed, test);
    const vk::RecordedWork work = record(bed, op).value();
    EXPECT_EQ(labels(work), (std::vector<std::string>{"gemv.q4_k.subgroup", "gemv.q6_k.subgroup"}));
    EXPECT_TRUE(run_and_check(bed, op, work).ok());
  }
}

/// Every addition of floats becomes a subtraction.
std::vector<uint32_t> with_subtractions(std::span<const uint32_t> words) {
  constexpr uint32_t kHeaderWords = 5, kFAdd = 129, kFSub = 131;
  std::vector<uint32_t> result(words.begin(), words.end());
  for (size_t i = kHeaderWords; i < result.size() && result[i] >> 16 != 0; i += result[i] >> 16) {
    if ((result[i] & 0xFFFF) == kFAdd) result[i] = (result[i] & 0xFFFF0000) | kFSub;
  }
  return result;
}

TEST_F(GemvSplit, SelfTestBlamesTheSumsNotTheProductsBeforeThem) {
  const std::vector<uint32_t> wrong = with_subtractions(find_spirv("gemv_reduce")->words);
  ASSERT_FALSE(std::ranges::equal(wrong, find_spirv("gemv_reduce")->words));
  pipelines_->override_module("gemv_reduce", wrong);
  std::vector<OpCase> some = cases("gemv", "Q8_0 subgroup");
  std::erase_if(some, [](const OpCase& test) {  // few kernels to compile
    return test.name.find("rows=1 ") == test.name.npos;
  });
  std::ranges::copy(cases("linear", "f32 rows=1 k=4096 whole"), std::back_inserter(some));
  const SelfTestResult result = run_self_test(*pipelines_, some, {});
  ASSERT_TRUE(result.status.ok()) << result.status.error().message;
  EXPECT_EQ(result.verdict.rejected(), vk::PipelineLibrary::ModuleNames{"gemv_reduce"});
  EXPECT_TRUE(result.verdict.broken_families().empty());
  EXPECT_TRUE(result.errors.empty());
}

}  // namespace
}  // namespace pumice::ops
