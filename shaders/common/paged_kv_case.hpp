// Paged KV memory on the host, for the cases of ops that read or write it: sequences whose blocks
// lie in no order, so that nothing works by luck of contiguity.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "base/float16.hpp"
#include "shaders/common/kv_layout.hpp"

namespace pumice::ops {

class PagedKvCase {
 public:
  static constexpr uint32_t kTablePadding = 2;  // entries of each table row that no kernel may read

  /// `contexts`: tokens of each sequence.
  PagedKvCase(const KvLayout& layout, std::span<const uint32_t> contexts) : layout_(layout) {
    uint32_t n_blocks = 0;
    for (const uint32_t tokens : contexts) {
      const uint32_t blocks = (tokens + kKvBlockTokens - 1) / kKvBlockTokens;
      table_stride_ = std::max(table_stride_, blocks + kTablePadding);
      n_blocks += blocks;
    }
    std::vector<uint32_t> order(n_blocks + 1);  // one block stays unused
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    n_blocks_ = static_cast<uint32_t>(order.size());
    unused_block_ = order.front();
    for (size_t seq = 0; seq < contexts.size(); ++seq) {
      blocks_.emplace_back();
      for (uint32_t token = 0; token < contexts[seq]; token += kKvBlockTokens) {
        blocks_.back().push_back(order.back());
        order.pop_back();
      }
    }
  }

  const KvLayout& layout() const { return layout_; }
  uint32_t table_stride() const { return table_stride_; }
  uint64_t size_bytes() const { return n_blocks_ * layout_.block_bytes(); }

  /// The block table for KV memory at `address`. What a kernel must not read is null: the padding,
  /// and the first n_behind[seq] blocks of a sequence, though of even ones the last of those is the
  /// block that nothing uses.
  std::vector<uint64_t> table(uint64_t address, std::span<const uint32_t> n_behind = {}) const {
    std::vector<uint64_t> entries(blocks_.size() * table_stride_, 0);
    for (size_t seq = 0; seq < blocks_.size(); ++seq) {
      for (size_t i = 0; i < blocks_[seq].size(); ++i) {
        entries[seq * table_stride_ + i] = address + blocks_[seq][i] * layout_.block_bytes();
      }
      for (size_t i = 0; seq < n_behind.size() && i < n_behind[seq]; ++i) {
        entries[seq * table_stride_ + i] = seq % 2 == 0 && i + 1 == n_behind[seq]
                                               ? address + unused_block_ * layout_.block_bytes()
                                               : 0;
      }
    }
    return entries;
  }

  /// Where an element lies, counted in elements from the start of the memory.
  uint64_t k_index(uint32_t layer, uint32_t seq, uint32_t position, uint32_t head,
                   uint32_t d) const {
    const uint32_t unit = 16 / layout_.element_bytes();
    return plane(layer, seq, position) +
           ((uint64_t{head} * (layout_.head_dim / unit) + d / unit) * kKvBlockTokens +
            position % kKvBlockTokens) *
               unit +
           d % unit;
  }
  uint64_t v_index(uint32_t layer, uint32_t seq, uint32_t position, uint32_t head,
                   uint32_t d) const {
    return plane(layer, seq, position) + layout_.plane_bytes() / layout_.element_bytes() +
           (uint64_t{head} * kKvBlockTokens + position % kKvBlockTokens) * layout_.head_dim + d;
  }

  /// Put `value` at an index of `memory`; the value as stored comes back.
  float store(std::span<std::byte> memory, uint64_t index, float value) const {
    if (layout_.type == KvType::kF32) {
      std::memcpy(memory.data() + index * 4, &value, 4);
      return value;
    }
    const uint16_t half = float_to_half(value);
    std::memcpy(memory.data() + index * 2, &half, 2);
    return half_to_float(half);
  }

 private:
  uint64_t plane(uint32_t layer, uint32_t seq, uint32_t position) const {
    const uint64_t block = blocks_[seq][position / kKvBlockTokens];
    return (block * layout_.block_bytes() + layout_.layer_offset_bytes(layer)) /
           layout_.element_bytes();
  }

  KvLayout layout_;
  uint32_t table_stride_ = 0;
  uint32_t n_blocks_ = 0;
  uint32_t unused_block_ = 0;
  std::vector<std::vector<uint32_t>> blocks_;  // of each sequence
};

}  // namespace pumice::ops
