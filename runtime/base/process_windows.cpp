#include <windows.h>
// After windows.h, which it needs.
#include <shellapi.h>

#include <cstdlib>

#include "base/path.hpp"
#include "base/process.hpp"

namespace pumice {

std::vector<std::string> program_arguments(int /*argc*/, char** /*argv*/) {
  std::vector<std::string> arguments;
  int n = 0;
  wchar_t** const words = ::CommandLineToArgvW(::GetCommandLineW(), &n);
  for (int i = 0; words != nullptr && i < n; ++i) arguments.push_back(to_utf8(words[i]));
  ::LocalFree(words);
  return arguments;
}

std::optional<std::string> environment_variable(const char* name) {
  const wchar_t* const value = ::_wgetenv(from_utf8(name).c_str());
  if (value == nullptr) return std::nullopt;
  return to_utf8(value);
}

// Libraries may have another C library, whose copy of the environment is made of the system's.
void set_environment(const char* name, const char* value) {
  ::_wputenv_s(from_utf8(name).c_str(), from_utf8(value).c_str());
}

// Handles are bounded by memory alone.
void raise_open_file_limit() {}

// There is no such signal.
WithoutBrokenPipes::WithoutBrokenPipes() { (void)was_blocked_; }
WithoutBrokenPipes::~WithoutBrokenPipes() = default;

}  // namespace pumice
