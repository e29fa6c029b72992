#include "answers/answer_grammar.hpp"

#include <algorithm>
#include <iterator>

namespace pumice {
namespace {

using Kind = CallStep::Kind;
using Slot = CallStep::Slot;

constexpr unsigned char kMarkBytes[] = {0xC0, 0xC1, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9,
                                        0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF};

/// Replaces control tokens in a format's literals by their bytes.
class Marker {
 public:
  Marker(const Tokenizer* tokenizer, std::vector<std::pair<TokenId, std::string>>& marks)
      : tokenizer_(tokenizer), marks_(marks) {}

  void mark(std::string& literal) {
    if (tokenizer_ == nullptr) return;
    std::string marked;
    for (const Fragment& fragment : tokenizer_->special_tokens().split(literal, true)) {
      marked += is_control(fragment) ? byte_of(fragment) : std::string(fragment.text);
    }
    literal = std::move(marked);
  }
  void mark(std::vector<std::string>& literals) {
    for (std::string& literal : literals) mark(literal);
  }

 private:
  bool is_control(const Fragment& fragment) const {
    return fragment.token && tokenizer_->vocabulary().type(*fragment.token) == TokenType::kControl;
  }
  /// Formats have fewer control tokens than there are bytes; one too many stays text, which a
  /// control token never is, so that its literal is not found.
  std::string byte_of(const Fragment& fragment) {
    const auto known =
        std::ranges::find(marks_, *fragment.token, [](const auto& m) { return m.first; });
    const auto number = static_cast<size_t>(known - marks_.begin());
    if (number >= std::size(kMarkBytes)) return std::string(fragment.text);
    if (known == marks_.end()) marks_.emplace_back(*fragment.token, fragment.text);
    return {static_cast<char>(kMarkBytes[number])};
  }

  const Tokenizer* tokenizer_;
  std::vector<std::pair<TokenId, std::string>>& marks_;
};

AnswerFormat marked(AnswerFormat format, Marker marker) {
  marker.mark(format.think_open);
  marker.mark(format.dropped);
  marker.mark(format.section_open);
  marker.mark(format.section_close);
  marker.mark(format.name_end);
  marker.mark(format.key_end);
  for (std::string* const literal :
       {&format.think_close, &format.call_open, &format.call_close, &format.id_open,
        &format.type_end, &format.args_close, &format.key_open, &format.value_open,
        &format.value_close, &format.quote}) {
    marker.mark(*literal);
  }
  return format;
}

class GrammarMaker {
 public:
  GrammarMaker(const AnswerFormat& format, AnswerGrammar& grammar)
      : format_(format), grammar_(grammar) {}

  void make(Marker marker) {
    switch (format_.shape) {
      case CallShape::kNone:
        break;
      case CallShape::kJson:
        make_json();
        break;
      case CallShape::kNamed:
        make_named();
        break;
      case CallShape::kTagged:
        make_tagged();
        break;
      case CallShape::kPython:
        make_python();
        break;
      case CallShape::kHarmony:
        make_harmony(marker);
        break;
    }
    make_texts();
  }

 private:
  int add(CallStep step) {
    grammar_.steps.push_back(std::move(step));
    return static_cast<int>(grammar_.steps.size()) - 1;
  }
  CallStep& at(int step) { return grammar_.steps[static_cast<size_t>(step)]; }

  /// What may stand behind a call: closers, which do not count, and another call.
  int add_tail(std::vector<Branch> more) {
    const int tail = add({.otherwise = kToText});
    more.push_back({format_.args_close, tail});
    more.push_back({format_.call_close, tail});
    for (const std::string& close : format_.section_close) more.push_back({close, tail});
    std::erase_if(more, [](const Branch& branch) { return branch.literal.empty(); });
    at(tail).branches = std::move(more);
    return tail;
  }
  /// A call begins with its opening or with that of all calls, before its own.
  void begin_with(int first) {
    begin_ = first;
    section_ = first;
    if (format_.section_open.empty()) return;
    section_ = add({.branches = {{format_.call_open, first}}});
  }

  void make_json() {
    const int call = add({.kind = Kind::kCall});
    const int first = add({.branches = {{"[", call}}, .otherwise = call});
    const int tail = add_tail({{",", call}, {";", call}, {"]", kToNothing}});
    for (Branch& branch : at(tail).branches) {
      if (branch.literal == "]") branch.next = tail;
    }
    at(call).otherwise = tail;
    begin_with(first);
    if (!format_.bare) return;
    bare_ = {{"{", call, CallAct::kNone, true, true}};
    // Built-in tools are called as Python's functions.
    const int python = add_python_call(tail);
    at(first).branches = {{"[", call}, {"{", call, CallAct::kNone, true}};
    at(first).otherwise = python;
  }

  void make_named() {
    const int name = add({.kind = Kind::kTake, .slot = Slot::kName});
    const int arguments = add({.kind = Kind::kArguments});
    for (const std::string& end : format_.name_end) at(name).branches.push_back({end, arguments});
    // Models forget what stands before the object.
    at(name).branches.push_back({"{", arguments, CallAct::kNone, true});
    if (!format_.id_open.empty()) {
      const int id = add({.kind = Kind::kTake, .slot = Slot::kId});
      for (const std::string& end : format_.name_end) at(id).branches.push_back({end, arguments});
      at(name).branches.push_back({format_.id_open, id});
    }
    int first = name;
    if (!format_.type_end.empty()) {
      first =
          add({.kind = Kind::kTake, .branches = {{format_.type_end, name}}, .slot = Slot::kType});
    }
    at(arguments).otherwise = add_tail({{format_.call_open, first}});
    begin_with(first);
  }

  void make_tagged() {
    const int name = add({.kind = Kind::kTake, .slot = Slot::kName});
    const int members = add({});
    const int key = add({.kind = Kind::kTake, .slot = Slot::kKey});
    const int value = add({.kind = Kind::kRaw});
    const int tail = add_tail({{format_.call_open, name}});
    const Branch another = {format_.key_open, key, CallAct::kBegin};
    const Branch last = {format_.call_close, tail, CallAct::kEnd};
    at(members).branches = {another, last};
    for (const std::string& end : format_.name_end) at(name).branches.push_back({end, members});
    if (format_.name_end.empty()) at(name).branches = {another, last};
    const int before_value =
        format_.value_open.empty() ? value : add({.branches = {{format_.value_open, value}}});
    for (const std::string& end : format_.key_end) {
      const bool is_first = &end == &format_.key_end.front();
      const CallAct act = !format_.key_end_has_kind ? CallAct::kNone
                          : is_first                ? CallAct::kText
                                                    : CallAct::kOther;
      at(key).branches.push_back({end, before_value, act});
    }
    at(value).branches = {another, last, {format_.value_close, value, CallAct::kAgain}};
    if (format_.value_lines) grammar_.closers.push_back("\n" + format_.value_close);
    grammar_.closers.push_back(format_.value_close);
    begin_with(name);
  }

  /// name(key=value, …); the name's step.
  int add_python_call(int after) {
    const int name = add({.kind = Kind::kTake, .slot = Slot::kIdentifier});
    const int members = add({});
    const int key = add({.kind = Kind::kTake, .slot = Slot::kIdentifier});
    const int value = add({.kind = Kind::kValue});
    const int next = add({});
    at(name).branches = {{"(", members}};
    at(members).branches = {{")", after, CallAct::kEnd}};
    at(members).otherwise = key;
    at(key).slot = Slot::kKey;
    at(key).branches = {{"=", value, CallAct::kBegin}};
    at(value).otherwise = next;
    at(next).branches = {{",", members}, {")", after, CallAct::kEnd}};
    return name;
  }
  void make_python() {
    const int list = add({.branches = {{"[", kToFailure}}});
    const int tail = add_tail({});
    const int name = add_python_call(tail);
    at(list).branches[0].next = name;
    at(list).otherwise = name;
    at(tail).branches.insert(at(tail).branches.begin(), {{",", name}, {";", name}, {"]", tail}});
    begin_with(list);
    if (format_.bare) bare_ = {{"[", name, CallAct::kNone, false, true}};
  }

  void make_harmony(Marker marker) {
    std::string message = "<|message|>";
    marker.mark(message);
    const int arguments = add({.kind = Kind::kArguments});
    const int header = add({.kind = Kind::kTake,
                            .branches = {{message, arguments, CallAct::kHeader}},
                            .slot = Slot::kHeader});
    grammar_.is_harmony = true;
    at(arguments).otherwise = add({.otherwise = kToText});
    for (std::string begin : {"<|start|>", "<|channel|>"}) {
      marker.mark(begin);
      headers_.push_back({begin, header, CallAct::kNone, true});
    }
    bare_ = headers_;
    bare_.push_back({" to=", header, CallAct::kNone, true});
    for (const std::string& end : format_.dropped) {
      at(at(arguments).otherwise).branches.push_back({end, kToText});
      grammar_.thoughts.push_back({end, kToText});
    }
  }

  void make_texts() {
    std::vector<Branch> calls = headers_;
    if (!format_.call_open.empty()) calls.push_back({format_.call_open, begin_});
    for (const std::string& open : format_.section_open) calls.push_back({open, section_});
    for (const std::string& dropped : format_.dropped) calls.push_back({dropped, kToNothing});
    std::vector<Branch> thinking;
    for (const std::string& open : format_.think_open) thinking.push_back({open, kToThoughts});
    if (!format_.think_close.empty()) {
      grammar_.thoughts.push_back({format_.think_close, kToText});
    }
    if (format_.calls_in_thoughts || !headers_.empty()) {
      grammar_.thoughts.insert(grammar_.thoughts.end(), calls.begin(), calls.end());
    }
    grammar_.text = calls;
    if (format_.thinks_anywhere) {
      grammar_.text.insert(grammar_.text.end(), thinking.begin(), thinking.end());
    }
    grammar_.start = std::move(calls);
    grammar_.start.insert(grammar_.start.end(), thinking.begin(), thinking.end());
    grammar_.start.insert(grammar_.start.end(), bare_.begin(), bare_.end());
    // Of reasoning that the prompt left out.
    if (!format_.think_close.empty()) grammar_.start.push_back({format_.think_close, kToText});
  }

  const AnswerFormat& format_;
  AnswerGrammar& grammar_;
  int begin_ = kToFailure;
  int section_ = kToFailure;
  std::vector<Branch> bare_;     // what begins a call at the beginning of an answer
  std::vector<Branch> headers_;  // what begins a harmony message
};

}  // namespace

AnswerGrammar AnswerGrammar::create(const AnswerFormat& format, const Tokenizer* tokenizer) {
  AnswerGrammar grammar;
  Marker marker(tokenizer, grammar.marks);
  const AnswerFormat row = marked(format, marker);
  grammar.quote = row.quote;
  grammar.value_lines = row.value_lines;
  grammar.name_is_id = row.name_is_id;
  GrammarMaker(row, grammar).make(marker);
  return grammar;
}

char AnswerGrammar::mark_of(TokenId id) const {
  for (size_t i = 0; i < marks.size(); ++i) {
    if (marks[i].first == id) return static_cast<char>(kMarkBytes[i]);
  }
  return 0;
}

std::string AnswerGrammar::spelled(std::string_view marked) const {
  std::string out;
  for (const char c : marked) {
    const auto* const byte = std::ranges::find(kMarkBytes, static_cast<unsigned char>(c));
    const auto number = static_cast<size_t>(byte - std::begin(kMarkBytes));
    if (number < marks.size()) {
      out += marks[number].second;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace pumice
