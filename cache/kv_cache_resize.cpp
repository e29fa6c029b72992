// KvCache: more blocks, or fewer.
#include <algorithm>
#include <utility>

#include "cache/kv_cache.hpp"

namespace pumice {

bool KvCache::give_up(uint32_t n_blocks) {
  PUMICE_CHECK(batches_.empty() && moves_.empty(), "blocks are given up while bytes move");
  const uint32_t n_all = pool_.n_blocks();
  if (n_all - pool_.n_free() > n_blocks) return false;
  // Taken in the order of use, and given back empty.
  std::vector<BlockId> given_up;
  if (n_all > n_blocks) given_up.reserve(n_all - n_blocks);
  for (uint32_t n = n_blocks; n < n_all; ++n) {
    given_up.push_back(take_block());
  }
  pool_.release(given_up);
  return true;
}

std::vector<BlockMove> KvCache::take_moves(uint32_t n_blocks, size_t most) {
  PUMICE_CHECK(batches_.empty() && moves_.empty(), "blocks are moved while bytes move");
  moves_.reserve(std::min<size_t>(most, pool_.n_blocks()));
  BlockId target = 0;
  for (BlockId source = n_blocks; source < pool_.n_blocks() && moves_.size() < most; ++source) {
    if (is_empty(source)) continue;
    while (target < n_blocks && !is_empty(target)) ++target;
    if (target == n_blocks) break;  // blocks were taken since `give_up`
    pool_.take(target);
    moves_.push_back({source, target});
  }
  return moves_;
}

void KvCache::finish_moves(bool copied) {
  if (moves_.empty()) return;
  std::vector<BlockId> now(pool_.n_blocks(), kNoBlock);  // by block: where its bytes are
  const std::vector<BlockMove> moves = std::exchange(moves_, {});
  for (const BlockMove& move : moves) {
    if (!copied || is_empty(move.source)) {  // its owner ended meanwhile
      pool_.release({&move.target, 1});
      continue;
    }
    if (index_.page_of(move.source) != kNoPage) index_.replace(move.source, move.target);
    pool_.replace(move.source, move.target);
    now[move.source] = move.target;
  }
  const auto follow = [&](BlockId& block) {
    if (block != kNoBlock && now[block] != kNoBlock) block = now[block];
  };
  for (Sequence& owner : sequences_) {
    for (Held& held : owner.held) {
      for (BlockId& block : held.blocks) follow(block);
      for (State& state : held.states) follow(state.page);
      follow(held.spare);
    }
  }
}

bool KvCache::resize(uint32_t n_blocks) {
  PUMICE_CHECK(moves_.empty(), "the cache changes its size while blocks move");
  for (BlockId block = n_blocks; block < pool_.n_blocks(); ++block) {
    if (!is_empty(block)) return false;
  }
  pool_.resize(n_blocks);
  return true;
}

}  // namespace pumice
