// An answer that is told apart as it comes: its events, and the message it becomes.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answers/answer_stream.hpp"
#include "text/conversation.hpp"
#include "text/detokenizer.hpp"

namespace pumice::host {

/// What tokens mean is told once their text is final, so that a stop string is in no event. One
/// thread.
class Reply {
 public:
  /// `begun`: an answer's beginning, which the prompt ends with. What it begins, a call say, goes on
  /// here; text and reasoning of it are no events, and part of the message.
  Reply(std::shared_ptr<const Tokenizer> tokenizer, const AnswerFormat& format,
        const AnswerOptions& options, const ChatMessage& begun);

  /// A token, or none, and how many bytes of text became final with it.
  std::vector<AnswerEvent> add(std::optional<TokenId> token, size_t n_final_bytes);
  /// The last events. `is_cut`: text that did not become final never will.
  std::vector<AnswerEvent> finish(size_t n_final_bytes, bool is_cut);

  /// What was said so far: calls that broke off are no part of it.
  const ChatMessage& message() const { return message_; }

 private:
  struct Piece {
    TokenId token = 0;
    std::string text;
  };

  void begin(const ChatMessage& begun, const AnswerOptions& options, const AnswerFormat& format);
  std::vector<AnswerEvent> take();
  void tell(std::vector<AnswerEvent> more, std::vector<AnswerEvent>& events);
  void keep(const AnswerEvent& event);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<AnswerStream> stream_;  // always; it cannot be assigned
  Detokenizer detokenizer_;             // of what requests give as text
  std::deque<Piece> pieces_;            // whose text is not final
  size_t n_final_ = 0;                  // bytes of theirs that are
  std::vector<AnswerEvent> events_;
  ChatMessage message_ = {.role = "assistant"};
};

}  // namespace pumice::host
