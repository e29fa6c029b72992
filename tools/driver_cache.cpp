#include "tools/driver_cache.hpp"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/folders.hpp"
#include "base/path.hpp"
#include "base/process.hpp"

namespace pumice::tools {
namespace {

constexpr uint64_t kRoomBytes = uint64_t{32} << 20;  // its index alone is 1.3 MiB
constexpr const char* kDisable = "MESA_SHADER_CACHE_DISABLE";

/// Where Mesa makes its folder; empty if it finds no place either.
std::filesystem::path parent_of_cache() {
  for (const char* name : {"MESA_SHADER_CACHE_DIR", "MESA_GLSL_CACHE_DIR", "XDG_CACHE_HOME"}) {
    if (const char* folder = std::getenv(name); folder != nullptr && *folder != '\0') {
      return folder;
    }
  }
  const std::filesystem::path home = account_home();  // Mesa asks here too, not HOME
  return home.empty() ? home : home / ".cache";
}

}  // namespace

void keep_driver_cache_off_full_disks(const Logger& logger) {
  if (std::getenv(kDisable) != nullptr) return;
  std::filesystem::path folder = parent_of_cache();
  if (folder.empty()) return;
  std::error_code error;
  while (!std::filesystem::exists(folder, error) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available >= kRoomBytes) return;
  logger.warning(
      "{} has {} KiB left: the driver's shader cache is off, so shaders compile every time",
      to_utf8(folder), space.available / 1024);
  set_environment(kDisable, "true");
}

}  // namespace pumice::tools
