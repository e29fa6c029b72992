#include "models/decoder_buffers.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "models/alignment.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/linear/linear.hpp"

namespace pumice {
namespace {

constexpr uint64_t kBufferFloat = sizeof(float);

/// Columns of the widest input of a product.
uint32_t widest_input(const Lowered& lowered) {
  uint32_t widest = 0;
  for (const Dispatch& dispatch : lowered.dispatches) {
    for (const uint32_t n : operands(dispatch.what).columns) widest = std::max(widest, n);
  }
  return widest;
}

}  // namespace

uint64_t DecoderLimits::rows_of(const Buffer& buffer) const {
  const uint32_t all = buffer.rows == RowSet::kAll ? rows : logit_rows;
  return buffer.uses.none() ? std::min(all, ops::Gemv::kMaxRows) : all;
}

ActivationPlan plan_activations(const Lowered& lowered, const DecoderLimits& limits) {
  const auto bytes_of = [&](const Buffer& buffer, uint64_t most_rows) {
    return aligned(kBufferFloat * buffer.width * std::min(limits.rows_of(buffer), most_rows));
  };
  constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();
  std::vector<BufferId> order(lowered.buffers.size());
  for (BufferId id = 0; id < order.size(); ++id) order[id] = id;
  std::ranges::stable_sort(order, std::greater(),
                           [&](BufferId id) { return bytes_of(lowered.buffers[id], kAny); });
  /// Bytes from `begin` on that a buffer in use meanwhile takes, and how many of the new one's
  /// they are in the way of: all, or the first rows' if that is only so in steps of few rows.
  struct Taken {
    uint64_t begin;
    uint64_t end;
    uint64_t bytes;
  };
  ActivationPlan plan{.offsets = std::vector<uint64_t>(order.size(), 0)};
  std::vector<BufferId> placed;
  for (const BufferId id : order) {
    const Buffer& buffer = lowered.buffers[id];
    std::vector<Taken> all_taken;
    for (const BufferId other : placed) {
      const Buffer& b = lowered.buffers[other];
      if (!b.few.meets(buffer.few)) continue;
      const uint64_t most_rows = b.uses.meets(buffer.uses) ? kAny : ops::Gemv::kMaxRows;
      const uint64_t begin = plan.offsets[other];
      all_taken.push_back({begin, begin + bytes_of(b, most_rows), bytes_of(buffer, most_rows)});
    }
    std::ranges::sort(all_taken, {}, &Taken::begin);
    uint64_t offset = 0;
    // Again after each step aside: one that needed little room there may be in the way here.
    for (auto taken = all_taken.begin(); taken != all_taken.end();) {
      const bool apart = offset + taken->bytes <= taken->begin || taken->end <= offset;
      if (!apart) offset = taken->end;
      taken = apart ? taken + 1 : all_taken.begin();
    }
    plan.offsets[id] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes_of(buffer, kAny));
    placed.push_back(id);
  }
  return plan;
}

std::map<uint32_t, ExpansionSizes> expansion_sizes(const Lowered& lowered,
                                                   const DecoderLimits& limits,
                                                   uint64_t slab_bytes) {
  std::map<uint32_t, ExpansionSizes> all;
  for (uint32_t i = 0; i < lowered.attention_classes.size(); ++i) {
    const std::optional<ExpansionSizes> sizes =
        expansion_sizes(lowered, i, limits.context_tokens, limits.invariant, slab_bytes);
    if (sizes) all.emplace(i, *sizes);
  }
  return all;
}

vk::ArenaLayout DecoderBuffers::lay_out(const Lowered& lowered, const Program& program,
                                        const DecoderLimits& limits, uint64_t slab_bytes) {
  vk::ArenaLayout arena(vk::MemoryDomain::kDevice, "activations");
  arena.add(plan_activations(lowered, limits).bytes, activations);

  uint64_t most_heads = 0;
  uint64_t most_values = 0;
  for (const AttentionClass& one : lowered.attention_classes) {
    most_heads = std::max<uint64_t>(most_heads, one.n_heads);
    most_values = std::max(most_values, uint64_t{one.n_heads} * one.value_dim());
  }
  arena.add(2 * kBufferFloat * limits.attention_partials * most_heads, partial_stats);
  arena.add(kBufferFloat * limits.attention_partials * most_values, partial_y);
  const bool attends = !lowered.attention_classes.empty();
  arena.add(attends ? std::min(ops::FlashAttention::kCarriedBytes, slab_bytes) : 0, carried);

  const auto expansions = expansion_sizes(lowered, limits, slab_bytes);
  uint32_t most_rows = std::max(limits.rows, limits.logit_rows);
  for (const auto& [i, sizes] : expansions) most_rows = std::max(most_rows, sizes.piece_keys);
  arena.add(std::min(ops::Linear::max_scratch_bytes(most_rows, widest_input(lowered)), slab_bytes),
            linear_scratch);
  for (const auto& [i, sizes] : expansions) expanded[i].lay_out(sizes, arena);

  for (BufferId id = 0; limits.routing != Routing::kChosen && id < lowered.buffers.size(); ++id) {
    const Buffer& buffer = lowered.buffers[id];
    if (buffer.holds_routes)
      arena.add(kBufferFloat * limits.rows_of(buffer) * buffer.width, routes[id]);
  }
  rope_tables.resize(program.ropes.size());
  for (size_t i = 0; i < program.ropes.size(); ++i) {
    arena.add(kBufferFloat * limits.context_tokens * program.ropes[i].dims, rope_tables[i]);
  }
  return arena;
}

}  // namespace pumice
