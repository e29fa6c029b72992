#include "bench/roofline.hpp"

#include <gtest/gtest.h>

#include "bench/peaks.hpp"

namespace pumice::bench {
namespace {

using vk::Arithmetic;

Roofline device() {  // 100 GB/s, 1 TFLOP/s in fp32, 8 in fp16 matrices
  Roofline roofline{.bytes_per_ns = 100};
  roofline.peak(Arithmetic::kF32) = 1000;
  roofline.peak(Arithmetic::kMatrixF16F32) = 8000;
  return roofline;
}

TEST(Roofline, FewFlopsAByteAreBoundByBandwidth) {
  const Limit limit = limit_of(device(), vk::Cost{.bytes = 1000, .flops = 2000});
  EXPECT_EQ(limit.ns, 10);
  EXPECT_EQ(limit.what, "bandwidth");
}

TEST(Roofline, ManyFlopsAByteAreBoundByTheArithmeticUsed) {
  const vk::Cost cost{.bytes = 1000, .flops = 80'000};
  EXPECT_EQ(limit_of(device(), cost).ns, 80);
  EXPECT_EQ(limit_of(device(), cost).what, "f32");
  const vk::Cost matrix{.bytes = 100, .flops = 80'000, .arithmetic = Arithmetic::kMatrixF16F32};
  EXPECT_EQ(limit_of(device(), matrix).ns, 10);
  EXPECT_EQ(limit_of(device(), matrix).what, "matrix f16->f32");
}

TEST(Roofline, WhatWasNotMeasuredLimitsNothing) {
  const vk::Cost dot{.bytes = 100, .flops = 1'000'000, .arithmetic = Arithmetic::kInt8Dot};
  EXPECT_EQ(limit_of(device(), dot).what, "bandwidth");
  EXPECT_EQ(limit_of(Roofline{}, dot).ns, 0);
  EXPECT_EQ(limit_of(Roofline{}, dot).what, "");
}

TEST(Roofline, CommandsAddUpAndAreBoundByWhatBoundsMostOfTheirTime) {
  const TimedCommand commands[] = {
      {"a", {.bytes = 1000}}, {"b", {.flops = 30'000}}, {"c", {.bytes = 500}}};
  const Limit limit = limit_of(device(), commands);
  EXPECT_EQ(limit.ns, 10 + 30 + 5);
  EXPECT_EQ(limit.what, "f32");
}

TEST(Peaks, SpeedsAreOfTheFastestSampleAndTimesOfTheMedian) {
  const Peak read{.name = "read bandwidth",
                  .unit = Peak::Unit::kGigabytesPerSecond,
                  .cost = {.bytes = 1000},
                  .samples_ns = {20, 10, 40}};
  EXPECT_EQ(read.value(), 100);
  const Peak f32{.name = "f32",
                 .unit = Peak::Unit::kTeraflops,
                 .cost = {.flops = 5'000'000},
                 .samples_ns = {1000, 500}};
  EXPECT_EQ(f32.value(), 10);
  const Peak dispatch{.name = "dispatch",
                      .unit = Peak::Unit::kMicroseconds,
                      .cost = {},
                      .samples_ns = {3000, 1000, 2000}};
  EXPECT_EQ(dispatch.value(), 2);
}

TEST(Peaks, TheRooflineTakesTheBestOfEachKind) {
  const auto bandwidth = [](uint64_t bytes) {
    return Peak{.name = "bandwidth",
                .unit = Peak::Unit::kGigabytesPerSecond,
                .cost = {.bytes = bytes},
                .samples_ns = {10}};
  };
  const Peaks peaks{
      .peaks = {
          bandwidth(50),
          bandwidth(80),
          bandwidth(70),
          {.name = "f32",
           .unit = Peak::Unit::kTeraflops,
           .cost = {.flops = 20},
           .samples_ns = {10}},
          {.name = "submit", .unit = Peak::Unit::kMicroseconds, .cost = {}, .samples_ns = {1}}}};
  EXPECT_EQ(peaks.roofline().bytes_per_ns, 8);
  EXPECT_EQ(peaks.roofline().peak(Arithmetic::kF32), 2);
  EXPECT_EQ(peaks.roofline().peak(Arithmetic::kF16), 0);
}

}  // namespace
}  // namespace pumice::bench
