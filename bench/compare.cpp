#include "bench/compare.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "bench/report_numbers.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;
using Facets = std::vector<std::pair<std::string, std::string>>;

/// What may tell rows of the same test apart, or be what is compared.
Facets facets_of(const ResultRow& row) {
  Facets facets{{"model", row.model}, {"device", row.device}};
  facets.insert(facets.end(), row.settings.begin(), row.settings.end());
  return facets;
}

using Values = std::map<std::string, std::set<std::string>>;

/// The names of facets with several values among the rows of one kind in one file.
std::set<std::string> varying_facets(std::span<const ResultFile> files) {
  std::set<std::string> varying;
  for (const ResultFile& file : files) {
    std::map<ResultRow::Kind, Values>
        values;  // of ops there is no model, which is not a difference
    for (const ResultRow& row : file.rows) {
      for (const auto& [name, value] : facets_of(row)) {
        if (!value.empty()) values[row.kind][name].insert(value);
      }
    }
    for (const auto& [kind, of_kind] : values) {
      for (const auto& [name, seen] : of_kind) {
        if (seen.size() > 1) varying.insert(name);
      }
    }
  }
  return varying;
}

/// Rows with equal keys match: name, unit, and the how manieth of its equals in its file.
using Key = std::tuple<std::string, std::string, size_t>;

std::string row_name(const ResultRow& row, const std::set<std::string>& varying) {
  std::string name = row.test;
  for (const auto& [facet, value] : facets_of(row)) {
    if (!varying.contains(facet) || value.empty()) continue;
    name += facet == "model" || facet == "device" ? fmt::format(", {}", value)
                                                  : fmt::format(", {} {}", facet, value);
  }
  return name;
}

ComparedCell cell_of(const ResultRow& row, const ComparedCell& base) {
  ComparedCell cell{.row = &row, .summary = {}, .ratio = {}};
  if (!row.problem.empty()) return cell;
  cell.summary = summarize(row.samples);
  const bool has_base = base.row != nullptr && base.row->problem.empty();
  if (has_base) cell.ratio = speed_ratio(base.row->samples, row.samples, row.more_is_better);
  return cell;
}

/// The values of one line of the head, joined, for each file.
struct HeadLine {
  std::string name;
  std::vector<std::string> values;

  bool differs() const {
    for (const std::string& value : values) {
      if (value != values.front()) return true;
    }
    return false;
  }
};

std::string joined(const std::set<std::string>& values) {
  constexpr size_t kMaxShown = 4;
  std::string text;
  size_t shown = 0;
  for (const std::string& value : values) {
    if (value.empty()) continue;
    if (++shown > kMaxShown) return text + fmt::format(", … ({} in all)", values.size());
    text += (text.empty() ? "" : ", ") + value;
  }
  return text;
}

/// Always what was measured on what; settings only where files differ.
std::vector<HeadLine> head_of(const Comparison& comparison) {
  std::vector<std::string> names{"model", "device", "driver", "commit"};
  std::vector<Values> values;
  for (const ResultFile* const file : comparison.files) {
    Values& of_file = values.emplace_back();
    for (const ResultRow& row : file->rows) {
      for (const auto& [name, value] : facets_of(row)) of_file[name].insert(value);
      of_file["driver"].insert(row.driver);
      of_file["commit"].insert(row.commit);
      for (const auto& [name, value] : row.settings) {
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
      }
    }
  }
  std::vector<HeadLine> head;
  for (const std::string& name : names) {
    HeadLine line{.name = name, .values = {}};
    for (Values& of_file : values) line.values.push_back(joined(of_file[name]));
    if (head.size() < 4 || line.differs()) head.push_back(std::move(line));
  }
  return head;
}

/// Text of others inside a table: no HTML, no markup.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    if (c == '<') out += "&lt;";
    if (c == '>') out += "&gt;";
    if (c == '&' || c == '<' || c == '>') continue;
    if (std::string_view("|\\`*[").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string score_text(const ComparedCell& cell) {
  if (cell.row == nullptr) return "–";
  if (!cell.row->problem.empty()) return fmt::format("no score: {}", cell.row->problem);
  if (cell.row->samples.size() < 2) return short_number(cell.summary.median);
  return fmt::format("{} ± {:.1f} %", short_number(cell.summary.median),
                     cell.summary.spread_percent() / 2);
}

std::string ratio_text(const ComparedCell& cell) {
  if (!cell.ratio) return "";
  return fmt::format("{:.3f} ({:.3f} – {:.3f})", cell.ratio->ratio, cell.ratio->low,
                     cell.ratio->high);
}

std::string table_line(std::span<const std::string> cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += fmt::format(" {} |", escaped(cell));
  return line + "\n";
}

std::string table_rule(std::string_view column, size_t n) {
  std::string line;
  for (size_t i = 0; i < n; ++i) line += column;
  return line + "|\n";
}

/// Whether the base has the row and another file too.
bool has_match(const ComparedRow& row) {
  if (row.cells[0].row == nullptr) return false;
  return std::any_of(row.cells.begin() + 1, row.cells.end(),
                     [](const ComparedCell& cell) { return cell.row != nullptr; });
}

std::string files_with(const Comparison& comparison, const ComparedRow& row) {
  std::string names;
  for (size_t i = 0; i < row.cells.size(); ++i) {
    if (row.cells[i].row == nullptr) continue;
    names += (names.empty() ? "" : ", ") + escaped(comparison.files[i]->name);
  }
  return names;
}

Json cell_json(const ComparedCell& cell) {
  if (cell.row == nullptr) return nullptr;
  if (!cell.row->problem.empty()) return {{"error", cell.row->problem}};
  Json json{{"median", cell.summary.median},
            {"low", cell.summary.low},
            {"high", cell.summary.high},
            {"samples", cell.row->samples}};
  if (cell.ratio) {
    json.update({{"ratio", cell.ratio->ratio},
                 {"ratio_low", cell.ratio->low},
                 {"ratio_high", cell.ratio->high}});
  }
  return json;
}

}  // namespace

SpeedRatio speed_ratio(std::span<const double> base, std::span<const double> other,
                       bool more_is_better) {
  const Summary from = summarize(base);
  const Summary to = summarize(other);
  if (more_is_better) return {to.median / from.median, to.low / from.high, to.high / from.low};
  return {from.median / to.median, from.low / to.high, from.high / to.low};
}

size_t Comparison::n_ratios() const {
  size_t n = 0;
  for (const ComparedRow& row : rows) {
    for (size_t i = 1; i < row.cells.size(); ++i) n += row.cells[i].ratio ? 1 : 0;
  }
  return n;
}

Comparison compare(std::span<const ResultFile> files) {
  const std::set<std::string> varying = varying_facets(files);
  Comparison comparison;
  std::map<Key, size_t> row_of;
  for (size_t i = 0; i < files.size(); ++i) {
    comparison.files.push_back(&files[i]);
    std::map<std::pair<std::string, std::string>, size_t> occurrences;
    for (const ResultRow& row : files[i].rows) {
      const std::string name = row_name(row, varying);
      const size_t occurrence = occurrences[{name, row.unit}]++;
      const Key key{name, row.unit, occurrence};
      const auto [found, is_new] = row_of.try_emplace(key, comparison.rows.size());
      if (is_new) {
        const std::string shown =
            occurrence == 0 ? name : fmt::format("{} #{}", name, occurrence + 1);
        comparison.rows.push_back(
            {.name = shown, .unit = row.unit, .cells = std::vector<ComparedCell>(files.size())});
      }
      std::vector<ComparedCell>& cells = comparison.rows[found->second].cells;
      cells[i] = cell_of(row, i == 0 ? ComparedCell{} : cells[0]);
    }
  }
  return comparison;
}

Json to_json(const Comparison& comparison) {
  Json json{{"bench", "compare"}, {"files", Json::array()}, {"rows", Json::array()}};
  for (const ResultFile* const file : comparison.files) json["files"].push_back(file->name);
  for (const HeadLine& line : head_of(comparison)) {
    json["head"][line.name] = {{"values", line.values}, {"differs", line.differs()}};
  }
  for (const ComparedRow& row : comparison.rows) {
    Json cells = Json::array();
    for (const ComparedCell& cell : row.cells) cells.push_back(cell_json(cell));
    json["rows"].push_back({{"test", row.name}, {"unit", row.unit}, {"files", std::move(cells)}});
  }
  return json;
}

std::string to_markdown(const Comparison& comparison) {
  std::vector<std::string> names{"file"};
  for (const ResultFile* const file : comparison.files) names.push_back(file->name);
  names.emplace_back();
  std::string text = table_line(names) + table_rule("|---", comparison.files.size() + 2);
  for (const HeadLine& line : head_of(comparison)) {
    std::vector<std::string> cells{line.name};
    cells.insert(cells.end(), line.values.begin(), line.values.end());
    cells.emplace_back(line.differs() ? "differs" : "");
    text += table_line(cells);
  }
  text +=
      "\nMedians ± half the distance of the quartiles. A ratio above 1 is faster than the base; in "
      "brackets\nwhat the quartiles of both sides allow.\n\n";
  std::vector<std::string> titles{"test", "unit", "base"};
  for (size_t i = 1; i < comparison.files.size(); ++i) {
    titles.insert(titles.end(), {comparison.files[i]->name, "ratio"});
  }
  text += table_line(titles) + "|---|---" + table_rule("|---:", titles.size() - 2);
  std::string unmatched;
  for (const ComparedRow& row : comparison.rows) {
    if (!has_match(row)) {
      unmatched += fmt::format("\nOnly in {}: {}", files_with(comparison, row), escaped(row.name));
      continue;
    }
    std::vector<std::string> cells{row.name, row.unit, score_text(row.cells[0])};
    for (size_t i = 1; i < row.cells.size(); ++i) {
      cells.insert(cells.end(), {score_text(row.cells[i]), ratio_text(row.cells[i])});
    }
    text += table_line(cells);
  }
  return text + (unmatched.empty() ? "" : unmatched + "\n");
}

}  // namespace pumice::bench
