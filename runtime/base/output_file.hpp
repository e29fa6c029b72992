// Writing files as a whole. What a reader finds at a path is the old file or the new
// one, whole, and what is no regular file there (a pipe, a device) is written to, never replaced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include "base/file.hpp"
#include "base/result.hpp"

namespace pumice {

/// A file being written. A regular one, and one that does not exist yet, is written to a temporary
/// beside it, `NAME.XXXXXX.pumice-partial`, which takes its place in `finish`: with the permissions
/// (and, where the system allows it, the owner) that it had, and through symbolic links to what
/// they lead to. Without `finish`, destruction removes the temporary and the old file stays.
/// Temporaries are locked by their writer, so any number of programs may write one
/// path at once and each puts a whole file there; those that a killed program left are removed by
/// the next `create` for the same path.
///
/// Anything else is written in place as the bytes come.
///
/// Errors of all calls name the path and the system's reason: kDoesNotFit when the disk, a quota or
/// a size limit is full, kCancelled when a signal interrupted waiting for a pipe, kInvalidArgument
/// when Existing::kRefuse finds something, else kBadFile.
/// Move-only; one thread at a time.
class OutputFile {
 public:
  enum class Existing {
    kReplace,
    kRefuse,  ///< `finish` fails if something is at the path by then
  };

  static Result<OutputFile> create(const std::filesystem::path& path,
                                   Existing existing = Existing::kReplace);

  OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  /// False for what is written in place: `write_at` and `resize` are then errors.
  bool is_regular() const { return !temporary_.empty(); }

  /// Behind what was written by the last `write`.
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  Status write_at(uint64_t offset, std::span<const std::byte> bytes);
  Status resize(uint64_t n_bytes);

  /// All bytes are on the disk before the name is. The last call.
  Status finish();

 private:
  OutputFile() = default;
  Status open_temporary();
  void remove_leftovers() const;
  Error failed(std::error_code error) const;
  Error failed(std::errc error) const { return failed(std::make_error_code(error)); }

  std::filesystem::path path_;       // as given, for errors
  std::filesystem::path target_;     // where symbolic links lead
  std::filesystem::path temporary_;  // empty: none, or renamed
  File file_;
  Existing existing_ = Existing::kReplace;
};

/// The whole of a small file at once. Errors as OutputFile's.
Status write_file(const std::filesystem::path& path, std::string_view content);

/// The same for files of our own (caches): missing folders are made.
Status write_cache_file(const std::filesystem::path& path, std::string_view content);

/// Errors (kInvalidArgument) if `output` and one of `inputs` are one regular file, by whatever
/// names and links; empty paths are nothing. To be asked before the output is begun.
Status check_not_an_input(const std::filesystem::path& output,
                          std::span<const std::filesystem::path> inputs);

}  // namespace pumice
