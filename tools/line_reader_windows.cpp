#include <windows.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "base/path.hpp"
#include "tools/interrupt.hpp"
#include "tools/line_reader.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {

/// The console edits and remembers lines itself.
struct LineReader::Editor {
  HANDLE input = ::GetStdHandle(STD_INPUT_HANDLE);
};

LineReader::LineReader(std::filesystem::path history)
    : history_(std::move(history)), interactive_(is_terminal(Stream::kInput)) {
  if (interactive_) editor_ = std::make_unique<Editor>();
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::next(const std::string& prompt) {
  if (!interactive_) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }
  constexpr wchar_t kEnd = 0x1A;  // Ctrl-Z
  const InterruptGuard guard;
  cancelled_ = false;
  draw_message(prompt);
  std::wstring line;
  do {
    wchar_t buffer[1024];
    DWORD n = 0;
    const bool read = ::ReadConsoleW(editor_->input, buffer, std::size(buffer), &n, nullptr) != 0;
    if (!read || n == 0) {
      ::Sleep(50);  // Ctrl-C ends the call before its handler is called
      if (!InterruptGuard::interrupted() || !InterruptGuard::forgive()) return std::nullopt;
      cancelled_ = true;
      return "";
    }
    line.append(buffer, n);
  } while (!line.ends_with(L'\n'));
  while (line.ends_with(L'\n') || line.ends_with(L'\r')) line.pop_back();
  if (line.starts_with(kEnd)) return std::nullopt;
  return to_utf8(line);
}

struct EchoOff::Mode {
  DWORD before = 0;
};

EchoOff::EchoOff() {
  Mode mode;
  HANDLE const input = ::GetStdHandle(STD_INPUT_HANDLE);
  if (::GetConsoleMode(input, &mode.before) == 0) return;
  // Without lines there is no echo either; what is typed meanwhile waits for the next line.
  if (::SetConsoleMode(input, mode.before & ~DWORD{ENABLE_ECHO_INPUT}) != 0) {
    before_ = std::make_unique<Mode>(mode);
  }
}

EchoOff::~EchoOff() {
  if (before_ != nullptr) ::SetConsoleMode(::GetStdHandle(STD_INPUT_HANDLE), before_->before);
}

}  // namespace pumice::tools
