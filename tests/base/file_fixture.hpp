// A folder of files, for tests of what the system does with them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file.hpp"
#include "base/path.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {

namespace fs = std::filesystem;

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class FileTest : public ::testing::Test {
 protected:
  fs::path path(std::string_view name) const { return folder_.path() / from_utf8(name); }
  fs::path given(std::string_view name, std::string_view content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  static std::string content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  File open(const fs::path& path, File::Mode mode) {
    File file = File::open(path, mode, error_);
    EXPECT_EQ(file.is_open(), !error_);
    return file;
  }
  std::string read(const File& file, uint64_t offset, size_t n_bytes) {
    std::string text(n_bytes, '\0');
    text.resize(file.read_at(offset, std::as_writable_bytes(std::span(text)), error_));
    return text;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      names.push_back(to_utf8(entry.path().filename()));
    }
    std::ranges::sort(names);
    return names;
  }
  using Names = std::vector<std::string>;

  test::TemporaryFolder folder_;
  std::error_code error_;
};

}  // namespace pumice
