// Methods of strings, lists and dicts, and which of them the sandbox forbids.
#include <algorithm>
#include <array>

#include "text/jinja/arguments.hpp"
#include "text/jinja/code_points.hpp"
#include "text/jinja/objects.hpp"
#include "text/jinja/operations.hpp"

namespace pumice::jinja {
namespace {

struct Method {
  std::string_view name;
  BoundMethod::Body body;
};

using Parts = std::vector<std::string_view, Paid<std::string_view>>;

std::string_view text_of(Interpreter& interpreter, const Value& self) {
  return self.text(interpreter.budget());
}

/// Parts of `self`, safe if it is.
Value part_of(Interpreter& interpreter, const Value& self, std::string_view part) {
  return copy_string(interpreter.budget(), part, self.is_safe());
}

Value parts_of(const Value& self, const Parts& parts, ListKind kind = ListKind::kList) {
  Budget& budget = budget_of(parts);
  Values items(budget);
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    items.push_back(copy_string(budget, part, self.is_safe()));
  }
  return make_list(std::move(items), kind);
}

template <Text (*kChange)(Budget&, std::string_view)>
Result<Value> changed(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY_STATUS(Bound::none("method", arguments));
  return make_string(kChange(interpreter.budget(), text_of(interpreter, self)), self.is_safe());
}

template <Side kSide>
Result<Value> stripped(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("strip", arguments, {"chars"}));
  PUMICE_TRY(const std::string_view characters, bound.text(0, ""));
  const std::string_view text = text_of(interpreter, self);
  return part_of(interpreter, self,
                 bound.has(0) ? strip(interpreter.budget(), text, kSide, characters)
                              : strip_spaces(text, kSide));
}

Parts split_at_spaces(Budget& budget, std::string_view text, int64_t max_splits) {
  Parts parts(budget);
  text = strip_spaces(text, Side::kLeft);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.push_back(text);
      break;
    }
    size_t at = 0;
    for (size_t length = 0; at < text.size(); at += length) {
      if (is_space(decode_code_point(text.substr(at), length))) break;
    }
    parts.push_back(text.substr(0, at));
    text = strip_spaces(text.substr(at), Side::kLeft);
  }
  return parts;
}

Parts split_right_at_spaces(Budget& budget, std::string_view text, int64_t max_splits) {
  Parts parts = split_at_spaces(budget, text, -1);
  const auto n_parts = static_cast<int64_t>(parts.size());
  if (max_splits < 0 || n_parts <= max_splits) return parts;
  // What is not split off is one part, its spaces inside and before it.
  const std::string_view last = parts[static_cast<size_t>(n_parts - 1 - max_splits)];
  parts.erase(parts.begin(), parts.begin() + (n_parts - max_splits));
  parts.insert(parts.begin(),
               text.substr(0, static_cast<size_t>(last.data() + last.size() - text.data())));
  return parts;
}

Parts split_at_text(Budget& budget, std::string_view text, std::string_view separator,
                    int64_t max_splits) {
  Parts parts(budget);
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    const size_t at = find_text(budget, text, separator);
    if (at == text.npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

/// The same from the end, by splitting what it reads backwards.
Parts split_right_at_text(Budget& budget, std::string_view text, std::string_view separator,
                          int64_t max_splits) {
  const Text reversed = backwards(budget, text);
  Parts parts = split_at_text(budget, reversed, backwards(budget, separator), max_splits);
  for (std::string_view& part : parts) {
    const auto before = static_cast<size_t>(part.data() - reversed.data());
    part = text.substr(text.size() - before - part.size(), part.size());
  }
  std::ranges::reverse(parts);
  return parts;
}

template <bool kFromRight>
Result<Value> split(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("split", arguments, {"sep", "maxsplit"}));
  PUMICE_TRY(const std::string_view separator, bound.text(0, ""));
  PUMICE_TRY(const int64_t max_splits, bound.integer(1, -1));
  if (bound.has(0) && separator.empty()) return fail("empty separator");
  Budget& budget = interpreter.budget();
  const std::string_view text = self.text(budget);
  if (bound.has(0)) {
    return parts_of(self, kFromRight ? split_right_at_text(budget, text, separator, max_splits)
                                     : split_at_text(budget, text, separator, max_splits));
  }
  return parts_of(self, kFromRight ? split_right_at_spaces(budget, text, max_splits)
                                   : split_at_spaces(budget, text, max_splits));
}

template <bool kFromRight>
Result<Value> partition(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("partition", arguments, {"sep"}, 1));
  PUMICE_TRY(const std::string_view separator, bound.text(0, ""));
  if (separator.empty()) return fail("empty separator");
  Budget& budget = interpreter.budget();
  const std::string_view text = self.text(budget);
  const size_t at =
      kFromRight ? rfind_text(budget, text, separator) : find_text(budget, text, separator);
  Parts parts({text, "", ""}, budget);
  if (at != text.npos) {
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  } else if (kFromRight) {
    parts = {"", "", text};
  }
  return parts_of(self, parts, ListKind::kTuple);
}

Result<Value> splitlines(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("splitlines", arguments, {"keepends"}));
  return split_lines(interpreter.budget(), self, bound.truth(0, false));
}

template <bool kAtEnd>
bool has_affix(Budget& budget, const Value& self, const Value& affix) {
  const size_t n_bytes = affix.n_bytes();
  return (kAtEnd ? self.tail(budget, n_bytes) : self.head(budget, n_bytes)) == affix.text(budget);
}

template <bool kAtEnd>
Result<Value> begins_or_ends(Interpreter& interpreter, const Value& self,
                             const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("startswith", arguments, {"prefix"}, 1));
  Budget& budget = interpreter.budget();
  if (bound[0]->is_string()) return Value(has_affix<kAtEnd>(budget, self, *bound[0]));
  const ListData* several = bound[0]->list();
  if (several == nullptr || several->kind() != ListKind::kTuple) {
    return fail("the first argument must be str or a tuple of str, not {}", type_name(*bound[0]));
  }
  for (const Value& affix : several->items(budget)) {
    if (affix.is_string() && has_affix<kAtEnd>(budget, self, affix)) return Value(true);
  }
  return Value(false);
}

template <bool kAtEnd>
Result<Value> remove_affix(Interpreter& interpreter, const Value& self,
                           const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("removeprefix", arguments, {"prefix"}, 1));
  PUMICE_TRY(const std::string_view affix, bound.text(0, ""));
  if (!has_affix<kAtEnd>(interpreter.budget(), self, *bound[0])) return self;
  std::string_view text = text_of(interpreter, self);
  if (kAtEnd) {
    text.remove_suffix(affix.size());
  } else {
    text.remove_prefix(affix.size());
  }
  return part_of(interpreter, self, text);
}

/// What replaces is escaped in safe text.
Result<Value> replace(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("replace", arguments, {"old", "new", "count"}, 2));
  PUMICE_TRY(const std::string_view before, bound.text(0, ""));
  PUMICE_TRY(std::string_view after, bound.text(1, ""));
  PUMICE_TRY(const int64_t count, bound.integer(2, -1));
  Budget& budget = interpreter.budget();
  Value escaped;
  if (self.is_safe() && bound.has(1)) {
    escaped = escape(budget, *bound[1]);
    after = escaped.text(budget);
  }
  std::string_view text = self.text(budget);
  Text out(budget);
  for (int64_t n = 0; count < 0 || n < count; ++n) {
    if (before.empty()) {  // before every character and at the end
      budget.step();
      out += after;
      if (text.empty()) return make_string(std::move(out), self.is_safe());
      out += code_points(text, 0, 1);
      text.remove_prefix(code_point_bytes(text));
      continue;
    }
    const size_t at = find_text(budget, text, before);
    if (at == text.npos) break;
    out += text.substr(0, at);
    out += after;
    text.remove_prefix(at + before.size());
  }
  out += text;
  return make_string(std::move(out), self.is_safe());
}

/// What find, index and count take: where to look, in bytes of the text.
struct Search {
  std::string_view needle;
  std::string_view text;
  size_t first;  ///< code points before `text`
};

Result<Search> search_of(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("find", arguments, {"sub", "start", "end"}, 1));
  PUMICE_TRY(const std::string_view needle, bound.text(0, ""));
  const std::string_view text = text_of(interpreter, self);
  const auto length = static_cast<int64_t>(count_code_points(text));
  PUMICE_TRY(int64_t start, bound.integer(1, 0));
  PUMICE_TRY(int64_t end, bound.integer(2, length));
  start = std::clamp<int64_t>(start < 0 ? start + length : start, 0, length);
  end = std::clamp<int64_t>(end < 0 ? end + length : end, start, length);
  return Search{needle,
                code_points(text, static_cast<size_t>(start), static_cast<size_t>(end - start)),
                static_cast<size_t>(start)};
}

template <bool kFromRight, bool kMustBe>
Result<Value> find(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Search search, search_of(interpreter, self, arguments));
  const size_t at = kFromRight ? rfind_text(interpreter.budget(), search.text, search.needle)
                               : find_text(interpreter.budget(), search.text, search.needle);
  if (at == search.text.npos) {
    if (kMustBe) return fail("substring not found");
    return Value(int64_t{-1});
  }
  return Value(static_cast<int64_t>(search.first + count_code_points(search.text.substr(0, at))));
}

Result<Value> count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Search search, search_of(interpreter, self, arguments));
  if (search.needle.empty()) {
    return Value(static_cast<int64_t>(count_code_points(search.text) + 1));
  }
  int64_t n = 0;
  std::string_view rest = search.text;
  for (size_t at = 0; (at = find_text(interpreter.budget(), rest, search.needle)) != rest.npos;
       ++n) {
    rest.remove_prefix(at + search.needle.size());
  }
  return Value(n);
}

enum class Align { kLeft, kRight, kCenter, kZeros };

template <Align kAlign>
Result<Value> pad(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("ljust", arguments, {"width", "fillchar"}, 1));
  PUMICE_TRY(const int64_t width, bound.integer(0, 0));
  PUMICE_TRY(const std::string_view given, bound.text(1, " "));
  const std::string_view text = text_of(interpreter, self);
  // Safe text escapes what it is filled with, which must then still be one character.
  const bool is_escaped = self.is_safe() && kAlign != Align::kZeros && bound.has(1) &&
                          given.find_first_of("&<>'\"") != given.npos && !bound[1]->is_safe();
  if (is_escaped || count_code_points(given) != 1) {
    return fail("the fill character must be exactly one character long");
  }
  const std::string_view fill = kAlign == Align::kZeros ? "0" : given;
  const auto length = static_cast<int64_t>(count_code_points(text));
  if (width <= length) return self;
  const int64_t n = width - length;
  int64_t before = kAlign == Align::kLeft ? 0 : n;
  if (kAlign == Align::kCenter) before = n / 2 + (n & width & 1);
  Text out(interpreter.budget());
  out.reserve(text.size() + static_cast<size_t>(n));
  const bool has_sign = kAlign == Align::kZeros && (text.starts_with('-') || text.starts_with('+'));
  if (has_sign) out += text[0];
  for (int64_t i = 0; i < before; ++i) out += fill;
  out += text.substr(has_sign ? 1 : 0);
  for (int64_t i = before; i < n; ++i) out += fill;
  return make_string(std::move(out), self.is_safe());
}

/// Of a safe separator: what it joins is escaped, and may be anything.
Result<Value> join(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("join", arguments, {"iterable"}, 1));
  PUMICE_TRY(const Values items, interpreter.items(*bound[0]));
  Text out(interpreter.budget());
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) append_str(out, self);
    if (self.is_safe()) {
      append_escaped(out, items[i]);
    } else if (items[i].is_string()) {
      append_str(out, items[i]);
    } else {
      return fail("sequence item {}: expected str instance, {} found", i, type_name(items[i]));
    }
  }
  return make_string(std::move(out), self.is_safe());
}

// Whether all characters are of a kind, by their Unicode properties.
constexpr char kAlphabetic[] = "\\p{L}+";
constexpr char kAlphanumeric[] = "[\\p{L}\\p{N}]+";
constexpr char kDecimal[] = "\\p{Nd}+";
constexpr char kNumeric[] = "\\p{N}+";
constexpr char kAscii[] = "[\\x00-\\x7f]*";

template <const char* kPattern>
Result<Value> is_all(Interpreter& interpreter, const Value& self, const Arguments&) {
  return Value(matches(interpreter.budget(), kPattern, text_of(interpreter, self)));
}

Result<Value> is_all_space(Interpreter& interpreter, const Value& self, const Arguments&) {
  const std::string_view text = text_of(interpreter, self);
  return Value(!text.empty() && strip_spaces(text, Side::kLeft).empty());
}

constexpr std::array kStringMethods = {
    Method{"capitalize", changed<capitalize>},
    Method{"casefold", changed<lower>},
    Method{"center", pad<Align::kCenter>},
    Method{"count", count},
    Method{"endswith", begins_or_ends<true>},
    Method{"find", find<false, false>},
    Method{"format", brace_format},
    Method{"index", find<false, true>},
    Method{"isalnum", is_all<kAlphanumeric>},
    Method{"isalpha", is_all<kAlphabetic>},
    Method{"isascii", is_all<kAscii>},
    Method{"isdecimal", is_all<kDecimal>},
    Method{"isdigit", is_all<kDecimal>},
    Method{"islower", is_all<kAllLower>},
    Method{"isnumeric", is_all<kNumeric>},
    Method{"isspace", is_all_space},
    Method{"isupper", is_all<kAllUpper>},
    Method{"join", join},
    Method{"ljust", pad<Align::kLeft>},
    Method{"lower", changed<lower>},
    Method{"lstrip", stripped<Side::kLeft>},
    Method{"partition", partition<false>},
    Method{"removeprefix", remove_affix<false>},
    Method{"removesuffix", remove_affix<true>},
    Method{"replace", replace},
    Method{"rfind", find<true, false>},
    Method{"rindex", find<true, true>},
    Method{"rjust", pad<Align::kRight>},
    Method{"rpartition", partition<true>},
    Method{"rsplit", split<true>},
    Method{"rstrip", stripped<Side::kRight>},
    Method{"split", split<false>},
    Method{"splitlines", splitlines},
    Method{"startswith", begins_or_ends<false>},
    Method{"strip", stripped<Side::kBoth>},
    Method{"title", changed<title_words>},
    Method{"upper", changed<upper>},
    Method{"zfill", pad<Align::kZeros>},
};

Result<Value> list_count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("count", arguments, {"value"}, 1));
  int64_t n = 0;
  for (const Value& item : self.list()->items(interpreter.budget())) {
    n += equal(interpreter.budget(), item, *bound[0]) ? 1 : 0;
  }
  return Value(n);
}

Result<Value> list_index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("index", arguments, {"value"}, 1));
  const Values& items = self.list()->items(interpreter.budget());
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(interpreter.budget(), items[i], *bound[0])) return Value(static_cast<int64_t>(i));
  }
  return fail("the value is not in the list");
}

Result<Value> copy(Interpreter&, const Value& self, const Arguments&) { return self; }

constexpr std::array kListMethods = {Method{"copy", copy}, Method{"count", list_count},
                                     Method{"index", list_index}};

Result<Value> dict_get(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("get", arguments, {"key", "default"}, 1));
  if (!is_hashable(interpreter.budget(), *bound[0])) {
    return fail("unhashable type: '{}'", type_name(*bound[0]));
  }
  const Value* found = self.dict()->find(interpreter.budget(), *bound[0]);
  return found != nullptr ? *found : bound.value(1, Value());
}

Value view(Values items, std::string_view name) {
  return make_list(std::move(items), ListKind::kView, Value::borrowed(name));
}

Result<Value> dict_items(Interpreter& interpreter, const Value& self, const Arguments&) {
  Budget& budget = interpreter.budget();
  Values items(budget);
  for (const auto& [key, value] : self.dict()->entries(budget)) {
    items.push_back(make_tuple(budget, {key, value}));
  }
  return view(std::move(items), "dict_items");
}

Result<Value> dict_keys(Interpreter& interpreter, const Value& self, const Arguments&) {
  Values items(interpreter.budget());
  for (const auto& entry : self.dict()->entries(interpreter.budget())) items.push_back(entry.first);
  return view(std::move(items), "dict_keys");
}

Result<Value> dict_values(Interpreter& interpreter, const Value& self, const Arguments&) {
  Values items(interpreter.budget());
  for (const auto& entry : self.dict()->entries(interpreter.budget())) {
    items.push_back(entry.second);
  }
  return view(std::move(items), "dict_values");
}

constexpr std::array kDictMethods = {Method{"copy", copy}, Method{"get", dict_get},
                                     Method{"items", dict_items}, Method{"keys", dict_keys},
                                     Method{"values", dict_values}};

// What changes values, and what every Python object has and no template may touch.
constexpr std::array<std::string_view, 9> kChangesList = {
    "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort", "__setitem__"};
constexpr std::array<std::string_view, 5> kChangesDict = {"clear", "pop", "popitem", "setdefault",
                                                          "update"};
constexpr std::array<std::string_view, 12> kInternal = {
    "__class__", "__delattr__", "__dict__", "__doc__",    "__getattribute__", "__init__",
    "__len__",   "__new__",     "__repr__", "__reduce__", "__str__",          "__subclasshook__"};

template <size_t kSize>
bool has(const std::array<std::string_view, kSize>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

template <size_t kSize>
BoundMethod::Body find_in(const std::array<Method, kSize>& methods, std::string_view name) {
  const auto* found = std::ranges::find(methods, name, &Method::name);
  return found == methods.end() ? nullptr : found->body;
}

}  // namespace

Value split_lines(Budget& budget, const Value& string, bool keep_ends) {
  const auto ends_line = [](uint32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  Parts lines(budget);
  for (std::string_view text = string.text(budget); !text.empty();) {
    size_t at = 0;
    size_t length = 0;
    while (at < text.size() && !ends_line(decode_code_point(text.substr(at), length))) at += length;
    if (at == text.size()) length = 0;
    if (text.substr(at).starts_with("\r\n")) length = 2;
    lines.push_back(text.substr(0, at + (keep_ends ? length : 0)));
    text.remove_prefix(at + length);
  }
  return parts_of(string, lines);
}

std::optional<Value> find_method(Interpreter& interpreter, const Value& object,
                                 std::string_view name) {
  const ListData* list = object.list();
  const bool is_list = list != nullptr && list->kind() == ListKind::kList;
  const bool is_tuple = list != nullptr && list->kind() == ListKind::kTuple;
  if (has(kInternal, name) || (is_list && has(kChangesList, name)) ||
      (object.dict() != nullptr && has(kChangesDict, name))) {
    return interpreter.undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
  }
  BoundMethod::Body body = nullptr;
  if (object.is_string()) body = find_in(kStringMethods, name);
  if (object.dict() != nullptr) body = find_in(kDictMethods, name);
  if (is_list || (is_tuple && name != "copy")) body = find_in(kListMethods, name);
  if (body == nullptr) return std::nullopt;
  return bound_method(interpreter.budget(), object, body);
}

}  // namespace pumice::jinja
