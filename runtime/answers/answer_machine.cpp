#include "answers/answer_machine.hpp"

#include <algorithm>
#include <utility>

#include "answers/answer_literals.hpp"

namespace pumice {
namespace {

using EventKind = AnswerEvent::Kind;

bool is_piece(EventKind kind) {
  return kind == EventKind::kReasoning || kind == EventKind::kText || kind == EventKind::kArguments;
}

}  // namespace

std::string_view answer_event_name(EventKind kind) {
  switch (kind) {
    case EventKind::kReasoning:
      return "reasoning";
    case EventKind::kText:
      return "text";
    case EventKind::kCallBegun:
      return "call_begun";
    case EventKind::kArguments:
      return "arguments";
    case EventKind::kCallEnded:
      return "call_ended";
    case EventKind::kFinish:
      return "finish";
  }
  return "";
}

void append_event(AnswerEvent event, std::vector<AnswerEvent>& events) {
  if (is_piece(event.kind) && event.text.empty()) return;
  const bool continues = !events.empty() && is_piece(event.kind) &&
                         events.back().kind == event.kind && events.back().call == event.call;
  if (continues) {
    events.back().text += event.text;
  } else {
    events.push_back(std::move(event));
  }
}

AnswerMachine::AnswerMachine(AnswerGrammar grammar, AnswerOptions options)
    : grammar_(std::move(grammar)), options_(std::move(options)) {
  if (options_.tools->empty()) {
    std::erase_if(grammar_.start, [](const Branch& branch) { return branch.is_bare; });
  }
  if (options_.begins_reasoning) {
    mode_ = Mode::kThoughts;
    skips_blanks_ = true;
  }
}

void AnswerMachine::feed(std::string_view text, std::vector<AnswerEvent>& events) {
  events_ = &events;
  for (const char c : text) {
    input_ = c;
    for (n_read_ = 0; n_read_ < input_.size();) dispatch(input_[n_read_++]);
  }
}

void AnswerMachine::finish(std::vector<AnswerEvent>& events) {
  events_ = &events;
  if (mode_ == Mode::kCall) leave_call();
  for (const char c : std::exchange(held_, {})) release_text(c);
  if (mode_ != Mode::kThoughts && !skips_blanks_) give_blanks();
  give({.kind = EventKind::kFinish, .call = n_calls_});
}

/// The answer ends within a call, or behind one.
void AnswerMachine::leave_call() {
  if (!has_begun_ && step().otherwise != kToText) return fail({});
  if (!has_begun_) {
    const std::string held = held_;
    to_text(after_);
    held_ = held;
    return;
  }
  if (step().kind == CallStep::Kind::kRaw) {
    arguments_ended_ = is_closed_;
    if (!is_closed_) add_to_value(held_);
    end_value();
  }
  end_call(arguments_ended_);
  to_text(after_);
}

void AnswerMachine::dispatch(char c) {
  if (mode_ == Mode::kCall) {
    if (!has_begun_) raw_ += c;
    read_call(c);
  } else {
    read_text(c);
  }
}

/// Reads once more what the last bytes read were: a beginning of a literal, at most.
void AnswerMachine::replay(std::string_view text) {
  if (mode_ == Mode::kCall && !has_begun_)
    raw_.resize(raw_.size() - std::min(raw_.size(), text.size()));
  input_.insert(n_read_, text);
}

void AnswerMachine::read_text(char c) {
  held_ += c;
  while (!held_.empty()) {
    const std::vector<Branch>& branches = mode_ == Mode::kStart  ? grammar_.start
                                          : mode_ == Mode::kText ? grammar_.text
                                                                 : grammar_.thoughts;
    size_t index = 0;
    const Found found = find(branches, index);
    if (found == Found::kBeginning) return;
    if (found == Found::kWhole) return leave_text(branches[index]);
    const char first = held_.front();
    held_.erase(0, 1);
    release_text(first);
  }
}

/// Of a control token that is no mark here, nothing is text.
void AnswerMachine::release_text(char c) {
  if (is_mark(c)) return;
  if (is_blank(c)) {
    if (!skips_blanks_) blanks_ += c;
    return;
  }
  if (mode_ == Mode::kStart) mode_ = Mode::kText;
  skips_blanks_ = false;
  give_blanks();
  give({.kind = mode_ == Mode::kThoughts ? EventKind::kReasoning : EventKind::kText, .text = {c}});
}

void AnswerMachine::give_blanks() {
  give({.kind = mode_ == Mode::kThoughts ? EventKind::kReasoning : EventKind::kText,
        .text = std::exchange(blanks_, {})});
}

void AnswerMachine::leave_text(const Branch& branch) {
  const std::string literal = std::exchange(held_, {});
  if (branch.next == kToNothing && mode_ != Mode::kStart) return;
  raw_blanks_ = std::exchange(blanks_, {});
  skips_blanks_ = true;
  if (branch.next == kToNothing) return;
  if (branch.next == kToText || branch.next == kToThoughts) {
    // Behind reasoning the answer begins.
    mode_ = branch.next == kToText ? Mode::kStart : Mode::kThoughts;
    return;
  }
  after_ = mode_ == Mode::kThoughts && !grammar_.is_harmony ? Mode::kThoughts : Mode::kText;
  is_bare_ = branch.is_bare;
  mode_ = Mode::kCall;
  raw_ = literal;
  follow(branch);
  if (branch.keep) replay(literal);
}

void AnswerMachine::to_text(Mode mode) {
  mode_ = mode;
  skips_blanks_ = true;
  raw_.clear();
  held_.clear();
}

void AnswerMachine::give(AnswerEvent event) { append_event(std::move(event), *events_); }

}  // namespace pumice
