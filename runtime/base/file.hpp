// Files, as the operating system gives them: the one place that knows its handles, locks and names.
// How a file is replaced as a whole is output_file.hpp's; what a kind of file holds is its
// reader's.
//
// Errors are std::error_code, as std::filesystem's: callers say what of it is an error to them and
// name the file. Codes are compared with std::errc; `error` is cleared where a call succeeds.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

namespace pumice {

enum class FileKind {
  kRegular,
  kFolder,
  kOther,  ///< a pipe, a device, a socket; a symbolic link that was not followed
};

/// The owner and the permissions of a file. For File::set_access; nothing else reads it.
struct FileAccess {
  uint32_t owner = 0;
  uint32_t group = 0;
  uint32_t permissions = 0;
};

struct FileInfo {
  FileKind kind = FileKind::kOther;
  uint64_t size_bytes = 0;
  std::chrono::system_clock::time_point modified;
  bool has_name = true;  ///< false: removed while it is open
  FileAccess access;

  bool is_regular() const { return kind == FileKind::kRegular; }
};

/// An open file, closed with its owner. Programs that this one starts do not inherit it. Offsets
/// have 64 bits. Move-only. Any number of threads may read and write at offsets at once; everything
/// else is for one thread at a time.
class File {
 public:
  enum class Mode {
    /// What is there. Never waits: a pipe that nobody writes to is opened at once, so that its kind
    /// can be asked.
    kRead,
    /// The same. A symbolic link is errc::too_many_symbolic_link_levels.
    kReadNoLink,
    /// What is there, or a new file, to read and write. Links as for kReadNoLink.
    kReadWrite,
    /// A new file, to write; errc::file_exists where anything is.
    kCreate,
    /// What is there, to write as it is: a pipe, a device, or a descriptor of this process
    /// (/dev/stdout leads to one), which is continued where it stands. Waits for a pipe's reader.
    kWriteInPlace,
    /// Behind what is there, or a new file that only its owner may read. Never waits.
    kAppend,
  };

  /// Not open.
  File() = default;
  File(File&& other) noexcept
      : handle_(std::exchange(other.handle_, kNone)),
        position_(other.position_),
        holds_lock_(other.holds_lock_) {}
  File& operator=(File&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(position_, other.position_);
    std::swap(holds_lock_, other.holds_lock_);
    return *this;
  }
  ~File();

  /// Not open where there is an error.
  static File open(const std::filesystem::path& path, Mode mode, std::error_code& error);
  /// A new file in the folder of `path`, to read and write, that nobody finds under a name and that
  /// is gone when it is closed, however this process ends. Where every file has a name, it has one
  /// that nobody knows.
  static File create_unnamed(const std::filesystem::path& path, std::error_code& error);

  bool is_open() const { return handle_ != kNone; }
  FileInfo info(std::error_code& error) const;

  /// Returns how many bytes were read: fewer than asked for only where the file ends or with an
  /// error. Of regular files.
  size_t read_at(uint64_t offset, std::span<std::byte> bytes, std::error_code& error) const;
  /// Returns how many bytes were written: all of them but with an error. Of regular files.
  size_t write_at(uint64_t offset, std::span<const std::byte> bytes, std::error_code& error) const;
  /// Behind what the last call wrote, at least one byte. Returns how many the system took;
  /// errc::interrupted where a signal came first.
  size_t write(std::span<const std::byte> bytes, std::error_code& error);
  std::error_code resize(uint64_t n_bytes);
  /// All that was written is on the disk; where nothing can be on one, as in a pipe, no error.
  std::error_code sync();
  /// Owner and group as far as this user may give files away, and permissions. On Windows, where
  /// folders give files their access lists, nothing.
  std::error_code set_access(const FileAccess& access);

  // An advisory lock on the file itself, whatever its name: one holder at a time, among processes
  // and among several `File`s in one. It ends with this object, however that ends.

  /// False: another holds it, or with an error the file system has no locks.
  bool try_lock(std::error_code& error);
  /// Waits. errc::interrupted where a signal came first.
  std::error_code lock();

  /// What the system says of earlier writes only now. Not open afterwards, even with an error.
  std::error_code close();

 private:
  static constexpr intptr_t kNone = -1;
  static constexpr uint64_t kNoPosition = ~uint64_t{0};
  explicit File(intptr_t handle) : handle_(handle) {}

  intptr_t handle_ = kNone;  // the system's: a descriptor, or a HANDLE
  // Where the system does not keep them:
  uint64_t position_ = kNoPosition;  // of `write`
  bool holds_lock_ = false;
};

enum class Links { kFollow, kStay };

/// Of what has this name. errc::no_such_file_or_directory where nothing is.
FileInfo file_info(const std::filesystem::path& path, Links links, std::error_code& error);

/// Whether this user may write it.
std::error_code check_writable(const std::filesystem::path& path);

/// Whether a path is one of /proc: names that the system makes up, such as those of a process's
/// open files; on Windows the name of a device, such as NUL. They cannot be replaced, and links
/// there lead to no names.
bool is_made_up_path(const std::filesystem::path& path);

/// `from` gets the name `to`; what had it is gone in the same moment, and no reader sees anything
/// else. Both are in one folder.
std::error_code replace_file(const std::filesystem::path& from, const std::filesystem::path& to);
/// The same where nothing is at `to`; else errc::file_exists.
std::error_code rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);

/// As modified now.
std::error_code touch_file(const std::filesystem::path& path);
/// A file or symbolic link, never a folder.
std::error_code remove_file(const std::filesystem::path& path);
/// An empty folder, never a link to one.
std::error_code remove_empty_folder(const std::filesystem::path& path);

/// Whether `error` means that a disk, a quota or a limit on sizes is full.
bool is_full(std::error_code error);

}  // namespace pumice
