// y = x · Wᵀ for many rows of x: tiles of rows × weight rows in registers, weights dequantised on
// the way. Any number of rows works; up to 8 gemv is faster.
#pragma once

#include "base/result.hpp"
#include "shaders/common/linear_args.hpp"
#include "vk/pipeline.hpp"

namespace pumice::ops {

class Gemm {
 public:
  /// Declare the one pipeline of a weight type. Errors: kInvalidArgument when this build or device
  /// lacks the path.
  static Result<Gemm> plan(vk::PipelineLibrary& pipelines, const WeightType& type, XPath path);

  /// One dispatch for each part of the matrix, which must be of the planned type.
  void record(vk::Recorder& recorder, const LinearArgs& args) const;

 private:
  const vk::Pipeline* pipeline_ = nullptr;
  uint32_t tile_rows_ = 0;
  uint32_t tile_cols_ = 0;
};

}  // namespace pumice::ops
