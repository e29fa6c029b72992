// y = x · Wᵀ for 1 to 8 rows of x (decoding): every weight is read once, which is the floor.
#pragma once

#include <array>

#include "base/result.hpp"
#include "shaders/common/linear_args.hpp"
#include "vk/pipeline.hpp"

namespace pumice::ops {

class Gemv {
 public:
  static constexpr uint32_t kMaxRows = 8;

  /// Declare the pipelines of a weight type: rows are padded to 1, 2, 4 or 8. Errors:
  /// kInvalidArgument when this build or device lacks the path.
  static Result<Gemv> plan(vk::PipelineLibrary& pipelines, const WeightType& type, XPath path);

  /// `preferred`, or the other path where only that one's module is not rejected.
  static XPath usable_path(const vk::PipelineLibrary& pipelines, const WeightType& type,
                           XPath preferred);

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
