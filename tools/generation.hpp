// Running one request to its end on an engine, text streaming out.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.hpp"
#include "text/tokenizer.hpp"

namespace pumice::tools {

struct Timings {
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;     ///< of the prompt, not computed
  size_t truncated_tokens = 0;  ///< of the prompt, left out
  size_t new_tokens = 0;
  double ttft_ms = 0;    ///< request to first token
  double decode_ms = 0;  ///< first token to last

  /// Of tokens that were computed.
  double prefill_rate() const;
  /// The first token belongs to the prefill.
  double decode_rate() const;
};

struct Generation {
  std::string text;
  std::vector<TokenId> tokens;
  Timings timings;
  RequestReport report;
  std::string_view end_reason;  ///< the report's, or "stop_string"
  bool interrupted = false;
};

/// Gets text as it becomes complete and says whether anyone still listens.
using TextSink = std::function<bool(std::string_view)>;

/// Step the engine until the request ends, or its text has one of `stop_strings` (valid ones, see
/// text/text_stream.hpp). Neither that nor the end-of-generation token is part of the text;
/// `ignore_end` goes on after the token.
Result<Generation> generate(Engine& engine, GenerationRequest request, const Tokenizer& tokenizer,
                            bool ignore_end, const TextSink& sink,
                            std::vector<std::string> stop_strings = {});

/// {"prompt_n", "cache_n", "prompt_ms", …}
nlohmann::json timings_json(const Generation& generation);
/// The line of rates on stderr.
void print_rates(const Generation& generation);

}  // namespace pumice::tools
