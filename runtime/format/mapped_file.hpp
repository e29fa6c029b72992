// A whole file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.hpp"

namespace pumice {

/// Move-only. The bytes stay at the same address until destruction. The file must not shrink while
/// it is mapped: reading a page that is gone raises a signal.
class MappedFile {
 public:
  /// Regular, non-empty files only; the error names the path.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace pumice
