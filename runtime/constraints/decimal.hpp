// Decimal numbers as schemas write them: exact, so that 0.1 is a tenth.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace pumice::schema {

/// (-1)^negative * 0.digits * 10^point; `digits` has no zero at either end. Zero has no digits, is
/// not negative, and its point is 0, so that equal values have equal members.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t point = 0;

  bool is_zero() const { return digits.empty(); }
  bool is_whole() const { return static_cast<int64_t>(digits.size()) <= point || is_zero(); }
  bool operator==(const Decimal&) const = default;
  bool operator<(const Decimal& other) const;
  bool operator<=(const Decimal& other) const { return !(other < *this); }
  Decimal magnitude() const { return {false, digits, point}; }

  /// Digits before the point ("0" if there are none), and behind it (maybe none). Only for points
  /// within kMaxPlaces.
  std::string integer_part() const;
  std::string fraction_part() const;
  /// As JSON, without an exponent.
  std::string text() const;
};

/// Decimals of a larger point, or more digits behind it, are refused where they constrain: their
/// texts would be that long.
constexpr int64_t kMaxPlaces = 400;

/// The value of a JSON number. A double is what its shortest text says, as every writer prints it.
Decimal decimal_of(const nlohmann::ordered_json& number);

/// Whether `value` is a whole number of `unit`, which is not zero. Exact; the time is that of long
/// division, which both's places bound.
bool is_multiple(const Decimal& value, const Decimal& unit);

/// The digits of `unit` scaled by 10^`places` as an integer, if that is whole and below 2^31.
std::optional<uint64_t> scaled(const Decimal& unit, int64_t places);

}  // namespace pumice::schema
