// KvCache: giving up blocks, and the bytes to move because of it.
#include <algorithm>

#include "cache/kv_cache.hpp"

namespace pumice {

BlockId KvCache::take_block() {
  const BlockId block = pool_.take();
  if (index_.node_of(block) != kNoNode) evict(block);
  return block;
}

void KvCache::evict(BlockId block) {
  const NodeId id = index_.node_of(block);
  const PrefixNode& node = index_.node(id);
  if (node.block == block && index_.next_copy(block) == kNoBlock) {  // the only copy
    ++stats_.evicted_blocks;
    if (node.host_slot != kNowhere) {
      host_.touch(node.host_slot);
    } else {
      move_to_host(id, block);
    }
    if (node.host_slot == kNowhere && node.file_record == kNowhere) remember_evicted(node);
  }
  uncache(block);
}

void KvCache::remember_evicted(const PrefixNode& node) {
  if (node.n_words == block_words_) memory_.remember_evicted(node.hash);
}

void KvCache::move_to_host(NodeId id, BlockId block) {
  const HostTier::Placed placed = host_.put(id);
  if (placed.slot == kNowhere) return;
  if (placed.given_up != kNoNode) {
    // A save into this slot that has not begun is not worth doing; what has begun comes first.
    if (!batches_.empty() && !batches_.back().taken) {
      Batch& open = batches_.back();
      for (size_t i = 0; i < open.transfers.saves.size(); ++i) {
        if (open.transfers.saves[i].host_slot != placed.slot) continue;
        open.transfers.saves.erase(open.transfers.saves.begin() + static_cast<ptrdiff_t>(i));
        open.save_nodes.erase(open.save_nodes.begin() + static_cast<ptrdiff_t>(i));
        break;
      }
    }
    leave_host(placed.given_up);
  }
  index_.set_host_slot(id, placed.slot);
  Batch& batch = open_batch();
  batch.transfers.saves.push_back({block, placed.slot});
  batch.save_nodes.push_back(id);
  ++stats_.saved_blocks;
}

void KvCache::leave_host(NodeId id) {
  const PrefixNode& node = index_.node(id);
  if (node.block == kNoBlock && node.file_record == kNowhere) remember_evicted(node);
  index_.set_host_slot(id, kNowhere);
}

KvCache::Batch& KvCache::open_batch() {
  if (batches_.empty() || batches_.back().taken) {
    batches_.emplace_back();
    batches_.back().transfers.batch = next_batch_++;
  }
  return batches_.back();
}

/// The tier is held already. `whole`: `target` will hold the node's block, to be shared.
void KvCache::restore(SequenceId id, NodeId node, BlockId target, bool whole) {
  Batch& batch = open_batch();
  batch.transfers.restores.push_back({id, Tier::kHost, index_.node(node).host_slot, target});
  batch.restore_nodes.push_back(whole ? node : kNoNode);
  ++sequences_[id].n_transfers;
}

/// The source is held already.
void KvCache::copy(SequenceId id, BlockId source, BlockId target, uint32_t n_tokens) {
  open_batch().transfers.copies.push_back({id, source, target, n_tokens});
  ++sequences_[id].n_transfers;
}

/// Its restores and copies are of no more use, begun or not.
void KvCache::drop_transfers(SequenceId id) {
  if (sequences_[id].n_transfers == 0) return;
  for (Batch& batch : batches_) {
    std::vector<BlockRestore>& restores = batch.transfers.restores;
    for (size_t i = restores.size(); i-- > 0;) {
      if (restores[i].sequence != id) continue;
      host_.let_go(restores[i].slot);
      restores.erase(restores.begin() + static_cast<ptrdiff_t>(i));
      batch.restore_nodes.erase(batch.restore_nodes.begin() + static_cast<ptrdiff_t>(i));
    }
    std::erase_if(batch.transfers.copies, [&](const BlockCopy& copy) {
      if (copy.sequence != id) return false;
      pool_.release({&copy.source, 1});
      return true;
    });
  }
  sequences_[id].n_transfers = 0;
}

Transfers KvCache::take_transfers() {
  if (batches_.empty() || batches_.back().taken) return {};
  if (batches_.back().transfers.empty()) {  // all of it was undone
    batches_.pop_back();
    return {};
  }
  batches_.back().taken = true;
  return batches_.back().transfers;
}

std::vector<SequenceId> KvCache::finish_transfers(TransferBatch id, bool ok) {
  if (id == 0) return {};
  PUMICE_CHECK(!batches_.empty() && batches_.front().transfers.batch == id,
               "transfers finished out of order");
  const Batch batch = std::move(batches_.front());
  batches_.pop_front();
  std::vector<SequenceId> lost;
  const Transfers& transfers = batch.transfers;
  for (size_t i = 0; i < transfers.saves.size(); ++i) {
    const uint32_t slot = transfers.saves[i].host_slot;
    if (ok || host_.node(slot) != batch.save_nodes[i]) continue;
    host_.drop(slot);
    leave_host(batch.save_nodes[i]);
  }
  const auto answer = [&](SequenceId sequence) {
    --sequences_[sequence].n_transfers;
    if (ok) return;
    sequences_[sequence].lost = true;
    lost.push_back(sequence);
  };
  for (size_t i = 0; i < transfers.restores.size(); ++i) {
    const BlockRestore& done = transfers.restores[i];
    host_.let_go(done.slot);
    answer(done.sequence);
    if (!ok || batch.restore_nodes[i] == kNoNode) continue;
    index_.attach(batch.restore_nodes[i], done.target);
    pool_.set_cached(done.target, true);
  }
  for (const BlockCopy& done : transfers.copies) {
    pool_.release({&done.source, 1});
    answer(done.sequence);
  }
  std::sort(lost.begin(), lost.end());
  lost.erase(std::unique(lost.begin(), lost.end()), lost.end());
  return lost;
}

std::span<std::byte> KvCache::host_slot(uint32_t slot) { return host_.bytes(slot); }

}  // namespace pumice
