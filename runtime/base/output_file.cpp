#include "base/output_file.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "base/file_error.hpp"
#include "base/path.hpp"
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
      if (!error && is_made_up_path(folder)) return folder / path.filename();
    }
    const fs::path link = fs::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / link;  // an absolute link replaces the folder
  }
  return make_error(ErrorCode::kBadFile, "{}: too many levels of symbolic links", to_utf8(path));
}

std::string stem_of(const fs::path& target) {
  const std::string name = to_utf8(target.filename());
  size_t n_bytes = std::min(name.size(), kMaxStemBytes);
  const auto inside_character = [&] {
    return (static_cast<unsigned char>(name[n_bytes]) & 0xC0) == 0x80;
  };
  while (n_bytes + 3 > kMaxStemBytes && inside_character()) --n_bytes;
  return name.substr(0, n_bytes) + ".";
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

/// Locked, the file may have lost its name to someone who took it for a left-over just before. One
/// on a file system without locks is nobody's left-over.
bool lock_and_still_there(File& file) {
  std::error_code error;
  if (!file.try_lock(error) && !error) return false;
  return file.info(error).has_name && !error;
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

Error cannot_write(std::string_view name, std::error_code error) {
  if (error == std::errc::interrupted) return make_error(ErrorCode::kCancelled, "interrupted");
  return make_error(is_full(error) ? ErrorCode::kDoesNotFit : ErrorCode::kBadFile,
                    "{}: cannot be written: {}", name, error.message());
}

Error cannot_write(std::string_view name, int error_number) {
  return cannot_write(name, std::error_code(error_number, std::generic_category()));
}

void remove_unfinished_files() {
  // For good. Another thread that hangs in opening a file (a server that is gone) may hold it for ever.
  if (!unfinished().mutex.try_lock_for(std::chrono::milliseconds(500))) return;
  for (const fs::path& temporary : unfinished().temporaries) remove_file(temporary);
}

Result<OutputFile> OutputFile::create(const fs::path& path, Existing existing) {
  OutputFile file;
  file.path_ = path;
  file.existing_ = existing;
  PUMICE_TRY(file.target_, follow_links(path));
  std::error_code error;
  const FileInfo there = file_info(file.target_, Links::kFollow, error);
  const bool exists = !error;
  if (!exists && error != std::errc::no_such_file_or_directory) return file.failed(error);
  if (exists && there.kind == FileKind::kFolder) return file.failed(std::errc::is_a_directory);
  if (exists && (is_made_up_path(file.target_) || !there.is_regular())) {
    file.file_ = File::open(file.target_, File::Mode::kWriteInPlace, error);
    if (error) return file.failed(error);
    return file;
  }
  // Replacing needs no permission for the old file itself; a protected one stays all the same.
  if (exists) error = check_writable(file.target_);
  if (exists && error) return file.failed(error);
  file.remove_leftovers();
  PUMICE_TRY_STATUS(file.open_temporary());
  if (!exists) return file;
  if (error = file.file_.set_access(there.access); error) return file.failed(error);
  return file;
}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(target_, other.target_);
  std::swap(temporary_, other.temporary_);
  std::swap(file_, other.file_);
  std::swap(existing_, other.existing_);
  return *this;
}

OutputFile::~OutputFile() {
  if (temporary_.empty()) return;
  const std::lock_guard lock(unfinished().mutex);
  remove_file(temporary_);
  unfinished().temporaries.erase(temporary_);
}

Error OutputFile::failed(std::error_code error) const {
  if (error == std::errc::file_exists) {
    return make_error(ErrorCode::kInvalidArgument, "{}: exists already", to_utf8(path_));
  }
  return cannot_write(to_utf8(path_), error);
}

Status OutputFile::open_temporary() {
  for (;;) {
    const fs::path name = folder_of(target_) / from_utf8(random_name(target_));
    const std::lock_guard lock(unfinished().mutex);
    std::error_code error;
    file_ = File::open(name, File::Mode::kCreate, error);
    if (error == std::errc::file_exists) continue;
    if (error) return failed(error);
    if (lock_and_still_there(file_)) {
      temporary_ = name;
      unfinished().temporaries.insert(name);
      return {};
    }
    file_ = File();
  }
}

/// Temporaries of this target that nobody holds locked: their writers are dead.
void OutputFile::remove_leftovers() const {
  const std::string stem = stem_of(target_);
  std::error_code error;
  for (fs::directory_iterator entry(folder_of(target_), error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_temporary_of(to_utf8(entry->path().filename()), stem)) continue;
    std::error_code ignored;
    File left = File::open(entry->path(), File::Mode::kReadNoLink, ignored);
    if (left.is_open() && left.info(ignored).is_regular() && left.try_lock(ignored)) {
      remove_file(entry->path());
    }
  }
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    std::error_code error;
    bytes = bytes.subspan(file_.write(bytes, error));
    if (error && !(error == std::errc::interrupted && is_regular())) return failed(error);
  }
  return {};
}

Status OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  if (!is_regular()) return failed(std::errc::invalid_seek);
  std::error_code error;
  file_.write_at(offset, bytes, error);
  if (error) return failed(error);
  return {};
}

Status OutputFile::resize(uint64_t n_bytes) {
  if (!is_regular()) return failed(std::errc::invalid_seek);
  if (const std::error_code error = file_.resize(n_bytes)) return failed(error);
  return {};
}

Status OutputFile::finish() {
  if (!is_regular()) {
    if (const std::error_code error = file_.close()) return failed(error);
    return {};
  }
  if (const std::error_code error = file_.sync()) return failed(error);
  const std::error_code error = existing_ == Existing::kRefuse ? rename_to_new(temporary_, target_)
                                                               : replace_file(temporary_, target_);
  if (error) return failed(error);
  {
    const std::lock_guard lock(unfinished().mutex);
    unfinished().temporaries.erase(temporary_);
  }
  temporary_.clear();
  // The lock goes with the file, so it is closed last; `sync` has said what there is to say.
  file_ = File();
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
                      to_utf8(output), to_utf8(input));
  }
  return {};
}

}  // namespace pumice
