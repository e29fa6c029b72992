#include "tools/settings_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "base/printable.hpp"
#include "base/utf8.hpp"

namespace pumice::tools {
namespace {

constexpr char kSection = '[';

bool is_comment(const std::string& line) {
  return line.empty() || line.front() == '#' || line.front() == ';';
}

/// The name between brackets, simple or double; empty if it is none.
std::string section_name(const std::string& line) {
  if (line.size() < 3 || line.back() != ']') return {};
  std::string name = line.substr(1, line.size() - 2);
  if (name.size() > 2 && name.front() == kSection && name.back() == ']') {
    name = name.substr(1, name.size() - 2);
  }
  return name.find_first_of("[]") == name.npos ? CLI::detail::trim(name) : std::string();
}

/// What the environment says of an option; empty if nothing.
std::string environment_of(const CLI::Option& option) {
  if (option.get_envname().empty()) return {};
  const char* const value = std::getenv(option.get_envname().c_str());
  return value == nullptr ? "" : value;
}

bool in_environment(const CLI::Option& option) { return !environment_of(option).empty(); }

const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  return app.get_option_no_throw((name.size() == 1 ? "-" : "--") + name);
}

/// The subcommand with the name, the program itself for none; nullptr if there is no such.
const CLI::App* find_command(const CLI::App& app, const std::string& section) {
  if (section.empty() || CLI::detail::to_lower(section) == "default") return &app;
  const auto found = app.get_subcommands(
      [&section](const CLI::App* command) { return command->get_name() == section; });
  return found.empty() ? nullptr : found.front();
}

/// Whether `message` is about the option, by one of its long names.
bool names(const std::string& message, const CLI::Option& option) {
  for (const std::string& name : option.get_lnames()) {
    const size_t at = message.find("--" + name);
    if (at == message.npos) continue;
    const size_t end = at + 2 + name.size();
    if (end == message.size() || message.find_first_of(" :=,.", end) == end) return true;
  }
  return false;
}

}  // namespace

void check_environment(const CLI::App& app) {
  for (CLI::App* const command : app.get_subcommands()) {
    for (CLI::Option* const option : command->get_options()) {
      if (option->count() > 0 || !in_environment(*option)) continue;
      option->add_result(environment_of(*option));
      option->run_callback();
    }
  }
}

std::string SettingsFile::path() const { return app_.get_config_ptr()->as<std::string>(); }

CLI::ConfigError SettingsFile::error(size_t line, const std::string& what) const {
  return CLI::ConfigError(fmt::format("{} line {}: {}", path(), line, what));
}

void SettingsFile::add(size_t line, const std::string& section, const std::string& name) const {
  // "run.model" outside any section is "model" in [run].
  const size_t dot = name.rfind('.');
  const bool dotted = section.empty() && dot != name.npos;
  const std::string command_name = dotted ? name.substr(0, dot) : section;
  const CLI::App* const command = find_command(app_, command_name);
  if (command == nullptr) {
    throw error(line, fmt::format("there is no subcommand '{}'", printable(command_name)));
  }
  const CLI::Option* const option = find_option(*command, dotted ? name.substr(dot + 1) : name);
  if (option == nullptr) {
    throw error(line, fmt::format("pumice{}{} has no setting '{}'", command == &app_ ? "" : " ",
                                  command_name, printable(name)));
  }
  if (option->count() == 0 && !in_environment(*option)) settings_.push_back({line, option});
}

std::vector<CLI::ConfigItem> SettingsFile::from_config(std::istream& input) const {
  const std::string content{std::istreambuf_iterator<char>(input), {}};
  const std::string text(without_byte_order_mark(content));
  settings_.clear();
  std::string section;
  std::string line;
  size_t number = 0;
  std::istringstream lines(text);
  const auto next = [&] {
    if (!std::getline(lines, line)) return false;
    ++number;
    CLI::detail::trim(line);
    return true;
  };
  while (next()) {
    if (is_comment(line)) continue;
    if (line.front() == kSection) {
      section = section_name(line);
      if (section.empty()) {
        throw error(number,
                    fmt::format("'{}' is not a section; one looks like [run]", printable(line)));
      }
      if (find_command(app_, section) == nullptr) {
        throw error(number, fmt::format("there is no subcommand '{}'", printable(section)));
      }
      continue;
    }
    const size_t start = number;
    const size_t equals = line.find('=');
    std::string name = CLI::detail::trim_copy(line.substr(0, std::min(equals, line.find('#'))));
    if (name.find('.') == name.npos) CLI::detail::remove_quotes(name);
    std::string value = equals == line.npos ? "true" : line.substr(equals + 1);
    value.erase(std::min(value.find('#'), value.size()));
    CLI::detail::trim(value);
    // CLI11 takes lines of less than three characters for nothing.
    if (name.empty() || value.empty() || line.size() < 3) {
      throw error(number, fmt::format("'{}' is not a setting; one looks like predict = 100",
                                      printable(line)));
    }
    add(start, section == "default" ? "" : section, name);
    if (value.size() < 2 || value.front() != '[') continue;
    while (value.back() != ']') {  // a list of several lines
      if (!next()) throw error(start, fmt::format("the list of '{}' has no end", printable(name)));
      value += line;
    }
  }
  std::istringstream again(text);
  std::vector<CLI::ConfigItem> kept = CLI::ConfigTOML::from_config(again);
  std::erase_if(kept, [this](const CLI::ConfigItem& item) {
    const CLI::App* const command = find_command(app_, item.parents.empty() ? "" : item.parents[0]);
    const CLI::Option* const option = command ? find_option(*command, item.name) : nullptr;
    return option != nullptr && in_environment(*option);
  });
  return kept;
}

std::string SettingsFile::with_place(const std::string& message) const {
  for (const Setting& setting : settings_) {
    if (names(message, *setting.option)) {
      return fmt::format("{} line {}: {}", path(), setting.line, message);
    }
  }
  return message;
}

}  // namespace pumice::tools
