// Where in the KV cache's pages a program's states lie, and what the cache is told of them.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/cache_group.hpp"
#include "models/program.hpp"
#include "shaders/common/kv_layout.hpp"

namespace pumice {

/// Where a layer's keys and values are.
struct StateSlot {
  uint32_t group = 0;  ///< index into Program::state_groups
  uint32_t slot = 0;
};

/// How the state groups' slots lie in pages of equal size, each with 16 positions of some slots of
/// one group. A group of many slots has several pages for the same positions, so that pages are
/// about as large as the smallest group needs.
struct StateLayout {
  struct Page {
    uint32_t group = 0;  ///< index into Program::state_groups
    uint32_t first_slot = 0;
    KvLayout layout;  ///< n_layers: its slots
  };
  struct Place {
    uint32_t page = 0;  ///< index into `pages`
    uint32_t offset_bytes = 0;
  };
  std::vector<Page> pages;  ///< by group, then slot; what the cache keeps apart
  uint64_t page_bytes = 0;

  Place place(const StateSlot& slot) const;
  /// Of 16 positions of every slot.
  uint64_t block_bytes() const { return pages.size() * page_bytes; }
};
StateLayout state_layout(const Program& program, KvTypes type);
/// What the cache is told of each page of a layout.
std::vector<CacheGroup> cache_groups(const Program& program, const StateLayout& layout);
/// Pages that a sequence of `n_tokens` needs at most at once, two steps of `step_tokens` under way.
uint64_t pages_of_context(const std::vector<CacheGroup>& groups, uint64_t n_tokens,
                          uint32_t step_tokens);

}  // namespace pumice
