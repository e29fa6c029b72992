// Where in the KV cache's pages a program's states lie, and what the cache is told of them.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "cache/page_kind.hpp"
#include "models/program.hpp"
#include "shaders/common/kv_layout.hpp"

namespace pumice {

/// Where a layer's keys and values are, or the state of its recurrence.
struct StateSlot {
  uint32_t group = 0;  ///< index into Program::state_groups
  uint32_t slot = 0;
};

/// How the state kinds' slots lie in pages of equal size, each with a cache block's positions of
/// some slots of one group, or with all of the state of some slots of a recurrent one. A group of
/// many slots is cut into several kinds for the same positions, so that their pages are about as large as the
/// smallest group needs. A state's slot is never cut: where one is larger than 16 positions of keys
/// and values, the cache's blocks have more of them, one KvLayout block after the other.
struct StateLayout {
  static constexpr uint32_t kMostBlockTokens = 256;
  struct Kind {
    uint32_t group = 0;  ///< index into Program::state_groups
    uint32_t first_slot = 0;
    uint32_t n_slots = 0;
    KvLayout layout = {};                     ///< of keys and values; n_layers: its slots
    std::vector<uint64_t> state_floats = {};  ///< of a recurrent group: each slot's
    uint64_t bytes = 0;                       ///< in use: of 16 positions, or of the states

    bool recurrent() const { return !state_floats.empty(); }
    uint64_t offset_bytes(uint32_t slot) const;  ///< slot: of the group's
  };
  struct Place {
    uint32_t kind = 0;  ///< index into `kinds`
    uint32_t offset_bytes = 0;
  };
  /// By group, then slot, recurrent ones last; what the cache keeps apart.
  std::vector<Kind> kinds;
  uint64_t page_bytes = 0;
  uint32_t block_tokens = kKvBlockTokens;  ///< positions of a page, a multiple of kKvBlockTokens

  Place place(const StateSlot& slot) const;
  /// A bit for each kind of a recurrent group.
  KindMask recurrent_kinds() const;
  /// KvLayout blocks in a page.
  uint32_t blocks_per_page() const { return block_tokens / kKvBlockTokens; }
  uint32_t n_paged() const {
    return static_cast<uint32_t>(kinds.size()) - std::popcount(recurrent_kinds());
  }
  /// Of 16 positions of every slot with keys and values.
  uint64_t block_bytes() const { return n_paged() * page_bytes / blocks_per_page(); }
};
StateLayout state_layout(const Program& program, KvTypes type);
/// What the cache is told of each kind of a layout.
std::vector<PageKind> page_kinds(const Program& program, const StateLayout& layout);
/// Pages that a sequence of `n_tokens` needs at most at once, two steps of `step_tokens` under way.
uint64_t pages_of_context(const std::vector<PageKind>& kinds, uint64_t n_tokens,
                          uint32_t step_tokens, uint32_t block_tokens = kKvBlockTokens);

}  // namespace pumice
