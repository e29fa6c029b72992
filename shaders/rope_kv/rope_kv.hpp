// What comes between a QKV product and attention, in one pass over the rows: biases and norms of
// heads where a family has them, the rotary position embedding of q and k, and the write of k and v
// into the KV cache.
#pragma once

#include "base/result.hpp"
#include "shaders/common/kv_layout.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

/// Which elements turn together.
enum class RopePairs {
  kAdjacent,  ///< (2i, 2i + 1): "norm", Llama in GGUF
  kHalves,    ///< (i, i + dims / 2): "neox"
};

class RopeKv {
 public:
  struct Shape {
    uint32_t n_heads = 0;  ///< may be 0 without values: q is elsewhere
    uint32_t n_kv_heads = 0;
    uint32_t head_dim = 0;   ///< a multiple of 8, at most 512; without values at most 1024
    uint32_t rope_dims = 0;  ///< even, at most head_dim; the elements after them stay. 0: no
                             ///< rotation
    RopePairs pairs = RopePairs::kAdjacent;
    KvTypes kv_type;
    bool head_norms = false;  ///< each head of q and k becomes x / sqrt(mean(x²) + norm_eps) ·
                              ///< weight before it is rotated
    bool biases = false;      ///< Args::bias is added to q, k and v before all else
    bool has_values = true;   ///< else k alone is kept, of which values are a part
    uint32_t v_dim = 0;       ///< of a head of v, a multiple of 8 of at most head_dim; 0: that

    uint32_t value_dim() const { return v_dim != 0 ? v_dim : head_dim; }
    bool operator==(const Shape&) const = default;
  };

  struct Args {
    vk::BufferRange qkv;  ///< float [rows][row_stride]: q of all heads, then k, then v of the kv
                          ///< heads. q is updated in place, k and v stay.
    vk::BufferRange rope_table;   ///< vec2 [n_positions][rope_dims / 2] (rope_table.hpp); may be
                                  ///< empty without rope_dims
    vk::BufferRange positions;    ///< uint32 [rows]; the KV index of the row in its sequence too
    vk::BufferRange row_seq;      ///< uint32 [rows]: the row of the block table
    vk::BufferRange block_table;  ///< uint64 [seq][table_stride]: addresses of KV blocks
    vk::BufferRange kv;           ///< KV memory, or any part of it that attention declares read
    uint32_t rows = 0;
    uint32_t row_stride = 0;  ///< floats
    uint32_t table_stride = 0;
    uint32_t layer_offset_bytes = 0;  ///< KvLayout::layer_offset_bytes
    vk::BufferRange q_norm = {};      ///< float [head_dim], with head_norms
    vk::BufferRange k_norm = {};      ///< float [head_dim], with head_norms
    float norm_eps = 0;
    vk::BufferRange bias = {};  ///< float, as many as q, k and v of a row have, with biases
  };

  /// Declare "rope_kv.f16", of whatever types; with biases, head_norms or quantised types
  /// "rope_kv_heads.f16", a kernel of one workgroup a head. In F16 and BF16, values round to
  /// nearest even on every device and saturate at the largest finite one, as do scales.
  /// `head_lanes`: of the latter's workgroups, a power of two; 0: what suits the device. Errors:
  /// kInvalidArgument for a shape out of range, and for heads that the types cannot hold.
  static Result<RopeKv> plan(vk::PipelineLibrary& pipelines, const Shape& shape,
                             uint32_t head_lanes = 0);

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  bool by_heads() const { return shape_.biases || shape_.head_norms || shape_.kv_type.quantised(); }
  /// Numbers of v of a row.
  uint32_t v_elements() const {
    return shape_.has_values ? shape_.n_kv_heads * shape_.value_dim() : 0;
  }
  vk::Cost cost(uint32_t rows) const;
  void record_heads(vk::Recorder& recorder, const Args& args) const;

  Shape shape_;
  const vk::Pipeline* pipeline_ = nullptr;
};

}  // namespace pumice::ops
