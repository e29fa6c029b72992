// KvCache: prefixes that are taken elsewhere and brought back.
#include <algorithm>
#include <tuple>

#include "cache/kv_cache.hpp"

namespace pumice {

KvCache::CachedPrefix KvCache::cached_prefix(const HashedPrompt& prompt) const {
  const Match match = find(prompt);
  CachedPrefix found{.n_tokens = matched_tokens(match), .pages = {}};
  for (const PageKinds::PrefixEntry& entry : kinds_.prefix_entries(found.n_tokens)) {
    const NodeId node =
        entry.block < match.chain.size() ? match.chain[entry.block] : match.tail.node;
    found.pages.push_back(index_.places(index_.entry(node, entry.kind)));
  }
  return found;
}

Result<KvCache::Adoption> KvCache::adopt(const HashedPrompt& prompt, uint32_t n_tokens) {
  PUMICE_CHECK(!options_.keyed && n_tokens <= prompt.n_tokens, "more tokens than the prompt has");
  if (!options_.reuse) {
    return make_error(ErrorCode::kInvalidArgument, "this cache finds nothing again");
  }
  PUMICE_CHECK(moves_.empty(), "a prefix is adopted while pages move");
  Adoption adopted(*this);
  const uint32_t block_tokens = options_.block_tokens;
  adopted.nodes_.reserve(size_t{blocks_for(n_tokens)} + 1);
  const auto refer = [&](NodeId node) {
    index_.refer(node);
    adopted.nodes_.push_back(node);
  };
  refer(index_.find_or_add_root(prompt.model, prompt.salt, prompt.root));
  for (uint32_t first = 0; first < n_tokens; first += std::min(block_tokens, n_tokens - first)) {
    const NodeId parent = adopted.nodes_.back();
    const bool is_full = n_tokens - first >= block_tokens;
    const auto content = std::span<const uint32_t>(prompt.content)
                             .subspan(first, std::min(block_tokens, n_tokens - first));
    const BlockHash hash = is_full ? prompt.hashes[first / block_tokens] : BlockHash{};
    NodeId node = is_full ? index_.find(hash, parent, content) : index_.child(parent, content);
    if (!is_full && kinds_.recurrent() == 0) {
      // The head of a block that is known will do.
      const auto known = index_.best_child(parent, content, kinds_.all());
      if (known.n_words == content.size()) node = known.node;
    }
    refer(node != kNoNode ? node : index_.add(hash, parent, content));
  }

  // First hold what is there, so that taking a page does not give it up.
  const std::vector<PageKinds::PrefixEntry> entries = kinds_.prefix_entries(n_tokens);
  adopted.entries_.reserve(entries.size());
  uint64_t n_wanted = 0;
  for (const PageKinds::PrefixEntry& entry : entries) {
    Adoption::Entry& held = adopted.entries_.emplace_back();
    held.entry = index_.entry(adopted.nodes_[entry.block + size_t{1}], entry.kind);
    hold(held);
    n_wanted += held.is_new ? 1 : 0;
  }
  if (!pool_.can_take(n_wanted)) {
    return make_error(ErrorCode::kDoesNotFit, "{} KV pages wanted, {} of {} are free", n_wanted,
                      pool_.n_free(), pool_.n_pages());
  }
  for (Adoption::Entry& entry : adopted.entries_) {
    if (entry.is_new) entry.page = take_page();
  }
  return adopted;
}

void KvCache::hold(Adoption::Entry& held) {
  const EntryPlaces& places = index_.places(held.entry);
  if (places.page != kNoPage) {
    held.page = best_copy(held.entry);
    pool_.share(held.page);
  } else if (places.any()) {
    std::tie(held.tier, held.slot) = nearest_slot(held.entry);
    slots(held.tier).hold(held.slot);
  } else {
    held.is_new = true;
  }
}

void KvCache::finish(Adoption adoption) {
  for (Adoption::Entry& entry : adoption.entries_) {
    if (!entry.is_new) continue;
    index_.attach(entry.entry, entry.page);
    pool_.set_cached(entry.page, true);
  }
}

/// From the end on, so that the beginning is given up last.
void KvCache::give_back(Adoption& adoption) {
  for (auto entry = adoption.entries_.rbegin(); entry != adoption.entries_.rend(); ++entry) {
    if (entry->page != kNoPage) pool_.release({&entry->page, 1});
    if (entry->slot != kNowhere) slots(entry->tier).let_go(entry->slot);
  }
  for (auto node = adoption.nodes_.rbegin(); node != adoption.nodes_.rend(); ++node) {
    index_.unrefer(*node);
  }
}

}  // namespace pumice
