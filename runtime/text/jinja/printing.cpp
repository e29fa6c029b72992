// Values as text: Python's str, repr and json.dumps.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/utf8.hpp"
#include "text/jinja/code_points.hpp"
#include "text/jinja/value.hpp"

namespace pumice::jinja {
namespace {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // The shortest digits that read back; Python writes exponents below -4 and from 16 on.
  std::string digits = fmt::format("{:e}", value);
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  digits.assign(buffer, end.ptr);
  const size_t mark = digits.find('e');
  const int exponent = std::stoi(digits.substr(mark + 1));
  if (exponent < -4 || exponent >= 16) return digits;
  const auto plain = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string text(buffer, plain.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

void append_quoted(TextBuilder& out, std::string_view text) {
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  // Characters one by one are looked up only where some text needs it.
  const bool plain = is_valid_utf8(text) && has_only_printable(text);
  std::string quoted(1, quote);
  for (size_t length = 0; !text.empty() && !out.full(); text.remove_prefix(length)) {
    const uint32_t c = decode_code_point(text, length);
    if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\r') {
      quoted += "\\r";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      quoted += {'\\', static_cast<char>(c)};
    } else if (plain || is_printable(c)) {
      quoted += text.substr(0, length);
    } else {
      quoted += c < 0x100     ? fmt::format("\\x{:02x}", c)
                : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                              : fmt::format("\\U{:08x}", c);
    }
    if (quoted.size() > 4096) out.append(std::exchange(quoted, {}));
  }
  quoted += quote;
  out.append(quoted);
}

void append_items(TextBuilder& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size() && !out.full(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(out, items[i]);
  }
}

void append_list(TextBuilder& out, const ListData& list) {
  switch (list.kind) {
    case ListKind::kList:
      out.append("[");
      append_items(out, list.items);
      return out.append("]");
    case ListKind::kTuple:
      out.append("(");
      append_items(out, list.items);
      return out.append(list.items.size() == 1 ? ",)" : ")");
    case ListKind::kView:
      out.append(list.label + "([");
      append_items(out, list.items);
      return out.append("])");
    case ListKind::kRange:
      return out.append(list.label);
    case ListKind::kGenerator:
      return out.append(fmt::format("<generator object {}>", list.label));
  }
}

void append_dict(TextBuilder& out, const DictData& dict) {
  out.append("{");
  for (size_t i = 0; i < dict.entries.size() && !out.full(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(out, dict.entries[i].first);
    out.append(": ");
    append_repr(out, dict.entries[i].second);
  }
  out.append("}");
}

class JsonWriter {
 public:
  JsonWriter(TextBuilder& out, const JsonStyle& style) : out_(out), style_(style) {}

  Status write(const Value& value, int level) {
    out_.budget().step();
    PUMICE_TRY_STATUS(out_.budget().status());
    if (const std::string* text = value.string()) {
      string(*text);
    } else if (value.is_none() || value.number()) {
      out_.append(scalar(value));
    } else if (const DictData* values = value.dict()) {
      return dict(*values, level);
    } else if (const ListData* items = value.list(); items != nullptr && is_array(*items)) {
      return list(*items, level);
    } else {
      return fail("Object of type {} is not JSON serializable", type_name(value));
    }
    return {};
  }

 private:
  static bool is_array(const ListData& list) {
    return list.kind == ListKind::kList || list.kind == ListKind::kTuple;
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return is_true(value) ? "true" : "false";
    if (value.is_int()) return fmt::format("{}", *value.integer());
    const double number = *value.number();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return float_text(number);
  }

  void string(std::string_view text) {
    std::string quoted = "\"";
    for (size_t length = 0; !text.empty() && !out_.full(); text.remove_prefix(length)) {
      const uint32_t c = decode_code_point(text, length);
      quoted += escaped(c, text.substr(0, length));
      if (quoted.size() > 4096) out_.append(std::exchange(quoted, {}));
    }
    out_.append(quoted + "\"");
  }

  std::string escaped(uint32_t c, std::string_view character) const {
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    const size_t found = c < 0x80 ? kShort.find(static_cast<char>(c)) : kShort.npos;
    if (found != kShort.npos) return {'\\', kLetters[found]};
    if (c >= 0x20 && (c < 0x7F || !style_.ensure_ascii)) return std::string(character);
    if (c < 0x10000) return fmt::format("\\u{:04x}", c);
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF));
  }

  void line(int level) {
    if (style_.indent < 0) return;
    out_.append("\n");
    out_.append(static_cast<size_t>(level) * static_cast<size_t>(style_.indent), ' ');
  }

  Status list(const ListData& list, int level) {
    if (list.items.empty()) return out_.append("[]"), Status();
    out_.append("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      line(level + 1);
      PUMICE_TRY_STATUS(write(list.items[i], level + 1));
    }
    line(level);
    out_.append("]");
    return {};
  }

  Status dict(const DictData& dict, int level) {
    if (dict.entries.empty()) return out_.append("{}"), Status();
    std::vector<std::pair<std::string, const Value*>> entries;
    for (const auto& [key, value] : dict.entries) {
      if (key.string() == nullptr && !key.is_none() && !key.number()) {
        return fail("keys must be str, int, float, bool or None, not {}", type_name(key));
      }
      entries.emplace_back(key.string() != nullptr ? *key.string() : scalar(key), &value);
    }
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    out_.append("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      line(level + 1);
      string(entries[i].first);
      out_.append(style_.key_separator);
      PUMICE_TRY_STATUS(write(*entries[i].second, level + 1));
    }
    line(level);
    out_.append("}");
    return {};
  }

  TextBuilder& out_;
  const JsonStyle& style_;
};

}  // namespace

void append_repr(TextBuilder& out, const Value& value) {
  out.budget().step();
  if (const std::string* text = value.string()) {
    append_quoted(out, *text);
  } else if (value.is_undefined()) {
    out.append("Undefined");
  } else {
    append_str(out, value);
  }
}

void append_str(TextBuilder& out, const Value& value) {
  if (out.full()) return;
  if (const std::string* text = value.string()) {
    out.append(*text);
  } else if (value.is_none()) {
    out.append("None");
  } else if (value.is_undefined()) {
    return;
  } else if (value.is_bool()) {
    out.append(is_true(value) ? "True" : "False");
  } else if (value.is_int()) {
    out.append(fmt::format("{}", *value.integer()));
  } else if (value.is_float()) {
    out.append(float_text(*value.number()));
  } else if (const ListData* list = value.list()) {
    append_list(out, *list);
  } else if (const DictData* dict = value.dict()) {
    append_dict(out, *dict);
  } else {
    out.append(fmt::format("<{}>", value.object()->type_name()));
  }
}

std::string str(Budget& budget, const Value& value) {
  TextBuilder out(budget);
  append_str(out, value);
  return out.take_text();
}

std::string repr(Budget& budget, const Value& value) {
  TextBuilder out(budget);
  append_repr(out, value);
  return out.take_text();
}

Status append_json(TextBuilder& out, const Value& value, const JsonStyle& style) {
  return JsonWriter(out, style).write(value, 0);
}

}  // namespace pumice::jinja
