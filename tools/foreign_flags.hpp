// Flags and commands of other runtimes that people type by habit, and what becomes of each here: a
// table.
#pragma once

#include <span>
#include <string_view>

namespace pumice::tools {

struct ForeignFlag {
  enum class Takes {
    kNothing,
    kValue,
    kSwitch,  ///< on, off, auto, true, false or numbers, where such a word follows
  };
  enum class Use {
    kAlias,    ///< `text`: our flag, or several of which the command's is taken, or a flag and its
               ///< value
    kIgnored,  ///< changes nothing here; `text` says why
    kRefused,  ///< would change results; `text` says what to do instead
  };

  std::string_view names;  ///< with spaces between them
  Takes takes = Takes::kNothing;
  Use use = Use::kIgnored;
  std::string_view text;
  std::string_view commands = {};  ///< where it is so, with spaces between them; empty: everywhere
  /// Of a refused flag: values that ask for what is done anyway, with spaces. A switch without a
  /// value is on.
  std::string_view harmless = {};
};

struct ForeignCommand {
  std::string_view name;
  std::string_view alias;  ///< our command; empty: there is none
  std::string_view text;   ///< without an alias: what to do instead
};

/// In order: the first that fits a command counts.
std::span<const ForeignFlag> foreign_flags();
std::span<const ForeignCommand> foreign_commands();

/// Whether `word` is one of `list`, which has spaces between its words.
bool is_in_list(std::string_view list, std::string_view word);

}  // namespace pumice::tools
