// Bytes that the engine moves for the cache, around steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/page_pool.hpp"

namespace pumice {

using SequenceId = uint32_t;
inline constexpr SequenceId kNoSequence = UINT32_MAX;
using TransferBatch = uint64_t;

/// Where a page's bytes can be outside the device.
enum class Tier : uint8_t { kHost, kFile };

/// The bytes in a slot of host memory go to a slot of the file.
struct SlotDemotion {
  uint32_t host_slot = 0;
  uint32_t file_slot = 0;
  uint32_t entry = 0;  ///< the cache's own
  bool empty = false;  ///< the cache's own: what was to fill the host slot failed
};
/// The bytes of a page go to a slot.
struct PageSave {
  PageId source = kNoPage;
  Tier tier = Tier::kHost;
  uint32_t slot = 0;
  uint32_t entry = 0;  ///< the cache's own
};
/// The bytes in a slot go to a page.
struct PageRestore {
  SequenceId sequence = 0;
  Tier tier = Tier::kHost;
  uint32_t slot = 0;
  PageId target = kNoPage;
  uint32_t entry = 0;  ///< the cache's own
  bool whole = false;  ///< the cache's own: the target may be shared
  bool empty = false;  ///< the cache's own: what was to fill the slot failed
};
/// The first `n_tokens` positions of `source` go to `target` (copying all of it is as good).
struct PageCopy {
  SequenceId sequence = 0;
  uint32_t kind = 0;
  PageId source = kNoPage;
  PageId target = kNoPage;
  uint32_t n_tokens = 0;
};

/// The bytes of a page go to another, because the first will be gone.
struct PageMove {
  PageId source = kNoPage;
  PageId target = kNoPage;
};

/// What must happen between the step planned before and the step being planned: all demotions, then
/// all saves, then all restores (cache/move_bytes.hpp does these three), then all copies, each in
/// their order.
struct Transfers {
  TransferBatch batch = 0;  ///< 0: empty
  std::vector<SlotDemotion> demotions;
  std::vector<PageSave> saves;
  std::vector<PageRestore> restores;
  std::vector<PageCopy> copies;

  bool empty() const {
    return demotions.empty() && saves.empty() && restores.empty() && copies.empty();
  }
};

/// What of a batch did not happen, by index. A failed demotion or save costs a cached page; a
/// failed restore or `all` costs sequences their content.
struct TransferFailures {
  bool all = false;
  std::vector<size_t> demotions;
  std::vector<size_t> saves;
  std::vector<size_t> restores;
};

}  // namespace pumice
