#include "scheduler/telemetry.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pumice {

void Telemetry::add_ttft(uint32_t length_tokens, double seconds) {
  ttft_seconds.add(seconds);
  const auto* edge = std::lower_bound(kLengthEdges.begin(), kLengthEdges.end(), length_tokens);
  ttft_by_length[static_cast<size_t>(edge - kLengthEdges.begin())].add(seconds);
}

nlohmann::json telemetry_to_json(const Telemetry& t, uint64_t kv_bytes_per_token) {
  nlohmann::json by_length = nlohmann::json::object();
  for (size_t i = 0; i < t.ttft_by_length.size(); ++i) {
    if (t.ttft_by_length[i].count() == 0) continue;
    const std::string name = i < Telemetry::kLengthEdges.size()
                                 ? "le_" + std::to_string(Telemetry::kLengthEdges[i])
                                 : "longer";
    by_length[name] = t.ttft_by_length[i];
  }
  return {{"steps", t.steps},
          {"failed_steps", t.failed_steps},
          {"requests",
           {{"arrived", t.arrived},
            {"finished", t.finished},
            {"cancelled", t.cancelled},
            {"failed", t.failed}}},
          {"preemptions", t.preemptions},
          {"target_misses", t.target_misses},
          {"discarded_tokens", t.discarded_tokens},
          {"cancelled_partial_kv_bytes", t.cancelled_kv_tokens * kv_bytes_per_token},
          {"prompt_tokens", t.prompt_tokens},
          {"cached_tokens", t.cached_tokens},
          {"computed_tokens", t.computed_tokens},
          {"generated_tokens", t.generated_tokens},
          {"drafted_tokens", t.drafted_tokens},
          {"accepted_tokens", t.accepted_tokens},
          {"chunk_tokens", t.chunk_tokens},
          {"step_s", t.step_seconds},
          {"queue_s", t.wait_seconds},
          {"prefill_s", t.prefill_seconds},
          {"decode_s", t.decode_seconds},
          {"ttft_s", t.ttft_seconds},
          {"ttft_s_by_prompt_tokens", by_length},
          {"tpot_s", t.tpot_seconds},
          {"itl_s", t.itl_seconds},
          {"e2el_s", t.e2e_seconds},
          {"prefill_iterations", t.prefill_iterations}};
}

}  // namespace pumice
