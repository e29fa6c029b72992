// "…" % values and "…".format(values), with what templates write: strings, integers, decimals, and
// the width and fill of each. Anything else of Python's formats is an error.
#include <algorithm>
#include <cmath>

#include "base/printable.hpp"
#include "text/jinja/code_points.hpp"
#include "text/jinja/operations.hpp"

namespace pumice::jinja {
namespace {

/// The widest field and longest fraction: enough for any text, too little to exhaust a host.
constexpr int64_t kMaxWidth = 4096;
constexpr int64_t kMaxPrecision = 100;

/// What stands between ":" and "}", or "%" and the letter.
struct Spec {
  std::string_view fill = " ";  ///< of the format
  char align = '\0';            ///< '<', '>', '^', '=' (after the sign) or the type's own
  char sign = '-';
  bool comma = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

Text padded(const Spec& spec, Text text, char own_align) {
  const auto length = static_cast<int64_t>(count_code_points(text));
  if (spec.width <= length) return text;
  const int64_t n = spec.width - length;
  const char align = spec.align == '\0' ? own_align : spec.align;
  int64_t before = align == '<' ? 0 : align == '^' ? n / 2 : n;
  const bool has_sign = align == '=' && (text[0] == '-' || text[0] == '+' || text[0] == ' ');
  Text result(budget_of(text));
  if (has_sign) result += text[0];
  for (int64_t i = 0; i < before; ++i) result += spec.fill;
  result += std::string_view(text).substr(has_sign ? 1 : 0);
  for (; before < n; ++before) result += spec.fill;
  return result;
}

Text signed_text(const Spec& spec, bool negative, Text digits) {
  if (spec.comma) {
    const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
    for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  }
  if (negative) {
    digits.insert(0, 1, '-');
  } else if (spec.sign != '-') {
    digits.insert(0, 1, spec.sign);
  }
  return digits;
}

Text integer_text(Budget& budget, const Spec& spec, int64_t value) {
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  Text digits = spec.type == 'x'   ? formatted(budget, "{:x}", magnitude)
                : spec.type == 'X' ? formatted(budget, "{:X}", magnitude)
                                   : formatted(budget, "{}", magnitude);
  return signed_text(spec, value < 0, std::move(digits));
}

Text float_text(Budget& budget, const Spec& spec, double value) {
  const auto precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  const double magnitude = std::fabs(value);
  Text digits = spec.type == '%' ? formatted(budget, "{:.{}f}%", magnitude * 100, precision)
                                 : formatted(budget, "{:.{}f}", magnitude, precision);
  return signed_text(spec, std::signbit(value) && !std::isnan(value), std::move(digits));
}

Result<int64_t> take_number(std::string_view& text, int64_t limit) {
  int64_t number = 0;
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    number = number * 10 + (text.front() - '0');
    if (number > limit) return fail("a field of a format is at most {} wide", limit);
    text.remove_prefix(1);
  }
  return number;
}

/// A value by the rules of format(): those of its type, or what the letter asks for.
Result<Text> field_text(Budget& budget, const Spec& spec, const Value& value) {
  constexpr std::string_view kInteger = "dxX";
  constexpr std::string_view kFloat = "fF%";
  const bool as_float = kFloat.find(spec.type) != kFloat.npos;
  if (value.number() && spec.type != 's') {
    const bool as_integer = kInteger.find(spec.type) != kInteger.npos;
    if (as_integer && !value.integer()) {
      return fail("unknown format code '{}' for object of type 'float'", spec.type);
    }
    if (value.integer() && !as_float && (as_integer || !value.is_bool())) {
      return padded(spec, integer_text(budget, spec, *value.integer()), '>');
    }
    if (value.is_float() && !as_float && spec.precision < 0) {
      const double number = *value.number();
      return padded(spec,
                    signed_text(spec, std::signbit(number), str(budget, Value(std::fabs(number)))),
                    '>');
    }
    if (as_float) return padded(spec, float_text(budget, spec, *value.number()), '>');
    if (value.is_float()) return fail("a float with a precision is formatted by f or %");
  } else if (as_float || (spec.type != '\0' && spec.type != 's')) {
    return fail("unknown format code '{}' for object of type '{}'", spec.type, type_name(value));
  }
  Text text = str(budget, value);
  if (spec.precision >= 0) {
    text.resize(code_points(text, 0, static_cast<size_t>(spec.precision)).size());
  }
  return padded(spec, std::move(text), '<');
}

/// [[fill]align][sign][0][width][,][.precision][type]
Result<Spec> parse_spec(std::string_view text) {
  constexpr std::string_view kAligns = "<>^=";
  Spec spec;
  const size_t first = text.empty() ? 0 : code_point_bytes(text);
  if (text.size() > first && kAligns.find(text[first]) != kAligns.npos) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && kAligns.find(text[0]) != kAligns.npos) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  const auto skip = [&](char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
  };
  for (const char sign : {'+', ' ', '-'}) {
    if (skip(sign)) spec.sign = sign;
  }
  if (skip('0') && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  PUMICE_TRY(spec.width, take_number(text, kMaxWidth));
  spec.comma = skip(',');
  if (skip('.')) {
    PUMICE_TRY(spec.precision, take_number(text, kMaxPrecision));
  }
  if (!text.empty()) {
    spec.type = text.front();
    text.remove_prefix(1);
  }
  if (!text.empty() || std::string_view("\0dxXfF%s", 8).find(spec.type) == text.npos) {
    return fail("invalid format specifier");
  }
  return spec;
}

/// The values that a % format takes, one after the other.
class PercentValues {
 public:
  PercentValues(Budget& budget, const Value& given) : budget_(budget), given_(given) {
    const ListData* list = given.list();
    if (list != nullptr && list->kind() == ListKind::kTuple) tuple_ = list;
  }

  Result<Value> next() {
    if (tuple_ == nullptr && at_ == 0) return ++at_, given_;
    if (tuple_ == nullptr || at_ == tuple_->size()) {
      return fail("not enough arguments for format string");
    }
    return tuple_->at(budget_, at_++);
  }

  Result<Value> named(std::string_view name) {
    if (given_.dict() == nullptr) return fail("format requires a mapping");
    const Value* found = given_.dict()->find(budget_, name);
    if (found == nullptr) return fail("the format's key '{}' is missing", printable(name, 40));
    at_ = 1;
    return *found;
  }

  /// What can be indexed may be left, as Python takes it for a mapping.
  bool all_taken(bool format_is_safe) const {
    if (tuple_ != nullptr) return at_ == tuple_->size();
    const bool is_indexed = given_.dict() != nullptr || (format_is_safe && given_.is_undefined()) ||
                            (given_.list() != nullptr && given_.list()->has_index());
    return at_ > 0 || is_indexed;
  }

 private:
  Budget& budget_;
  const Value& given_;
  const ListData* tuple_ = nullptr;
  size_t at_ = 0;
};

/// What follows "%": flags, width, precision; `text` is then at the letter.
Result<Spec> percent_spec(std::string_view& text) {
  Spec spec;
  for (; !text.empty() && std::string_view("-+ 0").find(text.front()) != text.npos;
       text.remove_prefix(1)) {
    const char flag = text.front();
    if (flag == '-') spec.align = '<';
    if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
    if (flag == '0' && spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  if (spec.align == '<') spec.fill = " ";
  PUMICE_TRY(spec.width, take_number(text, kMaxWidth));
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    PUMICE_TRY(spec.precision, take_number(text, kMaxPrecision));
  }
  return spec;
}

/// Of a safe format, what it prints is escaped.
Result<Text> percent_field(Budget& budget, Spec spec, char letter, const Value& value,
                           bool escapes) {
  if (spec.align == '\0') spec.align = '>';
  if (letter == 's' || letter == 'r') {
    if (spec.align == '=') spec.align = '>', spec.fill = " ";
    spec.type = 's';
    const Value shown = letter == 'r' ? make_string(repr(budget, value)) : value;
    return field_text(budget, spec, escapes ? escape(budget, shown) : shown);
  }
  if (std::string_view("dixXfF").find(letter) == std::string_view::npos) {
    return fail("unsupported format character '{}'", printable({&letter, 1}));
  }
  if (!value.number()) {
    if (value.is_undefined()) return value.why_undefined();
    return fail("%{} format: a number is required, not {}", letter, type_name(value));
  }
  if (letter == 'd' || letter == 'i') {
    const double number = *value.number();
    if (!value.integer() && !(std::fabs(number) < 9.2e18)) return fail("cannot convert to integer");
    spec.type = 'd';
    return field_text(budget, spec,
                      Value(value.integer() ? *value.integer() : static_cast<int64_t>(number)));
  }
  const bool as_integer = letter == 'x' || letter == 'X';
  if (as_integer && (escapes || !value.integer())) {
    return fail("%{} format: an integer is required, not {}", letter, type_name(value));
  }
  spec.type = letter;
  return field_text(budget, spec, value);
}

}  // namespace

Result<Value> percent_format(Budget& budget, const Value& given, const Value& arguments) {
  Text out(budget);
  PercentValues values(budget, arguments);
  std::string_view format = given.text(budget);
  while (true) {
    const size_t at = std::min(format.find('%'), format.size());
    out += format.substr(0, at);
    format.remove_prefix(at);
    if (format.empty()) break;
    format.remove_prefix(1);
    budget.step();
    std::optional<std::string_view> name;
    if (format.starts_with('(')) {
      const size_t end = format.find(')');
      if (end == format.npos) return fail("incomplete format key");
      name = format.substr(1, end - 1);
      format.remove_prefix(end + 1);
    }
    PUMICE_TRY(const Spec spec, percent_spec(format));
    if (format.empty()) return fail("incomplete format");
    const char letter = format.front();
    format.remove_prefix(1);
    if (letter == '%') {
      out += '%';
      continue;
    }
    PUMICE_TRY(const Value value, name ? values.named(*name) : values.next());
    PUMICE_TRY(const Text field, percent_field(budget, spec, letter, value, given.is_safe()));
    out += field;
  }
  if (!values.all_taken(given.is_safe()))
    return fail("not all arguments converted during string formatting");
  return make_string(std::move(out), given.is_safe());
}

namespace {

/// The values that a format with braces takes: by position, by name, or the next.
class BraceValues {
 public:
  explicit BraceValues(const Arguments& arguments) : arguments_(arguments) {}

  Result<Value> value(std::string_view field) {
    const bool is_position =
        field.size() < 10 && field.find_first_not_of("0123456789") == field.npos;
    if (!is_position) {
      if (const Value* value = arguments_.find(field)) return *value;
      if (field.find_first_of(".[") != field.npos) {
        return fail("a field of a format has a position or a name, and nothing behind it");
      }
      return fail("the format's key '{}' is missing", printable(field, 40));
    }
    size_t i = 0;
    for (const char c : field) i = i * 10 + static_cast<size_t>(c - '0');
    if (field.empty()) i = next_++;
    if (i < arguments_.positional.size()) return arguments_.positional[i];
    return fail("replacement index {} out of range for positional args tuple", i);
  }

 private:
  const Arguments& arguments_;
  size_t next_ = 0;
};

/// A field by its spec; of a safe format escaped.
Result<Value> brace_field(Budget& budget, const Spec& spec, bool has_spec, const Value& value,
                          bool escapes) {
  if (escapes && value.is_safe()) {
    if (has_spec) return fail("Unsupported format specification for Markup.");
    return value;
  }
  if (has_spec && !value.is_string() && !value.number()) {
    return fail("unsupported format string passed to {}.__format__", type_name(value));
  }
  if (spec.type == 's' && value.number()) {
    return fail("unknown format code 's' for object of type '{}'", type_name(value));
  }
  PUMICE_TRY(Text text, field_text(budget, spec, value));
  const Value field = make_string(std::move(text));
  return escapes ? escape(budget, field) : field;
}

}  // namespace

Result<Value> brace_format(Interpreter& interpreter, const Value& given,
                           const Arguments& arguments) {
  Budget& budget = interpreter.budget();
  Text out(budget);
  BraceValues values(arguments);
  std::string_view format = given.text(budget);
  while (true) {
    budget.step();
    const size_t at = std::min(format.find_first_of("{}"), format.size());
    out += format.substr(0, at);
    format.remove_prefix(at);
    if (format.empty()) break;
    const char brace = format.front();
    format.remove_prefix(1);
    if (format.starts_with(brace)) {  // doubled: itself
      out += brace;
      format.remove_prefix(1);
      continue;
    }
    const size_t end = format.find('}');
    if (brace == '}' || end == format.npos) return fail("single '{}' in a format string", brace);
    std::string_view field = format.substr(0, end);
    format.remove_prefix(end + 1);
    if (field.find('{') != field.npos) return fail("nested fields in a format string");
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec_text = field.substr(std::min(colon + 1, field.size()));
    PUMICE_TRY(const Spec spec, parse_spec(spec_text));
    field = field.substr(0, colon);
    const size_t mark = field.find('!');
    PUMICE_TRY(Value value, values.value(field.substr(0, mark)));
    const std::string_view conversion = mark == field.npos ? "" : field.substr(mark + 1);
    if (conversion == "r") {
      value = make_string(repr(budget, value));
    } else if (conversion == "s") {
      value = make_string(str(budget, value));
    } else if (!conversion.empty()) {
      return fail("unknown conversion specifier in a format string");
    }
    PUMICE_TRY(value, brace_field(budget, spec, !spec_text.empty(), value, given.is_safe()));
    append_str(out, value);
  }
  return make_string(std::move(out), given.is_safe());
}

}  // namespace pumice::jinja
