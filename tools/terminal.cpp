#include "tools/terminal.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <system_error>

#include "base/file_error.hpp"
#include "base/path.hpp"
#include "base/printable.hpp"
#include "base/utf8.hpp"

namespace pumice::tools {
namespace {

constexpr uint64_t kMaxPromptBytes = 64ull << 20;

// Of the first writes to standard output and standard error that failed.
int g_output_errno = 0;
int g_message_errno = 0;

Result<std::string> read_stream(std::istream& stream, const std::string& name) {
  std::string text;
  char buffer[65536];
  while (stream.read(buffer, sizeof buffer) || stream.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(stream.gcount()));
    if (text.size() > kMaxPromptBytes) {
      return make_error(ErrorCode::kDoesNotFit, "{}: larger than {} MiB", name,
                        kMaxPromptBytes >> 20);
    }
  }
  if (stream.bad()) return make_error(ErrorCode::kBadFile, "{}: cannot be read", name);
  return text;
}

/// Line feeds and tabs stay.
std::string without_controls(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\n\t"), text.size());
    shown += printable(text.substr(0, end), std::string_view::npos);
    if (end < text.size()) shown += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return shown;
}

}  // namespace

void print_message(std::string_view text) { draw_message(without_controls(text)); }

void draw_message(std::string_view text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stderr) == text.size() && std::fflush(stderr) == 0;
  if (!written && g_message_errno == 0) g_message_errno = errno;
}

void print_text(std::string_view text) {
  const std::string shown = without_controls(text);
  const bool written = std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size();
  if (!written && g_output_errno == 0) g_output_errno = errno;
}

void print_notice(std::string_view text) {
  const int columns = terminal_columns(Stream::kError);
  print_message(columns >= 20 ? word_wrapped(text, static_cast<size_t>(columns))
                              : std::string(text));
}

std::string word_wrapped(std::string_view text, size_t columns) {
  std::string wrapped;
  size_t column = 0;        // characters in this line
  size_t blank = 0;         // where it may break: behind this many bytes; 0: nowhere
  size_t behind_blank = 0;  // characters since
  for (const char c : text) {
    wrapped += c;
    if (c == '\n') {
      column = blank = behind_blank = 0;
      continue;
    }
    if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) continue;  // more of a character
    ++column;
    ++behind_blank;
    if (c == ' ') {
      blank = wrapped.size();
      behind_blank = 0;
    } else if (column > columns && blank > 0) {
      wrapped[blank - 1] = '\n';
      column = behind_blank;
      blank = 0;
    }
  }
  return wrapped;
}

std::string counted(size_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

Status print_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return {};
  }
  if (g_output_errno == 0) g_output_errno = errno;
  return cannot_write("standard output", g_output_errno);
}

Status finish_output() {
  PUMICE_TRY_STATUS(print_output(""));
  if (std::ferror(stdout) != 0) {
    return cannot_write("standard output", g_output_errno != 0 ? g_output_errno : EIO);
  }
  print_message("");
  if (std::ferror(stderr) == 0) return {};
  return cannot_write("standard error", g_message_errno != 0 ? g_message_errno : EIO);
}

void print_error(const Error& error) {
  std::string line = error.message;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  print_message("pumice: {}\n", line);
}

Logger stderr_logger(bool verbose) {
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto log = std::make_shared<spdlog::logger>("pumice", sink);
  log->set_pattern("%^%H:%M:%S.%e %v%$");
  log->set_level(spdlog::level::debug);
  log->set_error_handler([](const std::string&) {
    if (g_message_errno == 0) g_message_errno = errno;  // finish_output tells
  });
  const auto forward = [log](LogLevel level, std::string_view line) {
    constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                     spdlog::level::warn, spdlog::level::err};
    log->log(kLevels[static_cast<size_t>(level)], "{}", without_controls(line));
  };
  return Logger(forward, verbose ? LogLevel::kDebug : LogLevel::kWarning);
}

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)), started_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) draw_message("\r\033[K");
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  constexpr int kWidth = 30;
  constexpr auto kMoment = std::chrono::milliseconds(200);
  const std::lock_guard lock(mutex_);
  if (!is_terminal(Stream::kError) || total == 0) return;
  if (std::chrono::steady_clock::now() - started_ < kMoment) return;
  const int percent =
      static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  if (percent == last_percent_) return;
  last_percent_ = percent;
  drawn_ = true;
  const int filled = kWidth * percent / 100;
  draw_message(
      fmt::format("\r{} [{:#<{}}{:.<{}}] {:3}%", title_, "", filled, "", kWidth - filled, percent));
}

Result<std::string> read_text_file(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return make_error(ErrorCode::kBadFile, "{}: is a directory", to_utf8(path));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return make_error(ErrorCode::kBadFile, "{}: cannot be opened: {}", to_utf8(path),
                      std::generic_category().message(errno));
  }
  return read_stream(file, to_utf8(path));
}

Result<std::string> read_prompt(const std::string* text, const std::string& file) {
  std::string prompt;
  if (text != nullptr) {
    prompt = *text;
  } else if (!file.empty()) {
    PUMICE_TRY(prompt, read_text_file(from_utf8(file)));
  } else if (is_terminal(Stream::kInput)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "no prompt: give one with -p TEXT, -f FILE or on standard input");
  } else {
    PUMICE_TRY(prompt, read_stream(std::cin, "standard input"));
    if (std::ferror(stdin) != 0) {  // std::cin takes an error for the end
      return make_error(ErrorCode::kBadFile, "standard input: cannot be read");
    }
  }
  if (text == nullptr) prompt.erase(0, prompt.size() - without_byte_order_mark(prompt).size());
  return prompt;
}

Result<std::string> read_prompt_to_continue(const std::string* text, const std::string& file) {
  PUMICE_TRY(std::string prompt, read_prompt(text, file));
  if (!prompt.empty() || text != nullptr || !file.empty()) return prompt;
  return make_error(ErrorCode::kInvalidArgument,
                    "no prompt: standard input is empty; give one with -p TEXT or -f FILE");
}

Error no_tokens() {
  return make_error(ErrorCode::kInvalidArgument,
                    "the prompt is empty, and this model has no beginning-of-text token to start "
                    "from: give it some text");
}

}  // namespace pumice::tools
