#include "models/state_layout.hpp"

#include <algorithm>
#include <utility>

namespace pumice {
namespace {

constexpr uint64_t kMostKindsOfGroup = 8;  // a table each, and the cache takes 16 in all
constexpr uint64_t kStateAlignment = 256;
constexpr uint64_t kLittle = 16;  // a share of one in so many

uint64_t state_bytes(uint64_t n_floats) {
  return (n_floats * sizeof(float) + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
}

/// Slots in their order, as many a kind as `page_bytes` hold, at least one.
std::vector<StateLayout::Kind> cut_states(uint32_t group, const std::vector<uint64_t>& floats,
                                          uint64_t page_bytes) {
  std::vector<StateLayout::Kind> kinds;
  for (uint32_t slot = 0; slot < floats.size(); ++slot) {
    const uint64_t bytes = state_bytes(floats[slot]);
    if (kinds.empty() || kinds.back().bytes + bytes > page_bytes) {
      kinds.push_back({.group = group, .first_slot = slot});
    }
    StateLayout::Kind& kind = kinds.back();
    ++kind.n_slots;
    kind.state_floats.push_back(floats[slot]);
    kind.bytes += bytes;
  }
  return kinds;
}

/// At most `most` kinds of those slots, none smaller than `smallest_bytes`: the smallest of which
/// little is wasted, or else those of which least is.
std::vector<StateLayout::Kind> recurrent_kinds(uint32_t group, const std::vector<uint64_t>& floats,
                                               uint64_t smallest_bytes, uint64_t most) {
  uint64_t total = 0;
  uint64_t largest = 0;
  for (const uint64_t n : floats) {
    total += state_bytes(n);
    largest = std::max(largest, state_bytes(n));
  }
  if (total <= smallest_bytes) return cut_states(group, floats, total);
  std::vector<StateLayout::Kind> best;
  uint64_t best_bytes = UINT64_MAX;
  uint64_t page_bytes = 0;
  for (const uint64_t n : floats) {  // layers are alike, so the first slots stand for any
    page_bytes += state_bytes(n);
    if (page_bytes < largest) continue;
    std::vector<StateLayout::Kind> kinds = cut_states(group, floats, page_bytes);
    if (kinds.size() > most) continue;
    const uint64_t bytes = kinds.size() * std::max(page_bytes, smallest_bytes);
    if (bytes < best_bytes) {
      best_bytes = bytes;
      best = std::move(kinds);
    }
    if (best_bytes <= total + total / kLittle) break;
  }
  return best;
}

}  // namespace

uint64_t StateLayout::Kind::offset_bytes(uint32_t slot) const {
  if (!recurrent()) return layout.layer_offset_bytes(slot - first_slot);
  uint64_t offset = 0;
  for (uint32_t i = 0; i < slot - first_slot; ++i) offset += state_bytes(state_floats[i]);
  return offset;
}

StateLayout::Place StateLayout::place(const StateSlot& slot) const {
  uint32_t i = 0;
  while (kinds[i].group != slot.group || slot.slot >= kinds[i].first_slot + kinds[i].n_slots) ++i;
  return {i, static_cast<uint32_t>(kinds[i].offset_bytes(slot.slot))};
}

KindMask StateLayout::recurrent_kinds() const {
  KindMask mask = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].recurrent()) mask |= KindMask{1} << i;
  }
  return mask;
}

StateLayout state_layout(const Program& program, KvTypes type) {
  const auto layout_of = [&](const StateGroup& group, uint32_t n_slots) {
    return KvLayout{.type = group.latent_dim == 0 ? type : KvTypes(type.k),
                    .n_layers = n_slots,
                    .n_kv_heads = group.n_kv_heads,
                    .head_dim = group.head_dim,
                    .has_values = group.latent_dim == 0,
                    .v_dim = group.v_dim};
  };
  uint64_t smallest = UINT64_MAX;
  for (const StateGroup& group : program.state_groups) {
    if (group.n_slots > 0 && !group.recurrent) {
      smallest = std::min(smallest, layout_of(group, group.n_slots).block_bytes());
    }
  }
  StateLayout layout;
  uint64_t paged_bytes = 0;  // of 16 positions in the largest page
  uint32_t n_recurrent = 0;
  for (const StateGroup& group : program.state_groups) n_recurrent += group.recurrent ? 1 : 0;
  for (uint32_t g = 0; g < program.state_groups.size(); ++g) {
    const StateGroup& group = program.state_groups[g];
    if (group.recurrent) continue;
    const uint64_t slot_bytes = layout_of(group, 1).block_bytes();
    const uint64_t most = kMostKindsOfGroup;
    const uint64_t n_pages =
        std::clamp<uint64_t>((group.n_slots * slot_bytes + smallest - 1) / smallest, 1, most);
    const auto per_page = static_cast<uint32_t>((group.n_slots + n_pages - 1) / n_pages);
    for (uint32_t first = 0; first < group.n_slots; first += per_page) {
      const uint32_t n_slots = std::min(per_page, group.n_slots - first);
      const KvLayout slots = layout_of(group, n_slots);
      layout.kinds.push_back({.group = g,
                              .first_slot = first,
                              .n_slots = n_slots,
                              .layout = slots,
                              .bytes = slots.block_bytes()});
      paged_bytes = std::max(paged_bytes, slots.block_bytes());
    }
  }
  layout.page_bytes = paged_bytes;
  const uint64_t left = kMaxKinds - std::min<uint64_t>(kMaxKinds, layout.kinds.size());
  for (uint32_t g = 0; g < program.state_groups.size(); ++g) {
    const StateGroup& group = program.state_groups[g];
    if (!group.recurrent || group.n_slots == 0) continue;
    const uint64_t most = std::max<uint64_t>(1, left / n_recurrent);
    for (StateLayout::Kind& kind : recurrent_kinds(g, group.state_floats, smallest, most)) {
      layout.page_bytes = std::max(layout.page_bytes, kind.bytes);
      layout.kinds.push_back(std::move(kind));
    }
  }
  if (paged_bytes > 0) {
    const uint64_t fitting = layout.page_bytes / paged_bytes * kKvBlockTokens;
    layout.block_tokens =
        static_cast<uint32_t>(std::min<uint64_t>(fitting, StateLayout::kMostBlockTokens));
  }
  return layout;
}

std::vector<PageKind> page_kinds(const Program& program, const StateLayout& layout) {
  std::vector<PageKind> kinds;
  for (const StateLayout::Kind& kind : layout.kinds) {
    const StateGroup& group = program.state_groups[kind.group];
    const StateForm whole = group.latent_dim == 0 ? StateForm::kFull : StateForm::kLatent;
    const StateForm paged = group.window == 0 ? whole : StateForm::kWindow;
    kinds.push_back({.name = group.name,
                     .form = kind.recurrent() ? StateForm::kRecurrent : paged,
                     .window_tokens = group.window});
  }
  return kinds;
}

uint64_t pages_of_context(const std::vector<PageKind>& kinds, uint64_t n_tokens,
                          uint32_t step_tokens, uint32_t block_tokens) {
  const PageKinds all(kinds, block_tokens, 0);
  // The second of two steps under way writes a state of its own.
  return all.pages_for(n_tokens, 2 * step_tokens) + std::popcount(all.recurrent());
}

}  // namespace pumice
