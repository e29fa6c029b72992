// KvCache: what of a prompt is cached, and which kind says no.
#include <algorithm>
#include <array>

#include "cache/kv_cache.hpp"

namespace pumice {

KvCache::Match KvCache::find(const HashedPrompt& prompt, bool want_tail) const {
  Match match;
  if (options_.reuse) match.root = index_.find_root(prompt.model, prompt.salt);
  if (match.root != kNoNode && prompt.n_tokens > 0) {
    const uint32_t n_usable = prompt.n_tokens - 1;
    const size_t n_full = std::min<size_t>(prompt.hashes.size(), n_usable / options_.block_tokens);
    const bool plain = kinds_.plain();
    index_.find_chain(match.root, {prompt.hashes.data(), n_full}, prompt.content, match.chain,
                      plain ? kinds_.all() : 0);
    match.n_known = match.chain.size();
    const Known known{prompt, match.root, match.chain, want_tail && !options_.keyed};
    if (plain) {
      match.tail = tail_of(known, match.chain.size(), kinds_.all());
    } else {
      shorten(known, match);
    }
  }
  match.miss = explain(prompt, match);
  return match;
}

/// What continues the first `n_blocks` blocks by less than a block. A state stands for all of the
/// block that it was kept with.
PrefixIndex::ChildMatch KvCache::tail_of(const Known& known, size_t n_blocks,
                                         KindMask kinds) const {
  if (!known.want_tail) return {};
  const size_t first = n_blocks * options_.block_tokens;
  const size_t n_rest = std::min<size_t>(known.prompt.n_tokens - 1 - first, options_.block_tokens);
  const NodeId parent = n_blocks == 0 ? known.root : known.chain[n_blocks - 1];
  const auto rest = std::span<const uint32_t>(known.prompt.content).subspan(first, n_rest);
  return (kinds & kinds_.recurrent()) != 0 ? index_.best_whole_child(parent, rest, kinds)
                                           : index_.best_child(parent, rest, kinds);
}

/// The longest length that all of `kinds` can restore. Each length that full kinds can, from the
/// longest, is shown to the others, until all agree: the fixed point of asking them in turn.
KvCache::Hit KvCache::longest(const Known& known, KindMask kinds) const {
  const KindMask full = kinds & kinds_.full();
  size_t n = 0;
  while (n < known.chain.size() && index_.node(known.chain[n]).holds(full)) ++n;
  // By window: how many blocks before each edge it has without a gap.
  std::vector<std::pair<uint32_t, std::vector<uint32_t>>> runs;
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    if (!PageKinds::has(kinds & kinds_.windows(), g)) continue;
    std::vector<uint32_t> run(n + 1, 0);
    for (size_t i = 0; i < n; ++i) {
      run[i + 1] = index_.node(known.chain[i]).holds(KindMask{1} << g) ? run[i] + 1 : 0;
    }
    runs.emplace_back(g, std::move(run));
  }
  const auto windows_hold = [&](size_t n_blocks, uint32_t position) {
    return std::ranges::all_of(runs, [&](const auto& window) {
      return kinds_.first_block(window.first, position) + window.second[n_blocks] >= n_blocks;
    });
  };
  for (;; --n) {
    const auto edge = static_cast<uint32_t>(n * options_.block_tokens);
    const PrefixIndex::ChildMatch tail = tail_of(known, n, kinds);
    if (tail.n_words > 0 && windows_hold(n, edge + tail.n_words)) {
      return {n, tail, edge + tail.n_words};
    }
    if (n == 0) return {};
    const bool has_state = index_.node(known.chain[n - 1]).holds(kinds & kinds_.recurrent());
    if (has_state && windows_hold(n, edge)) return {n, {}, edge};
  }
}

/// Cut what is known down to what all kinds can restore, and name the one that is to blame:
/// without which the hit would be the longest, or else that could restore least.
void KvCache::shorten(const Known& known, Match& match) const {
  const Hit hit = longest(known, kinds_.all());
  if (kinds_.size() > 1 && hit.n_tokens < longest(known, 0).n_tokens) {
    uint32_t least = UINT32_MAX;
    uint32_t most = 0;
    for (uint32_t g = 0; g < kinds_.size(); ++g) {
      const KindMask bit = KindMask{1} << g;
      const uint32_t without = longest(known, kinds_.all() & ~bit).n_tokens;
      const uint32_t alone = longest(known, bit).n_tokens;
      most = std::max(most, alone);
      if (match.shortened_by == kNoKind || without > match.others_tokens ||
          (without == match.others_tokens && alone < least)) {
        match.shortened_by = g;
        match.others_tokens = without;
        least = alone;
      }
    }
    if (match.others_tokens == hit.n_tokens && most == hit.n_tokens) {
      match.shortened_by = kNoKind;  // nobody has more
      match.others_tokens = 0;
    }
  }
  match.tail = hit.tail;
  match.chain.resize(hit.n_blocks);
}

uint32_t KvCache::matched_tokens(const Match& match) const {
  return static_cast<uint32_t>(match.chain.size()) * options_.block_tokens + match.tail.n_words;
}

MissReason KvCache::explain(const HashedPrompt& prompt, const Match& match) const {
  const size_t n_matched = match.chain.size();
  const size_t n_cached = n_matched * options_.block_tokens + match.tail.n_words;
  if (prompt.n_tokens == 0 || n_cached + 1 >= prompt.n_tokens) return MissReason::kNone;
  if (match.shortened_by != kNoKind && !PageKinds::has(kinds_.full(), match.shortened_by)) {
    return MissReason::kGroup;
  }
  if (n_matched == prompt.hashes.size() && n_matched > 0) return MissReason::kTail;
  if (n_matched < prompt.hashes.size() && memory_.was_evicted(prompt.hashes[n_matched])) {
    return MissReason::kEvicted;
  }
  if (n_matched > 0 || prompt.hashes.empty()) return MissReason::kNoMatch;
  switch (memory_.seen_first(prompt.first_content_hash, prompt.model, prompt.root)) {
    case MissMemory::Seen::kOtherModel:
      return MissReason::kModel;
    case MissMemory::Seen::kOtherSalt:
      return MissReason::kSalt;
    default:
      return MissReason::kNoMatch;
  }
}

/// A block whose pages are in several places counts as what takes longest.
CacheReport KvCache::report_of(const HashedPrompt& prompt, const Match& match) const {
  CacheReport report{.prompt_tokens = prompt.n_tokens,
                     .cached_tokens = matched_tokens(match),
                     .miss = match.miss,
                     .shortened_by = match.shortened_by,
                     .others_tokens = match.others_tokens};
  // From which block on each kind's pages are needed.
  std::array<size_t, kMaxKinds> first = {};
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    const bool only_last = kinds_.is_recurrent(g) && !match.chain.empty();
    first[g] = only_last ? match.chain.size() - (match.tail.node == kNoNode ? 1 : 0)
                         : kinds_.first_block(g, report.cached_tokens);
  }
  const auto add = [&](NodeId node, size_t i, bool is_tail, uint32_t n_tokens,
                       uint32_t& on_device) {
    uint32_t* counted = &on_device;
    for (uint32_t g = 0; g < kinds_.size(); ++g) {
      if (!is_tail && i < first[g]) continue;
      const EntryPlaces& places = index_.places(index_.entry(node, g));
      if (places.page != kNoPage) continue;
      if (places.host_slot == kNowhere) {
        counted = &report.file_tokens;
      } else if (counted == &on_device) {
        counted = &report.host_tokens;
      }
    }
    *counted += n_tokens;
  };
  for (size_t i = 0; i < match.chain.size(); ++i) {
    add(match.chain[i], i, false, options_.block_tokens, report.shared_tokens);
  }
  if (match.tail.node != kNoNode) {
    add(match.tail.node, 0, true, match.tail.n_words, report.copied_tokens);
  }
  return report;
}

CacheReport KvCache::look_up(const HashedPrompt& prompt) const {
  return report_of(prompt, find(prompt));
}

KvCache::Room KvCache::room(const HashedPrompt& prompt, std::span<const SequenceId> ended) const {
  std::vector<PageId> given_back;  // once a reference
  for (const SequenceId id : ended) {
    for (const Held& held : sequence(id).held) {
      for (const PageId page : held.blocks) {
        if (page != kNoPage) given_back.push_back(page);
      }
      for (const State& state : held.states) {
        if (state.page != kNoPage) given_back.push_back(state.page);
      }
      if (held.spare != kNoPage) given_back.push_back(held.spare);
    }
  }
  std::ranges::sort(given_back);
  const auto n_given_back = [&](PageId page) {
    const auto [first, end] = std::equal_range(given_back.begin(), given_back.end(), page);
    return static_cast<size_t>(end - first);
  };
  Room room{.free_pages = n_free_pages()};
  for (size_t i = 0; i < given_back.size();) {
    const size_t n = n_given_back(given_back[i]);
    room.free_pages += pool_.references(given_back[i]) == n ? 1 : 0;
    i += n;
  }
  for (const NodeId node : find(prompt).chain) {
    for (uint32_t g = 0; g < kinds_.size(); ++g) {
      if (!PageKinds::has(kinds_.full(), g)) continue;
      PageId page = index_.places(index_.entry(node, g)).page;
      for (; page != kNoPage; page = index_.next_copy(page)) {
        if (pool_.references(page) <= n_given_back(page)) continue;
        ++room.shared_pages;
        break;
      }
    }
  }
  return room;
}

}  // namespace pumice
