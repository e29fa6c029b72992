// Lines of standard input: edited and remembered (libedit) on a terminal, plain when piped.
#pragma once

#include <optional>
#include <string>

namespace pumice::tools {

class LineReader {
 public:
  /// `prompt` is shown on a terminal only.
  explicit LineReader(std::string prompt);

  /// The next line without its end; nothing at the end of input.
  std::optional<std::string> next();

  bool interactive() const { return interactive_; }

 private:
  std::string prompt_;
  bool interactive_;
};

}  // namespace pumice::tools
