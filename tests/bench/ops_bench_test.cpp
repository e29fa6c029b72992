// Benchmarks on a device: what is wrong has no score, what is right is timed with the costs that
// follow from its shape.
#include "bench/ops_bench.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/ops_report.hpp"
#include "shaders/peak/peak.hpp"
#include "shaders/spirv.hpp"
#include "tests/gpu_fixture.hpp"

namespace pumice::bench {
namespace {

const TimingOptions kQuick{.repetitions = 3, .min_sample_ns = 1e5, .max_sample_ns = 1e6};
constexpr ops::BenchScale kScale{.small = true, .rotation_bytes = 8 << 20};

/// Writes 7 to a word, and is expected to have written `expected`.
ops::OpCase touching(uint32_t expected) {
  return {.op = "peak",
          .name = fmt::format("expects {}", expected),
          .prepare = [expected](ops::OpBed& bed) -> Result<ops::PreparedOp> {
            PUMICE_TRY(const vk::BufferRange word, bed.output(4));
            PUMICE_TRY(const ops::PeakTouch op, ops::PeakTouch::plan(bed.pipelines()));
            return ops::PreparedOp{
                .record = [=](vk::Recorder& recorder) { op.record(recorder, word, 7); },
                .expected = {{.name = "word", .output = word, .words = {expected}}}};
          }};
}

class OpsBench : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = test::GpuEnvironment::device();
    if (!device_) GTEST_SKIP() << "no usable Vulkan device";
    pipelines_ = std::make_unique<vk::PipelineLibrary>(device_, "", spirv_hash());
  }

  OpRow row_of(const std::string& title) {
    for (const ops::OpCase& op_case : ops::all_bench_cases(kScale)) {
      if (op_case.op + " " + op_case.name == title) {
        OpRow row = bench_op(*pipelines_, op_case, {.bytes_per_ns = 1}, kQuick);
        EXPECT_FALSE(row.error.has_value()) << row.error->message;
        return row;
      }
    }
    ADD_FAILURE() << "no case " << title;
    return {};
  }

  std::shared_ptr<vk::Device> device_;
  std::unique_ptr<vk::PipelineLibrary> pipelines_;
};

TEST_F(OpsBench, AWrongResultHasNoScoreAndFailsTheVerdict) {
  OpsReport report;
  for (const uint32_t expected : {7u, 8u}) {
    report.rows.push_back(bench_op(*pipelines_, touching(expected), {}, kQuick));
  }
  EXPECT_FALSE(report.rows[0].error.has_value());
  ASSERT_TRUE(report.rows[1].error.has_value());
  EXPECT_TRUE(report.rows[1].timing.samples_ns.empty());

  const nlohmann::json rows = to_json(report, *device_)["ops"];
  EXPECT_EQ(rows[0]["samples_ns"].size(), kQuick.repetitions);
  EXPECT_TRUE(rows[1]["wrong"]);
  for (const char* score : {"samples_ns", "median_ns", "gigabytes_per_second", "teraflops"}) {
    EXPECT_TRUE(rows[0].contains(score)) << score;
    EXPECT_FALSE(rows[1].contains(score)) << score;
  }
  EXPECT_NE(to_markdown(report, *device_).find("WRONG: word[0]"), std::string::npos);

  const Status status = verdict(report);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(exit_code(status.error().code), 6);
  report.rows.pop_back();
  EXPECT_TRUE(verdict(report).ok());
}

TEST_F(OpsBench, ReadingIsTimedOfTheDevicesMemoryAndOfTheHosts) {
  const TimingOptions options{.repetitions = 2, .min_sample_ns = 1e5};
  for (const auto domain : {vk::MemoryDomain::kDevice, vk::MemoryDomain::kUpload}) {
    const Result<double> rate = measure_reading(*pipelines_, domain, 8 << 20, options);
    ASSERT_TRUE(rate.ok()) << rate.error().message;
    EXPECT_GT(*rate, 0.01);
    EXPECT_LT(*rate, 1e5);
  }
  EXPECT_FALSE(measure_reading(*pipelines_, vk::MemoryDomain::kDevice, 16, options).ok());
}

TEST_F(OpsBench, WhatDoesNotFitIsARowAndNoFailure) {
  const ops::OpCase too_large{
      .op = "x", .name = "too large", .prepare = [](ops::OpBed& bed) -> Result<ops::PreparedOp> {
        PUMICE_TRY(const vk::BufferRange range, bed.output(bed.device()->plan().slab_bytes * 2));
        return ops::PreparedOp{.record = [](vk::Recorder&) {}, .expected = {{.output = range}}};
      }};
  OpsReport report;
  report.rows.push_back(bench_op(*pipelines_, too_large, {}, kQuick));
  ASSERT_TRUE(report.rows[0].error.has_value());
  EXPECT_EQ(report.rows[0].error->code, ErrorCode::kDoesNotFit);
  EXPECT_TRUE(verdict(report).ok());
}

TEST_F(OpsBench, ATimeLimitOrAnInterruptKeepsTheRowsAlreadyMeasured) {
  std::vector<ops::OpCase> cases = {touching(7), touching(7), touching(7)};
  size_t n_done = 0;
  TimingOptions until_two_are_done = kQuick;
  until_two_are_done.stop = [&] { return n_done == 2; };
  const OpsReport interrupted =
      bench_ops(*pipelines_, cases,
                {.timing = until_two_are_done,
                 .progress = [&](size_t done, size_t, const std::string&) { n_done = done; }});
  EXPECT_EQ(interrupted.rows.size(), 2u);
  ASSERT_TRUE(interrupted.ended.has_value());
  EXPECT_EQ(exit_code(verdict(interrupted).error().code), 130);

  const OpsReport late = bench_ops(*pipelines_, cases, {.timing = kQuick, .time_limit_s = 1e-6});
  EXPECT_TRUE(late.rows.empty());
  EXPECT_EQ(late.n_left_out, 3u);
  EXPECT_TRUE(verdict(late).ok());
  EXPECT_EQ(to_json(late, *device_)["left_out"], 3);
  EXPECT_NE(to_markdown(late, *device_).find("3 more rows were left out"), std::string::npos);
}

TEST_F(OpsBench, CostsAreThoseCountedFromTheShape) {
  constexpr uint64_t kN = 2048;
  const OpRow gemv = row_of("gemv Q4_K rows=1 n=2048 k=2048");
  EXPECT_EQ(gemv.timing.cost().flops, 2 * kN * kN);
  EXPECT_EQ(gemv.timing.cost().bytes, kN * kN / 256 * 144 + 2 * kN * 4);  // blocks of 144 bytes
  const OpRow gemm = row_of("gemm F16 rows=64 n=2048 k=2048");
  EXPECT_EQ(gemm.timing.cost().flops, 2 * 64 * kN * kN);
  EXPECT_EQ(gemm.timing.cost().bytes, kN * kN * 2 + 2 * 64 * kN * 4);

  // One token after 512: 513 keys and values of 8 heads, 64 columns each, in halves; two products
  // with each for 32 heads; q and y in floats. Partial results of the split are not counted: they
  // need not be.
  const OpRow decode = row_of("flash_attention heads=32/8 head_dim=64 f16 decode rows=1 depth=512");
  const vk::Cost attention = decode.timing.commands[0].cost;
  EXPECT_EQ(attention.flops, 2u * 2 * 32 * 64 * 513);
  EXPECT_GE(attention.bytes, 2u * 513 * 8 * 64 * 2);
  EXPECT_LE(attention.bytes, 2u * 513 * 8 * 64 * 2 + 64 * 1024);
}

TEST_F(OpsBench, TheLimitIsTheDeclaredWorkAtTheMeasuredSpeed) {
  const OpRow row = row_of("gated_activation rows=1 n=8192");  // at one byte a nanosecond
  EXPECT_EQ(row.limit.what, "bandwidth");
  EXPECT_EQ(row.limit.ns, static_cast<double>(row.timing.cost().bytes));
  EXPECT_NEAR(row.percent_of_limit(), 100 * row.limit.ns / row.median_ns(), 1e-9);
  EXPECT_EQ(row.labels(), std::vector<std::string>{"gated_activation"});
}

TEST_F(OpsBench, EveryOpIsRightOnTheShapesThatAreTimed) {
  for (const ops::OpCase& op_case : ops::all_bench_cases(kScale)) {
    const std::string title = op_case.op + " " + op_case.name;
    const bool linear = op_case.op == "gemv" || op_case.op == "gemm";
    if (linear && title.find("Q6_K") == std::string::npos) continue;  // compile for seconds
    if (op_case.supported && !op_case.supported(device_->plan())) continue;
    ops::OpBed bed(device_, *pipelines_);
    const Result<ops::PreparedOp> op = op_case.prepare(bed);
    ASSERT_TRUE(op.ok()) << title << ": " << op.error().message;
    ASSERT_TRUE(pipelines_->compile().ok());
    const Status status = ops::run_and_check(bed, *op);
    EXPECT_TRUE(status.ok()) << title << ": " << status.error().message;
  }
}

TEST_F(OpsBench, ASampledExpectationSeesWhatIsWrongAndWhatIsNotWritten) {
  const auto check = [&](uint64_t element, uint32_t word, bool writes_both = true) {
    ops::OpBed bed(device_, *pipelines_);
    const vk::BufferRange output = *bed.output(8);
    const ops::PeakTouch op = *ops::PeakTouch::plan(*pipelines_);
    EXPECT_TRUE(pipelines_->compile().ok());
    const auto record = [&](vk::Recorder& recorder) {
      op.record(recorder, output, 7);
      if (writes_both) op.record(recorder, output.from(4), 9);
    };
    return ops::run_and_check(
        bed,
        {.record = record,
         .expected = {{.name = "y", .output = output, .words = {word}, .elements = {element}}}});
  };
  EXPECT_TRUE(check(0, 7).ok());
  EXPECT_TRUE(check(1, 9).ok());
  EXPECT_FALSE(check(1, 7).ok());
  const Status unwritten = check(0, 7, false);
  ASSERT_FALSE(unwritten.ok());
  EXPECT_EQ(unwritten.error().message, "y[1]: not written");
}

}  // namespace
}  // namespace pumice::bench
