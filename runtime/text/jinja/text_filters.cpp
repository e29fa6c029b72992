// Filters of text. Whatever is no string is printed first.
#include <algorithm>
#include <array>

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

constexpr std::array kTextFilters = {
    Filter{"capitalize", changed<capitalize>},
    Filter{"e", escaped},
    Filter{"escape", escaped},
    Filter{"format", format},
    Filter{"indent", indent},
    Filter{"lower", changed<lower>},
    Filter{"replace", replace},
    Filter{"safe", safe},
    Filter{"title", title},
    Filter{"trim", trim},
    Filter{"truncate", truncate},
    Filter{"upper", changed<upper>},
};

}  // namespace

std::span<const Filter> text_filters() { return kTextFilters; }

}  // namespace pumice::jinja
