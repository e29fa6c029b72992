// Requests to replay: recorded traces and synthetic mixes, as arrival times, lengths and the
// identities of prompt blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/result.hpp"

namespace pumice {

struct TraceRequest {
  double arrival_s = 0;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  /// One key a full block of the prompt: equal keys at equal places after equal keys are the same
  /// text.
  std::vector<uint64_t> keys;
};

struct Trace {
  uint32_t block_tokens = 0;           ///< tokens that a key stands for
  std::vector<TraceRequest> requests;  ///< in order of arrival
};

/// `.csv`: Azure's TIMESTAMP,ContextTokens,GeneratedTokens; nothing is shared between its requests,
/// and keys stand for `block_tokens`. `.jsonl`: Mooncake's timestamp (ms), input_length,
/// output_length, hash_ids, whose keys stand for 512 tokens; another `block_tokens` must divide
/// 512. 0: the trace's own size (16 for Azure's). Errors: kBadFile naming the line,
/// kInvalidArgument.
Result<Trace> read_trace(const std::filesystem::path& path, uint32_t block_tokens = 0);

struct SyntheticMix {
  uint32_t n_requests = 1000;
  double requests_per_s = 4;
  uint32_t n_system_prompts = 8;  ///< requests begin with one of these
  uint32_t system_prompt_tokens = 512;
  uint32_t median_prompt_tokens = 512;  ///< after the system prompt; log-normal
  uint32_t median_output_tokens = 128;  ///< log-normal
  uint64_t seed = 1;
};
Trace make_synthetic_trace(const SyntheticMix& mix, uint32_t block_tokens);

}  // namespace pumice
