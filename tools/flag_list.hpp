// The commands and their flags as CLI11 knows them, as plain data: what man pages and completions
// are made of.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace pumice::tools {

struct FlagEntry {
  std::vector<std::string> names;  ///< as they are typed; of a positional argument its only one
  std::string value;               ///< "FILE"; empty: it takes none
  bool value_is_optional = false;
  bool is_number = false;            ///< its value
  std::vector<std::string> choices;  ///< all values there are; empty: others
  std::string range;                 ///< "0 - 20", or empty
  std::string help;
  std::string standard;  ///< its value where none is given
  std::string variable;  ///< PUMICE_…, or empty
  std::vector<std::string> needs;
  std::vector<std::string> excludes;
  bool is_positional = false;
  bool is_required = false;
  bool is_repeatable = false;  ///< or, of a positional one, takes several
};

struct FlagGroup {
  std::string name;
  std::vector<FlagEntry> flags;
};

struct CommandEntry {
  std::string name;  ///< of the program "pumice"
  std::string help;
  std::string footer;
  std::vector<FlagEntry> positionals;
  std::vector<FlagGroup> groups;  ///< in the order of the help, none empty
};

/// Of the program, then of each command that the help lists.
std::vector<CommandEntry> list_commands(const CLI::App& program);

}  // namespace pumice::tools
