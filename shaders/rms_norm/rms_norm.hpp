// Root-mean-square normalisation, with the residual addition before it fused in.
// Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#pragma once

#include "base/result.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class RmsNorm {
 public:
  struct Args {
    vk::BufferRange x;          ///< float [*][n]; updated in place when `residual` is given
    vk::BufferRange residual;   ///< float [*][n], added to x first; empty for none
    vk::BufferRange weight;     ///< float [n]
    vk::BufferRange y;          ///< float [rows][n]
    vk::BufferRange row_index;  ///< uint32 [rows]: the row of x (and residual) behind each row
                                ///< of y, no row twice; empty for the identity
    uint32_t rows = 0;
    uint32_t n = 0;
    float eps = 0;
  };

  static Result<RmsNorm> plan(vk::PipelineLibrary& pipelines);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  const vk::Pipeline* pipeline_ = nullptr;
};

}  // namespace pumice::ops
