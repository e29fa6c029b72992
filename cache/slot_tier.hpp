// Which pages have their bytes in a tier of equal slots. The least recently used slot is given up
// first, except while something reads it. Holds no bytes itself.
#pragma once

#include <vector>

#include "cache/block_pool.hpp"
#include "cache/prefix_index.hpp"

namespace pumice {

class SlotTier {
 public:
  /// kUnlimitedBlocks: never gives anything up. Slots take memory as they come into use.
  explicit SlotTier(uint32_t n_slots = 0) : slots_(BlockPool::up_to(n_slots)) {}

  /// As many slots of `block_bytes` as fit into `limit_bytes`.
  static uint32_t slots_for(uint64_t block_bytes, uint64_t limit_bytes);

  bool unlimited() const { return slots_.unlimited(); }
  bool exists() const { return slots_.limit() > 0; }
  uint32_t n_slots() const { return slots_.limit(); }
  /// Slots that have ever been in use: those below this number.
  uint32_t n_begun() const { return slots_.n_blocks(); }
  uint32_t n_used() const { return n_used_; }

  struct Placed {
    uint32_t slot = kNowhere;   ///< kNowhere: all slots are being read, or there are none
    PageId given_up = kNoPage;  ///< whose bytes were there
  };
  /// A slot for a page's bytes.
  Placed put(PageId page);
  /// The slot's bytes are no longer of use.
  void drop(uint32_t slot);
  /// The slot was useful: give it up last.
  void touch(uint32_t slot);
  /// While held, a slot keeps its bytes.
  void hold(uint32_t slot) { slots_.share(slot); }
  void let_go(uint32_t slot) { slots_.release({&slot, 1}); }

  /// kNoPage: the slot is unused.
  PageId page(uint32_t slot) const { return slot < pages_.size() ? pages_[slot] : kNoPage; }
  uint32_t n_holds(uint32_t slot) const { return slots_.references(slot); }

  /// Errors: kInternal.
  Status check_integrity() const { return slots_.check_integrity(); }

 private:
  BlockPool slots_;
  std::vector<PageId> pages_;
  uint32_t n_used_ = 0;
};

}  // namespace pumice
