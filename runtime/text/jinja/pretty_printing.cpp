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

/// Python prints the subclass of str in one piece.
bool is_plain_string(const Value& value) { return value.is_string() && !value.is_safe(); }

/// Keys that have no order stand by the names of their types.
bool key_less(Budget& budget, const Value& a, const Value& b) {
  const Result<bool> in_order = less(budget, a, b);
  return in_order.ok() ? *in_order : type_name(a) < type_name(b);
}

/// The value with the keys of all its dicts in order.
Value sorted(Budget& budget, const Value& value) {
  if (const DictData* dict = value.dict()) {
    Entries entries(budget);
    for (const auto& [key, item] : dict->entries(budget)) {
      entries.emplace_back(key, sorted(budget, item));
    }
    std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
      return key_less(budget, a.first, b.first);
    });
    return make_dict(std::move(entries));
  }
  if (value.list() == nullptr || !value.list()->is_list_or_tuple()) return value;
  Values items(budget);
  for (const Value& item : value.list()->items(budget)) items.push_back(sorted(budget, item));
  return make_list(std::move(items), value.list()->kind());
}

/// The first word of a line, which is not empty, with the spaces behind it.
std::string_view first_word(std::string_view line) {
  size_t end = 0;
  size_t length = 0;
  const auto go_on_while = [&](bool spaces) {
    while (end < line.size() && is_space(decode_code_point(line.substr(end), length)) == spaces) {
      end += length;
    }
  };
  go_on_while(false);
  go_on_while(true);
  return line.substr(0, end);
}

class PrettyPrinter {
 public:
  explicit PrettyPrinter(Budget& budget) : budget_(budget), out_(budget) {}

  /// `indent` columns are taken before the value, `allowance` are needed behind it.
  void print(const Value& value, int64_t indent, int64_t allowance, int level = 1) {
    const Text text = repr(budget_, value);
    const ListData* const list = value.list();
    if (columns(text) <= kColumns - indent - allowance) {
      out_ += text;
    } else if (const DictData* dict = value.dict()) {
      print_dict(*dict, indent, allowance + 1, level);
    } else if (list != nullptr && list->is_list_or_tuple()) {
      print_list(*list, indent, allowance, level);
    } else if (is_plain_string(value) && value.n_bytes() > 0) {
      print_string(value, indent, allowance, level);
    } else {
      out_ += text;
    }
  }
  Text take_text() { return std::move(out_); }

 private:
  static int64_t columns(std::string_view text) {
    return static_cast<int64_t>(count_code_points(text));
  }
  void begin_line(int64_t indent) {
    out_ += '\n';
    out_.append(static_cast<size_t>(indent), ' ');
  }

  void print_dict(const DictData& dict, int64_t indent, int64_t allowance, int level) {
    out_ += '{';
    const Entries& entries = dict.entries(budget_);
    for (size_t i = 0; i < entries.size(); ++i) {
      const bool last = i + 1 == entries.size();
      Text key = repr(budget_, entries[i].first);
      key += ": ";
      out_ += key;
      print(entries[i].second, indent + 1 + columns(key), last ? allowance : 1, level + 1);
      if (last) break;
      out_ += ',';
      begin_line(indent + 1);
    }
    out_ += '}';
  }

  void print_list(const ListData& list, int64_t indent, int64_t allowance, int level) {
    const bool tuple = list.kind() == ListKind::kTuple;
    const std::string_view end = !tuple ? "]" : list.size() == 1 ? ",)" : ")";
    out_ += tuple ? '(' : '[';
    const Values& items = list.items(budget_);
    for (size_t i = 0; i < items.size(); ++i) {
      const bool last = i + 1 == items.size();
      print(items[i], indent + 1, last ? allowance + columns(end) : 1, level + 1);
      if (last) break;
      out_ += ',';
      begin_line(indent + 1);
    }
    out_ += end;
  }

  using Parts = std::vector<Text, Paid<Text>>;

  /// As several literals, which Python joins; in brackets where nothing else is around them.
  void print_string(const Value& value, int64_t indent, int64_t allowance, int level) {
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    const Parts parts = literals(value, kColumns - indent, allowance);
    const bool brackets = level == 1 && parts.size() > 1;
    if (brackets) out_ += '(';
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) begin_line(indent);
      out_ += parts[i];
    }
    if (brackets) out_ += ')';
  }

  Parts literals(const Value& value, int64_t width, int64_t allowance) {
    const Value split = split_lines(budget_, value, true);
    const Values& lines = split.list()->items(budget_);
    Parts parts(budget_);
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool last = i + 1 == lines.size();
      Text text = repr(budget_, lines[i]);
      if (columns(text) <= width - (last ? allowance : 0)) {
        parts.push_back(std::move(text));
      } else {
        add_words(lines[i].text(budget_), width, last ? allowance : 0, parts);
      }
    }
    return parts;
  }

  void add_words(std::string_view line, int64_t width, int64_t allowance, Parts& parts) {
    Text current(budget_);
    while (!line.empty()) {
      const std::string_view word = first_word(line);
      line.remove_prefix(word.size());
      Text longer = current;
      longer += word;
      const int64_t most = width - (line.empty() ? allowance : 0);
      if (columns(quoted(longer)) > most) {
        if (!current.empty()) parts.push_back(quoted(current));
        current = word;
      } else {
        current = std::move(longer);
      }
    }
    if (!current.empty()) parts.push_back(quoted(current));
  }

  Text quoted(std::string_view text) { return repr(budget_, copy_string(budget_, text)); }

  Budget& budget_;
  Text out_;
};

Result<Value> pretty_print(Interpreter& interpreter, const Value& input,
                           const Arguments& arguments) {
  PUMICE_TRY_STATUS(Bound::none("pprint", arguments));
  Budget& budget = interpreter.budget();
  PrettyPrinter printer(budget);
  printer.print(sorted(budget, input), 0, 0);
  return make_string(printer.take_text());
}

constexpr Filter kFilters[] = {{"pprint", pretty_print}};

}  // namespace

std::span<const Filter> pretty_printing() { return kFilters; }

}  // namespace pumice::jinja
