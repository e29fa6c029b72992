// The events of one choice as typed pieces of its answer: reasoning, text, calls of tools.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answers/answer_machine.hpp"
#include "host/events.hpp"
#include "text/detokenizer.hpp"

namespace pumice::serve {

/// How an answer is to be read.
struct AnswerForm {
  AnswerFormat format;
  AnswerOptions options;
};

/// One thread. What it gives is the same however text was cut into events, but for where its pieces
/// are cut.
class AnswerReader {
 public:
  /// Without a form all of it is text. `stops`: the request's.
  AnswerReader(std::shared_ptr<const Tokenizer> tokenizer, const AnswerForm* form,
               std::vector<std::string> stops);

  /// Appends what became known with an event; with kFinished all of it.
  void read(const host::Event& event, std::vector<AnswerEvent>& pieces);
  uint32_t n_calls() const { return machine_ ? machine_->n_calls() : 0; }
  /// Whether what was read last is reasoning.
  bool reasons() const { return reasons_; }
  uint32_t n_unparsed() const { return machine_ ? machine_->n_unparsed() : 0; }
  /// Which of the stops ended the text, if one has.
  std::string stop_string() const;

 private:
  void feed(std::string_view text, bool ends, std::vector<AnswerEvent>& pieces);

  std::shared_ptr<const Tokenizer> tokenizer_;
  Detokenizer detokenizer_;
  std::vector<std::string> stops_;
  std::optional<AnswerMachine> machine_;
  bool reasons_ = false;
  bool sees_tokens_ = false;  // for marks or for stops
  // Text comes later than its tokens while it may be the beginning of a stop string, and control
  // tokens have none; so where each stood in the text is kept until the text comes.
  size_t n_seen_ = 0;   // bytes of the tokens' text
  size_t n_given_ = 0;  // of those, that events brought
  std::string behind_;  // the text between the two
  std::deque<std::pair<size_t, char>> marks_;
};

}  // namespace pumice::serve
