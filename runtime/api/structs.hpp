// Structs and arrays that cross the ABI, checked on the way.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>

#include "api/status.hpp"
#include "base/result.hpp"
#include "pumice/pumice.h"

namespace pumice::api {

/// No struct will ever be larger; what claims to be was not initialised.
constexpr size_t kMaxStructBytes = 4096;
/// Of one string or array of a caller's; beyond it the length is nonsense.
constexpr size_t kMaxInputBytes = size_t{64} << 20;

/// Errors (kInvalidArgument): null, or no size that a struct of this kind ever had or will have.
template <typename T>
Status check_struct(const T* value, std::string_view name) {
  if (value == nullptr) return make_error(ErrorCode::kInvalidArgument, "{} is NULL", name);
  const size_t size = value->struct_size;
  if (size < sizeof(size_t) || size > kMaxStructBytes || size % alignof(T) != 0) {
    return make_error(ErrorCode::kInvalidArgument, "struct_size of {} is {}, expected {}", name,
                      size, sizeof(T));
  }
  return {};
}

/// A copy of a caller's struct: what an older one lacks is zero. Errors: those of check_struct;
/// kInvalidArgument when a newer one asks for what is not known here.
template <typename T>
Result<T> read_struct(const T* value, std::string_view name) {
  PUMICE_TRY_STATUS(check_struct(value, name));
  const auto* bytes = reinterpret_cast<const unsigned char*>(value);
  const size_t size = value->struct_size;
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{} was made for a newer library and sets fields that {} does not have",
                        name, pumice_version());
    }
  }
  T copy{};
  std::memcpy(&copy, value, std::min(size, sizeof(T)));
  copy.struct_size = sizeof(T);
  return copy;
}

/// The same for what may be NULL, for the default.
template <typename T>
Result<T> read_optional_struct(const T* value, std::string_view name) {
  return value != nullptr ? read_struct(value, name) : Result<T>(T{sizeof(T)});
}

/// As much of `value` as a caller's struct, which was checked, has room for; the rest of it is 0.
template <typename T>
void write_struct(const T& value, T* out) {
  const size_t size = out->struct_size;
  std::memset(out, 0, size);
  std::memcpy(out, &value, std::min(size, sizeof(T)));
  out->struct_size = size;
}

/// Errors (kInvalidArgument): NULL with a length, or a length out of range.
Result<std::string_view> read_string(pumice_string string, std::string_view name);

/// The same of what a model reads or writes, which is UTF-8.
Result<std::string_view> read_text(pumice_string string, std::string_view name);

/// The same as read_string of a file's or folder's name in UTF-8, which has no NUL: the system would
/// take the name before.
Result<std::filesystem::path> read_path(pumice_string string, std::string_view name);

/// Of what is opened again when a device was lost: the program may be in another folder by then.
/// Empty if `path` is. Errors (kBadFile): the program's folder is gone.
Result<std::filesystem::path> absolute_path(const std::filesystem::path& path);

/// Of a time limit; what no duration holds is the longest.
std::chrono::microseconds duration_of(uint64_t microseconds);

/// 0 or 1. Errors: kInvalidArgument.
Result<bool> read_bool(pumice_bool value, std::string_view name);

template <typename T>
Result<std::span<const T>> read_array(const T* data, size_t count, std::string_view name) {
  if (data == nullptr && count > 0) {
    return make_error(ErrorCode::kInvalidArgument, "{} is NULL, but its count is {}", name, count);
  }
  if (count > kMaxInputBytes / sizeof(T)) {
    return make_error(ErrorCode::kInvalidArgument, "{} {} are more than {}", count, name,
                      kMaxInputBytes / sizeof(T));
  }
  return std::span(data, count);
}

/// `values` to a caller's array of `capacity`, and their number. Nothing with NULL and 0, which
/// asks for the number; otherwise PUMICE_TOO_SMALL after as many as it holds.
template <typename T>
ApiStatus write_array(std::span<const T> values, T* out, size_t capacity, size_t* count) {
  *count = values.size();
  if (out == nullptr && capacity == 0) return {};
  std::copy_n(values.begin(), std::min(capacity, values.size()), out);
  if (values.size() <= capacity) return {};
  return {PUMICE_TOO_SMALL,
          fmt::format("{} values do not fit an array of {}", values.size(), capacity)};
}

/// Errors: an array that is NULL with a capacity, or a count that is NULL.
template <typename T>
Status check_output_array(const T* out, size_t capacity, size_t* count) {
  if (count == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "the pointer to the count is NULL");
  }
  *count = 0;
  if (out == nullptr && capacity > 0) {
    return make_error(ErrorCode::kInvalidArgument, "an array of {} is NULL", capacity);
  }
  return {};
}

/// `text`, cut between characters, with a NUL; how many bytes are before that.
size_t write_text(std::string_view text, std::span<char> out);

}  // namespace pumice::api
