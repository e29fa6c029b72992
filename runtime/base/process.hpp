// What belongs to the whole process, or to one of its threads, and is not a program's own.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pumice {

/// What the program was started with, its name first, in UTF-8; `argc` and `argv` as main has them.
std::vector<std::string> program_arguments(int argc, char** argv);

/// In UTF-8; nothing where it is not set.
std::optional<std::string> environment_variable(const char* name);
/// An environment variable, for libraries that are loaded later. Not while other threads may read
/// the environment.
void set_environment(const char* name, const char* value);

/// As many files and connections at once as the system lets the process have without asking anybody.
void raise_open_file_limit();

/// While one lives, writing to a connection that its other side has closed is an error in this
/// thread and no signal that ends the program. For calls of libraries that leave that to their
/// host.
class WithoutBrokenPipes {
 public:
  WithoutBrokenPipes();
  ~WithoutBrokenPipes();
  WithoutBrokenPipes(const WithoutBrokenPipes&) = delete;
  WithoutBrokenPipes& operator=(const WithoutBrokenPipes&) = delete;

 private:
  bool was_blocked_ = false;  // the signal, in this thread
};

}  // namespace pumice
