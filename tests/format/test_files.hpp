// Files for format tests: a temporary file that removes itself, and bytes to put in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.hpp"

namespace pumice::test {

class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view bytes = {}) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("pumice-{}-{}.gguf", test->name(), ::getpid());
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// All bytes of a tensor; errors fail the test.
inline std::vector<std::byte> bytes_of(const GgufFile& file, const GgufTensor& tensor) {
  std::vector<std::byte> bytes(tensor.n_bytes);
  const Status status = file.read(tensor, 0, bytes);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return bytes;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
std::vector<T> read_values(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// A GGUF file field by field, so that any of them can be wrong.
class GgufBytes {
 public:
  GgufBytes(uint64_t n_tensors, uint64_t n_metadata, uint32_t version = 3) {
    bytes_ = "GGUF";
    u32(version).u64(n_tensors).u64(n_metadata);
  }
  template <typename T>
  GgufBytes& raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& u32(uint32_t value) { return raw(value); }
  GgufBytes& u64(uint64_t value) { return raw(value); }
  GgufBytes& text(std::string_view value) {
    u64(value.size());
    bytes_ += value;
    return *this;
  }
  GgufBytes& key(std::string_view name, GgufValueType type) {
    return text(name).u32(static_cast<uint32_t>(type));
  }
  GgufBytes& array(std::string_view name, GgufValueType element, uint64_t count) {
    return key(name, GgufValueType::kArray).u32(static_cast<uint32_t>(element)).u64(count);
  }
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                    uint64_t offset) {
    text(name).u32(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) u64(dim);
    return u32(type).u64(offset);
  }
  GgufBytes& pad(size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  GgufBytes& zeros(size_t n_bytes) {
    bytes_.append(n_bytes, '\0');
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  std::string bytes_;
};

/// The error of opening those bytes without the path in front, or "" if they are accepted.
inline std::string error_of(std::string_view bytes) {
  const TemporaryFile file(bytes);
  const Result<GgufFile> opened = GgufFile::open(file.path());
  if (opened.ok()) return "";
  EXPECT_EQ(opened.error().code, ErrorCode::kBadFile);
  const std::string prefix = file.path().string() + ": ";
  const std::string& message = opened.error().message;
  EXPECT_TRUE(message.starts_with(prefix)) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message.substr(std::min(prefix.size(), message.size()));
}
inline std::string error_of(const GgufBytes& bytes) { return error_of(bytes.str()); }

}  // namespace pumice::test
