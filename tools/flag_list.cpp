#include "tools/flag_list.hpp"

#include <algorithm>
#include <string_view>

#include "base/ascii.hpp"
#include "tools/arguments.hpp"

namespace pumice::tools {
namespace {

/// What CLI11 writes behind a flag: "TEXT:{f32,f16}", "UINT:UINT in [0 - 20]", "FILE".
void read_type(std::string_view text, FlagEntry& flag) {
  flag.value = std::string(take_part(text, ':'));
  flag.is_number = flag.value == "UINT" || flag.value == "INT" || flag.value == "FLOAT";
  if (text.starts_with('{') && text.ends_with('}')) {
    text = text.substr(1, text.size() - 2);
    while (!text.empty()) flag.choices.emplace_back(take_part(text, ','));
  } else if (const size_t range = text.find(" in ["); range != text.npos && text.ends_with(']')) {
    text.remove_prefix(range + 5);
    flag.range = std::string(text.substr(0, text.size() - 1));
  }
}

FlagEntry flag_entry(const CLI::Option& option) {
  FlagEntry flag{.names = typed_names(option),
                 .help = option.get_description(),
                 .variable = option.get_envname(),
                 .is_positional = option.get_positional(),
                 .is_required = option.get_required()};
  if (flag.is_positional) flag.names = {option.get_name(true, false)};
  if (option.get_items_expected_max() > 0) {
    read_type(option.get_type_name(), flag);
    flag.value_is_optional = option.get_items_expected_min() == 0;
    flag.standard = option.get_default_str();
  }
  using Policy = CLI::MultiOptionPolicy;
  flag.is_repeatable = option.get_items_expected_max() > 1 ||
                       (option.get_multi_option_policy() == Policy::TakeAll && !flag.value.empty());
  for (const CLI::Option* const other : option.get_needs()) {
    flag.needs.push_back(typed_names(*other).front());
  }
  for (const CLI::Option* const other : option.get_excludes()) {
    flag.excludes.push_back(typed_names(*other).front());
  }
  // CLI11 keeps them by address.
  std::ranges::sort(flag.needs);
  std::ranges::sort(flag.excludes);
  return flag;
}

CommandEntry command_entry(const CLI::App& command) {
  CommandEntry entry{.name = command.get_name(),
                     .help = command.get_description(),
                     .footer = command.get_footer()};
  for (const std::string& name : command.get_groups()) {
    FlagGroup group{.name = name, .flags = {}};
    for (const CLI::Option* const option : command.get_options()) {
      if (option->get_group() != name) continue;
      const FlagEntry flag = flag_entry(*option);
      (flag.is_positional ? entry.positionals : group.flags).push_back(flag);
    }
    if (!name.empty() && !group.flags.empty()) entry.groups.push_back(std::move(group));
  }
  return entry;
}

}  // namespace

std::vector<CommandEntry> list_commands(const CLI::App& program) {
  std::vector<CommandEntry> entries = {command_entry(program)};
  const auto is_shown = [](const CLI::App* command) { return !command->get_group().empty(); };
  for (const CLI::App* const command : program.get_subcommands(is_shown)) {
    entries.push_back(command_entry(*command));
  }
  return entries;
}

}  // namespace pumice::tools
