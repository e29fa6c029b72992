// What a model writes, as typed events: reasoning, text, calls of tools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answers/answer_format.hpp"
#include "answers/answer_grammar.hpp"
#include "answers/tools.hpp"
#include "answers/value_reader.hpp"

namespace pumice {

struct AnswerEvent {
  enum class Kind : uint8_t {
    kReasoning,  ///< a piece
    kText,       ///< a piece
    kCallBegun,  ///< of the tool `text`, with its `id`
    kArguments,  ///< a piece of them; a call's pieces together are a JSON object
    kCallEnded,
    kFinish,  ///< the last event
  };

  Kind kind = Kind::kText;
  uint32_t call = 0;  ///< of an event of a call: which, from 0; of kFinish: how many there were
  std::string text = {};
  std::string id = {};
  /// kCallEnded: the model wrote all of it. Where it broke off, the arguments are what there was,
  /// completed to JSON; what broke them is text.
  bool complete = true;

  bool operator==(const AnswerEvent&) const = default;
};

std::string_view answer_event_name(AnswerEvent::Kind kind);
/// Appends `event`, to the last one where that is a piece of the same.
void append_event(AnswerEvent event, std::vector<AnswerEvent>& events);

struct AnswerOptions {
  std::shared_ptr<const Tools> tools = std::make_shared<const Tools>();
  bool begins_reasoning = false;  ///< the prompt ended within reasoning
  /// Calls to which the model gives no id have nine letters and digits of this and their number.
  uint64_t id_seed = 0;
};

/// Reads an answer once, a byte after the other; never fails. What is no call after all is text, as
/// it was written. Text that may be the beginning of a mark is held back until it is or is not, and
/// a call until its name is known; blanks around reasoning, calls and text belong to nothing. How
/// the answer is cut into pieces changes nothing but how the events' texts are cut. One thread.
///
/// A value between tags ends where its closing tag is followed by another argument's opening or by
/// the call's closing; a closing tag before anything else is part of the value, so that texts about
/// tags pass. Doubled closing tags, which models write, count as one. Without a tool's schema a
/// value that is JSON is that, and a string else.
///
/// Calls that no mark begins ("bare" formats) have to be of a known tool.
class AnswerMachine {
 public:
  AnswerMachine(AnswerGrammar grammar, AnswerOptions options);

  /// `text`: UTF-8, perhaps cut within a character, and marks of the grammar's.
  void feed(std::string_view text, std::vector<AnswerEvent>& events);
  /// What was held back, and kFinish. Nothing is fed afterwards.
  void finish(std::vector<AnswerEvent>& events);

  /// Within reasoning, or what is or may become a call.
  bool is_in_mark() const { return mode_ == Mode::kCall || mode_ == Mode::kThoughts; }
  uint32_t n_calls() const { return n_calls_; }
  /// How often what began as a call was none, or broke off.
  uint32_t n_unparsed() const { return n_unparsed_; }
  const AnswerGrammar& grammar() const { return grammar_; }

 private:
  enum class Mode : uint8_t { kStart, kText, kThoughts, kCall };
  enum class Found : uint8_t { kNothing, kBeginning, kWhole };

  const CallStep& step() const { return grammar_.steps[static_cast<size_t>(at_)]; }
  void dispatch(char c);
  void replay(std::string_view text);
  template <typename Literals>
  Found find(const Literals& literals, size_t& index) const;

  void read_text(char c);
  void release_text(char c);
  void give_blanks();
  void leave_text(const Branch& branch);

  void read_call(char c);
  void choose(char c);
  void take(char c);
  void read_arguments(char c);
  void read_call_object(char c);
  void read_raw(char c);
  void read_value(char c);

  void follow(const Branch& branch);
  void enter(int step);
  void keep_slot();
  bool read_header();
  void begin_call();
  void end_call(bool complete);
  void fail(std::string_view unread);
  void to_text(Mode mode);
  void leave_call();
  bool take_member();
  bool is_unknown() const;
  void begin_value(CallAct act);
  void add_to_value(std::string_view text);
  void end_value();
  void give_argument_name();
  void give_arguments(std::string_view json);
  void give(AnswerEvent event);

  AnswerGrammar grammar_;
  AnswerOptions options_;
  std::vector<AnswerEvent>* events_ = nullptr;
  std::string input_;  // that is being read, and what is read again
  size_t n_read_ = 0;

  Mode mode_ = Mode::kStart;
  std::string held_;    // may be the beginning of a literal
  std::string blanks_;  // behind text; given out if more of it comes
  bool skips_blanks_ = false;

  // Of a call.
  Mode after_ = Mode::kText;  // which a call interrupts
  int at_ = 0;                // the step
  std::string raw_;           // all of it until it begins: text if it does not
  std::string raw_blanks_;    // before it, which were not given out
  bool is_bare_ = false;
  bool has_begun_ = false;
  bool arguments_ended_ = false;
  std::string slot_;
  std::string name_;
  std::string id_;
  std::string key_;
  size_t n_arguments_ = 0;
  ValueReader reader_{ValueReader::Root::kAny};
  // Of an object that is a call.
  std::string member_;          // of the member under way: its JSON, if it is not given out at once
  std::string late_arguments_;  // which came before the name, or as a string
  bool gives_member_ = false;   // the arguments, as they come
  // Of a value between tags.
  ParameterTypes types_ = 0;  // a string alone is given out as it comes
  std::string value_;
  bool may_have_line_ = false;
  bool is_closed_ = false;  // if what follows fits
  std::string closed_;      // the closer and the blanks behind it

  uint32_t n_calls_ = 0;
  uint32_t n_unparsed_ = 0;
};

}  // namespace pumice
