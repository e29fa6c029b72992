#include "shaders/flash_attention/attention_plan.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "shaders/common/kv_layout.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kLeastSplitTokens = 64;

/// Keys that are visible, summed over rows at positions [first, first + n).
uint64_t visible_pairs(uint32_t first, uint32_t n, uint32_t window) {
  uint64_t all = n;  // rows that see every key up to their own
  if (window != 0) all = first < window ? std::min(n, window - first) : 0;
  const uint64_t pairs = all * (uint64_t{first} + 1) + (all == 0 ? 0 : all * (all - 1) / 2);
  return pairs + (n - all) * window;
}

/// The first key that a row sees whose last one may be at `position`.
uint32_t first_visible_key(uint32_t position, uint32_t window) {
  return window != 0 && position >= window ? position + 1 - window : 0;
}

/// Of a row by itself that sees `n_keys`.
uint32_t row_split_tokens(uint32_t n_keys, const AttentionPlanOptions& options) {
  if (options.row_splits == 0) return options.split_tokens;
  uint32_t split = kLeastSplitTokens;
  while (split < options.split_tokens && n_keys > uint64_t{split} * options.row_splits) split *= 2;
  return std::min(split, options.split_tokens);
}

/// The key behind the last one that a row at `position` sees, of a chunk that ends before `end`.
uint32_t visible_end(uint32_t position, uint32_t ahead, uint32_t end) {
  return position + 1 + std::min(ahead, end - 1 - position);
}

/// The same sum of rows that see keys ahead of them.
uint64_t visible_pairs(const SequenceChunk& chunk, const AttentionPlanOptions& options) {
  if (options.ahead == 0) {
    return visible_pairs(chunk.first_position, chunk.n_rows, options.window);
  }
  const uint32_t end = chunk.first_position + chunk.n_rows;
  uint64_t pairs = 0;
  for (uint32_t position = chunk.first_position; position < end; ++position) {
    pairs += visible_end(position, options.ahead, end) -
             first_visible_key(position + options.ahead, options.window);
  }
  return pairs;
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
  plan.most_tile_keys = plan.most_row_keys = 0;

  for (const SequenceChunk& chunk : chunks) {
    if (chunk.n_rows == 0) continue;
    const bool single = chunk.n_rows == 1;
    auto& items = single ? plan.row_items : plan.tile_items;
    uint32_t& most_keys = single ? plan.most_row_keys : plan.most_tile_keys;
    const auto append = [&](const AttentionItem& item) {
      items.push_back(item);
      most_keys = std::max(most_keys, item.kv_end - item.kv_begin);
    };
    (single ? plan.row_scores : plan.tile_scores) += visible_pairs(chunk, options);
    for (uint32_t done = 0; done < chunk.n_rows; done += options.tile_tokens) {
      AttentionItem item{.first_row = chunk.first_row + done,
                         .n_rows = std::min(options.tile_tokens, chunk.n_rows - done),
                         .seq = chunk.seq};
      const uint32_t first_position = chunk.first_position + done;
      const uint32_t first_key = first_visible_key(first_position + options.ahead, options.window);
      const uint32_t kv_begin = first_key / kKvBlockTokens * kKvBlockTokens;
      const uint32_t kv_end = visible_end(first_position + item.n_rows - 1, options.ahead,
                                          chunk.first_position + chunk.n_rows);
      (single ? plan.row_keys : plan.tile_keys) += kv_end - first_key;
      uint32_t split = options.split_tokens;
      const bool is_split = split != 0 && kv_begin / split != (kv_end - 1) / split;
      if (!is_split || chunk.n_rows > options.max_split_rows) {
        item.kv_begin = kv_begin;
        item.kv_end = kv_end;
        append(item);
        continue;
      }
      if (single) split = row_split_tokens(kv_end - kv_begin, options);
      const uint32_t first_split = kv_begin / split;
      const uint32_t n_splits = (kv_end - 1) / split + 1 - first_split;
      for (uint32_t i = 0; i < n_splits; ++i) {
        const uint32_t split_begin = (first_split + i) * split;
        item.kv_begin = std::max(kv_begin, split_begin);
        item.kv_end = std::min(kv_end, split_begin + split);
        item.partial = plan.n_partials + i * item.n_rows;
        append(item);
      }
      for (uint32_t row = 0; row < item.n_rows; ++row) {
        plan.reduce_items.push_back({.row = item.first_row + row,
                                     .first_partial = plan.n_partials + row,
                                     .n_partials = n_splits,
                                     .partial_stride = item.n_rows,
                                     .first_split = first_split});
      }
      plan.n_partials += n_splits * item.n_rows;
    }
  }
}

uint64_t max_attention_partials(uint32_t n_rows, uint32_t context_tokens,
                                const AttentionPlanOptions& options) {
  if (options.split_tokens == 0 || context_tokens <= options.split_tokens) return 0;
  const uint64_t split = options.split_tokens;
  uint64_t splits = (uint64_t{context_tokens} + split - 1) / split;
  if (options.window != 0) {
    // One more than n - 1 keys can fill, of the n that the rows of an item see together.
    const uint64_t item_rows = std::min({n_rows, options.tile_tokens, options.max_split_rows});
    const uint64_t n_keys = uint64_t{options.window} + std::max<uint64_t>(item_rows, 1) - 1;
    splits = std::min(splits, 1 + (n_keys - 1 + split - 1) / split);
  }
  if (splits == 1) return 0;
  if (options.row_splits != 0 && split > kLeastSplitTokens) {
    // Of a single row: none beyond the context, and one more than wanted where its keys begin amid a split.
    const uint64_t most = (uint64_t{context_tokens} + kLeastSplitTokens - 1) / kLeastSplitTokens;
    splits = std::max(splits, std::min<uint64_t>(most, options.row_splits + 1));
  }
  return n_rows * splits;
}

}  // namespace pumice::ops
