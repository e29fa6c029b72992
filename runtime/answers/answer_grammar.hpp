// A format as what the machine goes through: literals, and what each leads to.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "answers/answer_format.hpp"
#include "text/tokenizer.hpp"

namespace pumice {

/// Where a branch leads: a step, or out of the call.
constexpr int kToText = -1;      ///< what follows is text
constexpr int kToThoughts = -2;  ///< reasoning
constexpr int kToNothing = -3;   ///< the literal belongs to nothing and changes nothing
constexpr int kToFailure = -4;

enum class CallAct : uint8_t {
  kNone,
  kBegin,   ///< the call's name is known: it begins unless it has
  kEnd,     ///< the call ends
  kText,    ///< the value that comes is a string, whatever the tool's schema says
  kOther,   ///< likewise, JSON
  kHeader,  ///< a harmony message begins, as its header says
  kAgain,   ///< the closer of a value once more
};

struct Branch {
  std::string literal;
  int next = kToText;
  CallAct act = CallAct::kNone;
  bool keep = false;     ///< the literal is not read: it belongs to the next step
  bool is_bare = false;  ///< begins a call only where the answer begins
};

struct CallStep {
  enum class Kind : uint8_t {
    kChoose,     ///< one of the branches' literals; else `otherwise`
    kTake,       ///< text of a slot up to one of the literals
    kArguments,  ///< one object, then `otherwise`
    kCall,       ///< an object that is a call, then `otherwise`
    kRaw,        ///< a value up to a closer which one of the literals follows
    kValue,      ///< a value as Python has it, then `otherwise`
  };
  enum class Slot : uint8_t { kName, kIdentifier, kId, kKey, kType, kHeader };

  Kind kind = Kind::kChoose;
  std::vector<Branch> branches = {};
  int otherwise = kToFailure;
  Slot slot = Slot::kName;
};

struct AnswerGrammar {
  /// `tokenizer`: whose control tokens the literals may have; null: all of them are text.
  static AnswerGrammar create(const AnswerFormat& format, const Tokenizer* tokenizer);

  std::vector<CallStep> steps;
  std::vector<Branch> start;  ///< of an answer
  std::vector<Branch> text;
  std::vector<Branch> thoughts;
  std::vector<std::string> closers;  ///< of a raw value, with and without the newline before
  std::string quote;
  bool value_lines = false;
  bool name_is_id = false;
  bool is_harmony = false;
  bool thinks = false;
  /// Control tokens by the byte that stands for each, and how each is spelled.
  std::vector<std::pair<TokenId, std::string>> marks;

  /// The byte of a control token; 0: it has none.
  char mark_of(TokenId id) const;
  /// `marked` with its marks as they are spelled.
  std::string spelled(std::string_view marked) const;
};

}  // namespace pumice
