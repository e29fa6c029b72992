// Attention of many rows to latents by what the latents stand for: keys and values of each head,
// made once for all rows of a chunk, some heads at a time, and forgotten after them. A key costs
// its two products then, and a row and key what a head's own numbers cost; by the latents
// themselves a row costs the two products, and a row and key what the latent's numbers cost, of
// which there are several times as many. DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "models/lowering.hpp"
#include "models/step_args.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/latent/latent.hpp"
#include "shaders/linear/linear.hpp"
#include "vk/arena_layout.hpp"
#include "vk/memory.hpp"

namespace pumice {

/// What is made of a chunk's latents, and where it may be.
struct ExpansionSizes {
  /// Of heads and their latents.
  struct Shape {
    uint32_t n_heads = 0;
    uint32_t rank = 0;  ///< numbers of a latent
    uint32_t n_still = 0;
    uint32_t n_turned = 0;
    uint32_t value_dim = 0;

    /// Numbers of a head, and of what is kept of a token.
    uint32_t head_dim() const { return n_still + n_turned; }
    uint32_t row_floats() const { return rank + n_turned; }
    /// Whether a chunk costs less by keys and values of heads, where a flop of attention to latents
    /// costs as much as `latent_cost` of others.
    bool suits(const ops::SequenceChunk& chunk, uint32_t latent_cost = 1) const;
  };
  Shape shape;
  uint32_t n_heads = 0;     ///< at a time; divides the shape's
  uint32_t n_keys = 0;      ///< of a sequence at most: of longer ones nothing is expanded
  uint32_t piece_keys = 0;  ///< that are multiplied at a time

  KvLayout layout(KvType type) const;
};

/// Where it is.
struct ExpansionBuffers {
  vk::BufferRange latents;      ///< float [piece_keys][row_floats]
  vk::BufferRange own;          ///< float [piece_keys][heads' keys and values]
  vk::BufferRange matrices;     ///< of heads' keys, transposed
  vk::BufferRange expanded;     ///< K and V of some heads
  vk::BufferRange block_table;  ///< of these

  /// With K and V as floats, the largest that they may be.
  void lay_out(const ExpansionSizes& sizes, vk::ArenaLayout& arena);
};

/// Sizes for the class of attention, of Lowered's, that expands; none where it never will: with
/// --invariant, if nothing fits into slabs, or if no kernel takes such heads. What they take is
/// bounded whatever the context.
std::optional<ExpansionSizes> expansion_sizes(const Lowered& lowered, uint32_t attention_class,
                                              uint32_t context_tokens, bool invariant,
                                              uint64_t slab_bytes);

class LatentExpansion {
 public:
  struct Args {
    const ops::Linear& linear;  ///< planned for the matrices' types, and F32 where they are apart
    vk::BufferRange linear_scratch;
    WeightMatrix keys;    ///< all heads', as call::ExpandedAttention has them
    WeightMatrix values;  ///< likewise
    bool fused = false;
    vk::BufferRange q;  ///< float [rows][q_stride]
    uint32_t q_stride = 0;
    vk::BufferRange y;  ///< float [rows][y_stride], a head's values after another's
    uint32_t y_stride = 0;
    vk::BufferRange positions;    ///< as ops::FlashAttention's
    vk::BufferRange block_table;  ///< of the latents, by sequence
    uint32_t table_stride = 0;
    vk::BufferRange kv;
    uint32_t layer_offset_bytes = 0;
    vk::BufferRange sinks;  ///< empty: there are none
    vk::BufferRange carried;
    float scale = 0;
  };

  /// Declares pipelines. K and V of heads are fp16 where `math` computes attention on matrix cores,
  /// else floats.
  static Result<LatentExpansion> plan(vk::PipelineLibrary& pipelines, const ExpansionSizes& sizes,
                                      const AttentionClass& one, KvType latent_type,
                                      const std::vector<const WeightType*>& apart, ops::Math math);
  /// From now on its memory is this.
  Status use(const ExpansionBuffers& buffers, vk::Uploader& uploader);

  const ops::FlashAttention& attention() const { return attention_; }
  bool takes(const ops::SequenceChunk& chunk) const;
  /// What Linear needs as scratch besides what others want.
  uint64_t linear_scratch_bytes(const ops::Linear& linear, const WeightMatrix& keys,
                                const WeightMatrix& values, bool fused) const;

  /// Attention of the chunks of `lists`.
  void record(vk::Recorder& recorder, const AttentionLists& lists, const Args& args) const;

 private:
  void expand(vk::Recorder& recorder, const Args& args, uint32_t first_head, uint32_t seq,
              uint32_t n_keys) const;

  ExpansionSizes sizes_;
  uint32_t least_rows_ = 0;  // latent.tune
  uint32_t latent_cost_ = 1;
  KvType type_ = KvType::kF32;
  ops::FlashAttention attention_;  // of some heads
  ops::LatentRows rows_;
  ops::LatentHeads heads_;
  std::map<const WeightType*, ops::HeadTranspose> transpose_;
  ExpansionBuffers buffers_;
};

}  // namespace pumice
