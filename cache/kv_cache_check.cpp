// KvCache::check_integrity.
#include <algorithm>
#include <array>

#include "cache/kv_cache.hpp"

namespace pumice {
namespace {

template <typename... Args>
Error wrong(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kInternal, format, std::forward<Args>(args)...);
}

}  // namespace

Status KvCache::check_integrity() const {
  PUMICE_TRY_STATUS(pool_.check_integrity());
  PUMICE_TRY_STATUS(index_.check_integrity());
  PUMICE_TRY_STATUS(host_.slots.check_integrity());
  PUMICE_TRY_STATUS(file_.slots.check_integrity());
  PUMICE_TRY_STATUS(check_references());
  PUMICE_TRY_STATUS(check_nodes());
  for (SequenceId id = 0; id < sequences_.size(); ++id) {
    if (sequences_[id].live) PUMICE_TRY_STATUS(check_sequence(id));
  }
  return {};
}

/// Every reference to a page, host slot or node has an owner.
Status KvCache::check_references() const {
  std::vector<uint32_t> of_block(pool_.n_pages(), 0);
  std::array<std::vector<uint32_t>, 2> of_slot = {std::vector<uint32_t>(host_.slots.n_begun(), 0),
                                                  std::vector<uint32_t>(file_.slots.n_begun(), 0)};
  std::vector<uint32_t> of_node(index_.n_node_slots(), 0);
  std::vector<uint32_t> transfers(sequences_.size(), 0);
  for (const Sequence& owner : sequences_) {
    for (const Held& held : owner.held) {
      for (size_t i = held.first; i < held.blocks.size(); ++i) ++of_block[held.blocks[i]];
      for (const State& state : held.states) {
        if (state.page != kNoPage) ++of_block[state.page];
      }
      if (held.spare != kNoPage) ++of_block[held.spare];
    }
    if (owner.live && owner.tip != kNoNode) ++of_node[owner.tip];
    if (owner.live && owner.resumed != kNoNode) ++of_node[owner.resumed];
  }
  for (const PageMove& move : moves_) ++of_block[move.target];
  for (const Batch& batch : batches_) {
    for (const PageCopy& copy : batch.transfers.copies) {
      if (copy.sequence == kNoSequence) continue;
      ++of_block[copy.source];
      ++transfers[copy.sequence];
    }
    for (const PageRestore& restore : batch.transfers.restores) {
      if (restore.sequence == kNoSequence) continue;
      ++of_slot[static_cast<size_t>(restore.tier)][restore.slot];
      ++transfers[restore.sequence];
    }
  }
  for (PageId page = 0; page < of_block.size(); ++page) {
    if (pool_.references(page) != of_block[page]) {
      return wrong("block {} has {} references and {} owners", page, pool_.references(page),
                   of_block[page]);
    }
    if (pool_.cached(page) != (index_.entry_of(page) != kNoEntry)) {
      return wrong("block {} is {}cached without agreeing with the index", page,
                   pool_.cached(page) ? "" : "not ");
    }
  }
  for (const Tier tier : {Tier::kHost, Tier::kFile}) {
    const SlotTier& all = tier == Tier::kHost ? host_.slots : file_.slots;
    const std::vector<uint32_t>& owners = of_slot[static_cast<size_t>(tier)];
    const std::string_view name = tier == Tier::kHost ? "host" : "file";
    for (uint32_t slot = 0; slot < owners.size(); ++slot) {
      if (all.n_holds(slot) != owners[slot]) return wrong("{} slot {} is held wrongly", name, slot);
      const EntryId entry = all.entry(slot);
      if (entry == kNoEntry) continue;
      const EntryPlaces& places = index_.places(entry);
      if ((tier == Tier::kHost ? places.host_slot : places.file_slot) != slot) {
        return wrong("{} slot {} belongs to a page that is not there", name, slot);
      }
    }
  }
  for (NodeId node = 0; node < of_node.size(); ++node) {
    if (index_.node(node).n_references != of_node[node]) {
      return wrong("prefix node {} has {} references and {} owners", node,
                   index_.node(node).n_references, of_node[node]);
    }
  }
  for (SequenceId id = 0; id < sequences_.size(); ++id) {
    if (sequences_[id].n_transfers != transfers[id]) {
      return wrong("sequence {} counts its transfers wrong", id);
    }
  }
  return {};
}

Status KvCache::check_nodes() const {
  for (NodeId id = 0; id < index_.n_node_slots(); ++id) {
    const PrefixNode& node = index_.node(id);
    if (!node.alive) continue;
    if (node.n_words == 0 && node.has_bytes()) return wrong("root node {} has bytes", id);
    for (uint32_t g = 0; g < kinds_.size(); ++g) {
      const EntryId entry = index_.entry(id, g);
      const EntryPlaces& places = index_.places(entry);
      if ((places.host_slot != kNowhere && host_.slots.entry(places.host_slot) != entry) ||
          (places.file_slot != kNowhere && file_.slots.entry(places.file_slot) != entry)) {
        return wrong("prefix node {} is not in its slot", id);
      }
    }
    if (node.parent == kNoNode) continue;
    // Without tiers, nothing of a full kind outlasts its parent: tails are evicted first.
    const PrefixNode& parent = index_.node(node.parent);
    const bool tiers = host_.slots.exists() || file_.slots.exists();
    const KindMask outlasts = node.held & ~parent.held & kinds_.full();
    if (!tiers && parent.n_words > 0 && outlasts != 0) {
      return wrong("prefix node {} outlasted its parent", id);
    }
  }
  return {};
}

Status KvCache::check_sequence(SequenceId id) const {
  const Sequence& checked = sequences_[id];
  if (options_.reuse) {
    NodeId node = checked.tip;
    for (uint32_t i = checked.n_indexed; i-- > 0; node = index_.node(node).parent) {
      const auto known = index_.content(node);
      const auto own =
          std::span<const uint32_t>(checked.prompt.content).subspan(i * block_words_, block_words_);
      if (!std::equal(known.begin(), known.end(), own.begin(), own.end())) {
        return wrong("block {} of sequence {} has other tokens than its node", i, id);
      }
    }
    if (node == kNoNode || index_.node(node).parent != kNoNode ||
        index_.root_salt(node) != checked.prompt.salt ||
        !(index_.root_model(node) == checked.prompt.model)) {
      return wrong("sequence {} hangs under a wrong root", id);
    }
  }
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    PUMICE_TRY_STATUS(kinds_.is_recurrent(g) ? check_states(id, g) : check_blocks(id, g));
  }
  return {};
}

Status KvCache::check_blocks(SequenceId id, uint32_t kind) const {
  const Sequence& checked = sequences_[id];
  const Held& held = checked.held[kind];
  if (held.blocks.size() < blocks_for(checked.computed_tokens)) {
    return wrong("sequence {} has computed {} tokens in {} blocks", id, checked.computed_tokens,
                 held.blocks.size());
  }
  if (held.first > kinds_.first_block(kind, checked.computed_tokens)) {
    return wrong("sequence {} has given back what its next position sees", id);
  }
  for (size_t i = 0; i < held.blocks.size(); ++i) {
    if ((held.blocks[i] == kNoPage) != (i < held.first)) {
      return wrong("block {} of sequence {} is on the wrong side of its window", i, id);
    }
  }
  if (!options_.reuse) return {};
  NodeId node = checked.tip;
  for (uint32_t i = checked.n_indexed; i-- > held.first; node = index_.node(node).parent) {
    const EntryId entry = index_.entry_of(held.blocks[i]);
    const bool unfinished = checked.n_transfers > 0 || checked.lost;
    if (entry != index_.entry(node, kind) && !(entry == kNoEntry && unfinished)) {
      return wrong("block {} of sequence {} holds another node", i, id);
    }
  }
  for (size_t i = std::max(checked.n_indexed, held.first); i < held.blocks.size(); ++i) {
    const EntryId entry = index_.entry_of(held.blocks[i]);
    if (i == checked.n_indexed && entry != kNoEntry &&
        index_.node(index_.node_of_entry(entry)).parent == checked.tip) {
      continue;  // keep_end
    }
    if (pool_.cached(held.blocks[i]) || pool_.references(held.blocks[i]) != 1) {
      return wrong("block {} of sequence {} is shared before it is committed", i, id);
    }
  }
  return {};
}

Status KvCache::check_states(SequenceId id, uint32_t kind) const {
  const Sequence& checked = sequences_[id];
  const Held& held = checked.held[kind];
  size_t n_before = 0;
  bool has_own = false;
  for (size_t i = 0; i < held.states.size(); ++i) {
    const State& state = held.states[i];
    if (i > 0 && state.position <= held.states[i - 1].position) {
      return wrong("sequence {} has states out of order", id);
    }
    has_own |= state.position == checked.computed_tokens;
    n_before += state.position < checked.computed_tokens ? 1 : 0;
    if ((state.page == kNoPage) != (state.position == 0)) {
      return wrong("sequence {} has no page for its state at {}", id, state.position);
    }
    if (state.page == kNoPage) continue;
    const EntryId entry = index_.entry_of(state.page);
    if (entry != kNoEntry &&
        (index_.kind_of_entry(entry) != kind || state.position > checked.computed_tokens)) {
      return wrong("sequence {} has a state that is another's", id);
    }
    if (entry == kNoEntry && pool_.references(state.page) != 1) {
      return wrong("sequence {} shares a state that is not kept", id);
    }
  }
  if (!has_own || n_before > (options_.rewind_tokens > 0 ? 1u : 0u)) {
    return wrong("sequence {} has states of other positions than it should", id);
  }
  if (held.spare != kNoPage && pool_.cached(held.spare)) {
    return wrong("sequence {} would write over a kept state", id);
  }
  return {};
}

}  // namespace pumice
