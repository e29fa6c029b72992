// Filters of numbers and of values as a whole.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "base/ascii.hpp"
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
  if (input.is_undefined()) return input.why_undefined();
  return fail("bad operand type for abs(): '{}'", type_name(input));
}

/// Python's int(text, base) and float(text): spaces around, "_" between digits.
Text number_text(Budget& budget, const Value& text) {
  Text kept(budget);
  const std::string_view inside = strip_spaces(text.text(budget), Side::kBoth);
  for (size_t i = 0; i < inside.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < inside.size() && inside[at] >= '0' && inside[at] <= '9';
    };
    if (inside[i] != '_' || i == 0 || !digit(i - 1) || !digit(i + 1)) kept += inside[i];
  }
  return kept;
}

std::optional<int64_t> parse_integer(Budget& budget, const Value& given, int base) {
  Text text = number_text(budget, given);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.erase(0, 1);
  const std::string_view prefix = base == 16 ? "xX" : base == 8 ? "oO" : base == 2 ? "bB" : "";
  if (text.size() > 2 && text[0] == '0' && prefix.find(text[1]) != prefix.npos) text.erase(0, 2);
  if (text.empty() || text[0] == '-') return std::nullopt;
  if (negative) text.insert(0, 1, '-');
  return parse_whole<int64_t>(text, base);
}

std::optional<double> parse_float(Budget& budget, const Value& given) {
  const Text text = number_text(budget, given);
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

Result<Value> to_int(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("int", arguments, {"default", "base"}));
  PUMICE_TRY(const int64_t base, bound.integer(1, 10));
  if (base < 2 || base > 36) return fail("int() base must be >= 2 and <= 36");
  if (input.is_undefined()) return input.why_undefined();
  std::optional<int64_t> value = input.integer();
  std::optional<double> number;
  if (input.is_float()) number = input.number();
  if (input.is_string()) {
    Budget& budget = interpreter.budget();
    value = parse_integer(budget, input, static_cast<int>(base));
    if (!value) number = parse_float(budget, input);
  }
  if (number && std::isfinite(*number)) {
    value = truncated(*number);
    if (!value) return fail("an integer beyond 64 bits");
  }
  return value ? Value(*value) : bound.value(0, Value(int64_t{0}));
}

Result<Value> to_float(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("float", arguments, {"default"}));
  if (input.is_undefined()) return input.why_undefined();
  std::optional<double> value = input.number();
  if (input.is_string()) value = parse_float(interpreter.budget(), input);
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
  std::array<char, 400> digits{};  // 309, a point, 20
  fmt::format_to_n(digits.data(), digits.size() - 1, "{:.{}f}", value, precision);
  return std::strtod(digits.data(), nullptr);
}

Result<Value> round_number(Interpreter&, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("round", arguments, {"precision", "method"}));
  PUMICE_TRY(const int64_t precision, bound.integer(0, 0));
  PUMICE_TRY(const std::string_view method, bound.text(1, "common"));
  if (input.is_undefined()) return input.why_undefined();
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
  return missing ? bound.value(0, Value::borrowed("")) : input;
}

Result<JsonStyle> json_style(Budget& budget, const Arguments& arguments) {
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
    const bool usable = two != nullptr && two->size() == 2 && two->at(budget, 0).is_string() &&
                        two->at(budget, 1).is_string();
    if (!usable) return fail("tojson() takes two separators, both strings");
    style.item_separator = two->at(budget, 0).text(budget);
    style.key_separator = two->at(budget, 1).text(budget);
  }
  return style;
}

/// That of transformers, whose text is not safe.
Result<Value> to_json(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const JsonStyle style, json_style(interpreter.budget(), arguments));
  Text out(interpreter.budget());
  PUMICE_TRY_STATUS(append_json(out, input, style));
  return make_string(std::move(out));
}

Result<Value> to_string(Interpreter& interpreter, const Value& input, const Arguments&) {
  return soft_str(interpreter.budget(), input);
}

Result<Value> attr(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("attr", arguments, {"name"}, 1));
  PUMICE_TRY(const std::string_view name, bound.text(0, ""));
  if (input.dict() == nullptr) return get_attribute(interpreter, input, name);
  // Attributes alone, not items.
  if (auto method = find_method(interpreter, input, name)) return *std::move(method);
  return interpreter.undefined(fmt::format("'dict object' has no attribute '{}'", printable(name)));
}

constexpr std::array kNumberFilters = {
    Filter{"abs", absolute},          Filter{"attr", attr},        Filter{"d", default_value},
    Filter{"default", default_value}, Filter{"float", to_float},   Filter{"int", to_int},
    Filter{"round", round_number},    Filter{"string", to_string}, Filter{"tojson", to_json},
};

}  // namespace

std::span<const Filter> number_filters() { return kNumberFilters; }

const Filter* find_filter(std::string_view name) {
  for (const auto filters : {text_filters(), number_filters(), sequence_filters()}) {
    for (const Filter& filter : filters) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace pumice::jinja
