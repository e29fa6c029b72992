#include "constraints/decimal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace pumice::schema {
namespace {

bool below(const std::string& a_digits, int64_t a_point, const std::string& b_digits,
           int64_t b_point) {
  if (a_digits.empty() || b_digits.empty()) return a_digits.empty() && !b_digits.empty();
  return a_point != b_point ? a_point < b_point : a_digits < b_digits;
}

/// `a` - `b` of strings of digits without leading zeros, a >= b.
std::string subtracted(std::string a, const std::string& b) {
  int borrow = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    char& digit = a[a.size() - 1 - i];
    int value = digit - '0' - borrow - (i < b.size() ? b[b.size() - 1 - i] - '0' : 0);
    borrow = value < 0 ? 1 : 0;
    digit = static_cast<char>('0' + value + 10 * borrow);
  }
  a.erase(0, a.find_first_not_of('0'));
  return a;
}

bool not_less(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() > b.size() : a >= b;
}

}  // namespace

bool Decimal::operator<(const Decimal& other) const {
  if (negative != other.negative) return negative;
  return negative ? below(other.digits, other.point, digits, point)
                  : below(digits, point, other.digits, other.point);
}

std::string Decimal::integer_part() const {
  if (point <= 0) return "0";
  std::string part = digits.substr(0, static_cast<size_t>(point));
  part.resize(static_cast<size_t>(point), '0');
  return part;
}

std::string Decimal::fraction_part() const {
  if (is_zero()) return "";
  if (point <= 0) return std::string(static_cast<size_t>(-point), '0') + digits;
  return static_cast<size_t>(point) < digits.size() ? digits.substr(static_cast<size_t>(point))
                                                    : "";
}

std::string Decimal::text() const {
  const std::string fraction = fraction_part();
  return fmt::format("{}{}{}{}", negative ? "-" : "", integer_part(), fraction.empty() ? "" : ".",
                     fraction);
}

Decimal decimal_of(const nlohmann::ordered_json& number) {
  std::string text = number.dump();
  Decimal value;
  value.negative = text.starts_with('-');
  if (value.negative) text.erase(0, 1);
  if (const size_t e = text.find_first_of("eE"); e != std::string::npos) {
    const char* const first = text.data() + e + 1 + (text[e + 1] == '+' ? 1 : 0);
    std::from_chars(first, text.data() + text.size(), value.point);
    text.resize(e);
  }
  const size_t dot = std::min(text.find('.'), text.size());
  value.point += static_cast<int64_t>(dot);
  if (dot < text.size()) text.erase(dot, 1);
  const size_t first = text.find_first_not_of('0');
  if (first == std::string::npos) return {};
  value.point -= static_cast<int64_t>(first);
  value.digits = text.substr(first, text.find_last_not_of('0') + 1 - first);
  return value;
}

bool is_multiple(const Decimal& value, const Decimal& unit) {
  // Both as integers of the smaller last place.
  const int64_t last = std::min(value.point - static_cast<int64_t>(value.digits.size()),
                                unit.point - static_cast<int64_t>(unit.digits.size()));
  const auto integer = [&](const Decimal& d) {
    return d.digits +
           std::string(static_cast<size_t>(d.point - static_cast<int64_t>(d.digits.size()) - last),
                       '0');
  };
  if (value.is_zero()) return true;
  const std::string divisor = integer(unit);
  std::string rest;
  for (const char digit : integer(value)) {
    if (!rest.empty() || digit != '0') rest += digit;
    while (not_less(rest, divisor)) rest = subtracted(rest, divisor);
  }
  return rest.empty();
}

std::optional<uint64_t> scaled(const Decimal& unit, int64_t places) {
  const int64_t n_digits = unit.point + places;
  if (n_digits < static_cast<int64_t>(unit.digits.size()) || n_digits > 9) return std::nullopt;
  uint64_t value = 0;
  for (int64_t i = 0; i < n_digits; ++i) {
    value = value * 10 + (i < static_cast<int64_t>(unit.digits.size())
                              ? static_cast<uint64_t>(unit.digits[static_cast<size_t>(i)] - '0')
                              : 0);
  }
  return value;
}

}  // namespace pumice::schema
