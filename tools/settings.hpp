// What stands in for flags that are not given: PUMICE_* variables of the environment, and behind
// them a settings file.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "base/result.hpp"

namespace pumice::tools {

class Settings {
 public:
  /// Of the options of `app`, which outlives this. Until show_in_help CLI11 does not know of their
  /// variables: it would read those of every command, whichever was chosen.
  explicit Settings(CLI::App& app);
  void show_in_help();

  /// After parsing: sets each option of the chosen `command` that no flag set and no flag excludes
  /// from its variable, else from `file`. Other commands' values are not looked at, but the names
  /// in the file are. `file` may be missing unless it `is_chosen`; empty: there is none.
  ///
  /// The file is TOML as tools/toml.hpp reads it: a table for each command, [run], with settings
  /// named as its long flags are.
  ///
  /// Errors: kInvalidArgument names the variable, or the file and the line; kBadFile: the file
  /// cannot be read, is no regular file or larger than 1 MiB.
  Status apply(CLI::App& command, const std::string& file, bool is_chosen) const;

 private:
  std::map<CLI::Option*, std::string> variables_;
};

}  // namespace pumice::tools
