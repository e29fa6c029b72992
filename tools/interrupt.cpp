#include "tools/interrupt.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "base/unfinished_files.hpp"
#include "tools/signals.hpp"

namespace pumice::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSignalled = 's';  // where nobody guards
constexpr char kGuarded = 'g';
constexpr char kForgiven = 'f';

// A signal handler touches these and nothing else. Whether a loop is guarded is asked there:
// when the watching thread wakes, it may have come to its end.
std::atomic<bool> g_interrupted = false;
std::atomic<bool> g_guarded = false;
std::atomic<bool> g_final = false;  // not by Ctrl-C
static_assert(std::atomic<bool>::is_always_lock_free);

/// What the watching thread needs to know. Never destroyed: that thread outlives main's objects.
struct Watch {
  std::mutex mutex;
  std::function<void()> abandon;
  double grace_s = kGraceSeconds;
};
Watch& watch() {
  static Watch* const watch = new Watch;
  return *watch;
}

[[noreturn]] void leave() {
  if (watch().abandon) watch().abandon();
  remove_unfinished_files();
  signals::leave();
}

/// Further signals change nothing: `timeout -s INT` sends two at once.
bool is_forgiven_in_time() {
  const auto start = Clock::now();
  for (;;) {
    const std::chrono::duration<double> passed = Clock::now() - start;
    const std::optional<char> told =
        signals::next_told(std::max(0.0, watch().grace_s - passed.count()));
    if (!told || told == kForgiven) return told.has_value();
  }
}

void watch_signals() {
  for (;;) {
    const std::optional<char> told = signals::next_told(-1);
    if (told != kSignalled && told != kGuarded) continue;
    if (told == kGuarded && is_forgiven_in_time()) continue;
    const std::lock_guard lock(watch().mutex);
    if (g_interrupted) leave();
  }
}

/// Where nobody guards, system calls that wait go on waiting: the program ends at once, and nobody
/// is to take the signal for an error before. Where somebody does they fail, so that the loop sees.
void handle_signals(bool guarded) {
  signals::handle(guarded ? signals::Waits::kFail : signals::Waits::kGoOn);
}

}  // namespace

void signals::arrived(bool is_final) {
  if (is_final) g_final = true;
  g_interrupted = true;
  tell(g_guarded ? kGuarded : kSignalled);
}

void watch_interrupts() {
  if (!signals::open()) return;
  if (const char* const grace = std::getenv("PUMICE_GRACE_SECONDS")) {
    watch().grace_s = std::max(0.0, std::min(std::strtod(grace, nullptr), 1e6));
  }
  if (signals::start_thread(watch_signals)) handle_signals(false);
}

void end_without_interrupts() { watch().mutex.lock(); }

InterruptGuard::InterruptGuard(std::function<void()> abandon) {
  const std::lock_guard lock(watch().mutex);
  g_guarded = true;
  watch().abandon = std::move(abandon);
  handle_signals(true);
}

InterruptGuard::~InterruptGuard() {
  const std::lock_guard lock(watch().mutex);
  handle_signals(false);
  g_guarded = false;
  watch().abandon = {};
}

bool InterruptGuard::interrupted() { return g_interrupted; }

bool InterruptGuard::forgive() {
  if (g_final) return false;
  g_interrupted = false;
  if (g_final) g_interrupted = true;  // it came meanwhile
  signals::tell(kForgiven);
  return !g_final;
}

}  // namespace pumice::tools
