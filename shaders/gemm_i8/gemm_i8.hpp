// y = x · Wᵀ in 8-bit integers: quantised activations (quantize_x) against the integers of quantised
// weights, with packed dot products. Sums within a block of 32 are exact, those of blocks fp32. For
// many rows; what quantising x costs in accuracy is the caller's choice (Math::kI8).
#pragma once

#include "base/result.hpp"
#include "shaders/common/linear_args.hpp"
#include "shaders/quantize_x/quantize_x.hpp"
#include "vk/pipeline.hpp"

namespace pumice::ops {

class GemmI8 {
 public:
  /// Whether this build and device have it for a weight type. (F32, F16 and BF16: never.)
  static bool available(const vk::PipelineLibrary& pipelines, const WeightType& type);

  /// Declare the one pipeline of a weight type. Errors: kInvalidArgument when it is not available.
  static Result<GemmI8> plan(vk::PipelineLibrary& pipelines, const WeightType& type);

  /// One dispatch for each part of the matrix, which must be of the planned type. `x` are the
  /// quantised args.rows rows of args.weights.n_cols columns; args.x is not read.
  void record(vk::Recorder& recorder, const LinearArgs& args, const QuantizedX& x) const;

 private:
  const vk::Pipeline* pipeline_ = nullptr;
  uint32_t tile_rows_ = 0;
  uint32_t tile_cols_ = 0;
};

}  // namespace pumice::ops
