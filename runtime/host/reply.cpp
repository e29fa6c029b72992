#include "host/reply.hpp"

#include <algorithm>
#include <utility>

namespace pumice::host {
namespace {

using Kind = AnswerEvent::Kind;

bool is_of_call(const AnswerEvent& event) {
  return event.kind == Kind::kCallBegun || event.kind == Kind::kArguments ||
         event.kind == Kind::kCallEnded;
}

bool is_all(const std::vector<AnswerEvent>& events, Kind kind) {
  return std::ranges::all_of(events, [&](const AnswerEvent& one) { return one.kind == kind; });
}

}  // namespace

Reply::Reply(std::shared_ptr<const Tokenizer> tokenizer, const AnswerFormat& format,
             const AnswerOptions& options, const ChatMessage& begun)
    : tokenizer_(std::move(tokenizer)), detokenizer_(*tokenizer_) {
  stream_.emplace(tokenizer_, format, options);
  if (!begun.content.empty()) begin(begun, options, format);
}

/// A beginning that is text alone is left to the message: the stream begins behind it, so that no
/// blank at its end is told as if it came later.
void Reply::begin(const ChatMessage& begun, const AnswerOptions& options,
                  const AnswerFormat& format) {
  if (begun.special) {
    const Result<std::vector<TokenId>> tokens =
        tokenizer_->encode(begun.content, {.add_special = false, .parse_special = true});
    if (!tokens.ok()) return;  // the prompt has the same text, and was refused
    for (const TokenId token : *tokens) stream_->feed(token, events_);
  } else {
    stream_->feed_text(begun.content, events_);
  }
  if (is_all(events_, Kind::kText) && !stream_->machine().is_in_mark()) {
    events_.clear();
    stream_.emplace(tokenizer_, format, options);
    message_.content = begun.content;
    return;
  }
  for (const AnswerEvent& event : events_) keep(event);
  std::erase_if(events_, [](const AnswerEvent& event) { return !is_of_call(event); });
}

std::vector<AnswerEvent> Reply::add(std::optional<TokenId> token, size_t n_final_bytes) {
  if (token) pieces_.push_back({*token, detokenizer_.feed(*token)});
  n_final_ += n_final_bytes;
  return take();
}

std::vector<AnswerEvent> Reply::finish(size_t n_final_bytes, bool is_cut) {
  n_final_ += n_final_bytes;
  std::vector<AnswerEvent> events = take();
  std::vector<AnswerEvent> more;
  if (is_cut && !pieces_.empty()) {
    stream_->drop_unfinished();  // its end is in the piece that is cut
    stream_->feed_text(pieces_.front().text.substr(0, n_final_), more);
  } else {
    for (const Piece& piece : pieces_) stream_->feed(piece.token, more);
  }
  stream_->finish(more);
  tell(std::move(more), events);
  return events;
}

/// Tokens whose text is final, and those without any right behind them.
std::vector<AnswerEvent> Reply::take() {
  std::vector<AnswerEvent> events = std::exchange(events_, {});
  while (!pieces_.empty() && pieces_.front().text.size() <= n_final_) {
    n_final_ -= pieces_.front().text.size();
    std::vector<AnswerEvent> more;
    stream_->feed(pieces_.front().token, more);
    pieces_.pop_front();
    tell(std::move(more), events);
  }
  return events;
}

void Reply::tell(std::vector<AnswerEvent> more, std::vector<AnswerEvent>& events) {
  for (AnswerEvent& event : more) {
    keep(event);
    append_event(std::move(event), events);
  }
}

void Reply::keep(const AnswerEvent& event) {
  switch (event.kind) {
    case Kind::kReasoning:
      message_.reasoning += event.text;
      return;
    case Kind::kText:
      message_.content += event.text;
      return;
    case Kind::kCallBegun:
      message_.calls.push_back({.id = event.id, .name = event.text});
      return;
    case Kind::kArguments:
      message_.calls.back().arguments += event.text;
      return;
    case Kind::kCallEnded:
      if (!event.complete) message_.calls.pop_back();
      return;
    case Kind::kFinish:
      return;
  }
}

}  // namespace pumice::host
