// Workloads on the real engine: several requests at once, made-up tokens, measured as a client
// would see them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.hpp"

namespace pumice {

struct ServeOptions {
  uint32_t n_streams = 4;           ///< requests that decode while a prompt arrives
  uint32_t long_prompt_tokens = 0;  ///< 0: 8192, or what this device reads in about two seconds
  double tpot_target_s = 0;         ///< of adaptive chunks; 0: see default_tpot_target
  std::vector<uint32_t> chunk_tokens = {16, 64, 256, 1024};  ///< beside adaptive and monolithic
  uint32_t n_requests = 24;                                  ///< of the cancelling workload
  KvTypes kv_type;
  ops::Math math = ops::Math::kAuto;
  uint64_t seed = 1;
  std::function<bool()> stop = {};  ///< asked between steps; true ends it with kCancelled
};

/// Streams that decode while a long prompt arrives, cut in one way.
struct ArrivalRow {
  std::string chunk;     ///< "adaptive", "monolithic" or a size
  double target_s = 0;   ///< of adaptive
  double ttft_s = 0;     ///< of the long prompt
  double gap_p50_s = 0;  ///< between tokens of the streams while it is read
  double gap_p99_s = 0;
  double gap_max_s = 0;
  double idle_gap_s = 0;  ///< median gap with nothing else running
  uint32_t prefill_iterations = 0;
  double tokens_per_s = 0;  ///< prompt and generated, while it is read
};

/// Requests that share a system prompt, the first cold.
struct SharedPromptResult {
  uint32_t system_tokens = 0;
  double cold_ttft_s = 0;
  double warm_ttft_s = 0;  ///< median
  double warm_cached = 0;  ///< share of the prompt
};

struct AgentTurn {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  double ttft_s = 0;
  double ttft_uncached_s = 0;  ///< the same prompt with the prefix cache off
};

struct CancelResult {
  uint32_t n_requests = 0;
  uint32_t n_cancelled = 0;
  uint32_t blocks_free = 0;
  uint32_t blocks = 0;  ///< as many as are free, or blocks have leaked
  uint64_t cancelled_kv_bytes = 0;
};

/// A long prompt for the second time, and what looking for prefixes costs when there is none.
struct RepeatResult {
  uint32_t prompt_tokens = 0;
  double cold_ttft_s = 0;
  double cached_ttft_s = 0;
  double look_up_s = 0;  ///< hashing and looking up a prompt of that length that is not there
};

struct ServeReport {
  uint32_t long_prompt_tokens = 0;
  std::vector<ArrivalRow> arrivals;
  SharedPromptResult shared;
  std::vector<AgentTurn> agent;
  CancelResult cancels;
  RepeatResult repeat;
  nlohmann::json profile;    ///< scheduling profile of the adaptive run
  nlohmann::json telemetry;  ///< of the adaptive run
};

/// Called before each workload with its name.
using ServeProgress = std::function<void(std::string_view workload)>;

/// Errors: those of Engine; kCancelled.
Result<ServeReport> run_serve_bench(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
                                    const std::shared_ptr<const Model>& model,
                                    const ServeOptions& options,
                                    const ServeProgress& progress = {});

/// Only the streams beside a long prompt: report.arrivals.
Result<ServeReport> run_arrivals(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
                                 const std::shared_ptr<const Model>& model,
                                 const ServeOptions& options, const ServeProgress& progress = {});

/// A time between tokens that adaptive chunks can keep to, from the other rows: three times the
/// idle gap or, if that is longer, the p99 gap of the chunks that were best, since no shorter one
/// was reached.
double default_tpot_target(std::span<const ArrivalRow> others);

nlohmann::json serve_report_json(const ServeReport& report);
/// The same as tables in Markdown.
std::string serve_report_text(const ServeReport& report);

}  // namespace pumice
