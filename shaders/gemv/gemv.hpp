// y = x · Wᵀ for 1 to 8 rows of x (decoding): every weight is read once, which is the floor.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "shaders/common/linear_args.hpp"
#include "vk/pipeline.hpp"

namespace pumice::ops {

enum class GemvKernel {
  kPortable,   ///< gemv.comp: needs nothing of subgroups
  kSubgroup,   ///< gemv_subgroup.comp: for GPUs, subgroups of a required size
  kBroadcast,  ///< gemv_broadcast.comp: XPath::kBroadcast
};
/// As in module names: "uniform", "subgroup", "broadcast".
std::string_view gemv_kernel_name(GemvKernel kernel);

/// Whether the device can run a kernel.
bool gemv_kernel_supported(const vk::DevicePlan& plan, GemvKernel kernel);

/// Those that it can run where x is to take a path, best first; never empty.
std::vector<GemvKernel> gemv_kernels(const vk::DevicePlan& plan, XPath path);

class Gemv {
 public:
  static constexpr uint32_t kMaxRows = 8;

  /// Declare the pipelines of a weight type: rows are padded to 1, 2, 4 or 8. Errors:
  /// kInvalidArgument when this build or device lacks the kernel, kSelfTestFailed when its module
  /// is rejected.
  static Result<Gemv> plan(vk::PipelineLibrary& pipelines, const WeightType& type,
                           GemvKernel kernel);
  /// The first of gemv_kernels whose module is not rejected.
  static Result<Gemv> plan(vk::PipelineLibrary& pipelines, const WeightType& type, XPath path);

  /// One dispatch for each part of the matrix, which must be of the planned type. At most kMaxRows
  /// rows.
  void record(vk::Recorder& recorder, const LinearArgs& args) const;

 private:
  struct Variant {
    const vk::Pipeline* pipeline = nullptr;
    uint32_t tile_rows = 0;
    uint32_t tile_cols = 0;
  };
  std::array<Variant, 4> variants_;  // by tile_rows
};

}  // namespace pumice::ops
