#include "cache/block_pool.hpp"

namespace pumice {

BlockPool::BlockPool(uint32_t n_blocks) : limit_(n_blocks) {
  if (unlimited()) return;
  blocks_.resize(n_blocks);
  for (BlockId block = n_blocks; block-- > 0;) link(block);
}

BlockPool BlockPool::up_to(uint32_t limit) {
  BlockPool pool;
  pool.limit_ = limit;
  return pool;
}

BlockId BlockPool::add_block() {
  PUMICE_CHECK(blocks_.size() < kNoBlock, "more blocks than numbers");
  blocks_.emplace_back();
  const BlockId block = n_blocks() - 1;
  link(block);
  return block;
}

void BlockPool::link(BlockId block) {
  Block& entry = blocks_[block];
  entry.previous = entry.cached ? tail_ : kNoBlock;
  entry.next = entry.cached ? kNoBlock : head_;
  (entry.previous == kNoBlock ? head_ : blocks_[entry.previous].next) = block;
  (entry.next == kNoBlock ? tail_ : blocks_[entry.next].previous) = block;
  ++n_free_;
}

void BlockPool::unlink(BlockId block) {
  const Block& entry = blocks_[block];
  (entry.previous == kNoBlock ? head_ : blocks_[entry.previous].next) = entry.next;
  (entry.next == kNoBlock ? tail_ : blocks_[entry.next].previous) = entry.previous;
  --n_free_;
}

BlockId BlockPool::take() {
  if (n_blocks() < limit_ && (head_ == kNoBlock || blocks_[head_].cached)) add_block();
  PUMICE_CHECK(head_ != kNoBlock, "no block is free");
  const BlockId block = head_;
  unlink(block);
  blocks_[block].references = 1;
  return block;
}

void BlockPool::take(BlockId block) {
  PUMICE_CHECK(block < n_blocks() && blocks_[block].references == 0 && !blocks_[block].cached,
               "a block is taken that is in use");
  unlink(block);
  blocks_[block].references = 1;
}

void BlockPool::share(BlockId block) {
  PUMICE_CHECK(block < n_blocks(), "sharing a block that is not there");
  Block& entry = blocks_[block];
  PUMICE_CHECK(entry.references > 0 || entry.cached, "sharing a free block");
  if (entry.references == 0) unlink(block);
  ++entry.references;
}

void BlockPool::release(std::span<const BlockId> blocks) {
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    PUMICE_CHECK(*it < n_blocks() && blocks_[*it].references > 0, "releasing a free block");
    if (--blocks_[*it].references == 0) link(*it);
  }
}

void BlockPool::set_cached(BlockId block, bool cached) {
  Block& entry = blocks_[block];
  if (entry.cached == cached) return;
  const bool is_free = entry.references == 0;
  if (is_free) unlink(block);
  entry.cached = cached;
  if (is_free) link(block);
}

void BlockPool::replace(BlockId from, BlockId to) {
  PUMICE_CHECK(from != to && blocks_[to].references == 1 && !blocks_[to].cached,
               "a block is replaced by one in use");
  Block& entry = blocks_[to];
  entry = blocks_[from];
  if (entry.references == 0) {
    (entry.previous == kNoBlock ? head_ : blocks_[entry.previous].next) = to;
    (entry.next == kNoBlock ? tail_ : blocks_[entry.next].previous) = to;
  }
  blocks_[from] = {};
  link(from);
}

void BlockPool::resize(uint32_t n_wanted) {
  PUMICE_CHECK(!unlimited() && n_wanted < kUnlimitedBlocks, "an unlimited pool has no size");
  limit_ = n_wanted;
  for (BlockId block = n_blocks(); block-- > n_wanted;) {
    PUMICE_CHECK(blocks_[block].references == 0 && !blocks_[block].cached,
                 "a block goes that is in use");
    unlink(block);
    blocks_.pop_back();
  }
  const BlockId first_new = n_blocks();
  blocks_.resize(n_wanted);
  for (BlockId block = n_wanted; block-- > first_new;) link(block);
}

Status BlockPool::check_integrity() const {
  std::vector<bool> is_free(n_blocks(), false);
  BlockId previous = kNoBlock;
  uint32_t n_found = 0;
  for (BlockId block = head_; block != kNoBlock; block = blocks_[block].next) {
    if (block >= n_blocks() || is_free[block]) {
      return make_error(ErrorCode::kInternal, "block {} is twice in the free list", block);
    }
    if (blocks_[block].previous != previous) {
      return make_error(ErrorCode::kInternal, "block {} has a wrong neighbour in the free list",
                        block);
    }
    if (previous != kNoBlock && blocks_[previous].cached && !blocks_[block].cached) {
      return make_error(ErrorCode::kInternal, "block {} waits behind cached ones without a content",
                        block);
    }
    is_free[block] = true;
    previous = block;
    ++n_found;
  }
  if (previous != tail_ || n_found != n_free_) {
    return make_error(ErrorCode::kInternal, "the free list holds {} blocks and says {}", n_found,
                      n_free_);
  }
  for (BlockId block = 0; block < n_blocks(); ++block) {
    if (is_free[block] != (blocks_[block].references == 0)) {
      return make_error(ErrorCode::kInternal, "block {} is {} with {} references", block,
                        is_free[block] ? "free" : "not free", blocks_[block].references);
    }
  }
  return {};
}

}  // namespace pumice
