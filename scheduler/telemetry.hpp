// What the scheduler counts. Times in seconds, monotonic; names are those of CONVENTIONS: TTFT is
// arrival to first token, TPOT the mean gap after it, ITL each gap.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "scheduler/histogram.hpp"

namespace pumice {

struct Telemetry {
  uint64_t steps = 0;
  uint64_t failed_steps = 0;
  uint64_t arrived = 0;
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t failed = 0;  ///< deadlines included
  uint64_t preemptions = 0;
  uint64_t target_misses = 0;     ///< steps predicted beyond the target even at the smallest chunk
  uint64_t discarded_tokens = 0;  ///< computed ahead for a request that had ended
  uint64_t cancelled_kv_tokens =
      0;                         ///< computed for requests cancelled before their prompt was read
  uint64_t prompt_tokens = 0;    ///< of started requests
  uint64_t cached_tokens = 0;    ///< of those, not computed
  uint64_t computed_tokens = 0;  ///< positions that steps wrote
  uint64_t generated_tokens = 0;
  uint64_t drafted_tokens = 0;   ///< guessed, and verified
  uint64_t accepted_tokens = 0;  ///< of those

  Histogram chunk_tokens;  ///< prompt tokens in a chunk
  Histogram step_seconds;
  Histogram wait_seconds;     ///< arrival to first step
  Histogram prefill_seconds;  ///< first step to first token
  Histogram decode_seconds;   ///< first to last token
  Histogram ttft_seconds;
  Histogram tpot_seconds;
  Histogram itl_seconds;
  Histogram e2e_seconds;
  Histogram prefill_iterations;  ///< steps that read a prompt

  /// TTFT by prompt length: up to 128, 512, 2048, 8192, 32768 tokens, and longer.
  static constexpr std::array<uint32_t, 5> kLengthEdges = {128, 512, 2048, 8192, 32768};
  std::array<Histogram, kLengthEdges.size() + 1> ttft_by_length;

  void add_ttft(uint32_t length_tokens, double seconds);
};

/// `kv_bytes_per_token` turns cancelled tokens into bytes.
nlohmann::json telemetry_to_json(const Telemetry& telemetry, uint64_t kv_bytes_per_token);

}  // namespace pumice
