#include "host/sizing.hpp"

#include <algorithm>
#include <vector>

#include "cache/page_kind.hpp"
#include "models/state_layout.hpp"

namespace pumice::host {

Result<uint32_t> context_for(const Program& program, size_t prompt_tokens, uint32_t new_tokens,
                             OverflowPolicy overflow) {
  const uint64_t needed = uint64_t{prompt_tokens} + new_tokens;
  if (needed <= program.context_length) return static_cast<uint32_t>(needed);
  if (overflow != OverflowPolicy::kStop) return program.context_length;
  return make_error(ErrorCode::kDoesNotFit,
                    "{} prompt + {} new tokens exceed the model's context of {} by {} tokens",
                    prompt_tokens, new_tokens, program.context_length,
                    needed - program.context_length);
}

Result<uint32_t> context_of_machine(const MemoryPlanner& planner, EngineOptions engine,
                                    const Logger& logger) {
  const uint32_t wanted = planner.program().context_length;
  const uint32_t fit = planner.largest_context(engine, wanted);
  if (fit == wanted) return wanted;
  if (fit == 0) {
    engine.context_tokens = std::min(wanted, kKvBlockTokens);
    PUMICE_TRY_STATUS(planner.check(engine));
  }
  logger.warning(
      "a context of {} tokens instead of the model's {}: more does not fit on this device", fit,
      wanted);
  return fit;
}

constexpr uint64_t kStatesForReuse = 16;

uint32_t kv_blocks_for_reuse(const MemoryPlanner& planner, EngineOptions engine) {
  const StateLayout layout = state_layout(planner.program(), engine.kv_type);
  const std::vector<PageKind> kinds = page_kinds(planner.program(), layout);
  const uint64_t n_kinds = kinds.size();
  const uint32_t block_tokens = layout.block_tokens;
  const uint64_t of_request =
      pages_of_context(kinds, engine.context_tokens, engine.token_budget, block_tokens);
  const uint64_t needed = (of_request + n_kinds - 1) / n_kinds;
  // Of states some are kept beside those in use.
  const uint64_t n_blocks = (uint64_t{4} * engine.context_tokens + block_tokens - 1) / block_tokens;
  const uint64_t n_states = n_kinds - layout.n_paged();
  const uint64_t wanted =
      (n_blocks * layout.n_paged() + kStatesForReuse * n_states + n_kinds - 1) / n_kinds;
  engine.kv_blocks = 1;
  const Result<MemoryPlan> plan = planner.plan(engine);
  if (!plan.ok())
    return static_cast<uint32_t>(needed *
                                 layout.blocks_per_page());  // the engine will say what is wrong
  const uint64_t others = plan->budgeted_bytes - plan->bytes(MemoryUse::kKv);
  const uint64_t free_bytes = planner.device().free_bytes;
  const uint64_t n_pages = (free_bytes - std::min(free_bytes, others)) / layout.page_bytes;
  return static_cast<uint32_t>(std::max(needed, std::min(n_pages / n_kinds, wanted)) *
                               layout.blocks_per_page());
}

}  // namespace pumice::host
