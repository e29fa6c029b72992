// The scheduler and the cache in virtual time: steps cost what a device model says, nothing else is
// simulated. The very same code that runs requests decides.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "scheduler/scheduler.hpp"
#include "scheduler/trace.hpp"

namespace pumice {

struct SimulationOptions {
  SchedulerOptions scheduler = {};
  uint32_t n_pages = 0;              ///< kUnlimitedPages: as many as are asked for
  std::vector<PageKind> kinds = {};  ///< none: one full kind; all share the pages
  KeptStates kept_states = KeptStates::kEdgeAndBranch;
  StepCost device = {};
  /// Whether the scheduler knows the device from the start or learns it on the way.
  bool calibrated = true;
  double speed_up = 1;        ///< arrivals come this much faster than recorded
  double goodput_ttft_s = 0;  ///< objectives that a request must meet to count; 0: none
  double goodput_tpot_s = 0;
};

struct SimulationReport {
  uint64_t n_requests = 0;
  uint64_t n_refused = 0;  ///< too long for the window or the pages
  double virtual_s = 0;
  double wall_s = 0;
  double output_tokens_per_s = 0;
  double total_tokens_per_s = 0;  ///< prompts included
  double goodput_requests_per_s = 0;
  double hit_rate = 0;  ///< full prompt blocks found over full prompt blocks, as scheduled
  CacheStats cache;
  Telemetry telemetry;
};

/// Called now and then with requests done; false stops the simulation early with kCancelled.
using SimulationProgress = std::function<bool(size_t done, size_t total)>;

/// Errors: kInvalidArgument (scheduler options), kCancelled.
Result<SimulationReport> simulate(const Trace& trace, const SimulationOptions& options,
                                  const SimulationProgress& progress = {});

/// What a trace finds of itself when requests come one by one in order of arrival, each finished
/// before the next, outputs not cached.
struct PrefixHits {
  uint64_t prompt_blocks = 0;   ///< full blocks of all prompts
  uint64_t matched_blocks = 0;  ///< of those, found
  CacheStats cache;

  double rate() const {
    return prompt_blocks == 0
               ? 0
               : static_cast<double>(matched_blocks) / static_cast<double>(prompt_blocks);
  }
};
/// Of the options the pool, its kinds and which states are kept count.
PrefixHits find_prefix_hits(const Trace& trace, const SimulationOptions& options);

/// One point of the trade-off between a prompt's latency and everyone else's.
struct TradeOff {
  uint32_t chunk_tokens = 0;  ///< 0: adaptive
  uint32_t active_decodes = 0;
  double ttft_s = 0;     ///< median over the prompts
  double itl_p99_s = 0;  ///< gaps of the streams while prompts are read
  double tokens_per_s = 0;
};

struct TradeOffOptions {
  std::vector<uint32_t> chunk_tokens;  ///< 0: adaptive under `tpot_target_s`
  std::vector<uint32_t> active_decodes;
  uint32_t prompt_tokens = 8192;
  uint32_t n_prompts = 5;  ///< one after another
  uint32_t stream_context = 512;
  double tpot_target_s = 0;
  StepCost device = {};
  uint32_t block_tokens = 16;
};

/// Prompts arrive one after another while streams decode: a row for each chunk size and number of
/// streams. Errors: kInvalidArgument.
Result<std::vector<TradeOff>> sweep_chunks(const TradeOffOptions& options);

/// How soon an interactive request is served that comes when others have all places.
struct Latecomer {
  std::string amid;          ///< what was there before it
  uint32_t steps = 0;        ///< until its first token, that step included
  double ttft_s = 0;         ///< likewise
  uint64_t preemptions = 0;  ///< of requests that made way
};

struct LatecomerReport {
  std::vector<Latecomer> rows;  ///< the first: alone, as many steps as its prompt takes
  /// And the price: how long a batch request waits for its first token beside an interactive one
  /// that would have the only place for ever. Infinite where classes do not age.
  double batch_ttft_s = 0;
};

struct LatecomerOptions {
  SchedulerOptions scheduler = {};  ///< max_running is that of the batch requests
  uint32_t n_pages = 0;
  uint32_t block_tokens = 16;
  StepCost device = {};
  uint32_t n_batch = 8;         ///< requests that decode; at least one
  uint32_t batch_tokens = 512;  ///< their prompts
  uint32_t long_prompt_tokens = 100'000;
  uint32_t prompt_tokens = 400;  ///< of the latecomer
};

/// Errors: kInvalidArgument, kDoesNotFit.
Result<LatecomerReport> simulate_latecomer(const LatecomerOptions& options);

}  // namespace pumice
