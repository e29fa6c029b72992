#include "base/output_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "base/file_error.hpp"
#include "base/unfinished_files.hpp"

namespace pumice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".pumice-partial";
constexpr std::string_view kRandomCharacters = "abcdefghijklmnopqrstuvwxyz0123456789";
constexpr size_t kRandomLength = 6;
constexpr size_t kMaxStemBytes = 200;  // names end at 255 on most systems
constexpr int kMaxLinks = 40;          // as Linux

/// Where the symbolic links at `path` lead, also if nothing is there yet. Unlike fs::canonical, it
/// does not follow the links of a process's descriptors, which are no names.
Result<fs::path> follow_links(fs::path path) {
  for (int i = 0; i < kMaxLinks; ++i) {
    std::error_code error;
    if (!fs::is_symlink(fs::symlink_status(path, error))) return path;
    if (path.has_parent_path()) {
      const fs::path folder = fs::canonical(path.parent_path(), error);
      if (!error && folder.native().starts_with("/proc/")) return folder / path.filename();
    }
    const fs::path link = fs::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / link;  // an absolute link replaces the folder
  }
  return make_error(ErrorCode::kBadFile, "{}: too many levels of symbolic links", path.string());
}

/// The descriptor that "/proc/<this process>/fd/N" names; -1 for any other path.
int own_descriptor(const fs::path& path) {
  const std::string folder = "/proc/" + std::to_string(::getpid()) + "/fd";
  if (path.parent_path() != folder) return -1;
  const std::string name = path.filename().string();
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : -1;
}

std::string stem_of(const fs::path& target) {
  return target.filename().string().substr(0, kMaxStemBytes) + ".";
}

fs::path folder_of(const fs::path& target) {
  return target.has_parent_path() ? target.parent_path() : fs::path(".");
}

std::string random_name(const fs::path& target) {
  std::random_device random;
  std::string name = stem_of(target);
  for (size_t i = 0; i < kRandomLength; ++i) {
    name += kRandomCharacters[random() % kRandomCharacters.size()];
  }
  return name.append(kSuffix);
}

bool is_temporary_of(std::string_view name, std::string_view stem) {
  if (name.size() != stem.size() + kRandomLength + kSuffix.size()) return false;
  if (!name.starts_with(stem) || !name.ends_with(kSuffix)) return false;
  return name.substr(stem.size(), kRandomLength).find_first_not_of(kRandomCharacters) ==
         std::string_view::npos;
}

/// Locked, the file may have lost its name to someone who took it for a left-over just before.
bool lock_and_still_there(int descriptor) {
  struct stat status = {};
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

/// `finish` without replacing: 0 or an errno.
int rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // The file system cannot do both at once; a link can be made only where nothing is.
  if (::link(from.c_str(), to.c_str()) != 0) return errno;
  ::unlink(from.c_str());
  return 0;
}

/// The temporaries that exist, of all threads. Never destroyed: a thread may outlive main's
/// objects.
struct Unfinished {
  std::timed_mutex mutex;
  std::set<fs::path> temporaries;
};
Unfinished& unfinished() {
  static Unfinished* const all = new Unfinished;
  return *all;
}

}  // namespace

Error cannot_write(std::string_view name, int error_number) {
  if (error_number == EINTR) return make_error(ErrorCode::kCancelled, "interrupted");
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return make_error(full ? ErrorCode::kDoesNotFit : ErrorCode::kBadFile,
                    "{}: cannot be written: {}", name,
                    std::generic_category().message(error_number));
}

void remove_unfinished_files() {
  // For good. Another thread that hangs in opening a file (a server that is gone) may hold it for ever.
  if (!unfinished().mutex.try_lock_for(std::chrono::milliseconds(500))) return;
  for (const fs::path& temporary : unfinished().temporaries) ::unlink(temporary.c_str());
}

Result<OutputFile> OutputFile::create(const fs::path& path, Existing existing) {
  OutputFile file;
  file.path_ = path;
  file.existing_ = existing;
  PUMICE_TRY(file.target_, follow_links(path));
  struct stat status = {};
  const bool exists = ::stat(file.target_.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) return file.failed(errno);
  if (exists && S_ISDIR(status.st_mode)) return file.failed(EISDIR);
  const bool is_descriptor = file.target_.native().starts_with("/proc/");
  if (exists && (is_descriptor || !S_ISREG(status.st_mode))) {
    PUMICE_TRY_STATUS(file.open_in_place());
    return file;
  }
  // Replacing needs no permission for the old file itself; a protected one stays all the same.
  if (exists && ::access(file.target_.c_str(), W_OK) != 0) return file.failed(errno);
  file.remove_leftovers();
  PUMICE_TRY_STATUS(file.open_temporary());
  if (!exists) return file;
  // Only a privileged user can give files away; for others the new file is their own.
  if (::fchown(file.descriptor_, status.st_uid, status.st_gid) != 0 && errno != EPERM) {
    return file.failed(errno);
  }
  if (::fchmod(file.descriptor_, status.st_mode & 07777) != 0) return file.failed(errno);
  return file;
}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(target_, other.target_);
  std::swap(temporary_, other.temporary_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(existing_, other.existing_);
  return *this;
}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) {
    const std::lock_guard lock(unfinished().mutex);
    ::unlink(temporary_.c_str());
    unfinished().temporaries.erase(temporary_);
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

Error OutputFile::failed(int error) const {
  if (error == EEXIST) {
    return make_error(ErrorCode::kInvalidArgument, "{}: exists already", path_.string());
  }
  return cannot_write(path_.string(), error);
}

/// A descriptor of this process (/dev/stdout) is continued where it stands.
Status OutputFile::open_in_place() {
  const int own = own_descriptor(target_);
  descriptor_ = own >= 0 ? ::fcntl(own, F_DUPFD_CLOEXEC, 0)
                         : ::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor_ < 0) return failed(errno);
  return {};
}

Status OutputFile::open_temporary() {
  for (;;) {
    const fs::path name = folder_of(target_) / random_name(target_);
    const std::lock_guard lock(unfinished().mutex);
    descriptor_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno == EEXIST) continue;
    if (descriptor_ < 0) return failed(errno);
    if (lock_and_still_there(descriptor_)) {
      temporary_ = name;
      unfinished().temporaries.insert(name);
      return {};
    }
    ::close(std::exchange(descriptor_, -1));
  }
}

/// Temporaries of this target that nobody holds locked: their writers are dead.
void OutputFile::remove_leftovers() const {
  const std::string stem = stem_of(target_);
  std::error_code error;
  for (fs::directory_iterator entry(folder_of(target_), error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_temporary_of(entry->path().filename().native(), stem)) continue;
    const int left = ::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (left < 0) continue;
    struct stat status = {};
    if (::fstat(left, &status) == 0 && S_ISREG(status.st_mode) &&
        ::flock(left, LOCK_EX | LOCK_NB) == 0) {
      ::unlink(entry->path().c_str());
    }
    ::close(left);
  }
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR && is_regular()) continue;
    if (n < 0) return failed(errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  if (!is_regular()) return failed(ESPIPE);
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(errno);
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status OutputFile::resize(uint64_t n_bytes) {
  if (!is_regular()) return failed(ESPIPE);
  if (::ftruncate(descriptor_, static_cast<off_t>(n_bytes)) != 0) return failed(errno);
  return {};
}

Status OutputFile::finish() {
  if (!is_regular()) {
    if (::close(std::exchange(descriptor_, -1)) != 0) return failed(errno);
    return {};
  }
  if (::fsync(descriptor_) != 0 && errno != EINVAL) return failed(errno);
  const int error = existing_ == Existing::kRefuse ? rename_to_new(temporary_, target_)
                    : ::rename(temporary_.c_str(), target_.c_str()) != 0 ? errno
                                                                         : 0;
  if (error != 0) return failed(error);
  {
    const std::lock_guard lock(unfinished().mutex);
    unfinished().temporaries.erase(temporary_);
  }
  temporary_.clear();
  // The lock goes with the descriptor, so it is closed last; fsync has said what there is to say.
  ::close(std::exchange(descriptor_, -1));
  return {};
}

Status write_file(const fs::path& path, std::string_view content) {
  PUMICE_TRY(OutputFile file, OutputFile::create(path));
  PUMICE_TRY_STATUS(file.write(content));
  return file.finish();
}

Status write_cache_file(const fs::path& path, std::string_view content) {
  std::error_code error;  // creating the file will say what is wrong
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  return write_file(path, content);
}

Status check_not_an_input(const fs::path& output, std::span<const fs::path> inputs) {
  for (const fs::path& input : inputs) {
    std::error_code error;
    if (output.empty() || input.empty() || !fs::is_regular_file(output, error)) continue;
    if (!fs::equivalent(output, input, error) || error) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: is read too ({}), and writing would destroy it; give another output",
                      output.string(), input.string());
  }
  return {};
}

}  // namespace pumice
