// AnswerMachine: calls and their arguments, from whatever way they are written in to JSON.
#include <nlohmann/json.hpp>
#include <utility>

#include "answers/answer_machine.hpp"
#include "base/json.hpp"

namespace pumice {
namespace {

using CallEvent = AnswerEvent::Kind;
using ReadStep = ValueReader::Step;

constexpr size_t kIdBytes = 9;  // what Mistral's templates ask for

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

}  // namespace

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
  give({.kind = CallEvent::kCallBegun,
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
  give({.kind = CallEvent::kCallEnded, .call = n_calls_, .complete = complete});
  ++n_calls_;
  if (!complete) ++n_unparsed_;
  has_begun_ = false;
  raw_.clear();
  id_.clear();
  is_bare_ = false;
}

void AnswerMachine::read_arguments(char c) {
  std::string out;
  const ReadStep read = reader_.feed(c, out);
  if (!out.empty()) {
    begin_call();
    give_arguments(out);
    ++n_arguments_;
  }
  if (read == ReadStep::kBad) return fail({&c, 1});
  if (read != ReadStep::kDone) return;
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
  const ReadStep read = reader_.feed(c, out);
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
  if (read == ReadStep::kBad) return fail({&c, 1});
  if (reader_.ended_member() && !take_member()) return fail({});
  if (read != ReadStep::kDone) return;
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
    constexpr std::string_view kByteOrderMark = "\uFEFF";  // which begins a file and no value
    const bool is_json =
        !value_.starts_with(kByteOrderMark) && read_json(value_, value_.size()).ok();
    return give_arguments(is_json ? std::string(without_blanks(value_)) : json_quoted(value_));
  }
  const std::optional<std::string> json = pumice::read_value(value_, grammar_.quote);
  const ParameterTypes type = json ? type_of_json(json->front()) : kStringType;
  const bool is_string =
      type == kStringType || ((types_ & kStringType) != 0 && (types_ & type) == 0);
  give_arguments(is_string ? json_quoted(value_) : *json);
}

void AnswerMachine::read_value(char c) {
  std::string out;
  const ReadStep read = reader_.feed(c, out);
  give_arguments(out);
  if (read == ReadStep::kMore) return;
  if (read == ReadStep::kBad) return fail({&c, 1});
  enter(step().otherwise);
  if (read == ReadStep::kDoneBefore) replay({&c, 1});
}

void AnswerMachine::give_argument_name() {
  give_arguments((n_arguments_ == 0 ? "{" : ", ") + json_quoted(key_) + ": ");
  ++n_arguments_;
}

void AnswerMachine::give_arguments(std::string_view json) {
  give({.kind = CallEvent::kArguments, .call = n_calls_, .text = std::string(json)});
}

}  // namespace pumice
