// KvCache: giving up pages, and the bytes to move because of it.
#include <algorithm>

#include "cache/kv_cache.hpp"

namespace pumice {
namespace {

/// An entry's bytes never came to this slot: what was planned to read them there has failed too.
void note_unfilled(Transfers& planned, Tier tier, uint32_t slot, EntryId entry) {
  for (SlotDemotion& demotion : planned.demotions) {
    demotion.empty |= tier == Tier::kHost && demotion.host_slot == slot && demotion.entry == entry;
  }
  for (PageRestore& restore : planned.restores) {
    restore.empty |= restore.tier == tier && restore.slot == slot && restore.entry == entry;
  }
}

}  // namespace

PageId KvCache::take_page() {
  const PageId page = pool_.take();
  if (index_.entry_of(page) != kNoEntry) evict(page);
  return page;
}

void KvCache::evict(PageId page) {
  const EntryId entry = index_.entry_of(page);
  const EntryPlaces& places = index_.places(entry);
  if (places.page == page && index_.next_copy(page) == kNoPage) {  // the only copy
    ++stats_.evicted_blocks;
    ++stats_.kinds[index_.kind_of_entry(entry)].evicted_blocks;
    if (places.host_slot != kNowhere) {
      host_.slots.touch(places.host_slot);
    } else if (!save_to_host(entry, page)) {
      save_to_file(entry, page);
    }
    if (places.host_slot == kNowhere && places.file_slot == kNowhere) remember_evicted(entry);
  }
  uncache(page);
}

bool KvCache::save_to_host(EntryId entry, PageId page) {
  const SlotTier::Placed placed = host_.slots.put(entry);
  if (placed.slot == kNowhere) return false;
  if (placed.given_up != kNoEntry) leave_host(placed.given_up, placed.slot);
  index_.set_host_slot(entry, placed.slot);
  open_batch().transfers.saves.push_back({page, Tier::kHost, placed.slot, entry});
  ++stats_.saved_blocks;
  return true;
}

void KvCache::save_to_file(EntryId entry, PageId page) {
  if (index_.places(entry).file_slot != kNowhere) {
    file_.slots.touch(index_.places(entry).file_slot);
    return;
  }
  const uint32_t slot = place_in_file(entry);
  if (slot == kNowhere) return;
  open_batch().transfers.saves.push_back({page, Tier::kFile, slot, entry});
  ++stats_.saved_blocks;
}

uint32_t KvCache::place_in_file(EntryId entry) {
  const SlotTier::Placed placed = file_.slots.put(entry);
  if (placed.slot == kNowhere) return kNowhere;
  if (placed.given_up != kNoEntry) {
    Transfers& open = open_batch().transfers;
    std::erase_if(open.saves, [&](const PageSave& save) {
      return save.tier == Tier::kFile && save.slot == placed.slot;
    });
    std::erase_if(open.demotions,
                  [&](const SlotDemotion& demotion) { return demotion.file_slot == placed.slot; });
    forget_slot(placed.given_up, Tier::kFile);
  }
  index_.set_file_slot(entry, placed.slot);
  return placed.slot;
}

/// Another entry gets this entry's host slot: its bytes go to the file, if they are nowhere else.
void KvCache::leave_host(EntryId entry, uint32_t slot) {
  std::vector<PageSave>& saves = open_batch().transfers.saves;
  // Saves that have begun are done before whatever is planned now; this one would come too late.
  const auto pending = std::ranges::find_if(
      saves, [&](const PageSave& save) { return save.tier == Tier::kHost && save.slot == slot; });
  const bool is_pending = pending != saves.end();
  const PageId source = is_pending ? pending->source : kNoPage;
  if (is_pending) saves.erase(pending);
  const EntryPlaces& places = index_.places(entry);
  if (places.page == kNoPage && places.file_slot == kNowhere) {
    const uint32_t file_slot = place_in_file(entry);
    Transfers& open = open_batch().transfers;
    if (file_slot != kNowhere && is_pending) {
      open.saves.push_back({source, Tier::kFile, file_slot, entry});
    } else if (file_slot != kNowhere) {
      open.demotions.push_back({slot, file_slot, entry});
    }
  }
  forget_slot(entry, Tier::kHost);
}

/// The entry's bytes are no longer in this tier, whose slot has been given to another or dropped.
void KvCache::forget_slot(EntryId entry, Tier tier) {
  const EntryPlaces& places = index_.places(entry);
  const uint32_t elsewhere = tier == Tier::kHost ? places.file_slot : places.host_slot;
  if (places.page == kNoPage && elsewhere == kNowhere) remember_evicted(entry);
  if (tier == Tier::kHost) {
    index_.set_host_slot(entry, kNowhere);
  } else {
    index_.set_file_slot(entry, kNowhere);
  }
}

void KvCache::remember_evicted(EntryId entry) {
  const PrefixNode& node = index_.node(index_.node_of_entry(entry));
  if (node.n_words == block_words_) memory_.remember_evicted(node.hash);
}

KvCache::Batch& KvCache::open_batch() {
  if (batches_.empty() || batches_.back().taken) {
    batches_.emplace_back();
    batches_.back().transfers.batch = next_batch_++;
  }
  return batches_.back();
}

std::pair<Tier, uint32_t> KvCache::nearest_slot(EntryId entry) const {
  const EntryPlaces& places = index_.places(entry);
  if (places.host_slot != kNowhere) return {Tier::kHost, places.host_slot};
  return {Tier::kFile, places.file_slot};
}

/// The slot is held already. `whole`: `target` will hold all of the entry, to be shared.
void KvCache::restore(SequenceId id, EntryId entry, PageId target, bool whole) {
  const auto [tier, slot] = nearest_slot(entry);
  open_batch().transfers.restores.push_back({id, tier, slot, target, entry, whole});
  ++sequences_[id].n_transfers;
}

/// The source is held already.
void KvCache::copy(SequenceId id, uint32_t kind, PageId source, PageId target, uint32_t n_tokens) {
  open_batch().transfers.copies.push_back({id, kind, source, target, n_tokens});
  ++sequences_[id].n_transfers;
}

/// Its restores and copies are of no more use. What has been taken keeps its place, so that
/// failures can be named by index.
void KvCache::drop_transfers(SequenceId id) {
  if (sequences_[id].n_transfers == 0) return;
  for (Batch& batch : batches_) {
    for (PageRestore& restore : batch.transfers.restores) {
      if (restore.sequence != id) continue;
      slots(restore.tier).let_go(restore.slot);
      restore.sequence = kNoSequence;
    }
    for (PageCopy& copy : batch.transfers.copies) {
      if (copy.sequence != id) continue;
      pool_.release({&copy.source, 1});
      copy.sequence = kNoSequence;
    }
    if (batch.taken) continue;
    const auto dropped = [](const auto& transfer) { return transfer.sequence == kNoSequence; };
    std::erase_if(batch.transfers.restores, dropped);
    std::erase_if(batch.transfers.copies, dropped);
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

bool KvCache::moves_bytes() const {
  const auto is_empty = [](const Batch& batch) { return batch.transfers.empty(); };
  return !moves_.empty() || !std::ranges::all_of(batches_, is_empty);
}

std::vector<SequenceId> KvCache::finish_transfers(TransferBatch id,
                                                  const TransferFailures& failures) {
  if (id == 0) return {};
  PUMICE_CHECK(
      !batches_.empty() && batches_.front().taken && batches_.front().transfers.batch == id,
      "transfers finished out of order");
  Batch batch = std::move(batches_.front());
  batches_.pop_front();
  return finish(std::move(batch.transfers), failures);
}

std::vector<SequenceId> KvCache::finish(Transfers transfers, const TransferFailures& failures) {
  const auto failed = [&](const std::vector<size_t>& indices, size_t i) {
    return failures.all || std::ranges::find(indices, i) != indices.end();
  };
  const auto drop = [&](Tier tier, uint32_t slot, EntryId entry) {
    if (slots(tier).entry(slot) != entry) return;  // another's since
    slots(tier).drop(slot);
    forget_slot(entry, tier);
  };
  const auto drop_unfilled = [&](Tier tier, uint32_t slot, EntryId entry) {
    note_unfilled(transfers, tier, slot, entry);
    for (Batch& later : batches_) note_unfilled(later.transfers, tier, slot, entry);
    drop(tier, slot, entry);
  };
  for (size_t i = 0; i < transfers.demotions.size(); ++i) {
    const SlotDemotion& done = transfers.demotions[i];
    if (done.empty || failed(failures.demotions, i)) {
      drop_unfilled(Tier::kFile, done.file_slot, done.entry);
    }
  }
  for (size_t i = 0; i < transfers.saves.size(); ++i) {
    const PageSave& done = transfers.saves[i];
    if (failed(failures.saves, i)) drop_unfilled(done.tier, done.slot, done.entry);
  }
  std::vector<SequenceId> lost;
  const auto answer = [&](SequenceId sequence, bool good) {
    --sequences_[sequence].n_transfers;
    if (good) return;
    Sequence& owner = sequences_[sequence];
    if (!owner.lost && !owner.settled) count_begun(owner, true);
    owner.lost = true;
    if (std::ranges::find(lost, sequence) == lost.end()) lost.push_back(sequence);
  };
  for (size_t i = 0; i < transfers.restores.size(); ++i) {
    const PageRestore& done = transfers.restores[i];
    if (done.sequence == kNoSequence) continue;
    slots(done.tier).let_go(done.slot);
    const bool good = !failed(failures.restores, i) && !done.empty;
    answer(done.sequence, good);
    if (good && done.whole) {
      index_.attach(done.entry, done.target);
      pool_.set_cached(done.target, true);
    }
    if (!good && done.tier == Tier::kFile) drop(done.tier, done.slot, done.entry);
  }
  for (const PageCopy& done : transfers.copies) {
    if (done.sequence == kNoSequence) continue;
    pool_.release({&done.source, 1});
    answer(done.sequence, !failures.all);
  }
  return lost;
}

void KvCache::forget_device() {
  PUMICE_CHECK(unused_sequences_.size() == sequences_.size(),
               "the device is forgotten while sequences live");
  finish_moves(false);
  while (!batches_.empty()) {
    Transfers unfinished = std::move(batches_.front().transfers);
    batches_.pop_front();
    (void)finish(std::move(unfinished), {.all = true});
  }
  for (PageId page = 0; page < pool_.n_pages(); ++page) {
    const EntryId entry = index_.entry_of(page);
    if (entry == kNoEntry) continue;
    const EntryPlaces& places = index_.places(entry);
    if (places.host_slot == kNowhere && places.file_slot == kNowhere) remember_evicted(entry);
    uncache(page);
  }
}

std::span<std::byte> KvCache::host_slot(uint32_t slot) {
  if (slot >= host_.memory.size()) host_.memory.resize(slot + 1);
  HostMemory& memory = host_.memory[slot];
  if (!memory) memory = allocate_host_memory(options_.host_allocator, options_.page_bytes);
  if (!memory) return {};
  return {memory.get(), options_.page_bytes};
}

}  // namespace pumice
