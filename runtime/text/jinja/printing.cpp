// Values as text: Python's str, repr and json.dumps.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/utf8.hpp"
#include "text/jinja/code_points.hpp"
#include "text/jinja/value.hpp"

namespace pumice::jinja {
namespace {

// Digits of numbers are short.
void append_float(Text& out, double value) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::isinf(value)) {
    out += value > 0 ? "inf" : "-inf";
    return;
  }
  // The shortest digits that read back; Python writes exponents below -4 and from 16 on.
  char buffer[64] = {};
  const auto format = [&](std::chars_format how) {
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, how);
    return std::string_view(buffer, static_cast<size_t>(end.ptr - buffer));
  };
  const std::string_view digits = format(std::chars_format::scientific);
  const size_t mark = digits.find('e');
  const int exponent = std::atoi(digits.data() + mark + 1);
  if (exponent < -4 || exponent >= 16) {
    out += digits;
    return;
  }
  const std::string_view plain = format(std::chars_format::fixed);
  out += plain;
  if (plain.find('.') == plain.npos) out += ".0";
}

void append_integer(Text& out, int64_t value) {
  fmt::format_to(std::back_inserter(out), "{}", value);
}

void append_quoted(Text& out, std::string_view text) {
  Budget& budget = budget_of(out);
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  // Characters one by one are looked up only where some text needs it.
  const bool plain = is_valid_utf8(text) && has_only_printable(budget, text);
  out += quote;
  for (size_t length = 0; !text.empty(); text.remove_prefix(length)) {
    const uint32_t c = decode_code_point(text, length);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (plain || is_printable(budget, c)) {
      out += text.substr(0, length);
    } else if (c < 0x100) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", c);
    } else if (c < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
    } else {
      fmt::format_to(std::back_inserter(out), "\\U{:08x}", c);
    }
  }
  out += quote;
}

void append_items(Text& out, std::string_view begin, const ListData& list, std::string_view end) {
  out += begin;
  bool first = true;
  for (const Value& item : list.items(budget_of(out))) {
    if (!std::exchange(first, false)) out += ", ";
    append_repr(out, item);
  }
  out += end;
}

void append_list(Text& out, const ListData& list) {
  switch (list.kind()) {
    case ListKind::kList:
      return append_items(out, "[", list, "]");
    case ListKind::kTuple:
      return append_items(out, "(", list, list.size() == 1 ? ",)" : ")");
    case ListKind::kView:
      out += list.label_text();
      return append_items(out, "([", list, "])");
    case ListKind::kRange:
      out += list.label_text();
      return;
    case ListKind::kGenerator:
      out += "<generator object ";
      out += list.label_text();
      out += ">";
  }
}

void append_dict(Text& out, const DictData& dict) {
  out += "{";
  bool first = true;
  for (const auto& [key, value] : dict.entries(budget_of(out))) {
    if (!std::exchange(first, false)) out += ", ";
    append_repr(out, key);
    out += ": ";
    append_repr(out, value);
  }
  out += "}";
}

class JsonWriter {
 public:
  JsonWriter(Text& out, const JsonStyle& style)
      : out_(out), budget_(budget_of(out)), style_(style) {}

  Status write(const Value& value, int level) {
    budget_.step();
    if (value.is_string()) {
      string(value.text(budget_));
    } else if (value.is_none() || value.number()) {
      scalar(value);
    } else if (const DictData* values = value.dict()) {
      return dict(*values, level);
    } else if (const ListData* items = value.list();
               items != nullptr && items->is_list_or_tuple()) {
      return list(*items, level);
    } else {
      return fail("Object of type {} is not JSON serializable", type_name(value));
    }
    return {};
  }

 private:
  void scalar(const Value& value) {
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += is_true(value) ? "true" : "false";
    } else if (value.is_int()) {
      append_integer(out_, *value.integer());
    } else if (const double number = *value.number(); std::isnan(number)) {
      out_ += "NaN";
    } else if (std::isinf(number)) {
      out_ += number > 0 ? "Infinity" : "-Infinity";
    } else {
      append_float(out_, number);
    }
  }

  void string(std::string_view text) {
    out_ += '"';
    for (size_t length = 0; !text.empty(); text.remove_prefix(length)) {
      const uint32_t c = decode_code_point(text, length);
      character(c, text.substr(0, length));
    }
    out_ += '"';
  }

  void character(uint32_t c, std::string_view own) {
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    const size_t found = c < 0x80 ? kShort.find(static_cast<char>(c)) : kShort.npos;
    if (found != kShort.npos) {
      out_ += '\\';
      out_ += kLetters[found];
    } else if (c >= 0x20 && (c < 0x7F || !style_.ensure_ascii)) {
      out_ += own;
    } else if (c < 0x10000) {
      fmt::format_to(std::back_inserter(out_), "\\u{:04x}", c);
    } else {
      fmt::format_to(std::back_inserter(out_), "\\u{:04x}\\u{:04x}", 0xD7C0 + (c >> 10),
                     0xDC00 + (c & 0x3FF));
    }
  }

  void line(int level) {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(level) * static_cast<size_t>(style_.indent), ' ');
  }

  Status list(const ListData& list, int level) {
    if (list.size() == 0) return out_ += "[]", Status();
    out_ += '[';
    bool first = true;
    for (const Value& item : list.items(budget_)) {
      if (!std::exchange(first, false)) out_ += style_.item_separator;
      line(level + 1);
      PUMICE_TRY_STATUS(write(item, level + 1));
    }
    line(level);
    out_ += ']';
    return {};
  }

  Status dict(const DictData& dict, int level) {
    if (dict.size() == 0) return out_ += "{}", Status();
    PUMICE_TRY(const Entries entries, entries_of(dict));
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : entries) {
      if (!std::exchange(first, false)) out_ += style_.item_separator;
      line(level + 1);
      if (key.is_string()) {
        string(key.text(budget_));
      } else {
        out_ += '"';
        scalar(key);
        out_ += '"';
      }
      out_ += style_.key_separator;
      PUMICE_TRY_STATUS(write(value, level + 1));
    }
    line(level);
    out_ += '}';
    return {};
  }

  /// In the order in which they are written.
  Result<Entries> entries_of(const DictData& dict) {
    Entries entries = dict.entries(budget_);
    for (const auto& entry : entries) {
      const Value& key = entry.first;
      if (key.is_string() || key.is_none() || key.number()) continue;
      return fail("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
    if (!style_.sort_keys) return entries;
    Status failed;
    std::ranges::stable_sort(entries, [&](const auto& a, const auto& b) {
      const Result<bool> before = less(budget_, a.first, b.first);
      if (!before.ok()) failed = before.error();
      return before.ok() && *before;
    });
    if (!failed.ok()) return failed.error();
    return entries;
  }

  Text& out_;
  Budget& budget_;
  const JsonStyle& style_;
};

}  // namespace

void append_repr(Text& out, const Value& value) {
  Budget& budget = budget_of(out);
  budget.step();
  if (value.is_string()) {
    if (value.is_safe()) out += "Markup(";
    append_quoted(out, value.text(budget));
    if (value.is_safe()) out += ")";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    append_str(out, value);
  }
}

void append_str(Text& out, const Value& value) {
  if (value.is_string()) {
    out += value.text(budget_of(out));
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_undefined()) {
    return;
  } else if (value.is_bool()) {
    out += is_true(value) ? "True" : "False";
  } else if (value.is_int()) {
    append_integer(out, *value.integer());
  } else if (value.is_float()) {
    append_float(out, *value.number());
  } else if (const ListData* list = value.list()) {
    append_list(out, *list);
  } else if (const DictData* dict = value.dict()) {
    append_dict(out, *dict);
  } else {
    fmt::format_to(std::back_inserter(out), "<{}>", value.object()->type_name());
  }
}

Text str(Budget& budget, const Value& value) {
  Text text(budget);
  append_str(text, value);
  return text;
}

Text repr(Budget& budget, const Value& value) {
  Text text(budget);
  append_repr(text, value);
  return text;
}

void append_escaped(Text& out, const Value& value) {
  if (value.is_safe()) return append_str(out, value);
  Budget& budget = budget_of(out);
  const Value text = soft_str(budget, value);
  for (std::string_view rest = text.text(budget); !rest.empty();) {
    const size_t next = std::min(rest.find_first_of("&<>'\""), rest.size());
    out += rest.substr(0, next);
    if (next == rest.size()) break;
    const char c = rest[next];
    out += c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '\'' ? "&#39;"
                       : "&#34;";
    rest.remove_prefix(next + 1);
  }
}

Value escape(Budget& budget, const Value& value) {
  if (value.is_safe()) return value;
  Text text(budget);
  append_escaped(text, value);
  return make_string(std::move(text), true);
}

Status append_json(Text& out, const Value& value, const JsonStyle& style) {
  return JsonWriter(out, style).write(value, 0);
}

}  // namespace pumice::jinja
