#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/ascii.hpp"
#include "vk/tuning_rows.hpp"

namespace pumice::vk {
namespace {

using Comparison = TuningCondition::Comparison;
using Words = std::vector<std::string>;

enum class Kind { kWord, kSize };

/// What conditions of every table may be about.
TuningFacts all_device_facts() {
  DevicePlan plan;
  plan.driver.version = {1};
  plan.subgroup.max_workgroup_subgroups = 1;
  return device_facts(plan);
}

// What these files may be at most, so that a foreign one is refused and not worked through.
constexpr size_t kMostRows = 10'000;

Words split(std::string_view text, std::string_view separators) {
  Words parts;
  while (true) {
    const size_t begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return parts;
    text.remove_prefix(begin);
    const size_t end = std::min(text.find_first_of(separators), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::optional<TuningSize> parse_size(std::string_view text) {
  TuningSize size = {};
  for (size_t i = 0; i < size.size(); ++i) {
    const size_t dot = text.find('.');
    const auto number = parse_whole<uint64_t>(text.substr(0, dot));
    if (!number) return std::nullopt;
    size[i] = *number;
    if (dot == std::string_view::npos) return size;
    text.remove_prefix(dot + 1);
  }
  return std::nullopt;  // more than three numbers
}

bool contains(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

/// Of one file, line by line.
class Parser {
 public:
  Parser(std::string_view file, std::span<const TuningTable> known) : file_(file), known_(known) {}

  Status parse(std::string_view text, bool declares) {
    while (!text.empty()) {
      ++line_;
      PUMICE_TRY_STATUS(parse_line(take_part(text, '\n'), declares));
    }
    return {};
  }

  std::vector<TuningTable> tables;
  std::vector<TuningRow> rows;

 private:
  template <typename... Args>
  Error error(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(ErrorCode::kBadFile, "{}:{}: {}", file_, line_,
                      fmt::format(format, std::forward<Args>(args)...));
  }

  Status parse_line(std::string_view line, bool declares) {
    const size_t hash = std::min(line.find('#'), line.size());
    const Words words = split(line.substr(0, hash), " \t\r");
    const Words said = split(line.substr(std::min(hash + 1, line.size())), " \t\r");
    const std::string comment = fmt::format("{}", fmt::join(said, " "));
    if (words.empty()) {
      const bool blank = hash == line.size();
      above_ = blank ? "" : above_.empty() ? comment : above_ + " " + comment;
      return {};
    }
    if (declares) {
      if (words[0] == "table") return begin_table(words);
      if (words[0] == "choices") return declare_choices(words);
      if (words[0] == "word") return declare_word(words);
      if (words[0] == "size") return declare_size(words);
      if (words[0] == "number") return declare_number(words);
    }
    return parse_row(words, comment);
  }

  Status begin_table(const Words& words) {
    if (words.size() != 2) return error("expected: table NAME");
    if (table_of(words[1]) != nullptr) return error("table {} is declared twice", words[1]);
    tables.push_back({.name = words[1]});
    return {};
  }

  /// The table that a declaration is of.
  Result<TuningTable*> declared() {
    if (tables.empty()) return error("a declaration before the first table");
    if (!rows.empty() && rows.back().table == tables.back().name) {
      return error("a declaration behind its table's rows");
    }
    return &tables.back();
  }

  Status declare_choices(const Words& words) {
    PUMICE_TRY(TuningTable * table, declared());
    if (words.size() < 3) return error("expected at least two choices");
    table->choices.assign(words.begin() + 1, words.end());
    return {};
  }

  Status declare_word(const Words& words) {
    PUMICE_TRY(TuningTable * table, declared());
    if (words.size() < 2) return error("expected: word NAME [WORD…]");
    table->words[words[1]] = Words(words.begin() + 2, words.end());
    return {};
  }

  Status declare_size(const Words& words) {
    PUMICE_TRY(TuningTable * table, declared());
    if (words.size() != 2) return error("expected: size NAME");
    table->sizes.push_back(words[1]);
    return {};
  }

  /// number NAME [of CHOICE…]: VALUE…
  Status declare_number(const Words& words) {
    PUMICE_TRY(TuningTable * table, declared());
    TuningTable::Number number;
    bool in_values = false;
    for (size_t i = 1; i < words.size(); ++i) {
      std::string word = words[i];
      if (in_values) {
        const auto value = parse_whole<uint32_t>(word);
        if (!value) return error("\"{}\" is not a number", word);
        number.values.push_back(*value);
        continue;
      }
      if (word.ends_with(':')) in_values = true, word.pop_back();
      if (number.name.empty()) {
        number.name = word;
      } else if (word != "of") {
        if (!contains(table->choices, word)) return error("unknown choice \"{}\"", word);
        number.choices.push_back(word);
      }
    }
    if (number.values.empty()) return error("expected: number NAME [of CHOICE…]: VALUE…");
    table->numbers.push_back(std::move(number));
    return {};
  }

  const TuningTable* table_of(std::string_view name) const {
    const auto of_file = std::ranges::find(tables, name, &TuningTable::name);
    if (of_file != tables.end()) return &*of_file;
    const auto found = std::ranges::find(known_, name, &TuningTable::name);
    return found != known_.end() ? &*found : nullptr;
  }

  Status parse_row(const Words& words, const std::string& comment) {
    const TuningTable* table = table_of(words[0]);
    if (table == nullptr) return error("unknown table \"{}\"", words[0]);
    const std::string_view space = above_.empty() || comment.empty() ? "" : " ";
    TuningRow row{.table = table->name,
                  .provenance = fmt::format("{}{}{}", above_, space, comment),
                  .origin = fmt::format("{}:{}", file_, line_),
                  .text = fmt::format("{}", fmt::join(words, " "))};
    size_t at = 1;
    if (!table->choices.empty()) {
      if (words.size() < 2 || !contains(table->choices, words[1])) {
        return error("{} chooses one of {}", table->name, fmt::join(table->choices, ", "));
      }
      row.choice = words[at++];
    }
    if (at < words.size() && words[at] == "if") {
      for (++at; at < words.size() && words[at] != "use"; ++at) {
        PUMICE_TRY(TuningCondition condition, parse_condition(*table, words[at]));
        row.conditions.push_back(std::move(condition));
      }
    }
    if (at < words.size() && words[at] != "use") {
      return error("expected \"if\" or \"use\", not \"{}\"", words[at]);
    }
    std::vector<TuningRow> made = {std::move(row)};
    for (++at; at < words.size(); ++at) {
      PUMICE_TRY(made, with_number(*table, made, words[at]));
    }
    PUMICE_TRY_STATUS(check_whole(*table, made.front()));
    if (rows.size() + made.size() > kMostRows) return error("more than {} rows", kMostRows);
    rows.insert(rows.end(), made.begin(), made.end());
    return {};
  }

  Result<TuningCondition> parse_condition(const TuningTable& table, std::string_view text) const {
    const size_t begin = text.find_first_of("<>=!");
    const size_t end = std::min(text.find_first_not_of("<>=!", begin), text.size());
    if (begin == 0 || begin == std::string_view::npos || end == text.size()) {
      return error("\"{}\" is not a condition, as class=gpu is", text);
    }
    constexpr std::pair<std::string_view, Comparison> kComparisons[] = {
        {"=", Comparison::kEqual},   {"!=", Comparison::kNotEqual}, {"<", Comparison::kLess},
        {"<=", Comparison::kAtMost}, {">", Comparison::kMore},      {">=", Comparison::kAtLeast}};
    const auto comparison = std::ranges::find(kComparisons, text.substr(begin, end - begin),
                                              &std::pair<std::string_view, Comparison>::first);
    if (comparison == std::end(kComparisons))
      return error("\"{}\" does not compare by one of = != < <= > >=", text);
    TuningCondition condition{.fact = std::string(text.substr(0, begin)),
                              .comparison = comparison->second};
    PUMICE_TRY(const Kind kind, kind_of(table, condition.fact));
    const Words values = split(text.substr(end), "|");
    if (values.size() > 1 && condition.comparison != Comparison::kEqual) {
      return error("\"{}\": only = has alternatives", text);
    }
    if (kind == Kind::kWord && condition.comparison > Comparison::kNotEqual) {
      return error("\"{}\": {} is a word, and no word is less than another", text, condition.fact);
    }
    for (const std::string& value : values) {
      if (kind == Kind::kWord) {
        PUMICE_TRY_STATUS(check_word(table, condition.fact, value));
        condition.values.emplace_back(value);
      } else if (const auto size = parse_size(value)) {
        condition.values.emplace_back(*size);
      } else {
        return error("\"{}\": \"{}\" is not a number", text, value);
      }
    }
    return condition;
  }

  Result<Kind> kind_of(const TuningTable& table, std::string_view fact) const {
    if (table.words.contains(fact)) return Kind::kWord;
    if (contains(table.sizes, fact)) return Kind::kSize;
    if (const auto* value = device_.find(fact)) {
      return std::holds_alternative<std::string>(*value) ? Kind::kWord : Kind::kSize;
    }
    Words known = device_.names();
    known.insert(known.end(), table.sizes.begin(), table.sizes.end());
    for (const auto& [name, words] : table.words) known.push_back(name);
    return error("unknown fact \"{}\"; of {} there are {}", fact, table.name,
                 fmt::join(known, ", "));
  }

  Status check_word(const TuningTable& table, std::string_view fact, std::string_view word) const {
    static const Words kClasses = {"gpu", "cpu"};
    const auto own = table.words.find(fact);
    const Words* known = own != table.words.end() ? &own->second
                         : fact == "class"        ? &kClasses
                                                  : nullptr;
    if (known == nullptr || known->empty() || contains(*known, word)) return {};
    return error("{} is one of {}, not \"{}\"", fact, fmt::join(*known, ", "), word);
  }

  /// NAME=VALUE[,VALUE…]: each of the rows with each of the values.
  Result<std::vector<TuningRow>> with_number(const TuningTable& table,
                                             const std::vector<TuningRow>& made,
                                             std::string_view text) const {
    const size_t equal = text.find('=');
    const Words values = split(text.substr(std::min(equal, text.size() - 1) + 1), ",");
    if (equal == std::string_view::npos || values.empty()) {
      return error("\"{}\" sets no number, as tile_rows=4 does", text);
    }
    const std::string name(text.substr(0, equal));
    const auto number = std::ranges::find_if(table.numbers, [&](const auto& one) {
      return one.name == name && table.has(one, made.front().choice);
    });
    if (number == table.numbers.end()) {
      return error("{} {} has no number {}", table.name, made.front().choice, name);
    }
    const auto given = made.front().numbers;
    if (std::ranges::find(given, name, &std::pair<std::string, uint32_t>::first) != given.end()) {
      return error("{} is given twice", name);
    }
    std::vector<TuningRow> more;
    for (const TuningRow& row : made) {
      for (const std::string& word : values) {
        const auto value = parse_whole<uint32_t>(word);
        if (!value || std::ranges::find(number->values, *value) == number->values.end()) {
          return error("{} is one of {}, not \"{}\"", name, fmt::join(number->values, ", "), word);
        }
        more.push_back(row);
        more.back().numbers.emplace_back(name, *value);
        if (more.size() > kMostRows) return error("more than {} rows", kMostRows);
      }
    }
    return more;
  }

  Status check_whole(const TuningTable& table, const TuningRow& row) const {
    for (const TuningTable::Number& number : table.numbers) {
      if (!table.has(number, row.choice)) continue;
      const auto given =
          std::ranges::find(row.numbers, number.name, &std::pair<std::string, uint32_t>::first);
      if (given == row.numbers.end()) {
        return error("the row lacks {}, one of {}", number.name, fmt::join(number.values, ", "));
      }
    }
    return {};
  }

  std::string_view file_;
  std::span<const TuningTable> known_;
  const TuningFacts device_ = all_device_facts();
  size_t line_ = 0;
  std::string above_;  // comments, since the last blank line
};

}  // namespace

Result<std::vector<TuningTable>> parse_tuning_tables(std::string_view file, std::string_view text) {
  Parser parser(file, {});
  PUMICE_TRY_STATUS(parser.parse(text, true));
  for (TuningRow& row : parser.rows) {
    const auto table = std::ranges::find(parser.tables, row.table, &TuningTable::name);
    table->rows.push_back(std::move(row));
  }
  return std::move(parser.tables);
}

Result<std::vector<TuningRow>> parse_tuning_rows(std::string_view file, std::string_view text,
                                                 std::span<const TuningTable> tables) {
  Parser parser(file, tables);
  PUMICE_TRY_STATUS(parser.parse(text, false));
  return std::move(parser.rows);
}

}  // namespace pumice::vk
