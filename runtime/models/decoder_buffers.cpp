#include "models/decoder_buffers.hpp"

#include <algorithm>
#include <functional>
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

ActivationPlan plan_activations(const Lowered& lowered, uint64_t rows, uint64_t logit_rows) {
  const auto bytes_of = [&](const Buffer& buffer) {
    return aligned(sizeof(float) * buffer.width *
                   (buffer.rows == RowSet::kAll ? rows : logit_rows));
  };
  std::vector<BufferId> order(lowered.buffers.size());
  for (BufferId id = 0; id < order.size(); ++id) order[id] = id;
  std::ranges::stable_sort(order, std::greater(),
                           [&](BufferId id) { return bytes_of(lowered.buffers[id]); });
  ActivationPlan plan{.offsets = std::vector<uint64_t>(order.size(), 0)};
  std::vector<BufferId> placed;
  for (const BufferId id : order) {
    const Buffer& buffer = lowered.buffers[id];
    // Taken places of buffers that are in use meanwhile, by rising offset.
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    for (const BufferId other : placed) {
      const Buffer& b = lowered.buffers[other];
      if (b.first_use <= buffer.last_use && buffer.first_use <= b.last_use) {
        taken.emplace_back(plan.offsets[other], plan.offsets[other] + bytes_of(b));
      }
    }
    std::ranges::sort(taken);
    uint64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + bytes_of(buffer) <= begin) break;
      offset = std::max(offset, end);
    }
    plan.offsets[id] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes_of(buffer));
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
  arena.add(plan_activations(lowered, limits.rows, limits.logit_rows).bytes, activations);

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
