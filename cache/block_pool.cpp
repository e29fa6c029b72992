#include "cache/block_pool.hpp"

#include <numeric>

namespace pumice {

BlockPool::BlockPool(uint32_t n_blocks) : reference_counts_(n_blocks, 0), free_(n_blocks) {
  std::iota(free_.rbegin(), free_.rend(), 0u);
}

Status BlockPool::acquire(uint32_t count, std::vector<BlockId>& blocks) {
  if (count > n_free()) {
    return make_error(ErrorCode::kDoesNotFit, "{} KV blocks wanted, {} of {} are free", count,
                      n_free(), n_blocks());
  }
  for (uint32_t i = 0; i < count; ++i) {
    const BlockId block = free_.back();
    free_.pop_back();
    reference_counts_[block] = 1;
    blocks.push_back(block);
  }
  return {};
}

void BlockPool::share(BlockId block) {
  PUMICE_CHECK(block < n_blocks() && reference_counts_[block] > 0, "sharing a free block");
  ++reference_counts_[block];
}

void BlockPool::release(std::span<const BlockId> blocks) {
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    PUMICE_CHECK(*it < n_blocks() && reference_counts_[*it] > 0, "releasing a free block");
    if (--reference_counts_[*it] == 0) free_.push_back(*it);
  }
}

Status BlockPool::check_integrity() const {
  std::vector<bool> is_free(n_blocks(), false);
  for (const BlockId block : free_) {
    if (block >= n_blocks() || is_free[block]) {
      return make_error(ErrorCode::kInternal, "block {} is twice in the free list", block);
    }
    is_free[block] = true;
  }
  for (BlockId block = 0; block < n_blocks(); ++block) {
    if (is_free[block] != (reference_counts_[block] == 0)) {
      return make_error(ErrorCode::kInternal, "block {} is {} with {} references", block,
                        is_free[block] ? "free" : "not free", reference_counts_[block]);
    }
  }
  return {};
}

}  // namespace pumice
