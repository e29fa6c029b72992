// What low-rank adapters add to a matrix product: y += B (A x), each row by its own adapter's A and
// B, or by none's.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class Lora {
 public:
  /// Ranks of all adapters of a product are padded to one multiple of this.
  static constexpr uint32_t kRankGroup = 4;

  /// Strides are in floats.
  struct Args {
    vk::BufferRange x;  ///< float [rows][x_stride], n_in of each row are read
    uint32_t x_stride = 0;
    vk::BufferRange a;         ///< float [adapters][rank / 4][n_in][4]
    vk::BufferRange b;         ///< float [adapters][rank / 4][b_stride][4]
    vk::BufferRange adapters;  ///< uint32 [rows]: 1 + the row's adapter; 0: it has none
    vk::BufferRange t;         ///< float [rows][rank]: scratch, aligned to 16 bytes
    vk::BufferRange y;         ///< float [rows][y_stride], n_out of each row are updated; rows
                               ///< without an adapter keep their bits
    uint32_t y_stride = 0;
    uint32_t rows = 0;  ///< rows times each stride below 2^32
    uint32_t n_in = 0;
    uint32_t n_out = 0;
    uint32_t first_out = 0;  ///< of b's outputs, the first of y
    uint32_t b_stride = 0;   ///< outputs of b; an adapter's a and b are below 2^32 numbers each
    uint32_t rank = 0;       ///< a multiple of kRankGroup
  };

  static Result<Lora> plan(vk::PipelineLibrary& pipelines);

  void record(vk::Recorder& recorder, const Args& args) const;

  /// Puts the matrix of one adapter where kernels read it. `ranks`: of each of its ranks `n`
  /// numbers, rank r's number i at ranks[r * rank_stride + i * stride]; `out`: [rank / 4][n][4] of
  /// one adapter, of which what the rank has beyond `n_ranks` becomes 0.
  static void pack(std::span<const float> ranks, uint32_t n_ranks, uint32_t n, size_t rank_stride,
                   size_t stride, std::span<float> out);

 private:
  const vk::Pipeline* shrink_ = nullptr;
  const vk::Pipeline* expand_ = nullptr;
  uint32_t outputs_per_workgroup_ = 0;
};

}  // namespace pumice::ops
