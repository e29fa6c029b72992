// Layer normalisation, with the residual addition before it fused in.
// Ba, Kiros and Hinton, "Layer Normalization", 2016.
#pragma once

#include "base/result.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, over each row. A mean that is large
/// beside the deviations from it costs no precision but what x itself has lost.
class LayerNorm {
 public:
  struct Args {
    vk::BufferRange x;               ///< float [*][n]; updated in place when `residual` is given
    vk::BufferRange residual = {};   ///< float [*][n], added to x first; empty for none
    vk::BufferRange weight;          ///< float [n]
    vk::BufferRange bias = {};       ///< float [n]; empty for none
    vk::BufferRange y;               ///< float [rows][n]; may be x without residual and row_index
    vk::BufferRange row_index = {};  ///< uint32 [rows]: the row of x (and residual) behind each row
                                     ///< of y, no row twice; empty for the identity
    uint32_t rows = 0;               ///< at most 65535
    uint32_t n = 0;
    float eps = 0;
  };

  static Result<LayerNorm> plan(vk::PipelineLibrary& pipelines);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  const vk::Pipeline* pipeline_ = nullptr;
};

}  // namespace pumice::ops
