// The work list of attention for one step: plain data, made on the host, read by the kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pumice::ops {

/// Consecutive rows of a ragged batch: tokens of one sequence at consecutive positions.
struct SequenceChunk {
  uint32_t seq = 0;  ///< row of the block table
  uint32_t first_row = 0;
  uint32_t n_rows = 0;
  uint32_t first_position = 0;
};

/// One workgroup's work for every kv head: rows against keys [kv_begin, kv_end) of their sequence,
/// each row seeing keys up to its own position, and with a window only the last of them.
struct AttentionItem {
  static constexpr uint32_t kNoPartial = 0xFFFFFFFFu;

  uint32_t first_row = 0;
  uint32_t n_rows = 0;
  uint32_t seq = 0;
  /// A multiple of kKvBlockTokens. Some row sees a key of its block, so nothing is read of blocks
  /// that lie wholly behind a window.
  uint32_t kv_begin = 0;
  uint32_t kv_end = 0;
  uint32_t partial = kNoPartial;  ///< slot of the first row (the next rows follow), or write y
};

/// Partials of one row to be combined: slots first_partial + i * partial_stride.
struct AttentionReduceItem {
  uint32_t row = 0;
  uint32_t first_partial = 0;
  uint32_t n_partials = 0;
  uint32_t partial_stride = 0;
  /// Which split of the context the first is of: the order of adding depends on it, and on nothing
  /// that the row does not see.
  uint32_t first_split = 0;
};

struct AttentionPlanOptions {
  static constexpr uint32_t kMostRowSplits = 16;

  uint32_t tile_tokens = 1;  ///< tokens of one tile item (FlashAttention::tile_tokens)
  /// Contexts longer than this are split at its multiples; 0 never splits. A multiple of
  /// kKvBlockTokens. Boundaries are absolute positions, so a row is split alike in every batch.
  uint32_t split_tokens = 0;
  /// Only chunks of at most this many rows are split: longer ones have workgroups enough, and
  /// partials of theirs would be large. UINT32_MAX makes every row's result independent of its
  /// chunk, bit for bit.
  uint32_t max_split_rows = 16;
  /// Keys that a row sees, its own included; 0: all (FlashAttention::Shape::window).
  uint32_t window = 0;
  /// Of those so many are behind its own, as far as the chunk has them: it is a whole text then.
  /// Rows see so far by FlashAttention::Args::positions.
  uint32_t ahead = 0;
  /// What a chunk of one row sees, where it is split, is split into about so many, of 64 tokens or a
  /// power of two times that, but none longer than split_tokens: short contexts keep more workgroups
  /// busy. It follows from how many keys the row sees, so the row is split alike in every batch. 0:
  /// splits have split_tokens. At most kMostRowSplits.
  uint32_t row_splits = 0;
};

struct AttentionPlan {
  std::vector<AttentionItem> tile_items;  ///< chunks of several rows, in tiles
  std::vector<AttentionItem> row_items;   ///< chunks of one row
  std::vector<AttentionReduceItem> reduce_items;
  uint32_t n_partials = 0;  ///< slots that partial items write

  // What the items must do at least, for Cost: keys read and (row, key) pairs scored, of one kv
  // head or one head.
  uint64_t tile_keys = 0;
  uint64_t tile_scores = 0;
  uint64_t row_keys = 0;
  uint64_t row_scores = 0;
  // From kv_begin to kv_end of the item with most.
  uint32_t most_tile_keys = 0;
  uint32_t most_row_keys = 0;
};

/// Fill `plan` (its vectors keep their capacity: no allocation once they have grown).
void plan_attention(std::span<const SequenceChunk> chunks, const AttentionPlanOptions& options,
                    AttentionPlan& plan);

/// The most slots a plan with these options can need for `n_rows` rows in all, none beyond
/// `context_tokens`. With a window that depends on the tokens of a tile.
uint64_t max_attention_partials(uint32_t n_rows, uint32_t context_tokens,
                                const AttentionPlanOptions& options);

}  // namespace pumice::ops
