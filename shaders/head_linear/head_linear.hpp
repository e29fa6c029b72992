// Products of heads: each head's numbers times a matrix of its own. Multi-head latent attention
// takes its queries to the latent's space so, and its results out of it. DeepSeek-AI,
// "DeepSeek-V2", 2024.
#pragma once

#include "base/result.hpp"
#include "format/weight_type.hpp"
#include "shaders/common/weight_matrix.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

/// y = x Wᵀ, or x W where it is transposed, of each head, in fp32. A row's result does not depend
/// on how many rows there are, to the last bit.
class HeadLinear {
 public:
  struct Args {
    /// Of the planned type: every head's rows, then the next head's. A head's matrix are n_rows of
    /// them from first_row on.
    const WeightMatrix& weights;
    uint32_t n_heads = 0;
    uint32_t first_row = 0;
    uint32_t n_rows = 0;
    /// float, 16-byte aligned. Of each head weights.n_cols numbers are multiplied, n_rows where it
    /// is transposed; those behind them, up to the next head, follow the product in y.
    vk::BufferRange x;
    uint32_t x_stride = 0;       ///< floats from row to row, a multiple of 4
    uint32_t x_head_stride = 0;  ///< floats of a head, likewise
    vk::BufferRange y;           ///< float [rows][y_stride], heads side by side
    uint32_t y_stride = 0;
    uint32_t rows = 0;  ///< at most 65535; rows times each stride below 2^32
  };

  /// Declare the pipelines for weights of `type`: for one row and for several, or the one that is
  /// transposed. K is cut into `n_slices`, at most 4; 0: as suits the device. Errors:
  /// kInvalidArgument when this build has no shader for the type.
  static Result<HeadLinear> plan(vk::PipelineLibrary& pipelines, const WeightType& type,
                                 bool transposed, uint32_t n_slices = 0);

  /// A dispatch for each part of the weights.
  void record(vk::Recorder& recorder, const Args& args) const;
  /// Only what follows the products, where others compute them. Not where it is transposed.
  void record_kept(vk::Recorder& recorder, const Args& args) const;

 private:
  struct Prepared;
  static constexpr uint32_t kTileRows = 4;

  Prepared prepare(const Args& args) const;

  bool transposed_ = false;
  const vk::Pipeline* single_ = nullptr;  // one row a workgroup
  const vk::Pipeline* tiled_ = nullptr;   // kTileRows rows
};

}  // namespace pumice::ops
