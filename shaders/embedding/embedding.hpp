// Token embedding: rows of a weight matrix, dequantised and, in some families, scaled.
#pragma once

#include "base/result.hpp"
#include "format/weight_type.hpp"
#include "shaders/common/weight_matrix.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class Embedding {
 public:
  /// A token word with this bit set stands for `sampled[word & ~kFromSampled]`.
  static constexpr uint32_t kFromSampled = 0x80000000u;

  struct Args {
    vk::BufferRange tokens;  ///< uint32 [rows]: ids, or kFromSampled | index into `sampled`. An id
                             ///< past the table counts as its last row
    vk::BufferRange
        sampled;  ///< uint32 [*]: ids chosen on the GPU; empty if no word refers to them
    const WeightMatrix* table = nullptr;  ///< n_rows tokens of n columns, of the planned type
    vk::BufferRange y;                    ///< float [rows][n]; 16-byte aligned
    uint32_t rows = 0;                    ///< at most 65535; rows * n below 2^32
    float scale = 1;                      ///< of every row
  };

  /// Declare the pipeline for tables of `type`. Errors: kInvalidArgument when this build has no
  /// shader for the type.
  static Result<Embedding> plan(vk::PipelineLibrary& pipelines, const WeightType& type);

  /// One dispatch per part of the table; together they write every row of y, with a scale of 1
  /// bit-equal to pumice::dequantize.
  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  const vk::Pipeline* pipeline_ = nullptr;
  uint32_t columns_per_workgroup_ = 0;
};

}  // namespace pumice::ops
