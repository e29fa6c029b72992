#include "tools/answer_printer.hpp"

#include <cstdlib>
#include <utility>

#include "tools/terminal.hpp"

namespace pumice::tools {

AnswerPrinter::AnswerPrinter(bool hides_reasoning)
    : hides_(hides_reasoning),
      terminal_(is_terminal(Stream::kOutput) && std::getenv("NO_COLOR") == nullptr) {}

Status AnswerPrinter::print(std::span<const AnswerEvent> events) {
  for (const AnswerEvent& event : events) PUMICE_TRY_STATUS(print_one(event));
  return {};
}

Status AnswerPrinter::print_one(const AnswerEvent& event) {
  switch (event.kind) {
    case AnswerEvent::Kind::kReasoning:
      return print_reasoning(event.text);
    case AnswerEvent::Kind::kText:
      return print_text(event.text);
    case AnswerEvent::Kind::kCallBegun:
      PUMICE_TRY_STATUS(end_reasoning());
      return put((ends_line_ || !has_printed_ ? "" : "\n") + event.text + " ");
    case AnswerEvent::Kind::kArguments:
      return put(event.text);
    case AnswerEvent::Kind::kCallEnded:
      return put(event.complete ? "\n" : " (broke off)\n");
    case AnswerEvent::Kind::kFinish:
      return {};
  }
  return {};
}

Status AnswerPrinter::print_text(std::string_view text) {
  PUMICE_TRY_STATUS(end_reasoning());
  return put(text);
}

Status AnswerPrinter::print_reasoning(std::string_view text) {
  if (!std::exchange(reasons_, true)) {
    has_printed_ = true;
    if (!hides_) {
      PUMICE_TRY_STATUS(put(terminal_ ? "\033[2m" : "<think>"));
    } else if (is_terminal(Stream::kError)) {
      print_message("(thinking)");
    }
  }
  return hides_ ? Status() : put(text);
}

Status AnswerPrinter::end_reasoning() {
  if (!std::exchange(reasons_, false)) return {};
  if (!hides_) return put(terminal_ ? "\033[0m\n\n" : "</think>\n");
  if (is_terminal(Stream::kError)) draw_message("\r\033[K");
  return {};
}

Status AnswerPrinter::put(std::string_view text) {
  if (text.empty()) return {};
  has_printed_ = true;
  ends_line_ = text.ends_with('\n');
  return print_output(text);
}

}  // namespace pumice::tools
