#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <ctime>

#include "base/process.hpp"

namespace pumice {
namespace {

sigset_t broken_pipe() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

}  // namespace

std::vector<std::string> program_arguments(int argc, char** argv) { return {argv, argv + argc}; }

std::optional<std::string> environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

void set_environment(const char* name, const char* value) { ::setenv(name, value, 1); }

void raise_open_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // without it there are fewer
}

WithoutBrokenPipes::WithoutBrokenPipes() {
  const sigset_t pipe = broken_pipe();
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  was_blocked_ = sigismember(&before, SIGPIPE) == 1;
}

WithoutBrokenPipes::~WithoutBrokenPipes() {
  if (was_blocked_) return;
  constexpr timespec kNow = {};
  const sigset_t pipe = broken_pipe();
  sigtimedwait(&pipe, nullptr, &kNow);  // one that came meanwhile is not for later
  pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}

}  // namespace pumice
