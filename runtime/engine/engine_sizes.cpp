#include "engine/engine_sizes.hpp"

#include <algorithm>

#include "engine/engine_limits.hpp"
#include "scheduler/scheduler.hpp"

namespace pumice {
namespace {

constexpr uint64_t kMostKvPages = UINT32_MAX - 1;

// More than any device runs; below these no product here leaves its type.
constexpr uint32_t kMostSequences = 1 << 16;
constexpr uint32_t kMostStepTokens = 1 << 20;
constexpr uint32_t kMostContextTokens = 1 << 28;

}  // namespace

Status check_sizes(const EngineOptions& options) {
  struct Limit {
    uint32_t value;
    uint32_t most;
    const char* what;
  };
  for (const Limit& limit :
       {Limit{options.n_sequences, kMostSequences, "sequences at once"},
        Limit{options.token_budget, kMostStepTokens, "tokens in a step"},
        Limit{options.context_tokens, kMostContextTokens, "tokens of context"}}) {
    if (limit.value > limit.most) {
      return make_error(ErrorCode::kInvalidArgument, "{} {} are more than the limit of {}",
                        limit.value, limit.what, limit.most);
    }
  }
  return {};
}

Result<EngineSizes> engine_sizes(const Program& program, const Lowered& lowered,
                                 const EngineOptions& options) {
  PUMICE_TRY_STATUS(check_sizes(options));
  EngineSizes sizes{.layout = state_layout(program, options.kv_type)};
  sizes.kinds = page_kinds(program, sizes.layout);
  PUMICE_TRY_STATUS(PageKinds::check(sizes.kinds));
  const uint64_t per_page = sizes.layout.blocks_per_page();
  const uint64_t n_pages =
      options.kv_blocks != 0
          ? (options.kv_blocks + per_page - 1) / per_page * sizes.kinds.size()
          : options.n_sequences * pages_of_context(sizes.kinds, options.context_tokens,
                                                   options.token_budget, sizes.layout.block_tokens);
  if (n_pages > kMostKvPages) {
    return make_error(ErrorCode::kDoesNotFit, "{} pages of keys and values exceed {}", n_pages,
                      kMostKvPages);
  }
  sizes.n_pages = static_cast<uint32_t>(n_pages);
  const auto max_rows = static_cast<uint32_t>(std::min<uint64_t>(
      options.token_budget, uint64_t{options.n_sequences} * options.context_tokens));
  // Split rows: those of short chunks, of which each sequence has one in a step.
  const ops::AttentionPlanOptions attention = attention_options(options);
  const uint64_t most_split = uint64_t{options.n_sequences} * attention.max_split_rows;
  const auto split_rows = static_cast<uint32_t>(std::min<uint64_t>(max_rows, most_split));
  const uint64_t sampled_rows = uint64_t{options.n_sequences} + options.spare_logit_rows;
  // Choices of one prompt share a row.
  const auto logit_rows = std::max(
      options.n_sequences, options.prompt_logits
                               ? max_rows
                               : static_cast<uint32_t>(std::min<uint64_t>(max_rows, sampled_rows)));
  const uint64_t n_splits =
      std::max<uint64_t>(options.context_tokens / options.split_tokens, attention.row_splits) + 1;
  const uint64_t attention_items = max_rows + split_rows * n_splits;
  if (attention_items > UINT32_MAX) {
    return make_error(ErrorCode::kDoesNotFit, "{} pieces of attention in a step exceed {}",
                      attention_items, UINT32_MAX);
  }
  sizes.limits = {.rows = max_rows,
                  .logit_rows = logit_rows,
                  .context_tokens = options.context_tokens,
                  .attention_partials =
                      ops::max_attention_partials(split_rows, options.context_tokens, attention),
                  .invariant = options.invariant,
                  .routing = options.routing};
  sizes.step = {.rows = max_rows,
                .logit_rows = logit_rows,
                .attention_items = static_cast<uint32_t>(attention_items),
                .attention_classes = static_cast<uint32_t>(lowered.attention_classes.size()),
                .chunks = std::min(max_rows, options.n_sequences),
                .recurrent_kinds = sizes.layout.recurrent_kinds(),
                .adapters = !program.adapters.empty()};
  sizes.n_slots = options.n_sequences * Scheduler::kMaxOutstanding;
  sizes.n_rings = steps_under_way(options);
  sizes.table_stride = kv_blocks_of(options.context_tokens);
  if (lowered.given) sizes.given_width = lowered.buffers[*lowered.given].width;
  if (lowered.hidden) sizes.hidden_width = lowered.buffers[*lowered.hidden].width;
  return sizes;
}

}  // namespace pumice
