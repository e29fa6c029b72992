#include "tools/line_reader.hpp"

#include <editline/readline.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <fstream>
#include <iostream>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/output_file.hpp"
#include "tools/interrupt.hpp"

namespace pumice::tools {
namespace {

// libedit's callback has no argument.
bool g_cancelled = false;
bool g_return_next = false;
size_t g_columns = 0;                   // of the terminal, as libedit knows it
const std::string* g_prompt = nullptr;  // of the line being read

constexpr int kEnd = -1;
constexpr int kInterrupted = -2;
constexpr int kResized = -3;
constexpr int kRedraw = 0x1E;  // Ctrl-^, which is bound to that

constexpr size_t kMostHistoryLines = 1000;
constexpr std::streamoff kMostHistoryBytes = 1 << 20;

size_t terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/// Columns that a text takes.
size_t width_of(std::string_view text) {
  size_t width = 0;
  std::mbstate_t state{};
  while (!text.empty()) {
    wchar_t character = 0;
    const size_t n = std::mbrtowc(&character, text.data(), text.size(), &state);
    const bool is_character = n != 0 && n <= text.size();
    const int columns = is_character ? wcwidth(character) : -1;
    width += columns < 0 ? 2 : static_cast<size_t>(columns);  // ^X
    if (!is_character) state = {};
    text.remove_prefix(is_character ? n : 1);
  }
  return width;
}

/// Clears the line being edited, which the terminal has broken anew at its new width, and stands
/// where libedit believes to stand, for it to draw it again.
void clear_resized_line(size_t columns) {
  const size_t width =
      width_of(*g_prompt) + width_of({rl_line_buffer, static_cast<size_t>(rl_point)});
  const size_t n_rows_above = width / columns;
  std::string sequence = "\r";
  if (n_rows_above > 0) sequence += fmt::format("\033[{}A", n_rows_above);
  sequence += "\033[J";
  if (g_columns > 0) sequence.append(width / g_columns, '\n');
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, sequence.data(), sequence.size());
  rl_resize_terminal();
  g_columns = columns;
}

/// The next byte of the terminal, or one of the above.
int next_byte() {
  for (;;) {
    if (const size_t columns = terminal_columns(); columns != 0 && columns != g_columns) {
      clear_resized_line(columns);
      return kResized;
    }
    pollfd ready{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int n = poll(&ready, 1, 100);  // a signal that another thread took does not wake this one
    if (InterruptGuard::interrupted()) return InterruptGuard::forgive() ? kInterrupted : kEnd;
    if (n <= 0) {
      if (n < 0 && errno != EINTR) return kEnd;
      continue;
    }
    unsigned char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got == 1 && byte == 0) continue;  // a Ctrl-D from before the editor took the terminal
    if (got == 1) return byte;
    if (got == 0 || errno != EINTR) return kEnd;
  }
}

/// For libedit, which takes what this returns for a whole character (not, as GNU's, for a byte).
int next_character(FILE*) {
  constexpr int kKillLine = 0x15;  // Ctrl-U
  if (g_return_next) {
    g_return_next = false;
    return '\n';
  }
  const int first = next_byte();
  if (first == kResized) return kRedraw;
  if (first == kInterrupted) {
    g_cancelled = g_return_next = true;
    return kKillLine;
  }
  if (first < 0xC2 || first > 0xF4) return first;
  const int n_more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  int character = first & (0x3F >> n_more);
  for (int i = 0; i < n_more; ++i) {
    const int byte = next_byte();
    if (byte < 0x80 || byte > 0xBF) return byte;
    character = character << 6 | (byte & 0x3F);
  }
  return character;
}

}  // namespace

LineReader::LineReader(std::filesystem::path history)
    : history_(std::move(history)), interactive_(isatty(STDIN_FILENO) == 1) {
  if (!interactive_) return;
  std::setlocale(LC_CTYPE, "");  // libedit's: what a character is, and how wide
  rl_getc_function = next_character;
  rl_initialize();
  rl_parse_and_bind("bind ^^ ed-redisplay");
  g_columns = terminal_columns();
  if (!history_.empty()) load_history();
}

void LineReader::load_history() const {
  std::error_code error;
  if (!std::filesystem::is_regular_file(history_, error)) return;
  std::ifstream file(history_, std::ios::binary | std::ios::ate);
  const std::streamoff n_bytes = file.tellg();
  const bool is_cut = n_bytes > kMostHistoryBytes;
  if (!file.seekg(is_cut ? n_bytes - kMostHistoryBytes : 0)) return;
  std::vector<std::string> lines;
  std::string line;
  if (is_cut) std::getline(file, line);  // the rest of one
  while (std::getline(file, line)) lines.push_back(line);
  const size_t n_old = lines.size() - std::min(lines.size(), kMostHistoryLines);
  std::string kept;
  for (size_t i = n_old; i < lines.size(); ++i) {
    add_history(lines[i].c_str());
    kept += lines[i] + "\n";
  }
  if (n_old > kMostHistoryLines || is_cut) (void)write_file(history_, kept);
}

void LineReader::remember(const char* line) {
  if (line == last_) return;
  last_ = line;
  add_history(line);
  if (history_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(history_.parent_path(), error);
  const int file =
      open(history_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
  struct stat status {};
  if (file != -1 && fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    const std::string ended = last_ + "\n";
    [[maybe_unused]] const ssize_t written = write(file, ended.data(), ended.size());
  }
  if (file != -1) close(file);
}

std::optional<std::string> LineReader::next(const std::string& prompt) {
  if (!interactive_) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  const InterruptGuard guard;
  g_cancelled = false;
  g_prompt = &prompt;
  if (const size_t columns = terminal_columns(); columns != g_columns) {
    rl_resize_terminal();
    g_columns = columns;
  }
  const std::unique_ptr<char, decltype(&std::free)> line(readline(prompt.c_str()), &std::free);
  cancelled_ = g_cancelled;
  if (!line) return std::nullopt;
  if (cancelled_) return "";
  if (*line != '\0') remember(line.get());
  return std::string(line.get());
}

EchoOff::EchoOff() {
  termios mode{};
  // In the background it would stop the program.
  if (tcgetpgrp(STDIN_FILENO) != getpgrp() || tcgetattr(STDIN_FILENO, &mode) != 0) return;
  before_ = mode;
  mode.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  if (tcsetattr(STDIN_FILENO, TCSANOW, &mode) != 0) before_.reset();
}

EchoOff::~EchoOff() {
  if (before_) tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
}

}  // namespace pumice::tools
