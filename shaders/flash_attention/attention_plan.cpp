#include "shaders/flash_attention/attention_plan.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "shaders/common/kv_layout.hpp"

namespace pumice::ops {
namespace {

/// Keys of positions below `position`, summed over rows at positions [first, first + n).
uint64_t visible_pairs(uint32_t first, uint32_t n) {
  return uint64_t{n} * (uint64_t{first} + 1) + uint64_t{n} * (n - 1) / 2;
}

}  // namespace

void plan_attention(std::span<const SequenceChunk> chunks, const AttentionPlanOptions& options,
                    AttentionPlan& plan) {
  PUMICE_CHECK(options.tile_tokens > 0 && options.split_tokens % kKvBlockTokens == 0,
               "attention: tiles hold tokens, splits are whole blocks");
  plan.tile_items.clear();
  plan.row_items.clear();
  plan.reduce_items.clear();
  plan.n_partials = 0;
  plan.tile_keys = plan.tile_scores = plan.row_keys = plan.row_scores = 0;

  for (const SequenceChunk& chunk : chunks) {
    if (chunk.n_rows == 0) continue;
    const bool single = chunk.n_rows == 1;
    auto& items = single ? plan.row_items : plan.tile_items;
    (single ? plan.row_scores : plan.tile_scores) +=
        visible_pairs(chunk.first_position, chunk.n_rows);
    for (uint32_t done = 0; done < chunk.n_rows; done += options.tile_tokens) {
      AttentionItem item{.first_row = chunk.first_row + done,
                         .n_rows = std::min(options.tile_tokens, chunk.n_rows - done),
                         .seq = chunk.seq};
      const uint32_t kv_end = chunk.first_position + done + item.n_rows;
      (single ? plan.row_keys : plan.tile_keys) += kv_end;
      const uint32_t split = options.split_tokens;
      if (split == 0 || kv_end <= split || chunk.n_rows > options.max_split_rows) {
        item.kv_end = kv_end;
        items.push_back(item);
        continue;
      }
      const uint32_t n_splits = (kv_end + split - 1) / split;
      for (uint32_t i = 0; i < n_splits; ++i) {
        item.kv_begin = i * split;
        item.kv_end = std::min(kv_end, item.kv_begin + split);
        item.partial = plan.n_partials + i * item.n_rows;
        items.push_back(item);
      }
      for (uint32_t row = 0; row < item.n_rows; ++row) {
        plan.reduce_items.push_back({.row = item.first_row + row,
                                     .first_partial = plan.n_partials + row,
                                     .n_partials = n_splits,
                                     .partial_stride = item.n_rows});
      }
      plan.n_partials += n_splits * item.n_rows;
    }
  }
}

uint64_t max_attention_partials(uint32_t n_rows, uint32_t context_tokens,
                                const AttentionPlanOptions& options) {
  if (options.split_tokens == 0 || context_tokens <= options.split_tokens) return 0;
  const uint64_t splits =
      (uint64_t{context_tokens} + options.split_tokens - 1) / options.split_tokens;
  return n_rows * splits;
}

}  // namespace pumice::ops
