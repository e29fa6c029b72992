#include "api/structs.hpp"

#include <system_error>

#include "base/path.hpp"
#include "base/printable.hpp"
#include "base/utf8.hpp"

namespace pumice::api {

Result<std::string_view> read_string(pumice_string string, std::string_view name) {
  if (string.data == nullptr) {
    if (string.length == 0) return std::string_view();
    return make_error(ErrorCode::kInvalidArgument, "{} is NULL, but its length is not 0", name);
  }
  const size_t length = string.length == PUMICE_NUL ? std::strlen(string.data) : string.length;
  if (length > kMaxInputBytes) {
    return make_error(ErrorCode::kInvalidArgument, "{} has {} bytes, at most {} are allowed", name,
                      length, kMaxInputBytes);
  }
  return std::string_view(string.data, length);
}

Result<std::string_view> read_text(pumice_string string, std::string_view name) {
  PUMICE_TRY(const std::string_view text, read_string(string, name));
  const size_t n_valid = valid_utf8_bytes(text);
  if (n_valid == text.size()) return text;
  return make_error(ErrorCode::kInvalidArgument, "{} is not valid UTF-8 at byte {} of {}", name,
                    n_valid, text.size());
}

Result<std::filesystem::path> read_path(pumice_string string, std::string_view name) {
  PUMICE_TRY(const std::string_view path, read_string(string, name));
  if (path.find('\0') == path.npos) return from_utf8(path);
  return make_error(ErrorCode::kInvalidArgument, "{} contains a NUL byte", name);
}

Result<std::filesystem::path> absolute_path(const std::filesystem::path& path) {
  if (path.empty()) return std::filesystem::path();
  std::error_code error;
  std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (!error) return whole;
  return make_error(ErrorCode::kBadFile, "{}: cannot find the current folder: {}",
                    printable(to_utf8(path)), error.message());
}

std::chrono::microseconds duration_of(uint64_t microseconds) {
  constexpr auto kMost = static_cast<uint64_t>(std::chrono::microseconds::max().count());
  return std::chrono::microseconds(std::min(microseconds, kMost));
}

Result<bool> read_bool(pumice_bool value, std::string_view name) {
  if (value <= 1) return value == 1;
  return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected 0 or 1", name, value);
}

size_t write_text(std::string_view text, std::span<char> out) {
  size_t length = std::min(text.size(), out.size() - 1);
  const auto continues = [&](size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  while (length > 0 && length < text.size() && continues(length)) --length;
  std::copy_n(text.begin(), length, out.begin());
  out[length] = '\0';
  return length;
}

}  // namespace pumice::api
