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

/// Every reference to a block, host slot or node has an owner.
Status KvCache::check_references() const {
  std::vector<uint32_t> of_block(pool_.n_blocks(), 0);
  std::array<std::vector<uint32_t>, 2> of_slot = {std::vector<uint32_t>(host_.slots.n_begun(), 0),
                                                  std::vector<uint32_t>(file_.slots.n_begun(), 0)};
  std::vector<uint32_t> of_node(index_.n_node_slots(), 0);
  std::vector<uint32_t> transfers(sequences_.size(), 0);
  for (const Sequence& owner : sequences_) {
    for (const Held& held : owner.held) {
      for (size_t i = held.first; i < held.blocks.size(); ++i) ++of_block[held.blocks[i]];
      for (const State& state : held.states) {
        if (state.page != kNoBlock) ++of_block[state.page];
      }
      if (held.spare != kNoBlock) ++of_block[held.spare];
    }
    if (owner.live && owner.tip != kNoNode) ++of_node[owner.tip];
    if (owner.live && owner.resumed != kNoNode) ++of_node[owner.resumed];
  }
  for (const BlockMove& move : moves_) ++of_block[move.target];
  for (const Batch& batch : batches_) {
    for (const BlockCopy& copy : batch.transfers.copies) {
      if (copy.sequence == kNoSequence) continue;
      ++of_block[copy.source];
      ++transfers[copy.sequence];
    }
    for (const BlockRestore& restore : batch.transfers.restores) {
      if (restore.sequence == kNoSequence) continue;
      ++of_slot[static_cast<size_t>(restore.tier)][restore.slot];
      ++transfers[restore.sequence];
    }
  }
  for (BlockId block = 0; block < of_block.size(); ++block) {
    if (pool_.references(block) != of_block[block]) {
      return wrong("block {} has {} references and {} owners", block, pool_.references(block),
                   of_block[block]);
    }
    if (pool_.cached(block) != (index_.page_of(block) != kNoPage)) {
      return wrong("block {} is {}cached without agreeing with the index", block,
                   pool_.cached(block) ? "" : "not ");
    }
  }
  for (const Tier tier : {Tier::kHost, Tier::kFile}) {
    const SlotTier& all = tier == Tier::kHost ? host_.slots : file_.slots;
    const std::vector<uint32_t>& owners = of_slot[static_cast<size_t>(tier)];
    const std::string_view name = tier == Tier::kHost ? "host" : "file";
    for (uint32_t slot = 0; slot < owners.size(); ++slot) {
      if (all.n_holds(slot) != owners[slot]) return wrong("{} slot {} is held wrongly", name, slot);
      const PageId page = all.page(slot);
      if (page == kNoPage) continue;
      const PagePlaces& places = index_.places(page);
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
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      const PageId page = index_.page(id, g);
      const PagePlaces& places = index_.places(page);
      if ((places.host_slot != kNowhere && host_.slots.page(places.host_slot) != page) ||
          (places.file_slot != kNowhere && file_.slots.page(places.file_slot) != page)) {
        return wrong("prefix node {} is not in its slot", id);
      }
    }
    if (node.parent == kNoNode) continue;
    // Without tiers, nothing of a full group outlasts its parent: tails are evicted first.
    const PrefixNode& parent = index_.node(node.parent);
    const bool tiers = host_.slots.exists() || file_.slots.exists();
    const GroupMask outlasts = node.held & ~parent.held & groups_.full();
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
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    PUMICE_TRY_STATUS(groups_.is_recurrent(g) ? check_states(id, g) : check_blocks(id, g));
  }
  return {};
}

Status KvCache::check_blocks(SequenceId id, uint32_t group) const {
  const Sequence& checked = sequences_[id];
  const Held& held = checked.held[group];
  if (held.blocks.size() < blocks_for(checked.computed_tokens)) {
    return wrong("sequence {} has computed {} tokens in {} blocks", id, checked.computed_tokens,
                 held.blocks.size());
  }
  if (held.first > groups_.first_block(group, checked.computed_tokens)) {
    return wrong("sequence {} has given back what its next position sees", id);
  }
  for (size_t i = 0; i < held.blocks.size(); ++i) {
    if ((held.blocks[i] == kNoBlock) != (i < held.first)) {
      return wrong("block {} of sequence {} is on the wrong side of its window", i, id);
    }
  }
  if (!options_.reuse) return {};
  NodeId node = checked.tip;
  for (uint32_t i = checked.n_indexed; i-- > held.first; node = index_.node(node).parent) {
    const PageId page = index_.page_of(held.blocks[i]);
    const bool unfinished = checked.n_transfers > 0 || checked.lost;
    if (page != index_.page(node, group) && !(page == kNoPage && unfinished)) {
      return wrong("block {} of sequence {} holds another node", i, id);
    }
  }
  for (size_t i = std::max(checked.n_indexed, held.first); i < held.blocks.size(); ++i) {
    if (pool_.cached(held.blocks[i]) || pool_.references(held.blocks[i]) != 1) {
      return wrong("block {} of sequence {} is shared before it is committed", i, id);
    }
  }
  return {};
}

Status KvCache::check_states(SequenceId id, uint32_t group) const {
  const Sequence& checked = sequences_[id];
  const Held& held = checked.held[group];
  size_t n_before = 0;
  bool has_own = false;
  for (size_t i = 0; i < held.states.size(); ++i) {
    const State& state = held.states[i];
    if (i > 0 && state.position <= held.states[i - 1].position) {
      return wrong("sequence {} has states out of order", id);
    }
    has_own |= state.position == checked.computed_tokens;
    n_before += state.position < checked.computed_tokens ? 1 : 0;
    if ((state.page == kNoBlock) != (state.position == 0)) {
      return wrong("sequence {} has no page for its state at {}", id, state.position);
    }
    if (state.page == kNoBlock) continue;
    const PageId page = index_.page_of(state.page);
    if (page != kNoPage &&
        (index_.group_of_page(page) != group || state.position > checked.computed_tokens)) {
      return wrong("sequence {} has a state that is another's", id);
    }
    if (page == kNoPage && pool_.references(state.page) != 1) {
      return wrong("sequence {} shares a state that is not kept", id);
    }
  }
  if (!has_own || n_before > (options_.rewind_tokens > 0 ? 1u : 0u)) {
    return wrong("sequence {} has states of other positions than it should", id);
  }
  if (held.spare != kNoBlock && pool_.cached(held.spare)) {
    return wrong("sequence {} would write over a kept state", id);
  }
  return {};
}

}  // namespace pumice
