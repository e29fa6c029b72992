#include <windows.h>
// After windows.h, which it needs.
#include <fcntl.h>
#include <io.h>

#include <cstdio>
#include <optional>

#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr DWORD kHandles[] = {STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};

/// As the console was; the shell goes on in the same one.
struct Before {
  UINT output_code_page = 0;
  std::optional<DWORD> modes[3];
};
Before g_before;

HANDLE handle_of(Stream stream) { return ::GetStdHandle(kHandles[static_cast<int>(stream)]); }

}  // namespace

void prepare_streams() {
  constexpr const wchar_t* kModes[] = {L"wb", L"rb",
                                       L"wb"};  // the wrong way round, but for the last
  FILE* const streams[] = {stdin, stdout, stderr};
  for (int i = 0; i < 3; ++i) {
    if (::_fileno(streams[i]) < 0) ::_wfreopen(L"NUL", kModes[i], streams[i]);
    if (::_fileno(streams[i]) >= 0) ::_setmode(::_fileno(streams[i]), _O_BINARY);
    DWORD mode = 0;
    if (::GetConsoleMode(::GetStdHandle(kHandles[i]), &mode) == 0) continue;
    g_before.modes[i] = mode;
    if (i > 0) {
      ::SetConsoleMode(::GetStdHandle(kHandles[i]), mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
  }
  if (g_before.modes[1] || g_before.modes[2]) {
    g_before.output_code_page = ::GetConsoleOutputCP();
    ::SetConsoleOutputCP(CP_UTF8);
  }
  // The C library gives a console's stream no buffer, which makes a character of several bytes many.
  std::setvbuf(stdout, nullptr, _IOFBF, 1 << 16);
  std::setvbuf(stderr, nullptr, _IOFBF, 1 << 12);
}

void restore_console() {
  for (int i = 0; i < 3; ++i) {
    if (g_before.modes[i]) ::SetConsoleMode(::GetStdHandle(kHandles[i]), *g_before.modes[i]);
  }
  if (g_before.output_code_page != 0) ::SetConsoleOutputCP(g_before.output_code_page);
}

bool is_terminal(Stream stream) {
  DWORD mode = 0;
  return ::GetConsoleMode(handle_of(stream), &mode) != 0;
}

int terminal_columns(Stream stream) {
  CONSOLE_SCREEN_BUFFER_INFO info = {};
  if (::GetConsoleScreenBufferInfo(handle_of(stream), &info) == 0) return 0;
  return info.srWindow.Right - info.srWindow.Left + 1;
}

}  // namespace pumice::tools
