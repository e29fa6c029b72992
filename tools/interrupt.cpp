#include "tools/interrupt.hpp"

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "base/unfinished_files.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr char kSignalled = 's';  // where nobody guards
constexpr char kGuarded = 'g';
constexpr char kForgiven = 'f';

// A signal handler touches these and nothing else. Whether a loop is guarded is asked there:
// when the watching thread wakes, it may have come to its end.
std::atomic<bool> g_interrupted = false;
std::atomic<bool> g_guarded = false;
std::atomic<bool> g_final = false;  // not by Ctrl-C
static_assert(std::atomic<bool>::is_always_lock_free);
int g_pipe[2] = {-1, -1};

/// What the watching thread needs to know. Never destroyed: that thread outlives main's objects.
struct Watch {
  std::vector<int> numbers;  ///< of the signals: those that are not ignored
  std::mutex mutex;
  std::function<void()> abandon;
  std::optional<termios> terminal;  ///< as it was when the program began
  double grace_s = kGraceSeconds;
};
Watch& watch() {
  static Watch* const watch = new Watch;
  return *watch;
}

void tell(char what) {
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(g_pipe[1], &what, 1);
  errno = error;
}

/// The next thing told; nothing if none comes in time. A negative time waits for ever.
std::optional<char> next_told(double seconds) {
  pollfd ready{.fd = g_pipe[0], .events = POLLIN, .revents = 0};
  const int n = poll(&ready, 1, seconds < 0 ? -1 : static_cast<int>(seconds * 1e3));
  char what = 0;
  if (n <= 0 || read(g_pipe[0], &what, 1) != 1) return std::nullopt;
  return what;
}

/// The watching thread blocks all signals, so nothing interrupts its system calls.
[[noreturn]] void leave() {
  if (watch().abandon) watch().abandon();
  remove_unfinished_files();
  if (watch().terminal) tcsetattr(STDIN_FILENO, TCSANOW, &*watch().terminal);
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

/// Further signals change nothing: `timeout -s INT` sends two at once.
bool is_forgiven_in_time() {
  const auto start = Clock::now();
  for (;;) {
    const std::chrono::duration<double> passed = Clock::now() - start;
    const std::optional<char> told = next_told(std::max(0.0, watch().grace_s - passed.count()));
    if (!told || told == kForgiven) return told.has_value();
  }
}

void watch_signals() {
  for (;;) {
    const std::optional<char> told = next_told(-1);
    if (told != kSignalled && told != kGuarded) continue;
    if (told == kGuarded && is_forgiven_in_time()) continue;
    const std::lock_guard lock(watch().mutex);
    if (g_interrupted) leave();
  }
}

/// With SA_RESTART system calls that wait go on waiting: the program ends at once, and nobody is to
/// take the signal for an error before. Without, they fail with EINTR, so that a guarded loop sees.
void handle(int flags) {
  struct sigaction action {};
  action.sa_handler = [](int number) {
    if (number != SIGINT) g_final = true;
    g_interrupted = true;
    tell(g_guarded ? kGuarded : kSignalled);
  };
  action.sa_flags = flags;
  for (const int number : watch().numbers) sigaction(number, &action, nullptr);
}

}  // namespace

void watch_interrupts() {
  std::signal(SIGXFSZ, SIG_IGN);
  if (pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) != 0) return;
  if (const char* const grace = std::getenv("PUMICE_GRACE_SECONDS")) {
    watch().grace_s = std::max(0.0, std::min(std::strtod(grace, nullptr), 1e6));
  }
  if (termios terminal; is_terminal(Stream::kInput) && tcgetattr(STDIN_FILENO, &terminal) == 0) {
    watch().terminal = terminal;
  }
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool watched = true;
  try {
    std::thread(watch_signals).detach();
  } catch (const std::system_error&) {
    watched = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!watched) return;
  for (const int number : kSignals) {
    struct sigaction previous {};
    sigaction(number, nullptr, &previous);
    if (previous.sa_handler != SIG_IGN) watch().numbers.push_back(number);
  }
  handle(SA_RESTART);
}

void end_without_interrupts() { watch().mutex.lock(); }

InterruptGuard::InterruptGuard(std::function<void()> abandon) {
  const std::lock_guard lock(watch().mutex);
  g_guarded = true;
  watch().abandon = std::move(abandon);
  handle(0);
}

InterruptGuard::~InterruptGuard() {
  const std::lock_guard lock(watch().mutex);
  handle(SA_RESTART);
  g_guarded = false;
  watch().abandon = {};
}

bool InterruptGuard::interrupted() { return g_interrupted; }

bool InterruptGuard::forgive() {
  if (g_final) return false;
  g_interrupted = false;
  if (g_final) g_interrupted = true;  // it came meanwhile
  tell(kForgiven);
  return !g_final;
}

}  // namespace pumice::tools
