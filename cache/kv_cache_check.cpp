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
    for (const BlockId block : owner.blocks) ++of_block[block];
    if (owner.live && owner.tip != kNoNode) ++of_node[owner.tip];
  }
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
    if (pool_.cached(block) != (index_.node_of(block) != kNoNode)) {
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
      const NodeId id = all.node(slot);
      if (id == kNoNode) continue;
      const PrefixNode& node = index_.node(id);
      if ((tier == Tier::kHost ? node.host_slot : node.file_slot) != slot) {
        return wrong("{} slot {} belongs to a node that is not there", name, slot);
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
    if ((node.host_slot != kNowhere && host_.slots.node(node.host_slot) != id) ||
        (node.file_slot != kNowhere && file_.slots.node(node.file_slot) != id)) {
      return wrong("prefix node {} is not in its slot", id);
    }
    if (node.parent == kNoNode || !node.has_bytes()) continue;
    // Without tiers, nothing outlasts its parent: tails are evicted first.
    const PrefixNode& parent = index_.node(node.parent);
    const bool tiers = host_.slots.exists() || file_.slots.exists();
    if (!tiers && parent.n_words > 0 && !parent.has_bytes()) {
      return wrong("prefix node {} outlasted its parent", id);
    }
  }
  return {};
}

Status KvCache::check_sequence(SequenceId id) const {
  const Sequence& checked = sequences_[id];
  if (checked.blocks.size() < blocks_for(checked.computed_tokens)) {
    return wrong("sequence {} has computed {} tokens in {} blocks", id, checked.computed_tokens,
                 checked.blocks.size());
  }
  if (!options_.reuse) return {};
  NodeId node = checked.tip;
  for (uint32_t i = checked.n_indexed; i-- > 0; node = index_.node(node).parent) {
    const auto known = index_.content(node);
    const auto own =
        std::span<const uint32_t>(checked.prompt.content).subspan(i * block_words_, block_words_);
    if (!std::equal(known.begin(), known.end(), own.begin(), own.end())) {
      return wrong("block {} of sequence {} has other tokens than its node", i, id);
    }
    const NodeId held = index_.node_of(checked.blocks[i]);
    if (held != node && !(held == kNoNode && (checked.n_transfers > 0 || checked.lost))) {
      return wrong("block {} of sequence {} holds another node", i, id);
    }
  }
  if (node == kNoNode || index_.node(node).parent != kNoNode ||
      index_.root_salt(node) != checked.prompt.salt ||
      !(index_.root_model(node) == checked.prompt.model)) {
    return wrong("sequence {} hangs under a wrong root", id);
  }
  for (size_t i = checked.n_indexed; i < checked.blocks.size(); ++i) {
    if (pool_.cached(checked.blocks[i]) || pool_.references(checked.blocks[i]) != 1) {
      return wrong("block {} of sequence {} is shared before it is committed", i, id);
    }
  }
  return {};
}

}  // namespace pumice
