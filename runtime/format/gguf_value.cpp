#include "format/gguf_value.hpp"

#include <concepts>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/utf8.hpp"

namespace pumice {
namespace {

using Number = std::variant<std::monostate, uint64_t, int64_t, double>;

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

Number number_at(GgufValueType type, const std::byte* at) {
  switch (type) {
    case GgufValueType::kUint8:
      return uint64_t{load<uint8_t>(at)};
    case GgufValueType::kInt8:
      return int64_t{load<int8_t>(at)};
    case GgufValueType::kUint16:
      return uint64_t{load<uint16_t>(at)};
    case GgufValueType::kInt16:
      return int64_t{load<int16_t>(at)};
    case GgufValueType::kUint32:
      return uint64_t{load<uint32_t>(at)};
    case GgufValueType::kInt32:
      return int64_t{load<int32_t>(at)};
    case GgufValueType::kFloat32:
      return double{load<float>(at)};
    case GgufValueType::kUint64:
      return load<uint64_t>(at);
    case GgufValueType::kInt64:
      return load<int64_t>(at);
    case GgufValueType::kFloat64:
      return load<double>(at);
    case GgufValueType::kBool:
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  return std::monostate{};
}

template <typename T>
constexpr std::string_view wanted() {
  if constexpr (std::same_as<T, bool>) return "a bool";
  if constexpr (std::same_as<T, std::string_view>) return "a string";
  if constexpr (std::floating_point<T>) return "a number";
  if constexpr (std::unsigned_integral<T>) return "an unsigned integer";
  return "an integer";
}

std::string found_in(const GgufValue& value) {
  if (!value.is_array()) return std::string(name_of(value.type));
  return fmt::format("an array of {}", name_of(value.element_type));
}

template <typename T>
Error mismatch(const GgufValue& value) {
  return make_error(ErrorCode::kBadFile, "{}: expected {}, found {}", printable(value.key),
                    wanted<T>(), found_in(value));
}

/// One element (or the scalar) of type `type` at `at`.
template <typename T>
Result<T> convert(const GgufValue& value, GgufValueType type, const std::byte* at) {
  if constexpr (std::same_as<T, bool>) {
    if (type != GgufValueType::kBool) return mismatch<T>(value);
    const auto byte = load<uint8_t>(at);
    if (byte > 1) {
      return make_error(ErrorCode::kBadFile, "{}: a bool must be 0 or 1, found {}",
                        printable(value.key), byte);
    }
    return byte == 1;
  } else {
    const Number number = number_at(type, at);
    if constexpr (std::floating_point<T>) {
      if (const auto* real = std::get_if<double>(&number)) return static_cast<T>(*real);
      if (const auto* whole = std::get_if<uint64_t>(&number)) return static_cast<T>(*whole);
      if (const auto* whole = std::get_if<int64_t>(&number)) return static_cast<T>(*whole);
      return mismatch<T>(value);
    } else {
      const auto fit = [&](auto whole) -> Result<T> {
        if (std::in_range<T>(whole)) return static_cast<T>(whole);
        return make_error(ErrorCode::kBadFile, "{}: {} is out of range (expected {} of {} bits)",
                          printable(value.key), whole, wanted<T>(), 8 * sizeof(T));
      };
      if (const auto* whole = std::get_if<uint64_t>(&number)) return fit(*whole);
      if (const auto* whole = std::get_if<int64_t>(&number)) return fit(*whole);
      return mismatch<T>(value);
    }
  }
}

std::string describe_element(GgufValueType type, const std::byte* at, size_t max_bytes) {
  if (type == GgufValueType::kString) {
    return fmt::format("\"{}\"", printable(*GgufStrings::Iterator(at, 1), max_bytes));
  }
  if (type == GgufValueType::kBool) return load<uint8_t>(at) != 0 ? "true" : "false";
  if (type == GgufValueType::kArray) return "…";
  if (type == GgufValueType::kFloat32) return fmt::format("{}", load<float>(at));
  return std::visit(
      [](auto number) -> std::string {
        if constexpr (std::same_as<decltype(number), std::monostate>)
          return "?";
        else
          return fmt::format("{}", number);
      },
      number_at(type, at));
}

}  // namespace

std::string_view name_of(GgufValueType type) {
  constexpr std::string_view kNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                         "int32",  "float32", "bool",   "string", "array",
                                         "uint64", "int64",   "float64"};
  const auto index = static_cast<size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown type";
}

size_t fixed_size_bytes(GgufValueType type) {
  constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  const auto index = static_cast<size_t>(type);
  return index < std::size(kSizes) ? kSizes[index] : 0;
}

template <typename T>
Result<T> GgufValue::as() const {
  if constexpr (std::same_as<T, std::string_view>) {
    if (type != GgufValueType::kString) return mismatch<T>(*this);
    const std::string_view text = *GgufStrings::Iterator(data, 1);
    if (!is_valid_utf8(text)) {
      return make_error(ErrorCode::kBadFile, "{}: the string is not valid UTF-8", printable(key));
    }
    return text;
  } else {
    if (is_array()) return mismatch<T>(*this);
    return convert<T>(*this, type, data);
  }
}

template <typename T>
Result<std::vector<T>> GgufValue::as_vector(uint64_t max_count) const {
  const GgufValueType element = is_array() ? element_type : type;
  const size_t stride = fixed_size_bytes(element);
  if (stride == 0) return mismatch<T>(*this);
  if (count > max_count) {
    return make_error(ErrorCode::kBadFile, "{}: holds {} values, expected at most {}",
                      printable(key), count, max_count);
  }
  std::vector<T> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    PUMICE_TRY(const T converted, convert<T>(*this, element, data + i * stride));
    values.push_back(converted);
  }
  return values;
}

Result<GgufStrings> GgufValue::as_strings() const {
  if (!is_array() || element_type != GgufValueType::kString) {
    return make_error(ErrorCode::kBadFile, "{}: expected an array of strings, found {}",
                      printable(key), found_in(*this));
  }
  return GgufStrings(data, count);
}

std::string GgufValue::describe(size_t max_bytes) const {
  if (!is_array()) return describe_element(type, data, max_bytes);
  std::string out = fmt::format("{}[{}] [", name_of(element_type), count);
  const size_t stride = fixed_size_bytes(element_type);
  GgufStrings::Iterator text(data, count);
  for (uint64_t i = 0; i < count; ++i) {
    if (i != 0) out += ", ";
    if (out.size() >= max_bytes || element_type == GgufValueType::kArray) return out + "…]";
    out += describe_element(element_type, stride != 0 ? data + i * stride : text.position(),
                            max_bytes - out.size());
    if (stride == 0) ++text;
  }
  return out + "]";
}

template Result<bool> GgufValue::as() const;
template Result<int32_t> GgufValue::as() const;
template Result<int64_t> GgufValue::as() const;
template Result<uint32_t> GgufValue::as() const;
template Result<uint64_t> GgufValue::as() const;
template Result<float> GgufValue::as() const;
template Result<double> GgufValue::as() const;
template Result<std::string_view> GgufValue::as() const;
template Result<std::vector<bool>> GgufValue::as_vector(uint64_t) const;
template Result<std::vector<int32_t>> GgufValue::as_vector(uint64_t) const;
template Result<std::vector<int64_t>> GgufValue::as_vector(uint64_t) const;
template Result<std::vector<uint32_t>> GgufValue::as_vector(uint64_t) const;
template Result<std::vector<uint64_t>> GgufValue::as_vector(uint64_t) const;
template Result<std::vector<float>> GgufValue::as_vector(uint64_t) const;

}  // namespace pumice
