// How long a context and how large a KV pool fit: the window for a prompt that is known, the
// window for prompts that are not, and blocks to keep the prompts of earlier requests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/log.hpp"
#include "base/result.hpp"
#include "engine/engine_options.hpp"
#include "engine/memory_plan.hpp"
#include "models/program.hpp"

namespace pumice::host {

/// The window in tokens for a prompt and what follows it: exactly these, which must be within the
/// length that the model was made for (beyond it text turns to noise), or with an `overflow` that
/// makes room at most that length. Errors: kDoesNotFit, saying by how much.
Result<uint32_t> context_for(const Program& program, size_t prompt_tokens, uint32_t new_tokens,
                             OverflowPolicy overflow = OverflowPolicy::kStop);

/// The window for prompts not known yet: the length that the model was made for or what fits beside
/// everything else that such an engine allocates, whichever is less, with a warning then.
/// `engine.context_tokens` is not read. Errors: kDoesNotFit.
Result<uint32_t> context_of_machine(const MemoryPlanner& planner, EngineOptions engine,
                                    const Logger& logger);

/// EngineOptions::kv_blocks for one running request of `engine.context_tokens` and for the prompts
/// of earlier ones: up to four contexts where they fit, never less than the request needs.
uint32_t kv_blocks_for_reuse(const MemoryPlanner& planner, EngineOptions engine);

}  // namespace pumice::host
