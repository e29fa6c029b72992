// The filter pprint: Python's pprint.pformat, which writes what is wider than a line over several,
// with the keys of dicts in order.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/arguments.hpp"
#include "text/jinja/code_points.hpp"
#include "text/jinja/filters.hpp"
#include "text/jinja/operations.hpp"

namespace pumice::jinja {
namespace {

constexpr int64_t kColumns = 80;

bool is_list_or_tuple(const Value& value) {
  const ListData* list = value.list();
  return list != nullptr && (list->kind == ListKind::kList || list->kind == ListKind::kTuple);
}

/// Keys that have no order stand by the names of their types.
bool key_less(Budget& budget, const Value& a, const Value& b) {
  const Result<bool> in_order = less(budget, a, b);
  return in_order.ok() ? *in_order : type_name(a) < type_name(b);
}

/// The value with the keys of all its dicts in order.
Value sorted(Budget& budget, const Value& value) {
  if (const DictData* dict = value.dict()) {
    DictEntries entries;
    for (const auto& [key, item] : dict->entries) entries.emplace_back(key, sorted(budget, item));
    std::ranges::stable_sort(
        entries, [&](const auto& a, const auto& b) { return key_less(budget, a.first, b.first); });
    return make_dict(budget, std::move(entries));
  }
  if (!is_list_or_tuple(value)) return value;
  std::vector<Value> items;
  for (const Value& item : value.list()->items) items.push_back(sorted(budget, item));
  return make_list(budget, std::move(items), value.list()->kind);
}

/// Words, each with the spaces behind it.
std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> all;
  while (!line.empty()) {
    size_t end = 0;
    size_t length = 0;
    const auto go_on_while = [&](bool spaces) {
      while (end < line.size() && is_space(decode_code_point(line.substr(end), length)) == spaces) {
        end += length;
      }
    };
    go_on_while(false);
    go_on_while(true);
    all.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return all;
}

class PrettyPrinter {
 public:
  explicit PrettyPrinter(Interpreter& interpreter)
      : interpreter_(interpreter), budget_(interpreter.budget()), out_(budget_) {}

  /// `indent` columns are taken before the value, `allowance` are needed behind it.
  void print(const Value& value, int64_t indent, int64_t allowance, int level = 1) {
    const std::string text = repr(budget_, value);
    if (out_.full()) return;
    if (columns(text) <= kColumns - indent - allowance) return out_.append(text);
    if (const DictData* dict = value.dict()) {
      print_dict(*dict, indent, allowance + 1, level);
    } else if (is_list_or_tuple(value)) {
      print_list(*value.list(), indent, allowance, level);
    } else if (value.string() != nullptr && !value.string()->empty()) {
      print_string(value, indent, allowance, level);
    } else {
      out_.append(text);
    }
  }
  std::string take_text() { return out_.take_text(); }

 private:
  static int64_t columns(std::string_view text) {
    return static_cast<int64_t>(count_code_points(text));
  }
  void begin_line(int64_t indent) {
    out_.append("\n");
    out_.append(static_cast<size_t>(indent), ' ');
  }

  void print_dict(const DictData& dict, int64_t indent, int64_t allowance, int level) {
    out_.append("{");
    for (size_t i = 0; i < dict.entries.size() && !out_.full(); ++i) {
      const bool last = i + 1 == dict.entries.size();
      const std::string key = repr(budget_, dict.entries[i].first) + ": ";
      out_.append(key);
      print(dict.entries[i].second, indent + 1 + columns(key), last ? allowance : 1, level + 1);
      if (last) break;
      out_.append(",");
      begin_line(indent + 1);
    }
    out_.append("}");
  }

  void print_list(const ListData& list, int64_t indent, int64_t allowance, int level) {
    const bool tuple = list.kind == ListKind::kTuple;
    const std::string_view end = !tuple ? "]" : list.items.size() == 1 ? ",)" : ")";
    out_.append(tuple ? "(" : "[");
    for (size_t i = 0; i < list.items.size() && !out_.full(); ++i) {
      const bool last = i + 1 == list.items.size();
      print(list.items[i], indent + 1, last ? allowance + columns(end) : 1, level + 1);
      if (last) break;
      out_.append(",");
      begin_line(indent + 1);
    }
    out_.append(end);
  }

  /// As several literals, which Python joins; in brackets where nothing else is around them.
  void print_string(const Value& value, int64_t indent, int64_t allowance, int level) {
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    const std::vector<std::string> parts = literals(value, kColumns - indent, allowance);
    const bool brackets = level == 1 && parts.size() > 1;
    if (brackets) out_.append("(");
    for (size_t i = 0; i < parts.size() && !out_.full(); ++i) {
      if (i > 0) begin_line(indent);
      out_.append(parts[i]);
    }
    if (brackets) out_.append(")");
  }

  std::vector<std::string> literals(const Value& value, int64_t width, int64_t allowance) {
    const std::vector<Value> lines = lines_of(value);
    std::vector<std::string> parts;
    for (size_t i = 0; i < lines.size() && !budget_.exhausted(); ++i) {
      const bool last = i + 1 == lines.size();
      std::string text = repr(budget_, lines[i]);
      if (columns(text) <= width - (last ? allowance : 0)) {
        parts.push_back(std::move(text));
      } else {
        add_words(*lines[i].string(), width, last ? allowance : 0, parts);
      }
    }
    return parts;
  }

  void add_words(std::string_view line, int64_t width, int64_t allowance,
                 std::vector<std::string>& parts) {
    const std::vector<std::string_view> all = words(line);
    budget_.scan(4 * line.size());
    std::string current;
    for (size_t i = 0; i < all.size() && !budget_.exhausted(); ++i) {
      std::string longer = current + std::string(all[i]);
      const int64_t most = width - (i + 1 == all.size() ? allowance : 0);
      if (columns(quoted(longer)) > most) {
        if (!current.empty()) parts.push_back(quoted(current));
        current = all[i];
      } else {
        current = std::move(longer);
      }
    }
    if (!current.empty()) parts.push_back(quoted(current));
  }

  std::string quoted(const std::string& text) { return repr(budget_, interpreter_.string(text)); }

  /// With what ends them.
  std::vector<Value> lines_of(const Value& text) {
    const std::optional<Value> split = find_method(interpreter_, text, "splitlines");
    const Result<Value> lines =
        interpreter_.call(*split, {.positional = {Value(true)}, .named = {}});
    return lines.ok() ? lines->list()->items : std::vector<Value>{};
  }

  Interpreter& interpreter_;
  Budget& budget_;
  TextBuilder out_;
};

Result<Value> pretty_print(Interpreter& interpreter, const Value& input,
                           const Arguments& arguments) {
  PUMICE_TRY(const Bound bound, Bound::bind("pprint", arguments, {}));
  PrettyPrinter printer(interpreter);
  printer.print(sorted(interpreter.budget(), input), 0, 0);
  return interpreter.string(printer.take_text());
}

constexpr Filter kFilters[] = {{"pprint", pretty_print}};

}  // namespace

std::span<const Filter> pretty_printing() { return kFilters; }

}  // namespace pumice::jinja
