// The pool of KV blocks: how many owners each has, and in which order free ones are reused. Knows
// nothing of content, memory or devices; the engine maps a block number to bytes.
//
// Free blocks are one list, reused from its head. A block whose content is worth finding again
// ("cached") joins at the end and may be taken out by `share` until it is reused; any other joins
// at the head, so cached ones are given up last and least recently used first.
//
// Not thread-safe: the pool belongs to one owner.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace pumice {

using BlockId = uint32_t;
inline constexpr BlockId kNoBlock = UINT32_MAX;

/// As a number of blocks: no limit.
inline constexpr uint32_t kUnlimitedBlocks = UINT32_MAX;

class BlockPool {
 public:
  /// All blocks from the beginning; kUnlimitedBlocks is as `up_to`.
  explicit BlockPool(uint32_t n_blocks);
  /// Another block is made, up to `limit`, whenever none is free without giving up a cached one: a
  /// limit costs nothing until it is used.
  static BlockPool up_to(uint32_t limit);

  bool unlimited() const { return limit_ == kUnlimitedBlocks; }
  uint32_t limit() const { return limit_; }
  /// Blocks there are, so far.
  uint32_t n_blocks() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t n_free() const { return n_free_; }
  bool can_take(uint64_t count) const {
    return unlimited() || count <= uint64_t{n_free_} + (limit_ - n_blocks());
  }

  uint32_t references(BlockId block) const { return blocks_[block].references; }
  bool cached(BlockId block) const { return blocks_[block].cached; }

  /// The next free block, with one reference. It must exist (`can_take`). A cached block comes back
  /// still cached: the caller must forget its content.
  BlockId take();

  /// The same of this block, which is free and not cached.
  void take(BlockId block);

  /// Add a reference to a block in use or to a free cached block, which is then free no more.
  void share(BlockId block);

  /// Drop one reference of each, last block first, so that a sequence's tail is reused first.
  void release(std::span<const BlockId> blocks);

  /// Say whether a block's content can be found again. A free block moves to its new place.
  void set_cached(BlockId block, bool cached);

  /// `to`, which the caller alone has and which is not cached, gets all that `from` has:
  /// references, content, and its turn among free blocks. `from` is then free and not cached.
  void replace(BlockId from, BlockId to);

  /// Have so many blocks. Those that go, the last ones, must be free and not cached. Not of an
  /// unlimited pool.
  void resize(uint32_t n_blocks);

  /// Every block is in the free list or referenced, never both, and the list is whole. Errors:
  /// kInternal naming the first bad block.
  Status check_integrity() const;

 private:
  struct Block {
    uint32_t references = 0;
    BlockId previous = kNoBlock;  // in the free list
    BlockId next = kNoBlock;
    bool cached = false;
  };

  BlockPool() = default;
  BlockId add_block();
  void link(BlockId block);
  void unlink(BlockId block);

  uint32_t limit_ = 0;
  std::vector<Block> blocks_;
  BlockId head_ = kNoBlock;  // reused next
  BlockId tail_ = kNoBlock;
  uint32_t n_free_ = 0;
};

}  // namespace pumice
