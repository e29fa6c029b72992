// AnswerMachine: the arguments of a call.
#include <nlohmann/json.hpp>
#include <utility>

#include "answers/answer_literals.hpp"
#include "base/json.hpp"

namespace pumice {
namespace {

using EventKind = AnswerEvent::Kind;
using Step = ValueReader::Step;

constexpr size_t kMaxBlanksBehindCloser = 64;

/// The string that a JSON string says.
std::string decoded(std::string_view json) {
  const Result<nlohmann::json> value = read_json(json, json.size());
  return value.ok() && value->is_string() ? value->get<std::string>() : std::string();
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

}  // namespace pumice
