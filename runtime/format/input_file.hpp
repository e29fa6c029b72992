// A file that is read as it is needed. Not mapped: reading a mapped page that is gone, because the
// file was cut or its disk failed, raises a signal that ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
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
  uint64_t size_bytes_ = 0;
};

}  // namespace pumice
