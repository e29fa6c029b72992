#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

#include "base/folders.hpp"

namespace pumice {
namespace {

namespace fs = std::filesystem;

fs::path xdg_directory(const char* variable, const char* below_home) {
  if (const char* directory = std::getenv(variable); directory != nullptr && *directory != '\0') {
    return fs::path(directory) / "pumice";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return fs::path(home) / below_home / "pumice";
  }
  return {};
}

}  // namespace

fs::path config_directory() { return xdg_directory("XDG_CONFIG_HOME", ".config"); }
fs::path cache_directory() { return xdg_directory("XDG_CACHE_HOME", ".cache"); }
fs::path state_directory() { return xdg_directory("XDG_STATE_HOME", ".local/state"); }

fs::path account_home() {
  const passwd* const account = ::getpwuid(::getuid());
  return account != nullptr ? fs::path(account->pw_dir) : fs::path();
}

}  // namespace pumice
