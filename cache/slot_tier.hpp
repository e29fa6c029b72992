// Which entries have their bytes in a tier of equal slots. The least recently used slot is given up
// first, except while something reads it. Holds no bytes itself.
#pragma once

#include <vector>

#include "cache/page_pool.hpp"
#include "cache/prefix_index.hpp"

namespace pumice {

class SlotTier {
 public:
  /// kUnlimitedPages: never gives anything up. Slots take memory as they come into use.
  explicit SlotTier(uint32_t n_slots = 0) : slots_(PagePool::up_to(n_slots)) {}

  /// As many slots of `page_bytes` as fit into `limit_bytes`.
  static uint32_t slots_for(uint64_t page_bytes, uint64_t limit_bytes);

  bool unlimited() const { return slots_.unlimited(); }
  bool exists() const { return slots_.limit() > 0; }
  uint32_t n_slots() const { return slots_.limit(); }
  /// Slots that have ever been in use: those below this number.
  uint32_t n_begun() const { return slots_.n_pages(); }
  uint32_t n_used() const { return n_used_; }

  struct Placed {
    uint32_t slot = kNowhere;     ///< kNowhere: all slots are being read, or there are none
    EntryId given_up = kNoEntry;  ///< whose bytes were there
  };
  /// A slot for an entry's bytes.
  Placed put(EntryId entry);
  /// The slot's bytes are no longer of use.
  void drop(uint32_t slot);
  /// The slot was useful: give it up last.
  void touch(uint32_t slot);
  /// While held, a slot keeps its bytes.
  void hold(uint32_t slot) { slots_.share(slot); }
  void let_go(uint32_t slot) { slots_.release({&slot, 1}); }

  /// kNoEntry: the slot is unused.
  EntryId entry(uint32_t slot) const { return slot < entries_.size() ? entries_[slot] : kNoEntry; }
  uint32_t n_holds(uint32_t slot) const { return slots_.references(slot); }

  /// Errors: kInternal.
  Status check_integrity() const { return slots_.check_integrity(); }

 private:
  PagePool slots_;
  std::vector<EntryId> entries_;
  uint32_t n_used_ = 0;
};

}  // namespace pumice
