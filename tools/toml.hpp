// The part of TOML 1.0 that settings are made of: tables by one name, [run], and in them names with
// texts in single or double quotes, decimal numbers, booleans, and lists of these; run.model = "x"
// outside any table. What TOML has beyond that (dates, texts of several lines, tables in tables or
// in a line, numbers of other bases) is an error.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace pumice::tools {

struct TomlSetting {
  size_t line = 0;
  std::string table;  ///< empty: it stands in none
  std::string name;
  std::vector<std::string> values;  ///< as text; several, or none, of a list
};

struct TomlFile {
  std::vector<TomlSetting> settings;
  /// Tables in the order of the file, with their lines.
  std::vector<std::pair<std::string, size_t>> tables;
};

/// Errors (kInvalidArgument) begin with "line N: ".
Result<TomlFile> parse_toml(std::string_view text);

}  // namespace pumice::tools
