#include "models/step_args.hpp"

#include <algorithm>
#include <bit>

#include "models/alignment.hpp"
#include "shaders/common/state_item.h"
#include "shaders/flash_attention/flash_attention.hpp"
#include "vk/device.hpp"

namespace pumice {
namespace {

constexpr uint64_t kGridBytes = sizeof(ops::FlashAttention::GridWords);

}  // namespace

uint64_t StepCapacity::bytes() const {
  const uint64_t class_bytes = uint64_t{attention_items} * (2 * sizeof(ops::AttentionItem) +
                                                            sizeof(ops::AttentionReduceItem)) +
                               3 * kGridBytes + 6 * kBufferAlignment +
                               (sees_ahead ? uint64_t{rows} * 4 + kBufferAlignment : 0);
  const uint64_t state_bytes = uint64_t{chunks} * sizeof(ops::StateItem) + kBufferAlignment;
  return 4 * uint64_t{rows} * 4 + uint64_t{logit_rows} * 4 + attention_classes * class_bytes +
         std::popcount(recurrent_kinds) * state_bytes + 5 * kBufferAlignment;
}

Result<StepArgs> StepArgs::create(const std::shared_ptr<vk::Device>& device,
                                  const StepCapacity& capacity) {
  // Attention gives a workgroup to each item.
  if (const uint32_t most = device->plan().max_workgroup_count[0];
      capacity.attention_items > most) {
    return make_error(ErrorCode::kDoesNotFit,
                      "the longest context and batch are {} pieces of attention, and this device "
                      "dispatches {}; lower the context (-c) or the batch size (-b)",
                      capacity.attention_items, most);
  }
  StepArgs args(vk::Arena(device, vk::MemoryDomain::kUpload, "step arguments", capacity.bytes()));
  const auto allocate = [&](uint64_t bytes, vk::BufferRange& range) -> Status {
    PUMICE_TRY(range, args.arena_.allocate(bytes));
    return {};
  };
  for (vk::BufferRange* range : {&args.tokens, &args.positions, &args.row_seq, &args.row_chunk}) {
    PUMICE_TRY_STATUS(allocate(uint64_t{capacity.rows} * 4, *range));
  }
  PUMICE_TRY_STATUS(allocate(uint64_t{capacity.logit_rows} * 4, args.logit_rows));
  const uint64_t items = capacity.attention_items;
  args.attention.resize(capacity.attention_classes);
  for (AttentionLists& lists : args.attention) {
    if (capacity.sees_ahead) {
      PUMICE_TRY_STATUS(allocate(uint64_t{capacity.rows} * 4, lists.horizons));
    }
    PUMICE_TRY_STATUS(allocate(items * sizeof(ops::AttentionItem), lists.tile_items));
    PUMICE_TRY_STATUS(allocate(items * sizeof(ops::AttentionItem), lists.row_items));
    PUMICE_TRY_STATUS(allocate(items * sizeof(ops::AttentionReduceItem), lists.reduce_items));
    for (vk::BufferRange* grid : {&lists.tile_grid, &lists.row_grid, &lists.reduce_grid}) {
      PUMICE_TRY_STATUS(allocate(kGridBytes, *grid));
    }
  }
  args.states.resize(static_cast<size_t>(std::bit_width(capacity.recurrent_kinds)));
  for (size_t kind = 0; kind < args.states.size(); ++kind) {
    if (!PageKinds::has(capacity.recurrent_kinds, static_cast<uint32_t>(kind))) continue;
    PUMICE_TRY_STATUS(
        allocate(uint64_t{capacity.chunks} * sizeof(ops::StateItem), args.states[kind]));
  }
  return args;
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

uint32_t StepArgs::add_row(uint32_t token, uint32_t position, uint32_t slot) {
  const uint32_t row = n_rows++;
  tokens.mapped<uint32_t>()[row] = token;
  positions.mapped<uint32_t>()[row] = position;
  row_seq.mapped<uint32_t>()[row] = slot;
  return row;
}

uint32_t StepArgs::add_logit_row(uint32_t row) {
  logit_rows.mapped<uint32_t>()[n_logit_rows] = row;
  return n_logit_rows++;
}

}  // namespace pumice
