#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "tools/terminal.hpp"

namespace pumice::tools {

void prepare_streams() {
  constexpr int kFlags[] = {O_WRONLY, O_RDONLY, O_WRONLY};  // the wrong way round, but for the last
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    open("/dev/null", kFlags[descriptor]);  // takes the lowest number that is free: this one
  }
}

void restore_console() {}

bool is_terminal(Stream stream) { return isatty(static_cast<int>(stream)) == 1; }

int terminal_columns(Stream stream) {
  winsize size{};
  return ioctl(static_cast<int>(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace pumice::tools
