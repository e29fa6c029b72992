// A model's tokens as typed events.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "answers/answer_machine.hpp"
#include "text/detokenizer.hpp"

namespace pumice {

/// Control tokens that the format knows are known by their id, not by their spelling; all else is
/// text (Detokenizer). One answer, one thread; time O(1) a token.
class AnswerStream {
 public:
  AnswerStream(std::shared_ptr<const Tokenizer> tokenizer, const AnswerFormat& format,
               AnswerOptions options);

  void feed(TokenId token, std::vector<AnswerEvent>& events);
  /// Text that belongs to no token: of one that was cut.
  void feed_text(std::string_view text, std::vector<AnswerEvent>& events);
  /// The character under way is not written after all.
  void drop_unfinished() { (void)detokenizer_.flush(); }
  void finish(std::vector<AnswerEvent>& events);

  const AnswerMachine& machine() const { return machine_; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  Detokenizer detokenizer_;
  AnswerMachine machine_;
};

}  // namespace pumice
