// Filters of text. Whatever is no string is printed first.
#include <algorithm>
#include <array>

#include "base/printable.hpp"
#include "text/jinja/arguments.hpp"
#include "text/jinja/code_points.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/operations.hpp"

namespace pumice::jinja {
namespace {

template <Text (*kChange)(Budget&, std::string_view)>
Result<Value> changed(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY_STATUS(Bound::none("filter", arguments));
  Budget& budget = interpreter.budget();
  const Value text = soft_str(budget, input);
  return make_string(kChange(budget, text.text(budget)), text.is_safe());
}

/// Jinja2 joins the words of a title anew, which are then no longer safe.
Result<Value> title(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY_STATUS(Bound::none("title", arguments));
  return make_string(title_sentence(interpreter.budget(), interpreter.str(input)));
}

/// The string's method of that name.
Result<Value> method(Interpreter& interpreter, const Value& string, std::string_view name,
                     const Arguments& arguments) {
  const std::optional<Value> found = find_method(interpreter, string, name);
  return interpreter.call(*found, arguments);
}

Result<Value> trim(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  return method(interpreter, soft_str(interpreter.budget(), input), "strip", arguments);
}

Result<Value> center(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("center", arguments, {"width"}));
  return method(interpreter, soft_str(interpreter.budget(), input), "center",
                Arguments(interpreter.budget(), {bound.value(0, Value(int64_t{80}))}));
}

/// Without autoescape of plain text, whatever is safe.
Result<Value> replace(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("replace", arguments, {"old", "new", "count"}, 2));
  const auto plain = [&](const Value& value) { return make_string(interpreter.str(value)); };
  return method(interpreter, plain(input), "replace",
                Arguments(interpreter.budget(),
                          {plain(*bound[0]), plain(*bound[1]), bound.value(2, Value())}));
}

Result<Value> format(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return fail("can't handle positional and keyword arguments at the same time");
  }
  Budget& budget = interpreter.budget();
  Entries named(budget);
  for (const auto& [name, value] : arguments.named) {
    named.emplace_back(interpreter.string(name), value);
  }
  const Value values = named.empty() ? make_list(Values(arguments.positional), ListKind::kTuple)
                                     : make_dict(std::move(named));
  return percent_format(budget, soft_str(budget, input), values);
}

Result<Value> escaped(Interpreter& interpreter, const Value& input, const Arguments&) {
  return escape(interpreter.budget(), input);
}

/// Also what is safe already.
Result<Value> escaped_anew(Interpreter& interpreter, const Value& input, const Arguments&) {
  return escape(interpreter.budget(), make_string(interpreter.str(input)));
}

/// Names that would end the attribute or the tag are an error.
Result<Value> xml_attributes(Interpreter& interpreter, const Value& input,
                             const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("xmlattr", arguments, {"autospace"}));
  if (input.dict() == nullptr) {
    return fail("'{}' object has no attribute 'items'", type_name(input));
  }
  Budget& budget = interpreter.budget();
  Text out(budget);
  bool first = true;
  for (const auto& [key, value] : input.dict()->entries(budget)) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string()) {
      return fail("the name of an attribute is {}, not str", type_name(key));
    }
    const std::string_view name = key.text(budget);
    size_t length = 0;
    for (std::string_view rest = name; !rest.empty(); rest.remove_prefix(length)) {
      const uint32_t c = decode_code_point(rest, length);
      if (is_space(c) || c == '/' || c == '>' || c == '=') {
        return fail("Invalid character in attribute name: {}", printable(name, 40));
      }
    }
    if (!first || bound.truth(0, true)) out += ' ';
    append_escaped(out, key);
    out += "=\"";
    append_escaped(out, value);
    out += '"';
    first = false;
  }
  return make_string(std::move(out));
}

/// Markup(value): as safe as it says it is.
Result<Value> safe(Interpreter& interpreter, const Value& input, const Arguments&) {
  return input.is_safe() ? input : make_string(interpreter.str(input), true);
}

Result<Value> indent(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("indent", arguments, {"width", "first", "blank"}));
  if (input.is_undefined()) return input.why_undefined();
  if (!input.is_string()) {
    return fail("unsupported operand type(s) for +=: '{}' and 'str'", type_name(input));
  }
  Budget& budget = interpreter.budget();
  const Value& text = input;
  Text by(budget);
  if (bound.has(0) && bound[0]->is_string()) {
    by = interpreter.str(*bound[0]);
  } else {
    PUMICE_TRY(const int64_t width, bound.integer(0, 4));
    by.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  // With a newline behind it, so that one at its end has an empty line after it.
  const Value longer = joined(budget, text, Value::borrowed("\n"));
  const Value lines = split_lines(budget, longer, false);
  Text out(budget);
  bool first = true;
  for (const Value& line : lines.list()->items(budget)) {
    const bool indents =
        first ? bound.truth(1, false) : line.n_bytes() > 0 || bound.truth(2, false);
    if (!std::exchange(first, false)) out += '\n';
    if (indents) out += by;
    append_str(out, line);
  }
  return make_string(std::move(out), text.is_safe());
}

Result<Value> truncate(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound,
             Bound::bind("truncate", arguments, {"length", "killwords", "end", "leeway"}));
  PUMICE_TRY(const int64_t length, bound.integer(0, 255));
  PUMICE_TRY(const std::string_view end_text, bound.text(2, "..."));
  PUMICE_TRY(const int64_t leeway, bound.integer(3, 5));
  const auto end_length = static_cast<int64_t>(count_code_points(end_text));
  if (length < end_length) return fail("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) return fail("expected leeway >= 0, got {}", leeway);
  Budget& budget = interpreter.budget();
  PUMICE_TRY(const Value own_length, length_of(budget, input));
  const int64_t own = *own_length.integer();
  if (own <= length || own - length <= leeway) return input;
  if (!input.is_string()) return fail("can only truncate a string, not '{}'", type_name(input));
  const std::string_view text = input.text(budget);
  std::string_view kept = code_points(text, 0, static_cast<size_t>(length - end_length));
  if (!bound.truth(1, false)) kept = kept.substr(0, kept.rfind(' '));
  const Value end = bound.has(2) ? *bound[2] : Value::borrowed(end_text);
  return joined(budget, copy_string(budget, kept, input.is_safe()), end);
}

Result<Value> word_count(Interpreter& interpreter, const Value& input, const Arguments&) {
  const Text text = interpreter.str(input);
  int64_t n = 0;
  bool inside = false;
  for (const char c : text) {
    const bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                        (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
    n += letter && !inside ? 1 : 0;
    inside = letter;
  }
  return Value(n);
}

void append_url_quoted(Text& out, const Value& value, bool for_query) {
  for (const char c : str(budget_of(out), value)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       (c == '/' && !for_query);
    if (plain) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
}

Result<Value> url_encode(Interpreter& interpreter, const Value& input, const Arguments&) {
  Budget& budget = interpreter.budget();
  Text out(budget);
  if (input.list() == nullptr && input.dict() == nullptr) {
    append_url_quoted(out, input, false);
    return make_string(std::move(out));
  }
  Entries pairs(budget);
  if (input.dict() != nullptr) {
    pairs = input.dict()->entries(budget);
  } else {
    PUMICE_TRY(const Values items, interpreter.items(input));
    for (const Value& item : items) {
      PUMICE_TRY(const Values two, interpreter.items(item));
      if (two.size() != 2) return fail("urlencode takes pairs");
      pairs.emplace_back(two[0], two[1]);
    }
  }
  bool first = true;
  for (const auto& [name, value] : pairs) {
    if (!std::exchange(first, false)) out += '&';
    append_url_quoted(out, name, true);
    out += '=';
    append_url_quoted(out, value, true);
  }
  return make_string(std::move(out));
}

constexpr std::array kTextFilters = {
    Filter{"capitalize", changed<capitalize>},
    Filter{"center", center},
    Filter{"e", escaped},
    Filter{"escape", escaped},
    Filter{"forceescape", escaped_anew},
    Filter{"format", format},
    Filter{"indent", indent},
    Filter{"lower", changed<lower>},
    Filter{"replace", replace},
    Filter{"safe", safe},
    Filter{"title", title},
    Filter{"trim", trim},
    Filter{"truncate", truncate},
    Filter{"upper", changed<upper>},
    Filter{"urlencode", url_encode},
    Filter{"wordcount", word_count},
    Filter{"xmlattr", xml_attributes},
};

}  // namespace

std::span<const Filter> text_filters() { return kTextFilters; }

}  // namespace pumice::jinja
