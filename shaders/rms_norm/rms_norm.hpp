// Root-mean-square normalisation, with the residual addition before it fused in.
// Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#pragma once

#include <vector>

#include "base/result.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class RmsNorm {
 public:
  struct Args {
    vk::BufferRange x;          ///< float [*][x_stride]; updated in place when `residual` is given
    vk::BufferRange residual;   ///< like x, added to it first; empty for none
    vk::BufferRange weight;     ///< float [n], the same for all groups, or with
                                ///< weight_each [n_groups][n]; empty: ones
    vk::BufferRange y;          ///< float [rows][y_stride]; may be x with its stride, if there is
                                ///< no residual and no row_index
    vk::BufferRange row_index;  ///< uint32 [rows]: the row of x (and residual) behind each row
                                ///< of y, no row twice; empty for the identity
    uint32_t rows = 0;
    uint32_t n = 0;
    float eps = 0;
    uint32_t n_groups = 1;  ///< of n each, side by side in a row, each normalised by itself: heads
    uint32_t x_stride = 0;  ///< floats from row to row of x; 0: n_groups * n
    uint32_t y_stride = 0;  ///< of y, likewise
    bool weight_each = false;
    /// PlanesOfX [rows]: y once more, where `makes_planes` and there is one group; empty: not.
    vk::BufferRange planes = {};
  };

  enum class Variant {
    kPortable,  ///< "rms_norm": any n, no subgroup operations
    kWide,      ///< "rms_norm.wide" for n it can hold in registers, else as kPortable
  };

  /// Declare the variant that suits the device (rms_norm.tune).
  static Result<RmsNorm> plan(vk::PipelineLibrary& pipelines);
  /// Declare one variant. Errors: kInvalidArgument if the device cannot run it.
  static Result<RmsNorm> plan(vk::PipelineLibrary& pipelines, Variant variant);
  static bool supported(const vk::DevicePlan& plan, Variant variant);

  /// Whether rows of n, in buffers of such strides, can be written in planes too.
  bool makes_planes(uint32_t n, uint32_t x_stride, uint32_t y_stride) const;

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  struct Wide {
    uint32_t most_n = 0;  ///< it can hold
    const vk::Pipeline* pipeline = nullptr;
  };
  const vk::Pipeline* pipeline_for(uint32_t n, bool in_quads) const;

  const vk::Pipeline* portable_ = nullptr;
  std::vector<Wide> wide_;  ///< by rising most_n
};

}  // namespace pumice::ops
