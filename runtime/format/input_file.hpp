// A file that is read as it is needed. Not mapped: reading a mapped page that is gone, because the
// file was cut or its disk failed, raises a signal that ends the process. It may also be somebody
// else's: a program that embeds has models in archives of its own, or in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.hpp"
#include "base/result.hpp"

namespace pumice {

/// Move-only. Any number of threads may read at once.
class InputFile {
 public:
  /// Regular, non-empty files only. Errors (kBadFile) name the path.
  static Result<InputFile> open(const std::filesystem::path& path);

  /// Reads all of `out` from `offset` on, any number of threads at once. Its errors name the file.
  using Read = std::function<Status(uint64_t offset, std::span<std::byte> out)>;
  /// What `read` reads, of so many bytes, which need not be true. It goes with the InputFile. Errors
  /// (kBadFile): it is empty.
  static Result<InputFile> of(std::string name, uint64_t size_bytes, Read read);

  /// When it was opened; it may have been changed since.
  uint64_t size_bytes() const { return size_bytes_; }

  /// All of `out`, from `offset` on. Errors (kBadFile) name the path: the file has become shorter,
  /// or cannot be read.
  Status read(uint64_t offset, std::span<std::byte> out) const;

 private:
  InputFile() = default;
  Error failed(std::string_view reason) const;

  std::string name_;
  File file_;
  Read read_;  // instead of file_
  uint64_t size_bytes_ = 0;
};

/// How the file of a name is opened. Errors name it.
using OpenFile = std::function<Result<InputFile>(const std::filesystem::path& path)>;

}  // namespace pumice
