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

template <std::string (*kChange)(std::string_view)>
Result<Value> changed(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("filter", arguments, {}));
  const std::string text = interpreter.str(input);
  interpreter.budget().scan(text.size() + kPatternBytes);
  return interpreter.string(kChange(text));
}

/// The string's method of that name.
Result<Value> method(Interpreter& interpreter, const Value& input, std::string_view name,
                     const Arguments& arguments) {
  const Value text = interpreter.string(interpreter.str(input));
  const std::optional<Value> found = find_method(interpreter, text, name);
  return interpreter.call(*found, arguments);
}

Result<Value> trim(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  return method(interpreter, input, "strip", arguments);
}

Result<Value> center(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("center", arguments, {"width"}));
  return method(interpreter, input, "center",
                {.positional = {bound.value(0, Value(int64_t{80}))}, .named = {}});
}

Result<Value> replace(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("replace", arguments, {"old", "new", "count"}, 2));
  const auto text = [&](size_t i) { return interpreter.string(interpreter.str(*bound[i])); };
  return method(interpreter, input, "replace",
                {.positional = {text(0), text(1), bound.value(2, Value())}, .named = {}});
}

Result<Value> format(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return fail("can't handle positional and keyword arguments at the same time");
  }
  Budget& budget = interpreter.budget();
  DictEntries named;
  for (const auto& [name, value] : arguments.named) {
    named.emplace_back(interpreter.string(name), value);
  }
  const Value values = named.empty() ? make_list(budget, arguments.positional, ListKind::kTuple)
                                     : make_dict(budget, std::move(named));
  PUMICE_TRY(std::string text, percent_format(budget, interpreter.str(input), values));
  return interpreter.string(std::move(text));
}

std::string escaped(Interpreter& interpreter, const Value& input) {
  TextBuilder out(interpreter.budget());
  const std::string text = interpreter.str(input);
  for (size_t at = 0; at < text.size() && !out.full();) {
    const size_t next = std::min(text.find_first_of("&<>'\"", at), text.size());
    out.append(std::string_view(text).substr(at, next - at));
    if (next == text.size()) break;
    const char c = text[next];
    out.append(c == '&'    ? "&amp;"
               : c == '<'  ? "&lt;"
               : c == '>'  ? "&gt;"
               : c == '\'' ? "&#39;"
                           : "&#34;");
    at = next + 1;
  }
  return out.take_text();
}

Result<Value> escape(Interpreter& interpreter, const Value& input, const Arguments&) {
  return interpreter.string(escaped(interpreter, input));
}

/// Names that would end the attribute or the tag are an error.
Result<Value> xml_attributes(Interpreter& interpreter, const Value& input,
                             const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("xmlattr", arguments, {"autospace"}));
  if (input.dict() == nullptr) {
    return fail("'{}' object has no attribute 'items'", type_name(input));
  }
  TextBuilder out(interpreter.budget());
  bool first = true;
  for (const auto& [key, value] : input.dict()->entries) {
    if (out.full()) break;
    if (value.is_none() || value.is_undefined()) continue;
    const std::string* name = key.string();
    if (name == nullptr) return fail("the name of an attribute is {}, not str", type_name(key));
    size_t length = 0;
    for (std::string_view rest = *name; !rest.empty(); rest.remove_prefix(length)) {
      const uint32_t c = decode_code_point(rest, length);
      if (is_space(c) || c == '/' || c == '>' || c == '=') {
        return fail("Invalid character in attribute name: {}", printable(*name, 40));
      }
    }
    if (!first || bound.truth(0, true)) out.append(" ");
    out.append(escaped(interpreter, key) + "=\"" + escaped(interpreter, value) + "\"");
    first = false;
  }
  return interpreter.string(out.take_text());
}

Result<Value> safe(Interpreter& interpreter, const Value& input, const Arguments&) {
  return interpreter.string(interpreter.str(input));
}

Result<Value> indent(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("indent", arguments, {"width", "first", "blank"}));
  std::string by;
  if (bound.has(0) && bound[0]->string() != nullptr) {
    by = *bound[0]->string();
  } else {
    PUMICE_TRY(const int64_t width, bound.integer(0, 4));
    const auto n = static_cast<size_t>(std::max<int64_t>(width, 0));
    if (!interpreter.budget().allows(n)) return interpreter.budget().status().error();
    by.assign(n, ' ');
  }
  const std::string text = interpreter.str(input);
  TextBuilder out(interpreter.budget());
  if (bound.truth(1, false)) out.append(by);
  std::string_view rest = text;
  for (bool first = true; !out.full(); first = false) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (!first && (end > 0 || bound.truth(2, false))) out.append(by);
    out.append(rest.substr(0, end));
    if (end == rest.size()) break;
    out.append("\n");
    rest.remove_prefix(end + 1);
  }
  return interpreter.string(out.take_text());
}

Result<Value> truncate(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound,
             Bound::bind("truncate", arguments, {"length", "killwords", "end", "leeway"}));
  PUMICE_TRY(const int64_t length, bound.integer(0, 255));
  PUMICE_TRY(const std::string_view end, bound.text(2, "..."));
  PUMICE_TRY(const int64_t leeway, bound.integer(3, 5));
  const auto end_length = static_cast<int64_t>(count_code_points(end));
  if (length < end_length) return fail("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) return fail("expected leeway >= 0, got {}", leeway);
  const std::string text = interpreter.str(input);
  const auto own = static_cast<int64_t>(count_code_points(text));
  if (own <= length || own - length <= leeway) return interpreter.string(text);
  std::string_view kept = code_points(text, 0, static_cast<size_t>(length - end_length));
  if (!bound.truth(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return interpreter.string(fmt::format("{}{}", kept, end));
}

Result<Value> word_count(Interpreter& interpreter, const Value& input, const Arguments&) {
  const std::string text = interpreter.str(input);
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

std::string url_quoted(std::string_view text, bool for_query) {
  std::string result;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       (c == '/' && !for_query);
    if (plain) {
      result += c;
    } else if (c == ' ' && for_query) {
      result += '+';
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

Result<Value> url_encode(Interpreter& interpreter, const Value& input, const Arguments&) {
  const bool is_list = input.list() != nullptr || input.dict() != nullptr;
  if (!is_list) return interpreter.string(url_quoted(interpreter.str(input), false));
  TextBuilder out(interpreter.budget());
  std::vector<std::pair<Value, Value>> pairs;
  if (input.dict() != nullptr) {
    pairs = input.dict()->entries;
  } else {
    PUMICE_TRY(const std::vector<Value> items, interpreter.items(input));
    for (const Value& item : items) {
      PUMICE_TRY(const std::vector<Value> two, interpreter.items(item));
      if (two.size() != 2) return fail("urlencode takes pairs");
      pairs.emplace_back(two[0], two[1]);
    }
  }
  for (size_t i = 0; i < pairs.size() && !out.full(); ++i) {
    if (i > 0) out.append("&");
    out.append(url_quoted(interpreter.str(pairs[i].first), true) + "=" +
               url_quoted(interpreter.str(pairs[i].second), true));
  }
  return interpreter.string(out.take_text());
}

constexpr std::array kTextFilters = {
    Filter{"capitalize", changed<capitalize>},
    Filter{"center", center},
    Filter{"e", escape},
    Filter{"escape", escape},
    Filter{"forceescape", escape},
    Filter{"format", format},
    Filter{"indent", indent},
    Filter{"lower", changed<lower>},
    Filter{"replace", replace},
    Filter{"safe", safe},
    Filter{"title", changed<title_sentence>},
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
