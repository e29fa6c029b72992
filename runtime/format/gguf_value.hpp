// One metadata entry of a GGUF file: a typed view of bytes in the mapped file, valid as long as the
// GgufFile. Reading never allocates except where a std::vector or std::string is returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.hpp"
#include "base/result.hpp"

namespace pumice {

enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

/// "uint32", "string", …; "unknown type" for any other number.
std::string_view name_of(GgufValueType type);

/// Bytes of one value, or 0 for strings and arrays (and unknown types), whose size varies.
size_t fixed_size_bytes(GgufValueType type);

/// The strings of an array, in order. Elements are raw bytes (tokens need not be valid UTF-8).
/// Iteration walks the file; there is no random access.
class GgufStrings {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;

    Iterator() = default;
    Iterator(const std::byte* at, uint64_t left) : at_(at), left_(left) {}
    std::string_view operator*() const {
      return {reinterpret_cast<const char*>(at_ + 8), static_cast<size_t>(length())};
    }
    Iterator& operator++() {
      at_ += 8 + length();
      --left_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const { return left_ == other.left_; }
    const std::byte* position() const { return at_; }  ///< of the element's length field

   private:
    uint64_t length() const {
      uint64_t value;
      std::memcpy(&value, at_, sizeof value);
      return value;
    }
    const std::byte* at_ = nullptr;
    uint64_t left_ = 0;
  };

  GgufStrings() = default;
  GgufStrings(const std::byte* first, uint64_t count) : first_(first), count_(count) {}
  uint64_t size() const { return count_; }
  Iterator begin() const { return {first_, count_}; }
  Iterator end() const { return {nullptr, 0}; }

 private:
  const std::byte* first_ = nullptr;
  uint64_t count_ = 0;
};

/// Errors name the key: "llama.block_count: expected an unsigned integer, found string".
struct GgufValue {
  std::string_view key;  ///< valid UTF-8
  GgufValueType type = GgufValueType::kUint8;
  GgufValueType element_type = GgufValueType::kUint8;  ///< of an array
  uint64_t count = 1;                                  ///< elements of an array
  const std::byte* data = nullptr;                     ///< the value, or an array's first element

  bool is_array() const { return type == GgufValueType::kArray; }

  /// The scalar as T: bool, int32_t, int64_t, uint32_t, uint64_t, float, double or
  /// std::string_view. Integers convert when the value fits, any number to float or double; strings
  /// must be UTF-8.
  template <typename T>
  Result<T> as() const;

  /// An array of numbers or bools as a vector; more than `max_count` elements are an error. A
  /// scalar is an array of one.
  template <typename T>
  Result<std::vector<T>> as_vector(uint64_t max_count) const;

  Result<GgufStrings> as_strings() const;

  /// For people: the value, or an array's type, length and first elements, on one line.
  std::string describe(size_t max_bytes = 80) const;
};

}  // namespace pumice
