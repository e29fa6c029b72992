// KvCache: a sequence while it runs, and how it ends.
#include <algorithm>
#include <utility>

#include "cache/kv_cache.hpp"

namespace pumice {

// ---- room

uint32_t KvCache::pages_lacking(SequenceId id, uint32_t n_tokens) const {
  const Sequence& asked = sequence(id);
  const uint32_t n_blocks = blocks_for(n_tokens);
  uint32_t n_lacking = 0;
  for (const Held& held : asked.held) {
    if (!held.states.empty()) {
      const bool writes = n_tokens > held.states.back().position;
      n_lacking += writes && held.spare == kNoPage ? 1 : 0;
    } else if (n_blocks > held.blocks.size()) {
      n_lacking += n_blocks - static_cast<uint32_t>(held.blocks.size());
    }
  }
  return n_lacking;
}

Status KvCache::reserve(SequenceId id, uint32_t n_tokens) {
  const uint32_t n_lacking = pages_lacking(id, n_tokens);
  if (!pool_.can_take(n_lacking)) {
    return make_error(ErrorCode::kDoesNotFit, "{} more KV pages wanted, {} of {} are free",
                      n_lacking, pool_.n_free(), pool_.n_pages());
  }
  if (n_lacking == 0) return {};
  const uint32_t n_blocks = blocks_for(n_tokens);
  for (Held& held : sequences_[id].held) {
    if (!held.states.empty()) {
      const bool writes = n_tokens > held.states.back().position;
      if (writes && held.spare == kNoPage) held.spare = take_page();
      continue;
    }
    while (held.blocks.size() < n_blocks) held.blocks.push_back(take_page());
  }
  return {};
}

uint32_t KvCache::reserved_tokens(SequenceId id) const {
  uint64_t n_tokens = UINT32_MAX;
  for (const Held& held : sequence(id).held) {
    if (held.states.empty()) {
      n_tokens = std::min(n_tokens, held.blocks.size() * uint64_t{options_.block_tokens});
    } else if (held.spare == kNoPage) {
      n_tokens = std::min<uint64_t>(n_tokens, held.states.back().position);
    }
  }
  return static_cast<uint32_t>(n_tokens);
}

void KvCache::shrink(SequenceId id, uint32_t n_tokens) {
  Sequence& shrunk = sequence(id);
  const uint32_t n_blocks = blocks_for(std::max(n_tokens, shrunk.computed_tokens));
  for (Held& held : shrunk.held) {
    if (held.blocks.size() <= n_blocks) continue;
    pool_.release(std::span<const PageId>(held.blocks).subspan(n_blocks));
    held.blocks.resize(n_blocks);
  }
}

void KvCache::plan(SequenceId id, uint32_t n_tokens) {
  for (Held& held : sequence(id).held) {
    if (held.states.empty()) {
      PUMICE_CHECK(blocks_for(n_tokens) <= held.blocks.size(), "a step is planned without pages");
      continue;
    }
    PUMICE_CHECK(n_tokens > held.states.back().position && held.spare != kNoPage,
                 "a step is planned without a page for its state");
    held.states.push_back({n_tokens, std::exchange(held.spare, kNoPage)});
  }
}

void KvCache::unplan(SequenceId id, uint32_t n_tokens) {
  Sequence& owner = sequence(id);
  for (Held& held : owner.held) drop_planned(held, std::max(n_tokens, owner.computed_tokens));
}

void KvCache::drop_planned(Held& held, uint32_t n_tokens) {
  while (!held.states.empty() && held.states.back().position > n_tokens) {
    give_back_state(held, held.states.back().page);
    held.states.pop_back();
  }
}

/// Where a state is kept costs nothing but the memory, as long as nobody needs it.
uint32_t KvCache::next_kept_state(SequenceId id, uint32_t position) const {
  return next_kept_state(sequence(id), position);
}

uint32_t KvCache::next_kept_state(const Sequence& asked, uint32_t position) const {
  if (kinds_.recurrent() == 0 || !options_.reuse) return UINT32_MAX;
  const KeptStates kept = options_.kept_states;
  const bool both = kept == KeptStates::kEdgeAndBranch;
  uint32_t next = UINT32_MAX;
  const auto keep_at = [&](uint32_t edge) {
    if (edge > position) next = std::min(next, edge);
  };
  if (both || kept == KeptStates::kBranch) keep_at(asked.branch);
  if (both || kept == KeptStates::kPromptEdge) keep_at(asked.prompt_edge);
  if (kept == KeptStates::kEveryEdge) {
    const uint32_t edge = (position / options_.block_tokens + 1) * options_.block_tokens;
    if (edge <= asked.prompt_edge) keep_at(edge);
  }
  return next;
}

// ---- what is computed

void KvCache::append(SequenceId id, std::span<const uint32_t> tokens) {
  Sequence& grown = sequence(id);
  grown.prompt.n_tokens += static_cast<uint32_t>(tokens.size());
  if (options_.keyed) return;
  grown.prompt.content.insert(grown.prompt.content.end(), tokens.begin(), tokens.end());
  index_filled_blocks(grown);
}

void KvCache::commit(SequenceId id, uint32_t computed_tokens) {
  Sequence& committed = sequence(id);
  PUMICE_CHECK(committed.n_transfers == 0 && !committed.lost,
               "committed before its pages were restored");
  PUMICE_CHECK(computed_tokens >= committed.computed_tokens, "committed tokens are taken back");
  for (const Held& held : committed.held) {
    PUMICE_CHECK(!held.states.empty() || blocks_for(computed_tokens) <= held.blocks.size(),
                 "more tokens committed than pages hold");
  }
  committed.computed_tokens = computed_tokens;
  settle(committed);
  index_filled_blocks(committed);
  if (kinds_.plain()) return;
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    if (kinds_.is_recurrent(g)) flip(committed, g);
    if (kinds_.is_window(g)) slide(committed, g);
  }
}

/// What it began with is there, and its own.
void KvCache::settle(Sequence& begun) {
  begun.settled = true;
  if (begun.resumed != kNoNode) index_.unrefer(std::exchange(begun.resumed, kNoNode));
}

/// The state that the step has written is the sequence's; the one it read is given back, or stays
/// for a rewind.
void KvCache::flip(Sequence& committed, uint32_t kind) {
  Held& held = committed.held[kind];
  const uint32_t now = committed.computed_tokens;
  const auto at = std::ranges::find(held.states, now, &State::position);
  PUMICE_CHECK(at != held.states.end(), "a state is committed that no step was to write");
  const bool on_edge = now > 0 && now == committed.n_indexed * options_.block_tokens;
  if (on_edge && next_kept_state(committed, now - 1) == now) {
    keep_states(committed, committed.tip);
  }
  const size_t n_before = static_cast<size_t>(at - held.states.begin());
  const size_t n_stay = options_.rewind_tokens > 0 ? 1 : 0;
  for (size_t i = n_before; i > n_stay; --i) {
    give_back_state(held, held.states.front().page);
    held.states.erase(held.states.begin());
  }
}

/// What nothing sees any more is given back, and stays findable.
void KvCache::slide(Sequence& committed, uint32_t kind) {
  Held& held = committed.held[kind];
  const uint32_t first = kinds_.first_kept_block(kind, committed.computed_tokens);
  if (first <= held.first) return;
  const auto behind =
      std::span<PageId>(held.blocks).subspan(held.first, size_t{first} - held.first);
  for (const PageId page : behind) drop_copies(page);
  pool_.release(behind);
  std::ranges::fill(behind, kNoPage);
  held.first = first;
}

/// Pages that only the sequence knows are written again by its later steps.
void KvCache::give_back_state(Held& held, PageId page) {
  if (page == kNoPage) return;
  if (held.spare == kNoPage && index_.entry_of(page) == kNoEntry && pool_.references(page) == 1) {
    held.spare = page;
    return;
  }
  drop_copies(page);
  pool_.release({&page, 1});
}

/// The states at computed_tokens can be found at this node from now on.
void KvCache::keep_states(Sequence& kept, NodeId node) {
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    if (!kinds_.is_recurrent(g)) continue;
    const PageId page =
        std::ranges::find(kept.held[g].states, kept.computed_tokens, &State::position)->page;
    if (page == kNoPage || index_.entry_of(page) != kNoEntry) continue;
    index_.attach(index_.entry(node, g), page);
    pool_.set_cached(page, true);
    ++stats_.kinds[g].kept_states;
    note_new(kept, node, g);
  }
}

/// A page that was kept with part of its tokens (keep_end) stands for all of them now.
void KvCache::attach(EntryId entry, PageId page) {
  if (index_.entry_of(page) != kNoEntry) uncache(page);
  index_.attach(entry, page);
  pool_.set_cached(page, true);
}

/// Make the full blocks that are computed and whose tokens are known findable.
void KvCache::index_filled_blocks(Sequence& filled) {
  if (!options_.reuse || filled.n_transfers > 0 || filled.lost) return;
  HashedPrompt& prompt = filled.prompt;
  const size_t n_full = std::min<size_t>(prompt.content.size() / block_words_,
                                         filled.computed_tokens / options_.block_tokens);
  for (size_t i = filled.n_indexed; i < n_full; ++i) {
    const std::span<const uint32_t> content =
        std::span<const uint32_t>(prompt.content).subspan(i * block_words_, block_words_);
    if (prompt.hashes.size() == i) {
      prompt.hashes.push_back(hasher_.child(i == 0 ? prompt.root : prompt.hashes[i - 1], content));
      if (i == 0) prompt.first_content_hash = hash_content(content);
    }
    const BlockHash& hash = prompt.hashes[i];
    NodeId node = index_.find(hash, filled.tip, content);
    if (node == kNoNode) node = index_.add(hash, filled.tip, content);
    index_.refer(node);
    for (uint32_t g = 0; g < kinds_.size(); ++g) {
      const std::vector<PageId>& blocks = filled.held[g].blocks;
      if (i >= blocks.size() || blocks[i] == kNoPage) continue;
      attach(index_.entry(node, g), blocks[i]);
      note_new(filled, node, g);
    }
    index_.unrefer(filled.tip);
    filled.tip = node;
    if (i == 0) memory_.remember_first(prompt.first_content_hash, prompt.model, prompt.root);
  }
  filled.n_indexed = std::max(filled.n_indexed, static_cast<uint32_t>(n_full));
}

// ---- rewinding

/// The node of a sequence's first `n_blocks` blocks; they are in the index.
NodeId KvCache::node_of_block(const Sequence& owner, uint32_t n_blocks) const {
  NodeId node = owner.tip;
  for (uint32_t i = owner.n_indexed; i > n_blocks; --i) node = index_.node(node).parent;
  return node;
}

/// The page of the state behind `n_tokens`; kNoPage at 0.
Result<PageId> KvCache::state_to_rewind(const Sequence& rewound, uint32_t kind,
                                        uint32_t n_tokens) const {
  if (n_tokens == 0) return kNoPage;
  for (const State& state : rewound.held[kind].states) {
    if (state.position == n_tokens) return state.page;
  }
  const uint32_t n_blocks = n_tokens / options_.block_tokens;
  if (options_.reuse && n_tokens % options_.block_tokens == 0 && n_blocks <= rewound.n_indexed) {
    const PageId kept = best_copy(index_.entry(node_of_block(rewound, n_blocks), kind));
    if (kept != kNoPage) return kept;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "cannot go back to position {}: state group {} has no state there", n_tokens,
                    kinds_[kind].name);
}

Status KvCache::rewind(SequenceId id, uint32_t n_tokens) {
  Sequence& rewound = sequence(id);
  PUMICE_CHECK(rewound.n_transfers == 0 && !rewound.lost, "rewound before its pages were restored");
  if (n_tokens > rewound.computed_tokens) {
    return make_error(ErrorCode::kInvalidArgument,
                      "cannot go back to position {}: {} positions are computed", n_tokens,
                      rewound.computed_tokens);
  }
  const uint32_t n_full = n_tokens / options_.block_tokens;
  // A page that others may find is not written again: its head is copied.
  const bool copies = n_tokens % options_.block_tokens != 0 && n_full < rewound.n_indexed;
  std::vector<PageId> states(kinds_.size(), kNoPage);
  uint64_t n_wanted = 0;
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    if (kinds_.is_recurrent(g)) {
      PUMICE_TRY(states[g], state_to_rewind(rewound, g, n_tokens));
      if (states[g] != kNoPage && pool_.references(states[g]) == 0) ++n_wanted;
      continue;
    }
    if (kinds_.first_block(g, n_tokens) < rewound.held[g].first) {
      return make_error(ErrorCode::kInvalidArgument,
                        "cannot go back to position {}: state group {} has given back what it sees",
                        n_tokens, kinds_[g].name);
    }
    n_wanted += copies ? 1 : 0;
  }
  if (!pool_.can_take(n_wanted)) {
    return make_error(ErrorCode::kDoesNotFit, "{} more KV pages wanted, {} of {} are free",
                      n_wanted, pool_.n_free(), pool_.n_pages());
  }

  // Hold what stays, then take, then give back.
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    if (states[g] != kNoPage) pool_.share(states[g]);
  }
  std::vector<PageId> targets(kinds_.size(), kNoPage);
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    if (copies && !kinds_.is_recurrent(g)) targets[g] = take_page();
  }
  settle(rewound);
  rewound.computed_tokens = n_tokens;
  if (rewound.n_indexed > n_full) {
    const NodeId tip = node_of_block(rewound, n_full);
    index_.refer(tip);
    index_.unrefer(std::exchange(rewound.tip, tip));
    rewound.n_indexed = n_full;
  }
  HashedPrompt& prompt = rewound.prompt;
  prompt.n_tokens = std::min(prompt.n_tokens, n_tokens);
  const size_t n_words = options_.keyed ? size_t{n_full} * block_words_ : n_tokens;
  prompt.content.resize(std::min(prompt.content.size(), n_words));
  prompt.hashes.resize(std::min<size_t>(prompt.hashes.size(), n_full));
  if (prompt.hashes.empty()) prompt.first_content_hash = 0;
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    Held& held = rewound.held[g];
    if (!kinds_.is_recurrent(g)) {
      rewind_blocks(id, g, n_tokens, targets[g]);
      continue;
    }
    while (!held.states.empty() && held.states.back().position >= n_tokens) {
      give_back_state(held, held.states.back().page);
      held.states.pop_back();
    }
    held.states.push_back({n_tokens, states[g]});
  }
  return {};
}

/// `target`: takes the place of the last page, if that is shared and stays partly.
void KvCache::rewind_blocks(SequenceId id, uint32_t kind, uint32_t n_tokens, PageId target) {
  Held& held = sequences_[id].held[kind];
  const uint32_t n_blocks = blocks_for(n_tokens);
  if (target != kNoPage) {
    const PageId source = std::exchange(held.blocks[n_blocks - 1], target);
    copy(id, kind, source, target, n_tokens % options_.block_tokens);
  }
  const auto behind = std::span<const PageId>(held.blocks).subspan(n_blocks);
  for (const PageId page : behind) drop_copies(page);
  pool_.release(behind);
  held.blocks.resize(n_blocks);
}

// ---- the end

/// Keep what a later turn can go on from: the states, and the head of the last block.
void KvCache::index_end(Sequence& ended) {
  if (!options_.reuse || ended.n_transfers > 0 || ended.lost) return;
  const size_t first = size_t{ended.n_indexed} * options_.block_tokens;
  // Where contents are keys, those of a part of a block are not known.
  const size_t end =
      options_.keyed ? first : std::min<size_t>(ended.prompt.content.size(), ended.computed_tokens);
  const bool has_states = kinds_.recurrent() != 0 && end > 0 && end == ended.computed_tokens;
  NodeId node = ended.tip;
  if (end > first) {
    if (kinds_.paged() == 0 && !has_states) return;
    node = index_partial_block(
        ended, std::span<const uint32_t>(ended.prompt.content).subspan(first, end - first));
  }
  if (has_states) keep_states(ended, node);
}

NodeId KvCache::index_partial_block(Sequence& ended, std::span<const uint32_t> content) {
  if (kinds_.recurrent() == 0) {
    const PrefixIndex::ChildMatch known = index_.best_child(ended.tip, content, kinds_.all());
    if (known.n_words == content.size()) return known.node;  // nothing that is not there already
    if (known.n_words > 0 && known.n_words == index_.node(known.node).n_words) {
      // Ours continues a partial block: that one is of no more use.
      for (uint32_t g = 0; g < kinds_.size(); ++g) {
        const PageId shorter = index_.places(index_.entry(known.node, g)).page;
        if (shorter != kNoPage) uncache(shorter);
      }
    }
  }
  NodeId node = index_.child(ended.tip, content);
  if (node == kNoNode) node = index_.add({}, ended.tip, content);
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    if (kinds_.is_recurrent(g) || index_.node(node).holds(KindMask{1} << g)) continue;
    const PageId page = ended.held[g].blocks[ended.n_indexed];
    attach(index_.entry(node, g), page);
  }
  return node;
}

/// Of several pages with one content keep what is used longest: other owners' pages, else this
/// one, so that a page never outlasts its parent in the order of use.
void KvCache::drop_copies(PageId page) {
  const EntryId entry = index_.entry_of(page);
  if (entry == kNoEntry || pool_.references(page) > 1) return;
  PageId other = index_.places(entry).page;
  while (other != kNoPage && index_.entry_of(page) != kNoEntry) {
    const PageId next = index_.next_copy(other);
    if (other != page) uncache(pool_.references(other) > 0 ? page : other);
    other = next;
  }
}

void KvCache::uncache(PageId page) {
  pool_.set_cached(page, false);
  index_.detach(page);
}

/// A kept state of a prefix that was used until now is as recent as its blocks.
void KvCache::touch_states(NodeId node) {
  for (uint32_t g = kinds_.size(); g-- > 0;) {
    if (!kinds_.is_recurrent(g)) continue;
    PageId page = index_.places(index_.entry(node, g)).page;
    for (; page != kNoPage; page = index_.next_copy(page)) {
      if (pool_.references(page) > 0) continue;
      pool_.share(page);
      pool_.release({&page, 1});
    }
  }
}

/// From its end to its beginning, so that it is given up in this order.
void KvCache::give_back_all(const Sequence& ended) {
  if (kinds_.plain()) {
    pool_.release(ended.held[0].blocks);
    return;
  }
  size_t n_blocks = 0;
  for (uint32_t g = kinds_.size(); g-- > 0;) {
    const Held& held = ended.held[g];
    n_blocks = std::max(n_blocks, held.blocks.size());
    if (held.spare != kNoPage) pool_.release({&held.spare, 1});
    for (auto it = held.states.rbegin(); it != held.states.rend(); ++it) {
      if (it->page != kNoPage) pool_.release({&it->page, 1});
    }
  }
  n_blocks = std::max<size_t>(n_blocks, ended.n_indexed);
  NodeId node = ended.tip;
  for (size_t i = n_blocks; i-- > 0;) {
    if (i < ended.n_indexed) {
      touch_states(node);
      node = index_.node(node).parent;
    }
    for (uint32_t g = kinds_.size(); g-- > 0;) {
      const Held& held = ended.held[g];
      if (i >= held.first && i < held.blocks.size()) pool_.release({&held.blocks[i], 1});
    }
  }
}

HashedPrompt KvCache::end(SequenceId id) {
  Sequence& ended = sequence(id);
  index_end(ended);
  drop_transfers(id);
  for (const Held& held : ended.held) {
    for (size_t i = held.first; i < held.blocks.size(); ++i) drop_copies(held.blocks[i]);
    for (const State& state : held.states) {
      if (state.page != kNoPage) drop_copies(state.page);
    }
  }
  give_back_all(ended);
  settle(ended);
  if (ended.tip != kNoNode) index_.unrefer(ended.tip);
  HashedPrompt prompt = std::move(ended.prompt);
  ended = Sequence{};
  unused_sequences_.push_back(id);
  return prompt;
}

void KvCache::release(SequenceId id) { (void)end(id); }

HashedPrompt KvCache::suspend(SequenceId id) {
  HashedPrompt prompt = end(id);
  const size_t n_full = prompt.content.size() / block_words_;
  if (prompt.hashes.size() < n_full) hash_blocks(prompt);  // appended, and not computed
  return prompt;
}

}  // namespace pumice
