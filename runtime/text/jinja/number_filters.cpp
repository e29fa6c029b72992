// Filters of numbers and of values as a whole.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/printable.hpp"
#include "text/jinja/arguments.hpp"
#include "text/jinja/code_points.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/operations.hpp"

namespace pumice::jinja {
namespace {

Result<Value> absolute(Interpreter&, const Value& input, const Arguments&) {
  if (input.integer() && *input.integer() < 0) {
    return unary_operation(UnaryOp::kNegative, input);
  }
  if (input.integer()) return Value(*input.integer());
  if (input.is_float()) return Value(std::fabs(*input.number()));
  if (input.is_undefined()) return fail("{}", *input.undefined()->why);
  return fail("bad operand type for abs(): '{}'", type_name(input));
}

/// Python's int(text, base) and float(text): spaces around, "_" between digits.
std::string number_text(const std::string& text) {
  std::string kept;
  const std::string_view inside = strip(text, Side::kBoth);
  for (size_t i = 0; i < inside.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < inside.size() && inside[at] >= '0' && inside[at] <= '9';
    };
    if (inside[i] != '_' || i == 0 || !digit(i - 1) || !digit(i + 1)) kept += inside[i];
  }
  return kept;
}

std::optional<int64_t> parse_integer(const std::string& given, int base) {
  const std::string text = number_text(given);
  std::string_view digits = text;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  const std::string_view prefix = base == 16 ? "xX" : base == 8 ? "oO" : base == 2 ? "bB" : "";
  if (digits.size() > 2 && digits[0] == '0' && prefix.find(digits[1]) != prefix.npos) {
    digits.remove_prefix(2);
  }
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  const std::string whole = fmt::format("{}{}", negative ? "-" : "", digits);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(whole.data(), whole.data() + whole.size(), value, base);
  if (error != std::errc() || end != whole.data() + whole.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_float(const std::string& given) {
  const std::string text = number_text(given);
  if (text.empty() || text.find_first_of("xXpP()") != text.npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> truncated(double value) {
  if (!(std::fabs(value) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Result<Value> to_int(Interpreter&, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("int", arguments, {"default", "base"}));
  PUMICE_TRY(const int64_t base, bound.integer(1, 10));
  if (base < 2 || base > 36) return fail("int() base must be >= 2 and <= 36");
  if (input.is_undefined()) return fail("{}", *input.undefined()->why);
  std::optional<int64_t> value = input.integer();
  std::optional<double> number;
  if (input.is_float()) number = input.number();
  if (const std::string* text = input.string()) {
    value = parse_integer(*text, static_cast<int>(base));
    if (!value) number = parse_float(*text);
  }
  if (number && std::isfinite(*number)) {
    value = truncated(*number);
    if (!value) return fail("an integer beyond 64 bits");
  }
  return value ? Value(*value) : bound.value(0, Value(int64_t{0}));
}

Result<Value> to_float(Interpreter&, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("float", arguments, {"default"}));
  if (input.is_undefined()) return fail("{}", *input.undefined()->why);
  std::optional<double> value = input.number();
  if (input.string() != nullptr) value = parse_float(*input.string());
  return value ? Value(*value) : bound.value(0, Value(0.0));
}

/// To `precision` decimals, halves to the even digit as Python's round() does with the exact value.
double rounded(double value, int64_t precision) {
  if (precision > 20 || !std::isfinite(value)) return value;
  if (precision < -300) return 0;
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / scale) * scale;
  }
  return std::strtod(fmt::format("{:.{}f}", value, precision).c_str(), nullptr);
}

Result<Value> round_number(Interpreter&, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("round", arguments, {"precision", "method"}));
  PUMICE_TRY(const int64_t precision, bound.integer(0, 0));
  PUMICE_TRY(const std::string_view method, bound.text(1, "common"));
  if (input.is_undefined()) return fail("{}", *input.undefined()->why);
  if (!input.number()) return fail("type {} doesn't define __round__ method", type_name(input));
  if (method == "common") {
    if (input.integer() && precision >= 0) return Value(*input.integer());
    if (input.integer()) {
      return Value(truncated(rounded(*input.number(), precision)).value_or(0));
    }
    return Value(rounded(*input.number(), precision));
  }
  if (method != "ceil" && method != "floor") {
    return fail("method must be common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *input.number() * scale;
  if (scale == 0 || !std::isfinite(scaled)) return fail("result too large");
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Result<Value> default_value(Interpreter&, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("default", arguments, {"default_value", "boolean"}));
  const bool missing = input.is_undefined() || (bound.truth(1, false) && !is_true(input));
  return missing ? bound.value(0, Value::literal("")) : input;
}

Result<JsonStyle> json_style(const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("tojson", arguments,
                                            {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.truth(0, false);
  style.sort_keys = bound.truth(3, false);
  if (bound.has(1)) {
    PUMICE_TRY(const int64_t indent, bound.integer(1, 0));
    style.indent = static_cast<int>(std::clamp<int64_t>(indent, 0, 1000));
    style.item_separator = ",";
  }
  if (bound.has(2)) {
    const ListData* two = bound[2]->list();
    const bool usable = two != nullptr && two->items.size() == 2 &&
                        two->items[0].string() != nullptr && two->items[1].string() != nullptr;
    if (!usable) return fail("tojson() takes two separators, both strings");
    style.item_separator = *two->items[0].string();
    style.key_separator = *two->items[1].string();
  }
  return style;
}

Result<Value> to_json(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const JsonStyle style, json_style(arguments));
  TextBuilder out(interpreter.budget());
  PUMICE_TRY_STATUS(append_json(out, input, style));
  return interpreter.string(out.take_text());
}

Result<Value> to_string(Interpreter& interpreter, const Value& input, const Arguments&) {
  if (input.string() != nullptr) return input;
  return interpreter.string(interpreter.str(input));
}

Result<Value> attr(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("attr", arguments, {"name"}, 1));
  PUMICE_TRY(const std::string_view name, bound.text(0, ""));
  if (input.dict() == nullptr) return get_attribute(interpreter, input, name);
  // Attributes alone, not items.
  if (auto method = find_method(interpreter, input, name)) return *std::move(method);
  return Value::undefined(fmt::format("'dict object' has no attribute '{}'", printable(name)));
}

Result<Value> file_size(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("filesizeformat", arguments, {"binary"}));
  PUMICE_TRY(const Value number, to_float(interpreter, input, {}));
  const bool binary = bound.truth(0, false);
  const double base = binary ? 1024 : 1000;
  const double bytes = *number.number();
  if (bytes == 1) return Value::literal("1 Byte");
  if (bytes < base) return interpreter.string(fmt::format("{:.0f} Bytes", std::trunc(bytes)));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  while (i + 1 < kPrefixes.size() && bytes >= unit * base) {
    unit *= base;
    ++i;
  }
  const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
  return interpreter.string(fmt::format("{:.1f} {}{}", bytes / unit, prefix, binary ? "iB" : "B"));
}

constexpr std::array kNumberFilters = {
    Filter{"abs", absolute},     Filter{"attr", attr},
    Filter{"d", default_value},  Filter{"default", default_value},
    Filter{"float", to_float},   Filter{"filesizeformat", file_size},
    Filter{"int", to_int},       Filter{"round", round_number},
    Filter{"string", to_string}, Filter{"tojson", to_json},
};

}  // namespace

std::span<const Filter> number_filters() { return kNumberFilters; }

const Filter* find_filter(std::string_view name) {
  for (const auto filters :
       {text_filters(), number_filters(), sequence_filters(), pretty_printing()}) {
    for (const Filter& filter : filters) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace pumice::jinja
