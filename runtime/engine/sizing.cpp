#include "engine/sizing.hpp"

#include <algorithm>
#include <vector>

#include "cache/cache_group.hpp"
#include "models/decoder.hpp"
#include "models/state_layout.hpp"

namespace pumice {
namespace {

/// The pages of a model's state, and how many of them memory holds.
struct KvRoom {
  std::vector<CacheGroup> groups;
  uint64_t n_pages = 0;
  uint32_t step_tokens = 0;

  uint64_t pages_of(uint64_t n_tokens) const {
    return pages_of_context(groups, n_tokens, step_tokens);
  }
  /// The longest sequence that fits: pages rise with tokens.
  uint64_t tokens() const {
    uint64_t fits = 0;
    uint64_t too_many = n_pages + 1;
    while (too_many - fits > 1) {
      const uint64_t middle = fits + (too_many - fits) / 2;
      (pages_of(middle * kKvBlockTokens) <= n_pages ? fits : too_many) = middle;
    }
    return fits * kKvBlockTokens;
  }
};

/// Beside everything else that an engine of this context allocates.
KvRoom room_for_kv(const Program& program, const EngineOptions& engine, uint32_t context_tokens,
                   uint64_t free_bytes) {
  const uint32_t rows = std::min(engine.token_budget, context_tokens);
  const uint64_t others = Decoder::buffer_bytes(program, {.rows = rows,
                                                          .logit_rows = engine.n_sequences,
                                                          .context_tokens = context_tokens}) +
                          (uint64_t{64} << 20);  // step arguments, sampling, block tables
  const StateLayout layout = state_layout(program, engine.kv_type);
  return {.groups = cache_groups(program, layout),
          .n_pages = free_bytes > others ? (free_bytes - others) / layout.page_bytes : 0,
          .step_tokens = engine.token_budget};
}

}  // namespace

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

uint64_t free_device_bytes(vk::Device& device) {
  const uint64_t budget = device.plan().device_budget_bytes;
  return budget - std::min(budget, device.ledger().total_bytes());
}

Result<uint32_t> context_of_machine(const Program& program, const EngineOptions& engine,
                                    uint64_t free_bytes, const Logger& logger) {
  const uint32_t wanted = program.context_length;
  const uint64_t fit = room_for_kv(program, engine, wanted, free_bytes).tokens();
  if (fit >= wanted) return wanted;
  if (fit < kKvBlockTokens) {
    return make_error(ErrorCode::kDoesNotFit,
                      "no memory is left for a context beside the model's weights");
  }
  logger.warning("a context of {} tokens, of the model's {}: more does not fit into this device",
                 fit, wanted);
  return static_cast<uint32_t>(fit);
}

uint32_t kv_blocks_for_reuse(const Program& program, const EngineOptions& engine,
                             uint64_t free_bytes) {
  const KvRoom room = room_for_kv(program, engine, engine.context_tokens, free_bytes);
  const uint64_t n_groups = room.groups.size();
  const uint64_t needed = (room.pages_of(engine.context_tokens) + n_groups - 1) / n_groups;
  const uint64_t wanted =
      (uint64_t{4} * engine.context_tokens + kKvBlockTokens - 1) / kKvBlockTokens;
  return static_cast<uint32_t>(std::max(needed, std::min(room.n_pages / n_groups, wanted)));
}

}  // namespace pumice
