#include "models/state_layout.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace pumice {
namespace {

constexpr uint64_t kMostPagesOfGroup = 8;  // a table each, and the cache takes 16 in all
constexpr uint64_t kStateAlignment = 256;

uint64_t state_bytes(uint64_t n_floats) {
  return (n_floats * sizeof(float) + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
}

/// Slots in their order, as many a page as `page_bytes` hold, at least one.
std::vector<StateLayout::Page> cut_states(uint32_t group, const std::vector<uint64_t>& floats,
                                          uint64_t page_bytes) {
  std::vector<StateLayout::Page> pages;
  for (uint32_t slot = 0; slot < floats.size(); ++slot) {
    const uint64_t bytes = state_bytes(floats[slot]);
    if (pages.empty() || pages.back().bytes + bytes > page_bytes) {
      pages.push_back({.group = group, .first_slot = slot});
    }
    StateLayout::Page& page = pages.back();
    ++page.n_slots;
    page.state_floats.push_back(floats[slot]);
    page.bytes += bytes;
  }
  return pages;
}

/// Pages about as large as `wanted_bytes`, larger where they would be too many.
std::vector<StateLayout::Page> recurrent_pages(uint32_t group, const std::vector<uint64_t>& floats,
                                               uint64_t wanted_bytes) {
  std::vector<StateLayout::Page> pages = cut_states(group, floats, wanted_bytes);
  while (pages.size() > kMostPagesOfGroup) {
    wanted_bytes = std::max(wanted_bytes, pages.front().bytes) + kStateAlignment;
    for (const StateLayout::Page& page : pages) wanted_bytes = std::max(wanted_bytes, page.bytes);
    wanted_bytes += wanted_bytes / 8;
    pages = cut_states(group, floats, wanted_bytes);
  }
  return pages;
}

}  // namespace

uint64_t StateLayout::Page::offset_bytes(uint32_t slot) const {
  if (!recurrent()) return layout.layer_offset_bytes(slot - first_slot);
  uint64_t offset = 0;
  for (uint32_t i = 0; i < slot - first_slot; ++i) offset += state_bytes(state_floats[i]);
  return offset;
}

StateLayout::Place StateLayout::place(const StateSlot& slot) const {
  uint32_t i = 0;
  while (pages[i].group != slot.group || slot.slot >= pages[i].first_slot + pages[i].n_slots) ++i;
  return {i, static_cast<uint32_t>(pages[i].offset_bytes(slot.slot))};
}

GroupMask StateLayout::recurrent_pages() const {
  GroupMask mask = 0;
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].recurrent()) mask |= GroupMask{1} << i;
  }
  return mask;
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
    if (group.n_slots > 0 && !group.recurrent) {
      smallest = std::min(smallest, layout_of(group, group.n_slots).block_bytes());
    }
  }
  StateLayout layout;
  for (uint32_t g = 0; g < program.state_groups.size(); ++g) {
    const StateGroup& group = program.state_groups[g];
    if (group.recurrent) {
      for (StateLayout::Page& page : recurrent_pages(g, group.state_floats, smallest)) {
        layout.page_bytes = std::max(layout.page_bytes, page.bytes);
        layout.pages.push_back(std::move(page));
      }
      continue;
    }
    const uint64_t slot_bytes = layout_of(group, 1).block_bytes();
    const uint64_t most = kMostPagesOfGroup;
    const uint64_t n_pages =
        std::clamp<uint64_t>((group.n_slots * slot_bytes + smallest - 1) / smallest, 1, most);
    const auto per_page = static_cast<uint32_t>((group.n_slots + n_pages - 1) / n_pages);
    for (uint32_t first = 0; first < group.n_slots; first += per_page) {
      const uint32_t n_slots = std::min(per_page, group.n_slots - first);
      const KvLayout slots = layout_of(group, n_slots);
      layout.pages.push_back({.group = g,
                              .first_slot = first,
                              .n_slots = n_slots,
                              .layout = slots,
                              .bytes = slots.block_bytes()});
      layout.page_bytes = std::max(layout.page_bytes, slots.block_bytes());
    }
  }
  return layout;
}

std::vector<CacheGroup> cache_groups(const Program& program, const StateLayout& layout) {
  std::vector<CacheGroup> groups;
  for (const StateLayout::Page& page : layout.pages) {
    const StateGroup& group = program.state_groups[page.group];
    const GroupKind whole = group.latent_dim == 0 ? GroupKind::kFull : GroupKind::kLatent;
    const GroupKind paged = group.window == 0 ? whole : GroupKind::kWindow;
    groups.push_back({.name = group.name,
                      .kind = page.recurrent() ? GroupKind::kRecurrent : paged,
                      .window_tokens = group.window});
  }
  return groups;
}

uint64_t pages_of_context(const std::vector<CacheGroup>& groups, uint64_t n_tokens,
                          uint32_t step_tokens) {
  const CacheGroups all(groups, kKvBlockTokens, 0);
  // The second of two steps under way writes a state of its own.
  return all.pages_for(n_tokens, 2 * step_tokens) + std::popcount(all.recurrent());
}

}  // namespace pumice
