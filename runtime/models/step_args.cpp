#include "models/step_args.hpp"

#include <algorithm>
#include <bit>

#include "shaders/common/state_item.h"
#include "shaders/flash_attention/flash_attention.hpp"

namespace pumice {

vk::ArenaLayout StepArgs::lay_out(const StepCapacity& capacity) {
  vk::ArenaLayout arena(vk::MemoryDomain::kUpload, "step arguments");
  const uint64_t row_bytes = uint64_t{capacity.rows} * sizeof(uint32_t);
  for (vk::BufferRange* range : {&tokens, &positions, &row_seq, &row_chunk}) {
    arena.add(row_bytes, *range);
  }
  arena.add(uint64_t{capacity.logit_rows} * sizeof(uint32_t), logit_rows);
  if (capacity.adapters) {
    arena.add(row_bytes, row_adapters);
    arena.add(uint64_t{capacity.logit_rows} * sizeof(uint32_t), logit_adapters);
  }
  const uint64_t items = capacity.attention_items;
  attention.resize(capacity.attention_classes);
  for (AttentionLists& lists : attention) {
    if (capacity.sees_ahead) arena.add(row_bytes, lists.horizons);
    arena.add(items * sizeof(ops::AttentionItem), lists.tile_items);
    arena.add(items * sizeof(ops::AttentionItem), lists.row_items);
    arena.add(items * sizeof(ops::AttentionReduceItem), lists.reduce_items);
    for (vk::BufferRange* grid : {&lists.tile_grid, &lists.row_grid, &lists.reduce_grid}) {
      arena.add(sizeof(ops::FlashAttention::GridWords), *grid);
    }
  }
  states.resize(static_cast<size_t>(std::bit_width(capacity.recurrent_kinds)));
  for (uint32_t kind = 0; kind < states.size(); ++kind) {
    if (!PageKinds::has(capacity.recurrent_kinds, kind)) continue;
    arena.add(uint64_t{capacity.chunks} * sizeof(ops::StateItem), states[kind]);
  }
  return arena;
}

uint32_t StepArgs::add_chunk(uint32_t n) {
  std::ranges::fill(row_chunk.mapped<uint32_t>().subspan(n_rows, n), n_chunks);
  for (const vk::BufferRange& page : states) {
    if (page.empty()) continue;
    ops::StateItem& item = page.mapped<ops::StateItem>()[n_chunks];
    item.first_row = n_rows;
    item.n_rows = n;
  }
  chunk_rows = std::max(chunk_rows, n);
  return n_chunks++;
}

void StepArgs::set_state(uint32_t chunk, uint32_t kind, uint64_t before, uint64_t after) {
  ops::StateItem& item = states[kind].mapped<ops::StateItem>()[chunk];
  item.begins = before == 0 ? 1 : 0;
  item.before = before == 0 ? after : before;  // an address must be of memory
  item.after = after;
}

uint32_t StepArgs::add_row(uint32_t token, uint32_t position, uint32_t slot, uint32_t adapter) {
  const uint32_t row = n_rows++;
  tokens.mapped<uint32_t>()[row] = token;
  positions.mapped<uint32_t>()[row] = position;
  row_seq.mapped<uint32_t>()[row] = slot;
  if (!row_adapters.empty()) row_adapters.mapped<uint32_t>()[row] = adapter;
  adapts = adapts || adapter != 0;
  return row;
}

uint32_t StepArgs::add_logit_row(uint32_t row, uint32_t adapter) {
  logit_rows.mapped<uint32_t>()[n_logit_rows] = row;
  if (!logit_adapters.empty()) logit_adapters.mapped<uint32_t>()[n_logit_rows] = adapter;
  return n_logit_rows++;
}

}  // namespace pumice
