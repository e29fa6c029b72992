// Attention as the textbook has it: all scores into memory, softmax over their rows, weights times
// values. No model runs it; benchmarks hold flash_attention against it, and its tiles, arithmetic
// and skipping of keys that no row sees are those of flash_attention's portable kernel, so that
// what differs is the matrix in memory. Vaswani et al., "Attention Is All You Need", 2017,
// section 3.2.1.
#pragma once

#include "base/result.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class AttentionReference {
 public:
  using Shape = FlashAttention::Shape;

  /// Rows of one sequence at consecutive positions, the last of which is n_keys - 1.
  struct Args {
    vk::BufferRange q;            ///< float [n_rows][q_stride], heads in order from column 0
    vk::BufferRange positions;    ///< uint32 [n_rows], rising
    vk::BufferRange block_table;  ///< uint64: addresses of the sequence's KV blocks
    vk::BufferRange kv;           ///< KV memory
    vk::BufferRange scores;       ///< scores_bytes(n_rows, n_keys), below 4 GiB
    vk::BufferRange y;            ///< float [n_rows][n_heads * head_dim]
    uint32_t n_rows = 0;          ///< at most 65535
    uint32_t n_keys = 0;
    uint32_t q_stride = 0;  ///< floats, a multiple of 4
    uint32_t layer_offset_bytes = 0;
    float scale = 0;  ///< of scores, 1 / sqrt(head_dim)
  };

  static constexpr uint32_t kTileRows = 8;

  /// `tile_rows`: of a workgroup, at most 8; 1 wastes nothing on single rows. Errors:
  /// kInvalidArgument for a shape out of FlashAttention's range, or with a window or soft cap.
  static Result<AttentionReference> plan(vk::PipelineLibrary& pipelines, const Shape& shape,
                                         uint32_t tile_rows = kTileRows);

  /// float [n_heads][n_rows][n_keys].
  uint64_t scores_bytes(uint64_t n_rows, uint64_t n_keys) const {
    return shape_.n_heads * n_rows * n_keys * 4;
  }

  /// Three dispatches.
  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  Shape shape_;
  uint32_t key_tile_ = 0;
  uint32_t tile_rows_ = 0;
  const vk::Pipeline* scores_ = nullptr;
  const vk::Pipeline* softmax_ = nullptr;
  const vk::Pipeline* values_ = nullptr;
};

}  // namespace pumice::ops
