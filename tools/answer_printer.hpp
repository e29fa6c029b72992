// Answers on their way to standard output.
#pragma once

#include <span>
#include <string_view>

#include "answers/answer_machine.hpp"
#include "base/result.hpp"

namespace pumice::tools {

/// Reasoning is dim on a terminal, between <think> and </think> elsewhere, or hidden; a call is a
/// line of its own, its name and its arguments. Errors: those of print_output.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(bool hides_reasoning);

  Status print(std::span<const AnswerEvent> events);
  Status print_text(std::string_view text);
  /// Reasoning that is under way ends here.
  Status end_reasoning();
  bool has_printed() const { return has_printed_; }
  bool ends_line() const { return ends_line_; }

 private:
  Status print_one(const AnswerEvent& event);
  Status print_reasoning(std::string_view text);
  Status put(std::string_view text);

  bool hides_;
  bool terminal_;
  bool reasons_ = false;
  bool has_printed_ = false;
  bool ends_line_ = false;
};

}  // namespace pumice::tools
