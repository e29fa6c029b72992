#include <windows.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/result.hpp"
#include "tools/signals.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools::signals {
namespace {

/// Never destroyed: the watching thread outlives main's objects.
struct Told {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<char> things;
  bool somebody_waits = false;  ///< the watching thread was started
};
Told& told() {
  static Told* const told = new Told;
  return *told;
}

/// On a thread that the system starts for it.
BOOL WINAPI on_console_event(DWORD event) {
  arrived(event != CTRL_C_EVENT);
  // A window that closes, the end of a session: returning would end the process before its time.
  if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) ::Sleep(INFINITE);
  return TRUE;
}

void write_to(HANDLE stream, std::string_view text) {
  DWORD n = 0;
  ::WriteFile(stream, text.data(), static_cast<DWORD>(text.size()), &n, nullptr);
}

}  // namespace

bool open() { return true; }

bool start_thread(void (*watch)()) {
  try {
    std::thread(watch).detach();
  } catch (const std::system_error&) {
    return false;
  }
  return told().somebody_waits = true;
}

// Calls that wait go on waiting, but for one that reads from the console.
void handle(Waits /*waits*/) {
  if (!told().somebody_waits) return;
  [[maybe_unused]] static const BOOL is_set = ::SetConsoleCtrlHandler(on_console_event, TRUE);
}

void tell(char what) {
  const std::lock_guard lock(told().mutex);
  told().things.push_back(what);
  told().changed.notify_one();
}

std::optional<char> next_told(double seconds) {
  std::unique_lock lock(told().mutex);
  const auto is_there = [] { return !told().things.empty(); };
  if (seconds < 0) {
    told().changed.wait(lock, is_there);
  } else if (!told().changed.wait_for(lock, std::chrono::duration<double>(seconds), is_there)) {
    return std::nullopt;
  }
  const char what = told().things.front();
  told().things.pop_front();
  return what;
}

void leave() {
  HANDLE const stream = ::GetStdHandle(STD_ERROR_HANDLE);
  if (is_terminal(Stream::kError)) write_to(stream, "\r\033[K");  // a progress bar may stand there
  write_to(stream, "pumice: interrupted\n");
  restore_console();
  // Without a word to libraries, which other threads may be in.
  ::TerminateProcess(::GetCurrentProcess(), static_cast<UINT>(exit_code(ErrorCode::kCancelled)));
  for (;;) ::Sleep(INFINITE);
}

}  // namespace pumice::tools::signals
