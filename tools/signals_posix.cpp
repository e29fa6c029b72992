#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "tools/signals.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools::signals {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

int g_pipe[2] = {-1, -1};

/// Never destroyed: the watching thread outlives main's objects.
struct Kept {
  std::vector<int> numbers;         ///< of the signals: those that are not ignored
  std::optional<termios> terminal;  ///< as it was when the program began
};
Kept& kept() {
  static Kept* const kept = new Kept;
  return *kept;
}

}  // namespace

bool open() {
  std::signal(SIGXFSZ, SIG_IGN);
  if (pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  if (termios terminal; is_terminal(Stream::kInput) && tcgetattr(STDIN_FILENO, &terminal) == 0) {
    kept().terminal = terminal;
  }
  return true;
}

bool start_thread(void (*watch)()) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread(watch).detach();
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (const int number : kSignals) {
    struct sigaction previous {};
    sigaction(number, nullptr, &previous);
    if (started && previous.sa_handler != SIG_IGN) kept().numbers.push_back(number);
  }
  return started;
}

void handle(Waits waits) {
  struct sigaction action {};
  action.sa_handler = [](int number) { arrived(number != SIGINT); };
  action.sa_flags = waits == Waits::kGoOn ? SA_RESTART : 0;
  for (const int number : kept().numbers) sigaction(number, &action, nullptr);
}

void tell(char what) {
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(g_pipe[1], &what, 1);
  errno = error;
}

std::optional<char> next_told(double seconds) {
  pollfd ready{.fd = g_pipe[0], .events = POLLIN, .revents = 0};
  const int n = poll(&ready, 1, seconds < 0 ? -1 : static_cast<int>(seconds * 1e3));
  char what = 0;
  if (n <= 0 || read(g_pipe[0], &what, 1) != 1) return std::nullopt;
  return what;
}

/// The watching thread blocks all signals, so nothing interrupts its system calls.
void leave() {
  if (kept().terminal) tcsetattr(STDIN_FILENO, TCSANOW, &*kept().terminal);
  // From here on nobody else writes there, so that this is the last line. A thread that is writing
  // now may be stuck for ever: a pipe that is full.
  for (int i = 0; i < 10 && ftrylockfile(stderr) != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  constexpr std::string_view kMessage = "pumice: interrupted\n";
  constexpr std::string_view kClearLine = "\r\033[K";  // a progress bar may stand there
  [[maybe_unused]] ssize_t written = 0;
  if (is_terminal(Stream::kError)) {
    written = write(STDERR_FILENO, kClearLine.data(), kClearLine.size());
  }
  written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(exit_code(ErrorCode::kCancelled));
}

}  // namespace pumice::tools::signals
