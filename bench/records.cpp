#include "bench/records.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace pumice::bench {
namespace {

using Json = nlohmann::json;

/// Of all records that have it. A number that was not measured is a number all the same.
struct Column {
  std::string name;
  bool is_integer = true;
  bool is_number = true;
  bool is_null = true;

  const char* type() const {
    if (is_null || !is_number) return "TEXT";
    return is_integer ? "INTEGER" : "REAL";
  }
};

/// Null, or a number that JSON cannot hold.
bool is_absent(const Json& value) {
  return value.is_null() || (value.is_number_float() && !std::isfinite(value.get<double>()));
}

/// Of all records, in the order of their first appearance.
std::vector<Column> columns_of(std::span<const Json> records) {
  std::vector<Column> columns;
  for (const Json& record : records) {
    for (const auto& [name, value] : record.items()) {
      auto column = std::ranges::find(columns, name, &Column::name);
      if (column == columns.end()) column = columns.insert(column, {.name = name});
      if (value.is_null()) continue;
      column->is_null = false;
      column->is_integer &= value.is_number_integer() || value.is_boolean();
      column->is_number &= value.is_number() || value.is_boolean();
    }
  }
  return columns;
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return to_jsonl(value);
}

/// `text` between two of `quote`, which is doubled inside.
std::string in_quotes(std::string_view text, char quote) {
  std::string out;
  out += quote;
  for (const char c : text) {
    if (c == '\0') continue;  // no SQL text can hold it
    if (c == quote) out += quote;
    out += c;
  }
  out += quote;
  return out;
}

}  // namespace

std::string to_jsonl(const Json& record) {
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_csv(std::span<const Json> records) {
  const std::vector<Column> columns = columns_of(records);
  std::string text;
  for (const Column& column : columns) {
    if (&column != columns.data()) text += ',';
    text += in_quotes(column.name, '"');
  }
  text += '\n';
  for (const Json& record : records) {
    std::string line;
    for (const Column& column : columns) {
      if (&column != columns.data()) line += ',';
      const auto value = record.find(column.name);
      if (value != record.end() && !is_absent(*value)) line += in_quotes(text_of(*value), '"');
    }
    text += line + '\n';
  }
  return text;
}

std::string to_sql(std::span<const Json> records) {
  const std::vector<Column> columns = columns_of(records);
  std::vector<std::string> declarations;
  std::vector<std::string> names;
  for (const Column& column : columns) {
    names.push_back(in_quotes(column.name, '"'));
    declarations.push_back(fmt::format("{} {}", names.back(), column.type()));
  }
  std::string text = fmt::format("CREATE TABLE IF NOT EXISTS llama_bench (\n  {}\n);\n",
                                 fmt::join(declarations, ",\n  "));
  for (const Json& record : records) {
    std::vector<std::string> values;
    for (const Column& column : columns) {
      const auto value = record.find(column.name);
      if (value == record.end() || is_absent(*value)) {
        values.emplace_back("NULL");
      } else {
        values.push_back(column.is_number ? text_of(*value) : in_quotes(text_of(*value), '\''));
      }
    }
    text += fmt::format("\nINSERT INTO llama_bench ({}) VALUES ({});\n", fmt::join(names, ", "),
                        fmt::join(values, ", "));
  }
  return text;
}

}  // namespace pumice::bench
