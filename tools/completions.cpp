#include "tools/completions.hpp"

#include <fmt/format.h>

#include <string_view>
#include <vector>

namespace pumice::tools {
namespace {

constexpr std::string_view kHead = "# Written by pumice manual from the program's flags.\n";

std::vector<FlagEntry> flags_of(const CommandEntry& command) {
  std::vector<FlagEntry> flags;
  for (const FlagGroup& group : command.groups) {
    flags.insert(flags.end(), group.flags.begin(), group.flags.end());
  }
  return flags;
}

/// In single quotes, within which `quote` stands for one.
std::string quoted(std::string_view text, std::string_view quote) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += quote;
    } else {
      out += c;
    }
  }
  return out + "'";
}

/// What fits a line of a menu: the first clause, of which a long one is cut between words.
std::string brief(const std::string& help) {
  constexpr size_t kMostBytes = 80;
  std::string text = help.substr(0, help.find_first_of(";:\n"));
  if (text.size() <= kMostBytes) return text;
  const size_t end = text.rfind(' ', kMostBytes);
  return text.substr(0, end == text.npos ? text.size() : end) + "…";
}

std::string zsh_brief(const std::string& help) {
  std::string out;
  for (const char c : brief(help)) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_value(const FlagEntry& flag) {
  if (flag.value.empty()) return {};
  std::string action = flag.is_number ? "" : "_files";
  if (!flag.choices.empty()) action = fmt::format("({})", fmt::join(flag.choices, " "));
  std::string name;
  for (const char c : flag.value) {
    if (c == ':') name += '\\';
    name += c;
  }
  return fmt::format("{}{}:{}", flag.value_is_optional ? "::" : ":", name, action);
}

/// One for each name, which excludes the others.
std::string zsh_specs(const FlagEntry& flag) {
  constexpr std::string_view kQuote = "'\\''";
  std::string specs;
  for (const std::string& name : flag.names) {
    const std::string before =
        flag.is_repeatable ? "*" : fmt::format("({})", fmt::join(flag.names, " "));
    const std::string spec =
        fmt::format("{}{}[{}]{}", before, name, zsh_brief(flag.help), zsh_value(flag));
    specs += fmt::format(" \\\n        {}", quoted(spec, kQuote));
  }
  return specs;
}

std::string fish_flag(const FlagEntry& flag, const std::string& condition) {
  constexpr std::string_view kQuote = "\\'";
  std::string line = fmt::format("complete -c pumice -n {}", quoted(condition, kQuote));
  for (const std::string& name : flag.names) {
    if (name.starts_with("--")) {
      line += " -l " + name.substr(2);
    } else {
      line += (name.size() == 2 ? " -s " : " -o ") + name.substr(1);
    }
  }
  if (!flag.choices.empty()) {
    line += fmt::format(" -x -a '{}'", fmt::join(flag.choices, " "));
  } else if (flag.is_number) {
    line += " -x";
  } else if (!flag.value.empty() && !flag.value_is_optional) {
    line += " -r -F";
  }
  std::string help = brief(flag.help);
  for (size_t at = 0; (at = help.find('\\', at)) != help.npos; at += 2) help.insert(at, 1, '\\');
  return line + fmt::format(" -d {}\n", quoted(help, kQuote));
}

}  // namespace

std::string bash_completion(std::span<const CommandEntry> commands) {
  std::vector<std::string> names;
  std::string flags;   // of each command
  std::string values;  // of each flag that has a list of them, or has numbers
  for (const CommandEntry& command : commands) {
    const bool is_program = &command == commands.data();
    if (!is_program) names.push_back(command.name);
    std::vector<std::string> words;
    for (const FlagEntry& flag : flags_of(command)) {
      words.insert(words.end(), flag.names.begin(), flag.names.end());
      if (flag.value.empty() || flag.value_is_optional) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : flag.names) {
        patterns.push_back(fmt::format("'{}:{}'", is_program ? "" : command.name, name));
      }
      const char* const files = flag.is_number || !flag.choices.empty() ? "" : " files=1";
      values += fmt::format("    {}) takes=1 values='{}'{} ;;\n", fmt::join(patterns, " | "),
                            fmt::join(flag.choices, " "), files);
    }
    flags += fmt::format("    '{}') flags='{}' ;;\n", is_program ? "" : command.name,
                         fmt::join(words, " "));
  }
  return fmt::format(R"({}_pumice() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} flag='' command='' flags='' values='' words='' takes=0 files=0 i
  local commands='{} help version'
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${{COMP_WORDS[i]}} == --config ]]; then
      ((++i))
    elif [[ ${{COMP_WORDS[i]}} != -* ]]; then
      command=${{COMP_WORDS[i]}}
      break
    fi
  done
  # --flag=value is three words.
  if [[ $word == = ]]; then
    word='' flag=${{COMP_WORDS[COMP_CWORD-1]}}
  elif [[ ${{COMP_WORDS[COMP_CWORD-1]}} == = ]] && ((COMP_CWORD > 1)); then
    flag=${{COMP_WORDS[COMP_CWORD-2]}}
  else
    flag=${{COMP_WORDS[COMP_CWORD-1]}}
  fi
  case $command in
{}  esac
  case $command:$flag in
{}  esac
  COMPREPLY=()
  if ((takes)); then
    # Files are what `complete -o default` offers where there is nothing else.
    ((files)) || compopt +o default 2>/dev/null
    words=$values
  elif [[ $word == -* ]]; then
    words=$flags
  elif [[ -z $command || $command == help ]]; then
    words=$commands
  else
    return
  fi
  local IFS=$' \n'
  # shellcheck disable=SC2207  # no word has blanks
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _pumice pumice
)",
                     kHead, fmt::join(names, " "), flags, values);
}

std::string zsh_completion(std::span<const CommandEntry> commands) {
  constexpr std::string_view kQuote = "'\\''";
  std::string list;
  std::string cases;
  for (const CommandEntry& command : commands.subspan(1)) {
    list +=
        fmt::format("        {}\n", quoted(command.name + ":" + zsh_brief(command.help), kQuote));
    cases += fmt::format("        {})\n      _arguments", command.name);
    for (const FlagEntry& flag : flags_of(command)) cases += zsh_specs(flag);
    cases += " \\\n        '*:file:_files'\n      ;;\n";
  }
  std::string of_program;
  for (const FlagEntry& flag : flags_of(commands.front())) of_program += zsh_specs(flag);
  return fmt::format(R"(#compdef pumice
{}_pumice() {{
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -C{} \
        '1:command:->command' \
        '*::argument:->arguments'
  case $state in
    command)
      local -a commands=(
{}      )
      _describe -t commands 'pumice command' commands
      ;;
    arguments)
      case $words[1] in
{}      esac
      ;;
  esac
}}
# Read by the completion system, or by `source`.
if [[ $funcstack[1] == _pumice ]]; then
  _pumice "$@"
elif (( $+functions[compdef] )); then
  compdef _pumice pumice
fi
)",
                     kHead, of_program, list, cases);
}

std::string fish_completion(std::span<const CommandEntry> commands) {
  constexpr std::string_view kQuote = "\\'";
  std::string text(kHead);
  std::vector<std::string> names;
  for (const CommandEntry& command : commands.subspan(1)) names.push_back(command.name);
  const std::string none = fmt::format("not __fish_seen_subcommand_from {}", fmt::join(names, " "));
  text += fmt::format("complete -c pumice -n {} -f\n", quoted(none, kQuote));
  for (const CommandEntry& command : commands.subspan(1)) {
    text += fmt::format("complete -c pumice -n {} -a {} -d {}\n", quoted(none, kQuote),
                        command.name, quoted(brief(command.help), kQuote));
  }
  for (const CommandEntry& command : commands) {
    const bool is_program = &command == commands.data();
    const std::string condition = is_program ? none : "__fish_seen_subcommand_from " + command.name;
    for (const FlagEntry& flag : flags_of(command)) text += fish_flag(flag, condition);
  }
  return text;
}

}  // namespace pumice::tools
