#include "tools/line_reader.hpp"

#include <editline/readline.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string_view>

#include "tools/interrupt.hpp"

namespace pumice::tools {
namespace {

// libedit's callback has no argument.
bool g_cancelled = false;
bool g_return_next = false;

/// The next byte of the terminal; -1 at its end, -2 for Ctrl-C.
int next_byte() {
  for (;;) {
    pollfd ready{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int n = poll(&ready, 1, 100);  // a signal that another thread took does not wake this one
    if (InterruptGuard::interrupted()) return InterruptGuard::forgive() ? -2 : -1;
    if (n <= 0) {
      if (n < 0 && errno != EINTR) return -1;
      continue;
    }
    unsigned char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got == 1 && byte == 0) continue;  // a Ctrl-D from before the editor took the terminal
    if (got == 1) return byte;
    if (got == 0 || errno != EINTR) return -1;
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
  if (first == -2) {
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

LineReader::LineReader() : interactive_(isatty(STDIN_FILENO) == 1) {
  if (!interactive_) return;
  std::setlocale(LC_CTYPE, "");  // libedit's: what a character is, and how wide
  rl_getc_function = next_character;
}

std::optional<std::string> LineReader::next(const std::string& prompt) {
  if (!interactive_) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  const InterruptGuard guard;
  g_cancelled = false;
  const std::unique_ptr<char, decltype(&std::free)> line(readline(prompt.c_str()), &std::free);
  cancelled_ = g_cancelled;
  if (!line) return std::nullopt;
  if (cancelled_) return "";
  if (*line != '\0') add_history(line.get());
  return std::string(line.get());
}

}  // namespace pumice::tools
