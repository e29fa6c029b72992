// What an engine has on a device beside the weights, in numbers: from a program and options alone.
// DeviceState allocates by these, and plans of memory count by them.
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
#include "vk/arena_sizes.hpp"

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

  // In device memory:
  uint64_t counts_bytes = 0;     ///< tokens' counts of all slots
  uint64_t scratch_bytes = 0;    ///< of sampling
  uint64_t sampled_bytes = 0;    ///< tokens that a ring's rows of logits have chosen
  uint64_t log_probs_bytes = 0;  ///< of a ring's rows of logits; 0: there are none
  // Written by the host:
  uint64_t table_bytes = 0;         ///< a block table of all slots; each page of the layout has one
  uint64_t bias_bytes = 0;          ///< of logits, of all slots
  uint64_t sampling_bytes = 0;      ///< a ring's rows of sampling
  uint64_t log_prob_row_bytes = 0;  ///< what log probabilities a ring's rows want; 0: none ever do
  uint32_t staged_counts = 0;       ///< slots whose tokens' counts have a place on their way
  uint32_t staged_pages = 0;  ///< pages that move between tiers at a time; 0: there are no tiers
  // Read by the host, with a ring's `sampled_bytes` and `log_probs_bytes`:
  uint64_t logits_bytes = 0;  ///< a ring's; 0: they stay on the device

  /// Ranges of the arenas of these three, in the order in which they are allocated.
  std::vector<uint64_t> device_ranges() const;
  std::vector<uint64_t> upload_ranges() const;
  std::vector<uint64_t> readback_ranges() const;
  /// Of arenas for what is on its way between the host and the device.
  std::vector<uint64_t> count_ranges() const;
  std::vector<uint64_t> transfer_ranges() const;
};

/// Errors (kInvalidArgument): more sequences, tokens in a step or context than any device runs.
Status check_sizes(const EngineOptions& options);

/// The options are those of an engine, `context_tokens` given. Errors: those of check_sizes,
/// kDoesNotFit (more pages than have numbers), kInvalidArgument (kinds that no cache takes).
Result<EngineSizes> engine_sizes(const Program& program, const Lowered& lowered,
                                 const EngineOptions& options);

/// What an arena expects for these ranges, and the slabs that it takes for them.
uint64_t expected_bytes(const std::vector<uint64_t>& ranges);
vk::ArenaSizes arena_of(const std::vector<uint64_t>& ranges, uint64_t slab_bytes);

}  // namespace pumice
