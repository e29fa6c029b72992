// What the subcommands share in talking to people: messages and progress on stderr, what they read.
#pragma once

#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "base/result.hpp"

namespace pumice::tools {

/// Standard streams that are closed are opened where they can do no harm: files opened later must
/// not take their numbers. Reading then fails, writing to standard output does too, standard error
/// is thrown away. On Windows they carry bytes as they are, and a console takes UTF-8 and escape
/// sequences. To be called before anything is opened.
void prepare_streams();
/// What `prepare_streams` changed of a console that others use after us. The last call.
void restore_console();

/// Standard streams by their numbers.
enum class Stream { kInput = 0, kOutput = 1, kError = 2 };
bool is_terminal(Stream stream);
/// 0 where it is no terminal.
int terminal_columns(Stream stream);

// Texts of others (paths, flags, names in files) may hold escape sequences, which a terminal would
// obey. What is printed here, but for draw_message and print_output, has control characters other
// than line feeds and tabs escaped, and so has what is logged.

/// To standard error. That it cannot be written stops nothing; `finish_output` tells.
void print_message(std::string_view text);
template <typename... Args>
void print_message(fmt::format_string<Args...> format, Args&&... args) {
  print_message(std::string_view(fmt::format(format, std::forward<Args>(args)...)));
}

/// To standard error with escape sequences of ours; `text` has nothing of others.
void draw_message(std::string_view text);

/// To standard output. `finish_output` tells whether it arrived.
void print_text(std::string_view text);
template <typename... Args>
void print_text(fmt::format_string<Args...> format, Args&&... args) {
  print_text(std::string_view(fmt::format(format, std::forward<Args>(args)...)));
}

/// Sentences to standard error: on a terminal lines break between words.
void print_notice(std::string_view text);
template <typename... Args>
void print_notice(fmt::format_string<Args...> format, Args&&... args) {
  print_notice(std::string_view(fmt::format(format, std::forward<Args>(args)...)));
}
/// `text` with lines of at most that many characters, broken at blanks; longer words stay whole.
std::string word_wrapped(std::string_view text, size_t columns);
/// "1 message", "2 messages".
std::string counted(size_t n, std::string_view noun);

/// To standard output, at once and byte for byte: text of models, and what other programs read.
/// Errors: cannot_write's.
Status print_output(std::string_view text);

/// Errors if anything written to standard output or standard error did not arrive.
Status finish_output();

/// "pumice: message" on stderr, in one line.
void print_error(const Error& error);

/// A logger to stderr: warnings, and with `verbose` everything.
Logger stderr_logger(bool verbose);

/// A bar on stderr that redraws itself, shown only if stderr is a terminal and the work takes
/// longer than a moment. Thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(uint64_t done, uint64_t total);

 private:
  std::mutex mutex_;
  std::string title_;
  std::chrono::steady_clock::time_point started_;
  int last_percent_ = -1;
  bool drawn_ = false;
};

/// A whole file. Errors: kBadFile.
Result<std::string> read_text_file(const std::filesystem::path& path);

/// The prompt, which may be empty: `text` if given, else the file, else standard input; of those
/// without a byte order mark. Errors: kInvalidArgument when nothing was given on a terminal,
/// kBadFile when unreadable.
Result<std::string> read_prompt(const std::string* text, const std::string& file);
/// The same for a model to continue: an empty prompt is valid when it was given, but not as empty
/// standard input.
Result<std::string> read_prompt_to_continue(const std::string* text, const std::string& file);
/// Of a prompt that has not a single token.
Error no_tokens();

}  // namespace pumice::tools
