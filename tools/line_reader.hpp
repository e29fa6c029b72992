// Lines of standard input: edited and remembered on a terminal (by libedit; on Windows by the console,
// until the program ends), plain when piped.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace pumice::tools {

/// One lives at a time: there is one terminal.
class LineReader {
 public:
  /// `history`: a file of lines typed in earlier runs, which those typed now are added to; empty:
  /// none. Only where input is a terminal; that it cannot be read or written stops nothing. Windows'
  /// console takes no lines, so there is no such file there.
  explicit LineReader(std::filesystem::path history = {});
  ~LineReader();

  /// The next line without its end; nothing at the end of input. `prompt` is shown on a terminal
  /// only. There Ctrl-C takes back what was typed: the line is empty then, and `cancelled` says so;
  /// other signals end the input. No InterruptGuard may live meanwhile.
  std::optional<std::string> next(const std::string& prompt);
  bool cancelled() const { return cancelled_; }

  bool interactive() const { return interactive_; }

 private:
  struct Editor;

  void load_history() const;
  void remember(const std::string& line);

  std::filesystem::path history_;
  std::string last_;                // that was remembered
  std::unique_ptr<Editor> editor_;  // where input is a terminal
  bool interactive_;
  bool cancelled_ = false;
};

/// While one lives what is typed ahead is not shown, so that it does not stand within an answer.
/// The next line read has it.
class EchoOff {
 public:
  EchoOff();
  ~EchoOff();
  EchoOff(const EchoOff&) = delete;
  EchoOff& operator=(const EchoOff&) = delete;

 private:
  struct Mode;
  std::unique_ptr<Mode> before_;  // where it was changed
};

}  // namespace pumice::tools
