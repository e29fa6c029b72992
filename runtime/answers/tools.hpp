// What a model may call: OpenAI's list of functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace pumice {

/// What an argument may be, a bit for each of JSON's types; 0: nobody knows. Where its text alone
/// does not say: "5" is a string or a number.
using ParameterTypes = uint8_t;
constexpr ParameterTypes kStringType = 1;
constexpr ParameterTypes kNumberType = 2;
constexpr ParameterTypes kBooleanType = 4;
constexpr ParameterTypes kNullType = 8;
constexpr ParameterTypes kObjectType = 16;
constexpr ParameterTypes kArrayType = 32;
constexpr ParameterTypes kNoString = 62;
/// Of a value that begins with `c`.
constexpr ParameterTypes type_of_json(char c) {
  return c == '"'               ? kStringType
         : c == 't' || c == 'f' ? kBooleanType
         : c == 'n'             ? kNullType
         : c == '{'             ? kObjectType
         : c == '['             ? kArrayType
                                : kNumberType;
}

/// Immutable once made; any number of threads may read it.
class Tools {
 public:
  static constexpr size_t kMaxTools = 4096;
  static constexpr size_t kMaxBytes = size_t{16} << 20;
  static constexpr size_t kMaxNameBytes = 128;

  /// None.
  Tools() = default;
  /// An array of {"type": "function", "function": {"name", "description", "parameters"}}, or of the
  /// functions themselves. Errors (kInvalidArgument), naming the tool: anything else, a name that is
  /// not of letters, digits, "_", "-" and ".", two of one name, parameters that are no object.
  static Result<Tools> create(const nlohmann::ordered_json& list);
  /// Errors: those of `create` and of read_ordered_json.
  static Result<Tools> parse(std::string_view json);

  bool empty() const { return names_.empty(); }
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const { return find(name).has_value(); }
  /// As templates read it: an array of {"type": "function", "function": {…}}.
  const nlohmann::ordered_json& json() const { return json_; }
  ParameterTypes types_of(std::string_view tool, std::string_view parameter) const;

 private:
  std::optional<size_t> find(std::string_view name) const;

  nlohmann::ordered_json json_ = nlohmann::ordered_json::array();
  std::vector<std::string> names_;
};

}  // namespace pumice
