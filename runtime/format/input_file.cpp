#include "format/input_file.hpp"

#include <system_error>
#include <utility>

#include "base/path.hpp"

namespace pumice {

Result<InputFile> InputFile::open(const std::filesystem::path& path) {
  InputFile input;
  input.name_ = to_utf8(path);
  std::error_code error;
  input.file_ = File::open(path, File::Mode::kRead, error);
  if (error) return input.failed(error.message());
  const FileInfo info = input.file_.info(error);
  if (error) return input.failed(error.message());
  if (!info.is_regular()) return input.failed("not a regular file");
  if (info.size_bytes == 0) return input.failed("the file is empty");
  input.size_bytes_ = info.size_bytes;
  return input;
}

Result<InputFile> InputFile::of(std::string name, uint64_t size_bytes, Read read) {
  InputFile input;
  input.name_ = std::move(name);
  if (size_bytes == 0) return input.failed("the file is empty");
  input.read_ = std::move(read);
  input.size_bytes_ = size_bytes;
  return input;
}

Status InputFile::read(uint64_t offset, std::span<std::byte> out) const {
  if (read_) return read_(offset, out);
  std::error_code error;
  const size_t n = file_.read_at(offset, out, error);
  if (error) return failed(error.message());
  if (n == out.size()) return {};
  return make_error(ErrorCode::kBadFile,
                    "{}: ends at byte {} or before, where there were {} bytes when it was opened; "
                    "was it being replaced?",
                    name_, offset + n, size_bytes_);
}

Error InputFile::failed(std::string_view reason) const {
  return make_error(ErrorCode::kBadFile, "{}: {}", name_, reason);
}

}  // namespace pumice
