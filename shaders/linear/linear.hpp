// y = x · Wᵀ for weights of any type and any number of rows: gemv for up to 8 rows, gemm beyond.
#pragma once

#include <map>
#include <span>

#include "base/result.hpp"
#include "shaders/common/linear_args.hpp"
#include "shaders/gemm/gemm.hpp"
#include "shaders/gemv/gemv.hpp"
#include "vk/pipeline.hpp"

namespace pumice::ops {

class Linear {
 public:
  using Args = LinearArgs;

  /// Declare the pipelines for these weight types (repeats are fine): four of gemv each and one of
  /// gemm for each of its tile sizes. Products of gemm are computed as `math` says; gemv is fp32,
  /// whatever it says. `path` is tuned_x_path() of the device except in tests. Errors:
  /// kInvalidArgument for a type without shaders, a path the device lacks, or an arithmetic that
  /// was asked for and that no kernel of gemm has here; never for lack of one with kAuto.
  static Result<Linear> plan(vk::PipelineLibrary& pipelines,
                             std::span<const WeightType* const> types, Math math, XPath path);
  static Result<Linear> plan(vk::PipelineLibrary& pipelines,
                             std::span<const WeightType* const> types, Math math = Math::kAuto) {
    return plan(pipelines, types, math, tuned_x_path(pipelines.device()->plan()));
  }

  /// From now on gemm computes few rows too, so that a row's result does not depend on how many
  /// there are, to the last bit.
  void use_gemm_only() { gemm_only_ = true; }

  /// One dispatch for each part of the matrix. Its type must be among the planned ones.
  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  struct Kernels {
    Gemm gemm;
    Gemv gemv;
  };
  std::map<const WeightType*, Kernels> kernels_;
  bool gemm_only_ = false;
};

}  // namespace pumice::ops
