#include "base/replace_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

namespace pumice {

Status replace_file(const std::filesystem::path& path, std::string_view content) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  const std::filesystem::path temporary = fmt::format("{}.{}.new", path.string(), ::getpid());
  {
    std::ofstream file(temporary, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    if (!file && !error) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(temporary, path, error);
  if (!error) return {};
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  return make_error(ErrorCode::kInternal, "{}: cannot be written: {}", path.string(),
                    error.message());
}

}  // namespace pumice
