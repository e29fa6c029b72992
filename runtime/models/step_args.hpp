// What changes from step to step, in memory that the host writes and kernels read: token ids,
// positions, attention's work lists and grids. Every array has a fixed place, so that a recorded
// step can be run again with new contents.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/page_kind.hpp"
#include "shaders/flash_attention/attention_plan.hpp"
#include "vk/arena_layout.hpp"
#include "vk/memory.hpp"

namespace pumice {

/// The most a step holds.
struct StepCapacity {
  uint32_t rows = 0;             ///< tokens in a step
  uint32_t logit_rows = 0;       ///< rows whose logits are computed
  uint32_t attention_items = 0;  ///< tile items, row items and reduce items, each, of a class
  uint32_t attention_classes = 0;
  bool sees_ahead = false;       ///< rows may see keys behind their own position
  uint32_t chunks = 0;           ///< sequences in a step
  KindMask recurrent_kinds = 0;  ///< StateLayout::recurrent_kinds
  bool adapters = false;         ///< rows may have one (Program::adapters)
};

/// Attention's work lists of a step, of one attention class; Decoder::write_attention fills them.
/// Grids are read by the GPU, so that a recording can be replayed with other lists.
struct AttentionLists {
  /// Those of the step that the class computes: all but for a class of latents, and for one that
  /// expands latents, whose are the others.
  std::vector<ops::SequenceChunk> chunks;
  ops::AttentionPlan plan;       ///< the lists as the host has them
  vk::BufferRange horizons;      ///< uint32 [rows]: how far each sees; empty: to its own position
  vk::BufferRange tile_items;    ///< ops::AttentionItem [attention_items]
  vk::BufferRange row_items;     ///< ops::AttentionItem [attention_items]
  vk::BufferRange reduce_items;  ///< ops::AttentionReduceItem [attention_items]
  vk::BufferRange tile_grid;     ///< ops::FlashAttention::GridWords, like the next two
  vk::BufferRange row_grid;
  vk::BufferRange reduce_grid;
};

/// Arguments of one step under way.
struct StepArgs {
  /// What follows, in an arena of its own. A device gives a workgroup to each of attention's items,
  /// so it must be able to dispatch that many.
  vk::ArenaLayout lay_out(const StepCapacity& capacity);

  /// Begin a step: no rows.
  void clear() {
    n_rows = n_logit_rows = n_chunks = chunk_rows = 0;
    adapts = false;
  }
  /// The next `n` rows are of one sequence, at consecutive positions. Returns their number.
  uint32_t add_chunk(uint32_t n);
  /// Where a recurrent page of that sequence is (address; 0: everything begins) and goes.
  void set_state(uint32_t chunk, uint32_t kind, uint64_t before, uint64_t after);
  /// A token (or ops::Embedding::kFromSampled | slot) of the sequence of a slot; `adapter` is 1 +
  /// that of Program::adapters, or 0. Returns its row.
  uint32_t add_row(uint32_t token, uint32_t position, uint32_t slot, uint32_t adapter = 0);
  /// The logits of a row, which has that adapter, are wanted. Returns their row among the logits.
  uint32_t add_logit_row(uint32_t row, uint32_t adapter = 0);

  uint32_t n_rows = 0;
  uint32_t n_logit_rows = 0;
  uint32_t n_chunks = 0;
  uint32_t chunk_rows = 0;                ///< of the longest
  bool adapts = false;                    ///< some row has an adapter
  vk::BufferRange tokens;                 ///< uint32 [rows]; see ops::Embedding::Args
  vk::BufferRange positions;              ///< uint32 [rows]
  vk::BufferRange row_seq;                ///< uint32 [rows]
  vk::BufferRange logit_rows;             ///< uint32 [logit_rows]: row of each row of logits
  vk::BufferRange row_chunk;              ///< uint32 [rows]
  vk::BufferRange row_adapters;           ///< uint32 [rows]; empty without StepCapacity::adapters,
  vk::BufferRange logit_adapters;         ///< as these, [logit_rows]
  std::vector<AttentionLists> attention;  ///< by class
  /// By page of the state's layout: ops::StateItem [chunks] of a recurrent one, else empty.
  std::vector<vk::BufferRange> states;
};

}  // namespace pumice
