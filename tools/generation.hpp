// Running one request to its end on an engine, text streaming out.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "host/recovery.hpp"

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
  bool interrupted = false;
};

/// Gets text as it becomes complete and says whether anyone still listens.
using TextSink = std::function<bool(std::string_view)>;

/// Has a lost device again, or says why not.
using Recover = std::function<Status(const Error& loss)>;
/// The same by `recovery`, saying so in a line. Both must outlive it.
Recover recover_by(host::Recovery& recovery, Engine& engine);

/// Step the engine until the request ends, which has a tokenizer. The token that ends a text is
/// neither among the tokens nor part of the text. When the device is lost, it goes on where
/// `recover` succeeds.
Result<Generation> generate(Engine& engine, GenerationRequest request, const TextSink& sink,
                            const Recover& recover = {});

/// {"prompt_n", "cache_n", "prompt_ms", …}
nlohmann::json timings_json(const Generation& generation);
/// The line of rates on stderr.
void print_rates(const Generation& generation);

}  // namespace pumice::tools
