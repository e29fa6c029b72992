// Activations to blocks of 32 int8 for integer dot products. Of each block:
//   scale = largest magnitude / 127 (zero below 1e-30), q = x / scale rounded to nearest,
//   and the sums of its first and last 16 q, which weights with an offset are multiplied with.
#pragma once

#include "base/result.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

/// Quantised rows: int8 [k / 32][rows][32], then [k / 32][rows] of a float scale and two int16
/// sums. Blocks are outermost, so that what a tile of rows needs of a block lies together.
struct QuantizedX {
  static constexpr uint32_t kBlockCols = 32;
  static uint64_t scales_offset(uint64_t rows, uint64_t k) { return rows * k; }
  static uint64_t size_bytes(uint64_t rows, uint64_t k) {
    return scales_offset(rows, k) + rows * (k / kBlockCols) * 8;
  }
};

class QuantizeX {
 public:
  struct Args {
    vk::BufferRange x;      ///< float [rows][x_stride], 16-byte aligned; k columns are read
    uint32_t x_stride = 0;  ///< floats, a multiple of 4
    uint32_t rows = 0;      ///< at most 65535
    uint32_t k = 0;         ///< a multiple of 32
    vk::BufferRange y;      ///< QuantizedX::size_bytes(rows, k), 16-byte aligned
  };

  static Result<QuantizeX> plan(vk::PipelineLibrary& pipelines);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  const vk::Pipeline* pipeline_ = nullptr;
  uint32_t workgroup_size_ = 0;
};

}  // namespace pumice::ops
