// What latents stand for: keys and values of every head, made for attention of many rows, where
// each costs a row less than going to the latent's space does (head_linear). DeepSeek-AI,
// "DeepSeek-V2", 2024, section 2.1.2. The products between these are Linear's.
#pragma once

#include "base/result.hpp"
#include "shaders/common/kv_layout.hpp"
#include "shaders/common/weight_matrix.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

/// Rows of floats of what a sequence keeps of its tokens: of K of one head, in any type.
class LatentRows {
 public:
  struct Args {
    vk::BufferRange block_table;  ///< uint64: addresses of the sequence's KV blocks
    vk::BufferRange kv;           ///< KV memory
    vk::BufferRange y;            ///< float [n_keys][head_dim]
    uint32_t first_key = 0;       ///< a multiple of kKvBlockTokens
    uint32_t n_keys = 0;
    uint32_t layer_offset_bytes = 0;  ///< KvLayout::layer_offset_bytes
  };

  /// Errors: kInvalidArgument for a head_dim that is no multiple of 8 or that the type cannot keep.
  static Result<LatentRows> plan(vk::PipelineLibrary& pipelines, uint32_t head_dim, KvType type);
  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  uint32_t head_dim_ = 0;
  KvType type_ = KvType::kF16;
  const vk::Pipeline* pipeline_ = nullptr;
};

/// Keys and values of heads from rows of floats into KV blocks that lie one after the other. A key
/// is n_still numbers of its head's own, then n_turned that all heads have.
class LatentHeads {
 public:
  struct Shape {
    uint32_t n_heads = 0;
    uint32_t n_still = 0;
    uint32_t n_turned = 0;
    uint32_t v_dim = 0;
    KvType type = KvType::kF16;  ///< or kF32

    /// Of a block: n_heads kv heads of one layer.
    KvLayout layout() const {
      return {.type = type,
              .n_layers = 1,
              .n_kv_heads = n_heads,
              .head_dim = n_still + n_turned,
              .v_dim = v_dim};
    }
  };
  /// Rows of heads, of which `head_stride` floats lie from one to the next.
  struct Heads {
    vk::BufferRange range;
    uint32_t head_stride = 0;
  };
  struct Args {
    vk::BufferRange turned;  ///< float [n_keys][turned_stride]
    uint32_t turned_stride = 0;
    Heads keys;           ///< float [n_keys][stride]
    Heads values;         ///< likewise
    uint32_t stride = 0;  ///< floats from key to key
    vk::BufferRange kv;   ///< the first key's block, and those behind it
    uint32_t n_keys = 0;
  };

  /// Errors: kInvalidArgument for another type or numbers that are no multiples of 8.
  static Result<LatentHeads> plan(vk::PipelineLibrary& pipelines, const Shape& shape);
  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  Shape shape_;
  const vk::Pipeline* pipeline_ = nullptr;
};

/// Matrices of heads, each transposed, as a matrix of floats: what head h's column c was is row
/// h * n_cols + c.
class HeadTranspose {
 public:
  struct Args {
    const WeightMatrix& weights;  ///< of the planned type: n_rows of each head, one after the other
    uint32_t n_heads = 0;         ///< of all the weights
    uint32_t first_head = 0;      ///< that is wanted
    uint32_t n_wanted = 0;
    vk::BufferRange y;  ///< bytes(...)
  };

  static Result<HeadTranspose> plan(vk::PipelineLibrary& pipelines, const WeightType& type);
  /// Bytes of so many heads of n_rows rows and n_cols columns, transposed.
  static uint64_t bytes(uint32_t n_wanted, uint32_t n_rows, uint32_t n_cols);
  /// What lies in `y` once `record`ed.
  static WeightMatrix result(const Args& args);
  /// A dispatch for each part of the weights.
  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  const vk::Pipeline* pipeline_ = nullptr;
};

}  // namespace pumice::ops
