// What an engine has on a device beside the weights, in numbers: from a program and options alone.
// What lies in its arenas follows from these (engine_buffers.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "cache/page_kind.hpp"
#include "engine/engine_options.hpp"
#include "models/decoder.hpp"
#include "models/lowering.hpp"
#include "models/program.hpp"
#include "models/state_layout.hpp"
#include "models/step_args.hpp"

namespace pumice {

struct EngineSizes {
  StateLayout layout;
  std::vector<PageKind> kinds;  ///< what the cache is told of the layout's pages
  uint32_t n_pages = 0;         ///< of KV memory
  DecoderLimits limits;
  StepCapacity step;
  uint32_t n_slots = 0;       ///< rows of the tables of running requests
  uint32_t n_rings = 0;       ///< steps that have arguments and results
  uint32_t table_stride = 0;  ///< entries of a block table
  // Numbers of a row, or 0 where there are none:
  uint32_t given_width = 0;   ///< of op::GivenRows
  uint32_t hidden_width = 0;  ///< of Decoder::hidden
};

/// Errors (kInvalidArgument): more sequences, tokens in a step or context than any device runs.
Status check_sizes(const EngineOptions& options);

/// The options are those of an engine, `context_tokens` given. Errors: those of check_sizes,
/// kDoesNotFit (more pages than have numbers), kInvalidArgument (kinds that no cache takes).
Result<EngineSizes> engine_sizes(const Program& program, const Lowered& lowered,
                                 const EngineOptions& options);

}  // namespace pumice
