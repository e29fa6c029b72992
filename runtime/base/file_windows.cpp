#include <windows.h>
// After windows.h, which it needs.
#include <winioctl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <cwctype>
#include <random>
#include <string>
#include <vector>

#include "base/file.hpp"

namespace pumice {
namespace {

namespace fs = std::filesystem;

// Every file is opened so that others may read, write, rename and remove it meanwhile, as elsewhere.
constexpr DWORD kShareAll = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
constexpr DWORD kMostBytesAtOnce = DWORD{1} << 30;
// Locks forbid others to read what is locked; this is behind the end of every file.
constexpr uint64_t kLockedByte = uint64_t{1} << 62;

constexpr DWORD kDiskQuotaExceeded = 1295;  // not in every header

/// What callers ask of an error by its std::errc; of anything else the system has the words.
std::error_code code_of(DWORD error) {
  switch (error) {
    case ERROR_SUCCESS:
      return {};
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME:
    case ERROR_BAD_NETPATH:
    case ERROR_INVALID_DRIVE:
      return std::make_error_code(std::errc::no_such_file_or_directory);
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS:
      return std::make_error_code(std::errc::file_exists);
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
    case ERROR_WRITE_PROTECT:
    case ERROR_DELETE_PENDING:
      return std::make_error_code(std::errc::permission_denied);
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL:
    case kDiskQuotaExceeded:
      return std::make_error_code(std::errc::no_space_on_device);
    case ERROR_FILE_TOO_LARGE:
      return std::make_error_code(std::errc::file_too_large);
    case ERROR_DIRECTORY:
      return std::make_error_code(std::errc::not_a_directory);
    case ERROR_DIR_NOT_EMPTY:
      return std::make_error_code(std::errc::directory_not_empty);
    case ERROR_FILENAME_EXCED_RANGE:
    case ERROR_BUFFER_OVERFLOW:
      return std::make_error_code(std::errc::filename_too_long);
    case ERROR_BROKEN_PIPE:
    case ERROR_NO_DATA:
      return std::make_error_code(std::errc::broken_pipe);
    case ERROR_TOO_MANY_OPEN_FILES:
      return std::make_error_code(std::errc::too_many_files_open);
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:
      return std::make_error_code(std::errc::not_enough_memory);
    case ERROR_OPERATION_ABORTED:
      return std::make_error_code(std::errc::interrupted);
    case ERROR_INVALID_HANDLE:
      return std::make_error_code(std::errc::bad_file_descriptor);
    case ERROR_NOT_SUPPORTED:
    case ERROR_INVALID_FUNCTION:
      return std::make_error_code(std::errc::not_supported);
    case ERROR_NOT_SAME_DEVICE:
      return std::make_error_code(std::errc::cross_device_link);
    default:
      return {static_cast<int>(error), std::system_category()};
  }
}
std::error_code last_error() { return code_of(::GetLastError()); }
std::error_code error_unless(bool ok) { return ok ? std::error_code() : last_error(); }

HANDLE native(intptr_t handle) { return reinterpret_cast<HANDLE>(handle); }
intptr_t number_of(HANDLE handle) { return reinterpret_cast<intptr_t>(handle); }

std::chrono::system_clock::time_point time_of(const FILETIME& time) {
  constexpr int64_t kUnits = 10'000'000;                  // in a second
  constexpr int64_t kSecondsBefore1970 = 11'644'473'600;  // since 1601
  const int64_t units = static_cast<int64_t>(time.dwHighDateTime) << 32 | time.dwLowDateTime;
  return std::chrono::system_clock::from_time_t(
             static_cast<std::time_t>(units / kUnits - kSecondsBefore1970)) +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(
             std::chrono::nanoseconds(units % kUnits * 100));
}

bool is_symbolic_link(HANDLE handle) {
  FILE_ATTRIBUTE_TAG_INFO tag = {};
  return ::GetFileInformationByHandleEx(handle, FileAttributeTagInfo, &tag, sizeof tag) != 0 &&
         (tag.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0 &&
         (tag.ReparseTag == IO_REPARSE_TAG_SYMLINK || tag.ReparseTag == IO_REPARSE_TAG_MOUNT_POINT);
}

FileInfo info_of(HANDLE handle, std::error_code& error) {
  error.clear();
  if (::GetFileType(handle) != FILE_TYPE_DISK) return {.kind = FileKind::kOther, .modified = {}};
  BY_HANDLE_FILE_INFORMATION all = {};
  FILE_STANDARD_INFO standard = {};
  error = error_unless(::GetFileInformationByHandle(handle, &all) != 0);
  if (error) return {};
  const bool has_standard =
      ::GetFileInformationByHandleEx(handle, FileStandardInfo, &standard, sizeof standard) != 0;
  return {.kind = is_symbolic_link(handle)                                 ? FileKind::kOther
                  : (all.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? FileKind::kFolder
                                                                           : FileKind::kRegular,
          .size_bytes = static_cast<uint64_t>(all.nFileSizeHigh) << 32 | all.nFileSizeLow,
          .modified = time_of(all.ftLastWriteTime),
          .has_name = all.nNumberOfLinks > 0 && !(has_standard && standard.DeletePending),
          .access = {}};
}

HANDLE open_handle(const fs::path& path, File::Mode mode) {
  // Overlapped files have no place where they stand: threads read and write at once. With backup
  // semantics folders can be opened, so that callers learn what they are.
  constexpr DWORD kAtOffsets =
      FILE_FLAG_OVERLAPPED | FILE_FLAG_BACKUP_SEMANTICS | FILE_ATTRIBUTE_NORMAL;
  const auto open = [&path](DWORD access, DWORD creation, DWORD flags) {
    return ::CreateFileW(path.c_str(), access, kShareAll, nullptr, creation, flags, nullptr);
  };
  switch (mode) {
    case File::Mode::kRead:
      return open(GENERIC_READ, OPEN_EXISTING, kAtOffsets);
    case File::Mode::kReadNoLink:
      return open(GENERIC_READ, OPEN_EXISTING, kAtOffsets | FILE_FLAG_OPEN_REPARSE_POINT);
    case File::Mode::kReadWrite:
      return open(GENERIC_READ | GENERIC_WRITE, OPEN_ALWAYS,
                  kAtOffsets | FILE_FLAG_OPEN_REPARSE_POINT);
    case File::Mode::kCreate:
      return open(GENERIC_WRITE | DELETE, CREATE_NEW, kAtOffsets);
    case File::Mode::kWriteInPlace:
      return open(GENERIC_WRITE, OPEN_EXISTING, 0);
    case File::Mode::kAppend:
      return open(FILE_APPEND_DATA | FILE_READ_ATTRIBUTES | SYNCHRONIZE, OPEN_ALWAYS, 0);
  }
  ::SetLastError(ERROR_INVALID_PARAMETER);
  return INVALID_HANDLE_VALUE;
}

/// An operation at an offset, and the wait for it.
class Overlapped {
 public:
  explicit Overlapped(uint64_t offset) {
    overlapped_.Offset = static_cast<DWORD>(offset);
    overlapped_.OffsetHigh = static_cast<DWORD>(offset >> 32);
    overlapped_.hEvent = ::CreateEventW(nullptr, TRUE, FALSE, nullptr);
  }
  ~Overlapped() {
    if (overlapped_.hEvent != nullptr) ::CloseHandle(overlapped_.hEvent);
  }
  Overlapped(const Overlapped&) = delete;
  Overlapped& operator=(const Overlapped&) = delete;

  OVERLAPPED* get() { return &overlapped_; }
  /// `begun`: what the call returned. False with GetLastError.
  bool wait(HANDLE handle, BOOL begun, DWORD& n_bytes) {
    if (begun == 0 && ::GetLastError() != ERROR_IO_PENDING) return false;
    return ::GetOverlappedResult(handle, &overlapped_, &n_bytes, TRUE) != 0;
  }

 private:
  OVERLAPPED overlapped_ = {};
};

DWORD at_once(size_t n_bytes) {
  return static_cast<DWORD>(std::min<size_t>(n_bytes, kMostBytesAtOnce));
}

/// With the rules of POSIX: who has the file that is replaced open keeps it. File systems that do
/// not know them refuse while anybody has.
std::error_code rename(const fs::path& from, const fs::path& to, bool replaces) {
  constexpr DWORD kPosixSemantics = 0x2;
  constexpr DWORD kIgnoreReadOnly = 0x40;
  constexpr auto kRenameInfoEx = static_cast<FILE_INFO_BY_HANDLE_CLASS>(22);
  std::error_code error;
  const fs::path target = fs::absolute(to, error);
  if (error) return error;
  const std::wstring& name = target.native();
  HANDLE handle = ::CreateFileW(from.c_str(), DELETE | SYNCHRONIZE, kShareAll, nullptr,
                                OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT, nullptr);
  if (handle == INVALID_HANDLE_VALUE) return last_error();
  std::vector<std::byte> buffer(sizeof(FILE_RENAME_INFO) + name.size() * sizeof(wchar_t));
  auto* const info = reinterpret_cast<FILE_RENAME_INFO*>(buffer.data());
  // The first member is a union of a flag for replacing and a word of flags.
  const DWORD flags = (replaces ? 1u : 0u) | kPosixSemantics | kIgnoreReadOnly;
  std::memcpy(info, &flags, sizeof flags);
  info->FileNameLength = static_cast<DWORD>(name.size() * sizeof(wchar_t));
  std::memcpy(info->FileName, name.c_str(), (name.size() + 1) * sizeof(wchar_t));
  const bool done = ::SetFileInformationByHandle(handle, kRenameInfoEx, info,
                                                 static_cast<DWORD>(buffer.size())) != 0;
  const DWORD reason = done ? ERROR_SUCCESS : ::GetLastError();
  ::CloseHandle(handle);
  const bool is_unknown = reason == ERROR_INVALID_PARAMETER || reason == ERROR_NOT_SUPPORTED ||
                          reason == ERROR_INVALID_FUNCTION ||
                          reason == ERROR_CALL_NOT_IMPLEMENTED || reason == ERROR_INVALID_LEVEL;
  if (done || !is_unknown) return code_of(reason);
  const DWORD how = MOVEFILE_WRITE_THROUGH | (replaces ? DWORD{MOVEFILE_REPLACE_EXISTING} : 0);
  return error_unless(::MoveFileExW(from.c_str(), target.c_str(), how) != 0);
}

}  // namespace

File File::open(const fs::path& path, Mode mode, std::error_code& error) {
  File file(number_of(open_handle(path, mode)));
  error = error_unless(file.is_open());
  if (error) return file;
  const bool refuses_links = mode == Mode::kReadNoLink || mode == Mode::kReadWrite;
  const HANDLE handle = native(file.handle_);
  if (refuses_links && is_symbolic_link(handle)) {
    error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
    return {};
  }
  if (mode != Mode::kWriteInPlace && mode != Mode::kAppend) file.position_ = 0;
  if (mode != Mode::kReadWrite && mode != Mode::kAppend) return file;
  if (file.info(error).kind == FileKind::kFolder) {
    error = std::make_error_code(std::errc::is_a_directory);
    return {};
  }
  return file;
}

File File::create_unnamed(const fs::path& path, std::error_code& error) {
  std::random_device random;
  for (;;) {
    fs::path name = path;
    name += L"." + std::to_wstring(random()) + L".tmp";
    File file(number_of(::CreateFileW(
        name.c_str(), GENERIC_READ | GENERIC_WRITE | DELETE, kShareAll, nullptr, CREATE_NEW,
        FILE_FLAG_OVERLAPPED | FILE_FLAG_DELETE_ON_CLOSE | FILE_ATTRIBUTE_TEMPORARY, nullptr)));
    error = error_unless(file.is_open());
    if (error == std::errc::file_exists) continue;
    if (file.is_open()) file.position_ = 0;
    return file;
  }
}

File::~File() {
  if (is_open()) ::CloseHandle(native(handle_));
}

FileInfo File::info(std::error_code& error) const { return info_of(native(handle_), error); }

size_t File::read_at(uint64_t offset, std::span<std::byte> bytes, std::error_code& error) const {
  error.clear();
  size_t done = 0;
  while (done < bytes.size()) {
    Overlapped at(offset + done);
    DWORD n = 0;
    const BOOL begun = ::ReadFile(native(handle_), bytes.data() + done,
                                  at_once(bytes.size() - done), nullptr, at.get());
    if (!at.wait(native(handle_), begun, n)) {
      if (::GetLastError() == ERROR_HANDLE_EOF) break;
      error = last_error();
      std::error_code ignored;
      if (info(ignored).kind == FileKind::kFolder) {
        error = std::make_error_code(std::errc::is_a_directory);
      }
      break;
    }
    if (n == 0) break;
    done += n;
  }
  return done;
}

size_t File::write_at(uint64_t offset, std::span<const std::byte> bytes,
                      std::error_code& error) const {
  error.clear();
  size_t done = 0;
  while (done < bytes.size()) {
    Overlapped at(offset + done);
    DWORD n = 0;
    const BOOL begun = ::WriteFile(native(handle_), bytes.data() + done,
                                   at_once(bytes.size() - done), nullptr, at.get());
    if (!at.wait(native(handle_), begun, n) || n == 0) {
      error = last_error();
      if (!error) error = std::make_error_code(std::errc::io_error);
      break;
    }
    done += n;
  }
  return done;
}

size_t File::write(std::span<const std::byte> bytes, std::error_code& error) {
  if (position_ != kNoPosition) {
    const size_t n = write_at(position_, bytes, error);
    position_ += n;
    return n;
  }
  DWORD n = 0;
  error = error_unless(
      ::WriteFile(native(handle_), bytes.data(), at_once(bytes.size()), &n, nullptr) != 0);
  return n;
}

std::error_code File::resize(uint64_t n_bytes) {
  FILE_END_OF_FILE_INFO end = {};
  end.EndOfFile.QuadPart = static_cast<LONGLONG>(n_bytes);
  return error_unless(
      ::SetFileInformationByHandle(native(handle_), FileEndOfFileInfo, &end, sizeof end) != 0);
}

std::error_code File::sync() {
  const std::error_code error = error_unless(::FlushFileBuffers(native(handle_)) != 0);
  const bool is_nowhere =
      error == std::errc::not_supported || error == std::errc::bad_file_descriptor;
  return is_nowhere ? std::error_code() : error;
}

// A new file has the access list that its folder gives it.
std::error_code File::set_access(const FileAccess& /*access*/) { return {}; }

bool File::try_lock(std::error_code& error) {
  error.clear();
  if (holds_lock_) return true;
  Overlapped at(kLockedByte);
  DWORD n = 0;
  const BOOL begun = ::LockFileEx(
      native(handle_), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at.get());
  holds_lock_ = at.wait(native(handle_), begun, n);
  if (holds_lock_) return true;
  if (::GetLastError() != ERROR_LOCK_VIOLATION) error = last_error();
  return false;
}

// Asks again and again: wine says at once that a wait for a lock of an overlapped file is over.
std::error_code File::lock() {
  std::error_code error;
  while (!try_lock(error) && !error) ::Sleep(10);
  return error;
}

std::error_code File::close() {
  return error_unless(::CloseHandle(native(std::exchange(handle_, kNone))) != 0);
}

FileInfo file_info(const fs::path& path, Links links, std::error_code& error) {
  const DWORD no_link = links == Links::kStay ? DWORD{FILE_FLAG_OPEN_REPARSE_POINT} : 0;
  HANDLE handle = ::CreateFileW(path.c_str(), FILE_READ_ATTRIBUTES, kShareAll, nullptr,
                                OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS | no_link, nullptr);
  error = error_unless(handle != INVALID_HANDLE_VALUE);
  if (error) return {};
  const FileInfo info = info_of(handle, error);
  ::CloseHandle(handle);
  return info;
}

std::error_code check_writable(const fs::path& path) {
  const DWORD attributes = ::GetFileAttributesW(path.c_str());
  if (attributes == INVALID_FILE_ATTRIBUTES) return last_error();
  const bool is_folder = (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
  if (!is_folder && (attributes & FILE_ATTRIBUTE_READONLY) != 0)
    return std::make_error_code(std::errc::permission_denied);
  HANDLE handle = ::CreateFileW(path.c_str(), FILE_WRITE_DATA, kShareAll, nullptr, OPEN_EXISTING,
                                FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  const std::error_code error = error_unless(handle != INVALID_HANDLE_VALUE);
  if (!error) ::CloseHandle(handle);
  return error;
}

// Names of devices, in every folder. What they stand for is no file.
bool is_made_up_path(const fs::path& path) {
  std::wstring name = path.stem().native();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](wchar_t c) { return static_cast<wchar_t>(std::towlower(c)); });
  constexpr std::array kDevices = {L"nul", L"con", L"conin$", L"conout$", L"aux", L"prn"};
  return std::find(kDevices.begin(), kDevices.end(), name) != kDevices.end() ||
         path.native().starts_with(L"\\\\.\\");
}

std::error_code replace_file(const fs::path& from, const fs::path& to) {
  return rename(from, to, true);
}

std::error_code rename_to_new(const fs::path& from, const fs::path& to) {
  return rename(from, to, false);
}

std::error_code touch_file(const fs::path& path) {
  const HANDLE handle = ::CreateFileW(path.c_str(), FILE_WRITE_ATTRIBUTES,
                                      FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                                      nullptr, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (handle == INVALID_HANDLE_VALUE) return last_error();
  FILETIME now = {};
  ::GetSystemTimePreciseAsFileTime(&now);
  const std::error_code error = error_unless(::SetFileTime(handle, nullptr, nullptr, &now) != 0);
  ::CloseHandle(handle);
  return error;
}

std::error_code remove_file(const fs::path& path) {
  return error_unless(::DeleteFileW(path.c_str()) != 0);
}

std::error_code remove_empty_folder(const fs::path& path) {
  return error_unless(::RemoveDirectoryW(path.c_str()) != 0);
}

bool is_full(std::error_code error) {
  return error == std::errc::no_space_on_device || error == std::errc::file_too_large;
}

}  // namespace pumice
