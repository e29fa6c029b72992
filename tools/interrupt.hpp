// Ctrl-C, termination requests and hang-ups: how a run that is asked to end does.
#pragma once

#include <functional>

namespace pumice::tools {

/// From here on SIGINT, SIGTERM and SIGHUP (on Windows Ctrl-C, Ctrl-Break, a console window that
/// closes and the end of a session) end the program with the exit code of kCancelled: at once, or
/// where an InterruptGuard lives within a moment (kGraceSeconds) that the guarded loop has to come
/// to an end of its own, keep what it has and say so. Further signals change nothing. Signals that
/// the parent ignores for us (nohup) stay ignored. To be called once, before any other thread
/// starts. Where no thread can be started signals keep doing what they do by default. A file over
/// the limit of its size is an error to report and no signal.
void watch_interrupts();

/// From here on signals change nothing: the program says how it ended and returns from main. What
/// may take long, or for ever, comes before it.
void end_without_interrupts();

/// PUMICE_GRACE_SECONDS, for tests on slow machines, sets another number.
inline constexpr double kGraceSeconds = 0.7;

/// While one lives, a signal asks loops to stop instead of ending the program at once. What has
/// been asked stays asked when it is gone: the program ends, with that exit code, whatever the
/// command returns. Thread-safe, but guards are not nested.
class InterruptGuard {
 public:
  /// `abandon` is called, on a thread of its own, if the moment passes and the program ends in the
  /// midst of things: to leave files behind that say so. It must not wait for the guarded loop.
  explicit InterruptGuard(std::function<void()> abandon = {});
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// Whether a signal asks for the end. What loops ask between steps.
  static bool interrupted();
  /// After Ctrl-C the program goes on after all, as interactive ones do; a later signal is a new
  /// one. False, and nothing changes, where another signal asked for the end.
  static bool forgive();
};

}  // namespace pumice::tools
