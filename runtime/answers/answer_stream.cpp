#include "answers/answer_stream.hpp"

#include <string>
#include <utility>

namespace pumice {

AnswerStream::AnswerStream(std::shared_ptr<const Tokenizer> tokenizer, const AnswerFormat& format,
                           AnswerOptions options)
    : tokenizer_(std::move(tokenizer)),
      detokenizer_(*tokenizer_),
      machine_(AnswerGrammar::create(format, tokenizer_.get()), std::move(options)) {}

void AnswerStream::feed(TokenId token, std::vector<AnswerEvent>& events) {
  if (const char mark = machine_.grammar().mark_of(token); mark != 0) {
    machine_.feed(detokenizer_.flush() + mark, events);
  } else {
    machine_.feed(detokenizer_.feed(token), events);
  }
}

void AnswerStream::feed_text(std::string_view text, std::vector<AnswerEvent>& events) {
  machine_.feed(detokenizer_.flush(), events);
  machine_.feed(text, events);
}

void AnswerStream::finish(std::vector<AnswerEvent>& events) {
  machine_.feed(detokenizer_.flush(), events);
  machine_.finish(events);
}

}  // namespace pumice
