// AnswerMachine: the steps of a call.
#include <algorithm>
#include <utility>

#include "answers/answer_literals.hpp"

namespace pumice {
namespace {

using EventKind = AnswerEvent::Kind;
using Root = ValueReader::Root;
using Slot = CallStep::Slot;

constexpr size_t kMaxSlotBytes = 256;
constexpr size_t kMaxHeaderBytes = 1024;
constexpr size_t kIdBytes = 9;  // what Mistral's templates ask for

bool is_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

/// Different for each number, and for each seed.
std::string call_id(uint64_t seed, uint32_t number) {
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  uint64_t bits = seed + (number + 1) * 0x9E3779B97F4A7C15u;  // Steele, Lea, Flood 2014: SplitMix
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
  bits ^= bits >> 31;
  std::string id;
  for (size_t i = 0; i < kIdBytes; ++i) {
    id += kLetters[bits % kLetters.size()];
    bits /= kLetters.size();
  }
  return id;
}

}  // namespace

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
      const bool is_empty = step().slot != Slot::kHeader && trimmed(slot_).empty();
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
    const bool is_other_line = !is_blank(first) && slot_.ends_with('\n') && !trimmed(slot_).empty();
    slot_ += first;
    const bool fits = is_header
                          ? slot_.size() <= kMaxHeaderBytes
                          : slot_.size() <= kMaxSlotBytes && !is_mark(first) && !is_other_line;
    if (!fits || (is_identifier_slot && !is_identifier(first) && !is_blank(first))) return fail({});
  }
}

void AnswerMachine::keep_slot() {
  const std::string text(trimmed(slot_));
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

void AnswerMachine::begin_call() {
  if (std::exchange(has_begun_, true)) return;
  raw_.clear();
  raw_blanks_.clear();
  n_arguments_ = 0;
  arguments_ended_ = false;
  if (grammar_.name_is_id) {
    if (name_.find(':') != std::string::npos) id_ = name_;
    constexpr std::string_view kFunctions = "functions.";
    const bool has_prefix = name_.starts_with(kFunctions) && name_.size() > kFunctions.size();
    if (has_prefix) name_.erase(0, kFunctions.size());
    const size_t colon = name_.rfind(':');
    if (colon != std::string::npos && colon > 0) name_.resize(colon);
  }
  constexpr std::string_view kCall = ".call";  // of Llama's built-in tools
  const bool is_built_in = name_.ends_with(kCall) && name_.size() > kCall.size();
  if (is_built_in && !options_.tools->contains(name_)) name_.resize(name_.size() - kCall.size());
  if (id_.empty()) id_ = call_id(options_.id_seed, n_calls_);
  give({.kind = EventKind::kCallBegun,
        .call = n_calls_,
        .text = name_,
        .id = std::exchange(id_, {})});
}

/// Of arguments that are not complete, what there is.
void AnswerMachine::end_call(bool complete) {
  std::string rest;
  switch (step().kind) {
    case CallStep::Kind::kArguments:
      if (!complete) reader_.close(rest);
      break;
    case CallStep::Kind::kCall:
      if (!complete && gives_member_) reader_.close(rest);
      break;
    case CallStep::Kind::kValue: {
      const bool has_value = reader_.has_begun();
      reader_.close(rest);
      rest = (has_value ? rest : "null") + "}";
      break;
    }
    default:
      rest = n_arguments_ == 0 ? "{}" : "}";
  }
  give_arguments(n_arguments_ == 0 && rest.empty() ? "{}" : rest);
  give({.kind = EventKind::kCallEnded, .call = n_calls_, .complete = complete});
  ++n_calls_;
  if (!complete) ++n_unparsed_;
  has_begun_ = false;
  raw_.clear();
  id_.clear();
  is_bare_ = false;
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

}  // namespace pumice
