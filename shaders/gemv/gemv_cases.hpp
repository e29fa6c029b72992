// Cases of gemv by what they are of, which of its kernels tests run, and what cases of ops that write planes
// have in common.
#pragma once

#include <memory>
#include <span>

#include "shaders/common/linear_cases.hpp"
#include "shaders/gemv/gemv.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {

/// Those that the device and the build have for a type, but on lavapipe before 25, which takes more than
/// a minute to compile the kernels for GPUs of one type with blocks of 256 and never chooses them.
bool gemv_runs(const vk::DevicePlan& plan, GemvKernel kernel, const WeightType& type);

/// A product with rows that another op writes as PlanesOfX, which shows that they are right.
struct PlanesProbe {
  static bool supported(const vk::DevicePlan& plan);
  /// Of 1 to 8 rows of k numbers.
  static Result<PlanesProbe> make(OpBed& bed, uint32_t rows, uint32_t k);

  void record(vk::Recorder& recorder) const;
  /// `x`: what the other op makes, [rows][k], and what it may miss it by.
  Expectation expectation(std::span<const double> x, std::span<const double> bound) const;

  Gemv gemv;
  std::shared_ptr<RandomWeights> weights;
  std::shared_ptr<UploadedWeights> uploaded;
  vk::BufferRange planes;  ///< for the other op to write
  vk::BufferRange y;
  uint32_t rows = 0;
};

/// Those of LinearFinish; gemv_cases() has them too.
std::vector<OpCase> gemv_finish_cases();

}  // namespace pumice::ops
