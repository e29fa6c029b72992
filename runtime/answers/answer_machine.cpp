#include "answers/answer_machine.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.hpp"

namespace pumice {
namespace {

using EventKind = AnswerEvent::Kind;
using Root = ValueReader::Root;
using Slot = CallStep::Slot;

constexpr size_t kMaxSlotBytes = 256;
constexpr size_t kMaxHeaderBytes = 1024;
constexpr size_t kMaxBlanksBehindCloser = 64;

bool is_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

std::string_view literal_of(const Branch& branch) { return branch.literal; }
std::string_view literal_of(const std::string& literal) { return literal; }

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

/// Which of the literals `held_` is, or whether it is the beginning of one. None of them begins
/// another.
template <typename Literals>
AnswerMachine::Found AnswerMachine::find(const Literals& literals, size_t& index) const {
  Found found = Found::kNothing;
  for (size_t i = 0; i < literals.size(); ++i) {
    const std::string_view literal = literal_of(literals[i]);
    if (!literal.starts_with(held_)) continue;
    found = Found::kBeginning;
    if (literal.size() != held_.size()) continue;
    index = i;
    return Found::kWhole;
  }
  return found;
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

void AnswerMachine::read_call(char c) {
  switch (step().kind) {
    case CallStep::Kind::kChoose:
      return choose(c);
    case CallStep::Kind::kTake:
      return take(c);
    case CallStep::Kind::kArguments:
      return read_arguments(c);
    case CallStep::Kind::kCall:
      return read_call_object(c);
    case CallStep::Kind::kRaw:
      return read_raw(c);
    case CallStep::Kind::kValue:
      return read_value(c);
  }
}

void AnswerMachine::choose(char c) {
  if (held_.empty() && is_blank(c)) return;
  held_ += c;
  size_t index = 0;
  const Found found = find(step().branches, index);
  if (found == Found::kBeginning) return;
  const std::string read = std::exchange(held_, {});
  if (found == Found::kWhole) {
    const Branch& branch = step().branches[index];
    follow(branch);
    if (branch.keep) replay(read);
  } else if (step().otherwise == kToFailure) {
    fail(read);
  } else {
    enter(step().otherwise);
    replay(read);
  }
}

void AnswerMachine::take(char c) {
  held_ += c;
  while (!held_.empty()) {
    size_t index = 0;
    const Found found = find(step().branches, index);
    if (found == Found::kBeginning) return;
    if (found == Found::kWhole) {
      const std::string read = std::exchange(held_, {});
      const Branch branch = step().branches[index];
      keep_slot();
      const bool is_empty = step().slot != Slot::kHeader && without_blanks(slot_).empty();
      if (is_empty) return fail({});
      follow(branch);
      if (branch.keep && mode_ == Mode::kCall) replay(read);
      return;
    }
    const char first = held_.front();
    held_.erase(0, 1);
    const bool is_header = step().slot == Slot::kHeader;
    const bool is_identifier_slot =
        step().slot == Slot::kIdentifier ||
        (step().slot == Slot::kKey && step().branches.front().literal == "=");
    const bool is_other_line =
        !is_blank(first) && slot_.ends_with('\n') && !without_blanks(slot_).empty();
    slot_ += first;
    const bool fits = is_header
                          ? slot_.size() <= kMaxHeaderBytes
                          : slot_.size() <= kMaxSlotBytes && !is_mark(first) && !is_other_line;
    if (!fits || (is_identifier_slot && !is_identifier(first) && !is_blank(first))) return fail({});
  }
}

void AnswerMachine::keep_slot() {
  const std::string text(without_blanks(slot_));
  switch (step().slot) {
    case Slot::kName:
    case Slot::kIdentifier:
      name_ = text;
      break;
    case Slot::kId:
      id_ = text;
      break;
    case Slot::kKey:
      key_ = text;
      break;
    case Slot::kType:
    case Slot::kHeader:
      break;
  }
}

void AnswerMachine::follow(const Branch& branch) {
  const CallAct act = branch.act;
  const int next = branch.next;
  if (act == CallAct::kHeader && !read_header()) return;
  if (act == CallAct::kBegin || act == CallAct::kEnd) {
    if (is_unknown()) return fail({});
    begin_call();
  }
  if (act == CallAct::kEnd) {
    arguments_ended_ = true;
    end_call(true);
  }
  enter(next);
  if (mode_ == Mode::kCall && step().kind == CallStep::Kind::kRaw) begin_value(act);
  if (mode_ == Mode::kCall && step().kind == CallStep::Kind::kValue) give_argument_name();
}

void AnswerMachine::enter(int next) {
  if (next < 0) return to_text(after_);
  at_ = next;
  slot_.clear();
  if (step().otherwise == kToText) raw_.clear();  // behind a call nothing is lost
  const CallStep::Kind kind = step().kind;
  if (kind == CallStep::Kind::kArguments) reader_ = ValueReader(Root::kObject, grammar_.quote);
  if (kind == CallStep::Kind::kValue) reader_ = ValueReader(Root::kAny, grammar_.quote);
  if (kind == CallStep::Kind::kCall) {
    reader_ = ValueReader(Root::kMembers);
    name_.clear();
    member_.clear();
    late_arguments_.clear();
    gives_member_ = false;
  }
}

void AnswerMachine::to_text(Mode mode) {
  mode_ = mode;
  skips_blanks_ = true;
  raw_.clear();
  held_.clear();
}

/// Of a harmony message: false if what follows is text or reasoning.
bool AnswerMachine::read_header() {
  const std::string header = grammar_.spelled(slot_);
  const auto word_behind = [&](std::string_view mark) {
    const size_t begin = header.find(mark);
    if (begin == std::string::npos) return std::string();
    const std::string_view rest = std::string_view(header).substr(begin + mark.size());
    return std::string(rest.substr(0, rest.find_first_of(" \t\r\n<")));
  };
  std::string recipient = word_behind("to=");
  if (recipient.empty() || recipient == "assistant" || recipient == "user") {
    to_text(word_behind("<|channel|>") == "analysis" ? Mode::kThoughts : Mode::kText);
    return false;
  }
  constexpr std::string_view kFunctions = "functions.";
  const bool is_function =
      recipient.starts_with(kFunctions) && recipient.size() > kFunctions.size();
  if (is_function) recipient.erase(0, kFunctions.size());
  name_ = std::move(recipient);
  return true;
}

/// `unread`: the end of what was read, which is looked at again as text.
void AnswerMachine::fail(std::string_view unread) {
  const std::string rest(unread);
  if (has_begun_) {
    if (step().kind == CallStep::Kind::kRaw) end_value();
    const std::string lost = step().kind == CallStep::Kind::kTake ? slot_ + held_ : std::string();
    end_call(false);
    to_text(after_);
    for (const char c : lost) release_text(c);
    skips_blanks_ = false;
  } else {
    if (!is_bare_) ++n_unparsed_;
    std::string text =
        grammar_.spelled(std::string_view(raw_).substr(0, raw_.size() - rest.size()));
    to_text(after_);
    skips_blanks_ = false;
    const size_t last = text.find_last_not_of(" \t\r\n");
    blanks_ = text.substr(last + 1);
    text.resize(last + 1);
    text.insert(0, std::exchange(raw_blanks_, {}));
    give({.kind = mode_ == Mode::kThoughts ? EventKind::kReasoning : EventKind::kText,
          .text = text});
  }
  id_.clear();
  replay(rest);
}

void AnswerMachine::read_raw(char c) {
  if (std::exchange(may_have_line_, false) && c == '\n') return;
  if (is_closed_ && held_.empty() && is_blank(c) && closed_.size() < kMaxBlanksBehindCloser) {
    closed_ += c;
    return;
  }
  held_ += c;
  size_t index = 0;
  if (is_closed_) {
    const Found found = find(step().branches, index);
    if (found == Found::kBeginning) return;
    const std::string read = std::exchange(held_, {});
    if (found == Found::kNothing) {  // a closer of the value's own
      is_closed_ = false;
      add_to_value(std::exchange(closed_, {}));
      return replay(read);
    }
    const Branch branch = step().branches[index];
    if (branch.act == CallAct::kAgain) {
      closed_ += read;
      return;
    }
    end_value();
    return follow(branch);
  }
  while (!held_.empty()) {
    const Found found = find(grammar_.closers, index);
    if (found == Found::kBeginning) return;
    if (found == Found::kWhole) {
      closed_ = std::exchange(held_, {});
      is_closed_ = true;
      return;
    }
    const char first = held_.front();
    held_.erase(0, 1);
    if (is_mark(first)) return fail(first + held_);
    add_to_value({&first, 1});
  }
}

void AnswerMachine::give(AnswerEvent event) { append_event(std::move(event), *events_); }

}  // namespace pumice
