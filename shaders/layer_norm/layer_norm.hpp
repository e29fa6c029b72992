// Layer normalisation, with the residual addition before it fused in.
// Ba, Kiros and Hinton, "Layer Normalization", 2016.
#pragma once

#include "base/result.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, over each group of a row. A mean that is
/// large beside the deviations from it costs no precision but what x itself has lost.
class LayerNorm {
 public:
  struct Args {
    vk::BufferRange x;  ///< float [*][x_stride]; updated in place when `residual` is given
    vk::BufferRange residual = {};   ///< like x, added to it first; empty for none
    vk::BufferRange weight;          ///< float [n_groups][n]
    vk::BufferRange bias = {};       ///< float [n_groups][n]; empty for none
    vk::BufferRange y;               ///< float [rows][y_stride]; may be x with its stride, if there
                                     ///< is no residual and no row_index
    vk::BufferRange row_index = {};  ///< uint32 [rows]: the row of x (and residual) behind each row
                                     ///< of y, no row twice; empty for the identity
    uint32_t rows = 0;               ///< at most 65535
    uint32_t n = 0;
    float eps = 0;
    uint32_t n_groups = 1;  ///< of n each, side by side in a row, each normalised by itself: heads
    uint32_t x_stride = 0;  ///< floats from row to row of x; 0: n_groups * n
    uint32_t y_stride = 0;  ///< of y, likewise
  };

  static Result<LayerNorm> plan(vk::PipelineLibrary& pipelines);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  const vk::Pipeline* pipeline_ = nullptr;
};

}  // namespace pumice::ops
