// What the subcommands share in talking to people: messages and progress on stderr, where files
// are.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "base/result.hpp"

namespace pumice::tools {

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

/// Where no InterruptGuard lives, Ctrl-C ends the program at once, with the documented exit code.
void end_on_interrupt();

/// While one lives, Ctrl-C (also a termination request or a hang-up) asks the loop to stop; a
/// second one ends the program at once. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool interrupted();

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction previous_[std::size(kSignals)] = {};
};

/// ~/.config/pumice/config.toml, or where XDG_CONFIG_HOME says.
std::filesystem::path config_file();
/// ~/.cache/pumice, or where XDG_CACHE_HOME says; empty if there is no home.
std::filesystem::path cache_directory();

/// A whole file. Errors: kBadFile.
Result<std::string> read_text_file(const std::filesystem::path& path);

/// The prompt: `text` if given, else the file, else standard input. Errors: kInvalidArgument when
/// it is empty or nothing was given on a terminal, kBadFile when unreadable.
Result<std::string> read_prompt(const std::string* text, const std::string& file);

}  // namespace pumice::tools
