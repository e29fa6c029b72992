#include "format/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace pumice {
namespace {

Error file_error(const std::string& name, const char* what) {
  return make_error(ErrorCode::kBadFile, "{}: {}", name, what);
}

}  // namespace

Result<InputFile> InputFile::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return file_error(name, std::strerror(errno));
  InputFile file(name, descriptor, 0);
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) return file_error(name, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return file_error(name, "not a regular file");
  if (status.st_size == 0) return file_error(name, "the file is empty");
  file.size_bytes_ = static_cast<uint64_t>(status.st_size);
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept { *this = std::move(other); }

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status InputFile::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(name_, std::strerror(errno));
    if (n == 0) {
      return make_error(ErrorCode::kBadFile,
                        "{}: ends at byte {} or before, where there were {} bytes when it was "
                        "opened; was it being replaced?",
                        name_, offset, size_bytes_);
    }
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace pumice
