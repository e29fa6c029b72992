#include "answers/answer_machine.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.hpp"

namespace pumice {
namespace {

using EventKind = AnswerEvent::Kind;
using Root = ValueReader::Root;
using Step = ValueReader::Step;
using Slot = CallStep::Slot;

constexpr size_t kMaxSlotBytes = 256;
constexpr size_t kMaxHeaderBytes = 1024;
constexpr size_t kMaxBlanksBehindCloser = 64;
constexpr size_t kIdBytes = 9;  // what Mistral's templates ask for

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool is_identifier(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

std::string_view literal_of(const Branch& branch) { return branch.literal; }
std::string_view literal_of(const std::string& literal) { return literal; }

/// The string that a JSON string says.
std::string decoded(std::string_view json) {
  const Result<nlohmann::json> value = read_json(json, json.size());
  return value.ok() && value->is_string() ? value->get<std::string>() : std::string();
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

// Families differ in what they call the members of a call; none means another by one.
bool is_name(std::string_view member) { return member == "name" || member == "tool_name"; }
bool is_arguments(std::string_view member) {
  return member == "arguments" || member == "parameters";
}
bool is_id(std::string_view member) { return member == "id" || member == "tool_call_id"; }
bool is_known_member(std::string_view member) {
  return is_name(member) || is_arguments(member) || is_id(member) || member == "type";
}

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

void AnswerMachine::read_arguments(char c) {
  std::string out;
  const Step read = reader_.feed(c, out);
  if (!out.empty()) {
    begin_call();
    give_arguments(out);
    ++n_arguments_;
  }
  if (read == Step::kBad) return fail({&c, 1});
  if (read != Step::kDone) return;
  const int next = step().otherwise;
  arguments_ended_ = true;
  end_call(true);
  enter(next);
}

/// A call without a mark is one of a known tool.
bool AnswerMachine::is_unknown() const {
  return is_bare_ && !has_begun_ && !options_.tools->contains(name_);
}

void AnswerMachine::read_call_object(char c) {
  std::string out;
  const Step read = reader_.feed(c, out);
  if (!out.empty()) {
    const std::string& member = reader_.member();
    if (is_bare_ && !has_begun_ && !is_known_member(member)) return fail({});
    const bool begins = is_arguments(member) && !has_begun_ && !name_.empty() && member_.empty() &&
                        out.front() == '{';
    if (begins) begin_call();
    gives_member_ = gives_member_ || begins;
    if (gives_member_) {
      give_arguments(out);
      ++n_arguments_;
    } else {
      member_ += out;
    }
  }
  if (read == Step::kBad) return fail({&c, 1});
  if (reader_.ended_member() && !take_member()) return fail({});
  if (read != Step::kDone) return;
  if (!has_begun_) {
    if (name_.empty() || is_unknown()) return fail({});
    begin_call();
    give_arguments(late_arguments_);
    n_arguments_ += late_arguments_.size();
  }
  const int next = step().otherwise;
  end_call(true);
  enter(next);
}

/// A member's value is whole. False: it is none that a call has.
bool AnswerMachine::take_member() {
  const std::string& member = reader_.member();
  const std::string value = std::exchange(member_, {});
  if (std::exchange(gives_member_, false) || has_begun_) return true;
  if (is_name(member)) {
    name_ = decoded(value);
    return !name_.empty() && !is_unknown();
  }
  if (is_id(member)) {
    id_ = value.starts_with('"') ? decoded(value) : value;
    return true;
  }
  if (!is_arguments(member) || value == "null") return true;
  // Some write the object as a string.
  const std::optional<std::string> json =
      pumice::read_value(value.starts_with('"') ? decoded(value) : value);
  if (!json || !json->starts_with('{')) return false;
  late_arguments_ = *json;
  return true;
}

void AnswerMachine::begin_value(CallAct act) {
  if (act == CallAct::kAgain) return;
  give_argument_name();
  types_ = act == CallAct::kText    ? kStringType
           : act == CallAct::kOther ? kNoString
                                    : options_.tools->types_of(name_, key_);
  value_.clear();
  may_have_line_ = grammar_.value_lines;
  is_closed_ = false;
  if (types_ == kStringType) give_arguments("\"");
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

void AnswerMachine::add_to_value(std::string_view text) {
  if (types_ != kStringType) {
    value_ += text;
    return;
  }
  std::string escaped;
  append_escaped(text, escaped);
  give_arguments(escaped);
}

void AnswerMachine::end_value() {
  is_closed_ = false;
  closed_.clear();
  if (types_ == kStringType) return give_arguments("\"");
  if (types_ == 0) {
    const bool is_json = read_json(value_, value_.size()).ok();
    return give_arguments(is_json ? std::string(trimmed(value_)) : json_quoted(value_));
  }
  const std::optional<std::string> json = pumice::read_value(value_, grammar_.quote);
  const ParameterTypes type = json ? type_of_json(json->front()) : kStringType;
  const bool is_string =
      type == kStringType || ((types_ & kStringType) != 0 && (types_ & type) == 0);
  give_arguments(is_string ? json_quoted(value_) : *json);
}

void AnswerMachine::read_value(char c) {
  std::string out;
  const Step read = reader_.feed(c, out);
  give_arguments(out);
  if (read == Step::kMore) return;
  if (read == Step::kBad) return fail({&c, 1});
  enter(step().otherwise);
  if (read == Step::kDoneBefore) replay({&c, 1});
}

void AnswerMachine::give_argument_name() {
  give_arguments((n_arguments_ == 0 ? "{" : ", ") + json_quoted(key_) + ": ");
  ++n_arguments_;
}

void AnswerMachine::give_arguments(std::string_view json) {
  give({.kind = EventKind::kArguments, .call = n_calls_, .text = std::string(json)});
}

void AnswerMachine::give(AnswerEvent event) { append_event(std::move(event), *events_); }

}  // namespace pumice
