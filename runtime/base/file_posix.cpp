#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/ascii.hpp"
#include "base/file.hpp"

namespace pumice {
namespace {

namespace fs = std::filesystem;

static_assert(sizeof(off_t) == 8, "compile with -D_FILE_OFFSET_BITS=64");

std::error_code code_of(int error_number) { return {error_number, std::generic_category()}; }
std::error_code last_error() { return code_of(errno); }
std::error_code error_unless(bool ok) { return ok ? std::error_code() : last_error(); }

FileInfo info_of(const struct stat& status) {
  return {
      .kind = S_ISREG(status.st_mode)   ? FileKind::kRegular
              : S_ISDIR(status.st_mode) ? FileKind::kFolder
                                        : FileKind::kOther,
      .size_bytes = static_cast<uint64_t>(status.st_size),
      .modified = std::chrono::system_clock::from_time_t(status.st_mtim.tv_sec) +
                  std::chrono::duration_cast<std::chrono::system_clock::duration>(
                      std::chrono::nanoseconds(status.st_mtim.tv_nsec)),
      .has_name = status.st_nlink > 0,
      .access = {
          .owner = status.st_uid, .group = status.st_gid, .permissions = status.st_mode & 07777}};
}

/// The descriptor that "/proc/<this process>/fd/N" names; -1 for any other path.
int own_descriptor(const fs::path& path) {
  const std::string folder = "/proc/" + std::to_string(::getpid()) + "/fd";
  if (path.parent_path() != folder) return -1;
  return parse_whole<int>(path.filename().native()).value_or(-1);
}

int open_in_place(const fs::path& path) {
  const int own = own_descriptor(path);
  return own >= 0 ? ::fcntl(own, F_DUPFD_CLOEXEC, 0)
                  : ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
}

int open_descriptor(const fs::path& path, File::Mode mode) {
  constexpr int kReads = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  switch (mode) {
    case File::Mode::kRead:
      return ::open(path.c_str(), kReads);
    case File::Mode::kReadNoLink:
      return ::open(path.c_str(), kReads | O_NOFOLLOW);
    case File::Mode::kReadWrite:
      return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    case File::Mode::kCreate:
      return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    case File::Mode::kWriteInPlace:
      return open_in_place(path);
    case File::Mode::kAppend:
      return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
  }
  errno = EINVAL;
  return -1;
}

int descriptor(intptr_t handle) { return static_cast<int>(handle); }

}  // namespace

File File::open(const fs::path& path, Mode mode, std::error_code& error) {
  File file(open_descriptor(path, mode));
  error = error_unless(file.is_open());
  return file;
}

File File::create_unnamed(const fs::path& path, std::error_code& error) {
  std::string name = path.native() + ".XXXXXX";
  File file(::mkostemp(name.data(), O_CLOEXEC));
  error = error_unless(file.is_open());
  if (file.is_open()) ::unlink(name.c_str());
  return file;
}

File::~File() {
  if (is_open()) ::close(descriptor(handle_));
}

FileInfo File::info(std::error_code& error) const {
  struct stat status = {};
  error = error_unless(::fstat(descriptor(handle_), &status) == 0);
  return info_of(status);
}

size_t File::read_at(uint64_t offset, std::span<std::byte> bytes, std::error_code& error) const {
  error.clear();
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pread(descriptor(handle_), bytes.data() + done, bytes.size() - done,
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) error = last_error();
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

size_t File::write_at(uint64_t offset, std::span<const std::byte> bytes,
                      std::error_code& error) const {
  error.clear();
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pwrite(descriptor(handle_), bytes.data() + done, bytes.size() - done,
                               static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      error = n < 0 ? last_error() : code_of(EIO);
      break;
    }
    done += static_cast<size_t>(n);
  }
  return done;
}

size_t File::write(std::span<const std::byte> bytes, std::error_code& error) {
  const ssize_t n = ::write(descriptor(handle_), bytes.data(), bytes.size());
  error = error_unless(n >= 0);
  return n < 0 ? 0 : static_cast<size_t>(n);
}

std::error_code File::resize(uint64_t n_bytes) {
  return error_unless(::ftruncate(descriptor(handle_), static_cast<off_t>(n_bytes)) == 0);
}

std::error_code File::sync() {
  return error_unless(::fsync(descriptor(handle_)) == 0 || errno == EINVAL);
}

std::error_code File::set_access(const FileAccess& access) {
  // Only a privileged user can give files away; for others the file is their own.
  if (::fchown(descriptor(handle_), access.owner, access.group) != 0 && errno != EPERM)
    return last_error();
  return error_unless(::fchmod(descriptor(handle_), access.permissions) == 0);
}

bool File::try_lock(std::error_code& error) {
  error.clear();
  if (::flock(descriptor(handle_), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK) error = last_error();
  return false;
}

std::error_code File::lock() { return error_unless(::flock(descriptor(handle_), LOCK_EX) == 0); }

std::error_code File::close() {
  return error_unless(::close(descriptor(std::exchange(handle_, kNone))) == 0);
}

FileInfo file_info(const fs::path& path, Links links, std::error_code& error) {
  struct stat status = {};
  const int result =
      links == Links::kFollow ? ::stat(path.c_str(), &status) : ::lstat(path.c_str(), &status);
  error = error_unless(result == 0);
  return info_of(status);
}

std::error_code check_writable(const fs::path& path) {
  return error_unless(::access(path.c_str(), W_OK) == 0);
}

bool is_made_up_path(const fs::path& path) { return path.native().starts_with("/proc/"); }

std::error_code replace_file(const fs::path& from, const fs::path& to) {
  return error_unless(::rename(from.c_str(), to.c_str()) == 0);
}

std::error_code rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  if (errno != EINVAL && errno != ENOSYS) return last_error();
  // The file system cannot do both at once; a link can be made only where nothing is.
  if (::link(from.c_str(), to.c_str()) != 0) return last_error();
  ::unlink(from.c_str());
  return {};
}

std::error_code touch_file(const fs::path& path) {
  return error_unless(::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0);
}

std::error_code remove_file(const fs::path& path) {
  return error_unless(::unlink(path.c_str()) == 0);
}

std::error_code remove_empty_folder(const fs::path& path) {
  return error_unless(::rmdir(path.c_str()) == 0);
}

bool is_full(std::error_code error) {
  return error == std::errc::no_space_on_device || error == std::errc::file_too_large ||
         error == code_of(EDQUOT);
}

}  // namespace pumice
