// Paged KV memory on the host, for the cases of ops that read or write it: sequences whose blocks
// lie in no order, so that nothing works by luck of contiguity.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "shaders/common/kv_layout.hpp"
#include "shaders/common/kv_row.hpp"

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

  /// Where a token's row of a head lies: the elements of K or V.
  struct Row {
    KvType type;
    bool is_v;
    uint64_t head_byte;  ///< of the head's first token
    uint32_t token;      ///< in the block
  };
  Row k_row(uint32_t layer, uint32_t seq, uint32_t position, uint32_t head) const {
    return row(layer, blocks_[seq][position / kKvBlockTokens], head, position % kKvBlockTokens,
               false);
  }
  Row v_row(uint32_t layer, uint32_t seq, uint32_t position, uint32_t head) const {
    return row(layer, blocks_[seq][position / kKvBlockTokens], head, position % kKvBlockTokens,
               true);
  }

  /// Put a row's values into `memory`; they become what is stored.
  void store(std::span<std::byte> memory, const Row& row, std::span<float> values) const {
    store_kv_row(memory.subspan(row.head_byte), row.type, row.is_v, row.token, values);
  }
  /// What `memory` holds of a row.
  std::vector<double> load(std::span<const std::byte> memory, const Row& row) const {
    return load_kv_row(memory.subspan(row.head_byte), row.type, row.is_v, row.token,
                       row.is_v ? layout_.value_dim() : layout_.head_dim);
  }

  /// All rows of the memory, those of no sequence included, each at row_index * head_dim. A row of
  /// V that is shorter is followed by NaN.
  std::vector<double> load_all(std::span<const std::byte> memory) const {
    std::vector<double> values;
    for (uint64_t i = 0; i < n_rows(); ++i) {
      const std::vector<double> one = load(memory, row_of_block(i / rows_per_block(), i));
      values.insert(values.end(), one.begin(), one.end());
      values.resize((i + 1) * layout_.head_dim, std::numeric_limits<double>::quiet_NaN());
    }
    return values;
  }
  /// Row i, counted from any block's first, of a block.
  Row row_of_block(uint64_t block, uint64_t i) const {
    const auto in_block = static_cast<uint32_t>(i % rows_per_block());
    const uint32_t plane = in_block / kKvBlockTokens / layout_.n_kv_heads;
    return row(plane / n_planes(), block, in_block / kKvBlockTokens % layout_.n_kv_heads,
               in_block % kKvBlockTokens, plane % n_planes() == 1);
  }
  uint64_t n_rows() const { return uint64_t{n_blocks_} * rows_per_block(); }
  uint64_t row_index(uint32_t layer, uint32_t seq, uint32_t position, uint32_t head,
                     bool is_v) const {
    const uint64_t block = blocks_[seq][position / kKvBlockTokens];
    const uint32_t plane = layer * n_planes() + (is_v ? 1 : 0);
    return block * rows_per_block() + (plane * layout_.n_kv_heads + head) * kKvBlockTokens +
           position % kKvBlockTokens;
  }

 private:
  uint32_t rows_per_block() const {
    return layout_.n_layers * n_planes() * layout_.n_kv_heads * kKvBlockTokens;
  }
  /// K and V of a layer, or K.
  uint32_t n_planes() const { return layout_.has_values ? 2 : 1; }

  Row row(uint32_t layer, uint64_t block, uint32_t head, uint32_t token, bool is_v) const {
    const uint32_t k_bytes = kKvBlockTokens * kv_row_bytes(layout_.type.k, layout_.head_dim);
    const uint32_t v_bytes = kKvBlockTokens * kv_row_bytes(layout_.type.v, layout_.value_dim());
    const uint32_t in_layer = is_v ? layout_.n_kv_heads * k_bytes + head * v_bytes : head * k_bytes;
    return {
        .type = is_v ? layout_.type.v : layout_.type.k,
        .is_v = is_v,
        .head_byte = block * layout_.block_bytes() + layout_.layer_offset_bytes(layer) + in_layer,
        .token = token};
  }

  KvLayout layout_;
  uint32_t table_stride_ = 0;
  uint32_t n_blocks_ = 0;
  uint32_t unused_block_ = 0;
  std::vector<std::vector<uint32_t>> blocks_;  // of each sequence
};

}  // namespace pumice::ops
