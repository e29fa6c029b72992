// Attention's work lists of a step.
#include <algorithm>

#include "base/check.hpp"
#include "models/decoder.hpp"

namespace pumice {
namespace {

/// Up to which position each row sees. With a window it may lie behind the text's end, so that as
/// many keys are visible before each row.
void write_horizons(std::span<const ops::SequenceChunk> chunks, uint32_t ahead,
                    const vk::BufferRange& horizons) {
  const std::span<uint32_t> target = horizons.mapped<uint32_t>();
  for (const ops::SequenceChunk& chunk : chunks) {
    const uint32_t last = chunk.first_position + chunk.n_rows - 1;
    for (uint32_t i = 0; i < chunk.n_rows; ++i) {
      target[chunk.first_row + i] =
          ahead == op::kAllAhead ? last : chunk.first_position + i + ahead;
    }
  }
}

}  // namespace

void Decoder::write_attention(std::span<const ops::SequenceChunk> chunks,
                              const ops::AttentionPlanOptions& options, StepArgs& step) const {
  const auto write = [](const auto& values, const vk::BufferRange& range) {
    using Item = typename std::decay_t<decltype(values)>::value_type;
    const auto target = range.mapped<Item>();
    PUMICE_CHECK(values.size() <= target.size(), "more attention work than the step has room for");
    std::ranges::copy(values, target.begin());
    return static_cast<uint32_t>(values.size());
  };
  PUMICE_CHECK(step.attention.size() >= shared_->lowered.attention_classes.size(),
               "a step has room for fewer classes of attention");
  for (uint32_t i = 0; i < shared_->lowered.attention_classes.size(); ++i) {
    const AttentionClass& one = shared_->lowered.attention_classes[i];
    AttentionLists& lists = step.attention[i];
    lists.chunks.clear();
    std::ranges::copy_if(chunks, std::back_inserter(lists.chunks),
                         [&](const ops::SequenceChunk& chunk) { return has_chunk(i, chunk); });
    if (one.expands && !shared_->expansions.contains(i)) continue;
    const ops::FlashAttention& attention =
        one.expands ? shared_->expansions.at(i).attention() : shared_->attention.at(i);
    ops::AttentionPlanOptions own = options;
    own.tile_tokens = attention.tile_tokens();
    own.window = one.window;
    own.ahead = one.ahead;
    own.row_splits = std::min(own.row_splits, attention.row_splits());
    if (one.expands) own.split_tokens = 0;
    ops::plan_attention(lists.chunks, own, lists.plan);
    if (one.expands) {  // keys of one sequence at a time
      for (ops::AttentionItem& item : lists.plan.tile_items) item.seq = 0;
    }
    if (!lists.horizons.empty()) write_horizons(chunks, own.ahead, lists.horizons);
    PUMICE_CHECK(own.ahead == 0 || !lists.horizons.empty(), "a step that sees no keys ahead");
    write(attention.tile_grid_of(write(lists.plan.tile_items, lists.tile_items)), lists.tile_grid);
    write(attention.row_grid_of(write(lists.plan.row_items, lists.row_items)), lists.row_grid);
    write(attention.reduce_grid_of(write(lists.plan.reduce_items, lists.reduce_items)),
          lists.reduce_grid);
  }
}

bool Decoder::has_chunk(uint32_t attention_class, const ops::SequenceChunk& chunk) const {
  if (shared_->lowered.attention_classes[attention_class].expands) {
    const auto expansion = shared_->expansions.find(attention_class);
    return expansion != shared_->expansions.end() && expansion->second.takes(chunk);
  }
  return std::ranges::none_of(shared_->expansions, [&](const auto& entry) {
    const auto& [number, expansion] = entry;
    return shared_->lowered.attention_classes[number].expands == attention_class &&
           expansion.takes(chunk);
  });
}

uint32_t Decoder::split_classes(const StepArgs& step) {
  uint32_t bits = 0;
  for (size_t i = 0; i < step.attention.size(); ++i) {
    if (!step.attention[i].plan.reduce_items.empty()) bits |= 1u << i;
  }
  return bits;
}

bool Decoder::rows_fit(const StepArgs& step, const vk::SegmentLimit& limit) const {
  for (const auto& [i, attention] : shared_->attention) {
    const ops::AttentionPlan& plan = step.attention[i].plan;
    if (!limit.holds(attention.row_cost(plan.row_keys, plan.row_scores))) return false;
  }
  return true;
}

}  // namespace pumice
