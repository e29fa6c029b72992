// What a wire makes of an answer: the one interface between requests that run and the protocols in
// which clients speak.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "answers/chat_prompt.hpp"
#include "engine/requests.hpp"
#include "tools/serve/service/answer_reader.hpp"
#include "tools/serve/service/api_error.hpp"
#include "tools/serve/service/service.hpp"

namespace pumice::serve {

/// A token of the prompt or the answer and how probable it was, where that was asked for.
struct ScoredToken {
  TokenId token = 0;
  std::optional<TokenLogProbs> log_probs = {};
};

/// What became known of a choice at once.
struct ChoicePiece {
  uint32_t choice = 0;
  std::vector<AnswerEvent> events = {};  ///< without kFinish
  std::vector<ScoredToken> tokens = {};  ///< of the answer, if their log probabilities are wanted
  std::vector<ScoredToken> prompt = {};  ///< of the prompt (GenerationInput::scores)
};

enum class Finish : uint8_t { kStop, kStopString, kLength, kToolCalls, kCacheThreshold };
/// As OpenAI has it, in answers and metrics.
std::string_view finish_name(Finish finish);

struct ChoiceEnd {
  Finish finish = Finish::kStop;
  std::string stop_string = {};  ///< of kStopString
};

/// All of a choice.
struct ChoiceResult {
  std::string text = {};
  std::string reasoning = {};
  std::vector<ToolCall> calls = {};
  std::vector<ScoredToken> tokens = {};
  std::vector<ScoredToken> prompt = {};
  ChoiceEnd end = {};

  void add(const ChoicePiece& piece);
};

/// Of a request, all choices together.
struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t reasoning_tokens = 0;
  uint32_t drafted_tokens = 0;   ///< that were guessed and verified
  uint32_t accepted_tokens = 0;  ///< of those, what the answer says
  double prompt_ms = 0;          ///< until the first token
  double predicted_ms = 0;       ///< from there to the end
};

/// One answer in a wire's words; a pure function of what it is given, in order. Texts of a stream
/// are server-sent events.
class AnswerWriter {
 public:
  AnswerWriter() = default;
  virtual ~AnswerWriter() = default;
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;

  virtual std::string whole(std::span<const ChoiceResult> choices, const Usage& usage) = 0;

  // A stream. `usage` of `begin` knows the prompt.
  virtual std::string begin(const Usage& usage) = 0;
  virtual std::string piece(const ChoicePiece& piece) = 0;
  virtual std::string end_choice(uint32_t choice, const ChoiceEnd& end) = 0;
  virtual std::string end(const Usage& usage) = 0;
  virtual std::string fail(const ApiError& error) = 0;
  /// Written while nothing else is.
  virtual std::string keep_alive() const { return ": ping\n\n"; }
};

/// An error as the body of an answer, as a wire words it.
using ErrorWriter = std::string (*)(const ApiError& error, std::string_view request_id);

/// A client's request as a wire reads it.
struct WireRequest {
  GenerationInput input;
  std::optional<AnswerForm> form = {};  ///< none: all of the answer is text
  bool stream = false;
  bool one_call = false;   ///< the answer ends behind its first call of a tool
  bool no_tokens = false;  ///< nothing is generated: only the prompt is of interest
  /// A prompt that is too long is told in the stream, where the wire's clients look for it.
  bool fails_in_stream = false;
  std::string prompt_text = {};         ///< what the messages became
  std::string prompt_field = "prompt";  ///< what to name when it is too long
  std::unique_ptr<AnswerWriter> writer = {};
};
using ParsedRequest = std::variant<WireRequest, ApiError>;

}  // namespace pumice::serve
