// Lines of standard input: edited and remembered (libedit) on a terminal, plain when piped.
#pragma once

#include <optional>
#include <string>

namespace pumice::tools {

/// One lives at a time: libedit has one state a program.
class LineReader {
 public:
  LineReader();

  /// The next line without its end; nothing at the end of input. `prompt` is shown on a terminal
  /// only. There Ctrl-C takes back what was typed: the line is empty then, and `cancelled` says so;
  /// other signals end the input. No InterruptGuard may live meanwhile.
  std::optional<std::string> next(const std::string& prompt);
  bool cancelled() const { return cancelled_; }

  bool interactive() const { return interactive_; }

 private:
  bool interactive_;
  bool cancelled_ = false;
};

}  // namespace pumice::tools
