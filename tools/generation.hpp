// One request of a host followed to its end, text streaming out.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "host/host.hpp"

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
  std::vector<TokenLogProbs> log_probs;  ///< of each, if the request asked for them
  std::vector<AnswerEvent> answer;       ///< the text told apart, likewise
  Timings timings;
  RequestReport report;
  uint32_t n_forgotten = 0;  ///< questions left out of the prompt
  bool interrupted = false;
};

/// Gets text as it becomes complete and says whether anyone still listens.
using TextSink = std::function<bool(std::string_view)>;
/// The same of answers that are told apart.
using AnswerSink = std::function<bool(std::span<const AnswerEvent>)>;

/// Poll the host until a request that was just submitted, its only one, has ended. The token that
/// ends a text is neither among the tokens nor part of the text. An interrupt, a sink that does not
/// listen and a step that fails cancel it. Errors: what a step failed with, what the request did.
Result<Generation> follow(host::Host& host, const host::Submitted& request, const TextSink& sink,
                          const AnswerSink& answers = {});
/// The same of several choices of one prompt, the host's only requests: the first one streams.
Result<std::vector<Generation>> follow_all(host::Host& host,
                                           std::span<const host::Submitted> requests,
                                           const TextSink& sink, const AnswerSink& answers = {});

/// [{"token", "logprob", "top": [{"token", "logprob"}]}]: what the request asked for of its tokens.
nlohmann::json log_probs_json(const Generation& generation);

/// {"drafted", "accepted", "drafted_by_position": […], "accepted_by_position": […]}
nlohmann::json spec_json(const DraftCounts& drafts);
/// {"prompt_n", "cache_n", "prompt_ms", …}
nlohmann::json timings_json(const Generation& generation);
/// The line of rates on stderr.
void print_rates(const Generation& generation);

}  // namespace pumice::tools
