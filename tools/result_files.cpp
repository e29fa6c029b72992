#include "tools/result_files.hpp"

#include "base/path.hpp"
#include "base/printable.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {

Result<std::string> read_result_text(const std::string& path) {
  std::error_code error;  // pipes have no size
  const uint64_t size = std::filesystem::file_size(from_utf8(path), error);
  if (!error && size > bench::kMaxResultBytes) {
    return make_error(ErrorCode::kBadFile, "{}: larger than {} MiB", printable(path, 200),
                      bench::kMaxResultBytes >> 20);
  }
  return read_text_file(from_utf8(path));
}

Result<std::vector<bench::ResultFile>> read_result_files(std::span<const std::string> paths) {
  std::vector<bench::ResultFile> files;
  for (const std::string& path : paths) {
    PUMICE_TRY(const std::string text, read_result_text(path));
    PUMICE_TRY(bench::ResultFile file, bench::parse_results(text, path));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace pumice::tools
