// KvCache: more pages, or fewer.
#include <algorithm>
#include <utility>

#include "cache/kv_cache.hpp"

namespace pumice {

bool KvCache::give_up(uint32_t n_pages) {
  PUMICE_CHECK(batches_.empty() && moves_.empty(), "pages are given up while bytes move");
  const uint32_t n_all = pool_.n_pages();
  if (n_all - pool_.n_free() > n_pages) return false;
  // Taken in the order of use, and given back empty.
  std::vector<PageId> given_up;
  if (n_all > n_pages) given_up.reserve(n_all - n_pages);
  for (uint32_t n = n_pages; n < n_all; ++n) {
    given_up.push_back(take_page());
  }
  pool_.release(given_up);
  return true;
}

std::vector<PageMove> KvCache::take_moves(uint32_t n_pages, size_t most) {
  PUMICE_CHECK(batches_.empty() && moves_.empty(), "pages are moved while bytes move");
  moves_.reserve(std::min<size_t>(most, pool_.n_pages()));
  PageId target = 0;
  for (PageId source = n_pages; source < pool_.n_pages() && moves_.size() < most; ++source) {
    if (is_empty(source)) continue;
    while (target < n_pages && !is_empty(target)) ++target;
    if (target == n_pages) break;  // pages were taken since `give_up`
    pool_.take(target);
    moves_.push_back({source, target});
  }
  return moves_;
}

void KvCache::finish_moves(bool copied) {
  if (moves_.empty()) return;
  std::vector<PageId> now(pool_.n_pages(), kNoPage);  // by page: where its bytes are
  const std::vector<PageMove> moves = std::exchange(moves_, {});
  for (const PageMove& move : moves) {
    if (!copied || is_empty(move.source)) {  // its owner ended meanwhile
      pool_.release({&move.target, 1});
      continue;
    }
    if (index_.entry_of(move.source) != kNoEntry) index_.replace(move.source, move.target);
    pool_.replace(move.source, move.target);
    now[move.source] = move.target;
  }
  const auto follow = [&](PageId& page) {
    if (page != kNoPage && now[page] != kNoPage) page = now[page];
  };
  for (Sequence& owner : sequences_) {
    for (Held& held : owner.held) {
      for (PageId& page : held.blocks) follow(page);
      for (State& state : held.states) follow(state.page);
      follow(held.spare);
    }
  }
}

bool KvCache::resize(uint32_t n_pages) {
  PUMICE_CHECK(moves_.empty(), "the cache changes its size while pages move");
  for (PageId page = n_pages; page < pool_.n_pages(); ++page) {
    if (!is_empty(page)) return false;
  }
  pool_.resize(n_pages);
  return true;
}

}  // namespace pumice
