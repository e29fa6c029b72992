#include "models/state_layout.hpp"

#include <algorithm>

namespace pumice {
namespace {

constexpr uint64_t kMostPagesOfGroup = 8;  // a table each, and the cache takes 16 in all

}  // namespace

StateLayout::Place StateLayout::place(const StateSlot& slot) const {
  uint32_t i = 0;
  while (pages[i].group != slot.group ||
         slot.slot >= pages[i].first_slot + pages[i].layout.n_layers) {
    ++i;
  }
  return {i, pages[i].layout.layer_offset_bytes(slot.slot - pages[i].first_slot)};
}

StateLayout state_layout(const Program& program, KvTypes type) {
  const auto layout_of = [&](const StateGroup& group, uint32_t n_slots) {
    return KvLayout{.type = group.latent_dim == 0 ? type : KvTypes(type.k),
                    .n_layers = n_slots,
                    .n_kv_heads = group.n_kv_heads,
                    .head_dim = group.head_dim,
                    .has_values = group.latent_dim == 0};
  };
  uint64_t smallest = UINT64_MAX;
  for (const StateGroup& group : program.state_groups) {
    if (group.n_slots > 0) {
      smallest = std::min(smallest, layout_of(group, group.n_slots).block_bytes());
    }
  }
  StateLayout layout;
  for (uint32_t g = 0; g < program.state_groups.size(); ++g) {
    const StateGroup& group = program.state_groups[g];
    const uint64_t slot_bytes = layout_of(group, 1).block_bytes();
    const uint64_t most = kMostPagesOfGroup;
    const uint64_t n_pages =
        std::clamp<uint64_t>((group.n_slots * slot_bytes + smallest - 1) / smallest, 1, most);
    const auto per_page = static_cast<uint32_t>((group.n_slots + n_pages - 1) / n_pages);
    for (uint32_t first = 0; first < group.n_slots; first += per_page) {
      layout.pages.push_back(
          {g, first, layout_of(group, std::min(per_page, group.n_slots - first))});
      layout.page_bytes = std::max(layout.page_bytes, layout.pages.back().layout.block_bytes());
    }
  }
  return layout;
}

std::vector<CacheGroup> cache_groups(const Program& program, const StateLayout& layout) {
  std::vector<CacheGroup> groups;
  for (const StateLayout::Page& page : layout.pages) {
    const StateGroup& group = program.state_groups[page.group];
    const GroupKind whole = group.latent_dim == 0 ? GroupKind::kFull : GroupKind::kLatent;
    groups.push_back({.name = group.name,
                      .kind = group.window == 0 ? whole : GroupKind::kWindow,
                      .window_tokens = group.window});
  }
  return groups;
}

uint64_t pages_of_context(const std::vector<CacheGroup>& groups, uint64_t n_tokens,
                          uint32_t step_tokens) {
  return CacheGroups(groups, kKvBlockTokens, 0).pages_for(n_tokens, 2 * step_tokens);
}

}  // namespace pumice
