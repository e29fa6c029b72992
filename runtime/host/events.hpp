// What a host tells of its requests, and the numbers by which it knows them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "answers/answer_machine.hpp"
#include "base/result.hpp"
#include "engine/requests.hpp"
#include "text/vocabulary.hpp"

namespace pumice::host {

/// Numbers of one host, below 2^53 and never given twice: those of an engine's requests
/// (pumice::RequestId) are another thing.
enum class ConversationId : uint64_t { kNone = 0 };
enum class RequestId : uint64_t { kNone = 0 };

/// What is known of a request once it has ended.
struct Ending {
  RequestReport report;      ///< its `failure` is the event's status
  uint32_t n_forgotten = 0;  ///< oldest questions that were left out of the prompt
  /// Since submission.
  std::optional<std::chrono::steady_clock::duration> first_token = {};
  std::chrono::steady_clock::duration total = {};
};

/// Owns what it has: of a host with several clients each may be given its own.
struct Event {
  enum class Kind {
    kProgress,    ///< the prompt is being read
    kScore,       ///< a token of the prompt and how probable it was (RequestInput::scores)
    kToken,       ///< one token, and the text that became final with it
    kFinished,    ///< the last event of a request, perhaps with a token and text
    kBudgetMet,   ///< the memory budget that was asked for holds
    kDeviceLost,  ///< `status` says why; requests wait
    kDeviceNew,   ///< requests go on
  };

  Kind kind = Kind::kProgress;
  RequestId request = RequestId::kNone;
  ConversationId conversation = ConversationId::kNone;  ///< of the request
  std::optional<TokenId> token = {};
  std::optional<TokenLogProbs> log_probs = {};  ///< of the token, if the request asked for them
  uint32_t computed_tokens = 0;  ///< positions computed so far; of kScore those before the token
  std::string text = {};
  /// What tokens and text so far turned out to mean, if the request asked (RequestInput::answer).
  std::vector<AnswerEvent> answer = {};
  Status status = {};                 ///< of a request that failed, and of kDeviceLost
  std::optional<Ending> ending = {};  ///< of kFinished
};

}  // namespace pumice::host
