#include "tools/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/path.hpp"
#include "base/printable.hpp"
#include "base/process.hpp"
#include "tools/toml.hpp"

namespace pumice::tools {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kShownBytes = 40;  // of a value that cannot be used

/// A setting of the file: where, and what as a flag would have it.
struct Setting {
  std::string place;
  std::vector<std::string> values;
};

using Chosen = std::map<const CLI::Option*, Setting>;

Error cannot_read(const std::string& file, std::string_view reason) {
  return make_error(ErrorCode::kBadFile, "{}: {}", file, reason);
}

std::string system_reason(std::error_code error) {
  return fmt::format("cannot be read: {}", error.message());
}

/// Nothing if there is no file. It does not wait for the writer of a pipe.
Result<std::optional<std::string>> read_settings(const std::string& file) {
  std::error_code error;
  const File settings = File::open(from_utf8(file), File::Mode::kRead, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    return std::optional<std::string>();
  }
  if (error) return cannot_read(file, system_reason(error));
  if (!settings.info(error).is_regular()) {
    return cannot_read(file, "is not a regular file, which settings must be in");
  }
  std::string text(kMostBytes + 1, '\0');
  text.resize(settings.read_at(0, std::as_writable_bytes(std::span(text)), error));
  if (error) return cannot_read(file, system_reason(error));
  if (text.size() > kMostBytes) return cannot_read(file, "is larger than the 1 MiB allowed");
  return std::optional(std::move(text));
}

/// What the file sets for `command`. The names in it are looked up for all commands of `app`.
Result<Chosen> read_chosen(const CLI::App& app, const CLI::App& command, const std::string& file,
                           const std::string& text) {
  const Result<TomlFile> parsed = parse_toml(text);
  if (!parsed.ok()) {
    return make_error(ErrorCode::kInvalidArgument, "{} {}", file, parsed.error().message);
  }
  const auto find = [&](const std::string& name) {
    const auto found = app.get_subcommands(
        [&](const CLI::App* one) { return !name.empty() && one->get_name() == name; });
    return found.empty() ? nullptr : found.front();
  };
  for (const auto& [name, line] : parsed->tables) {
    if (find(name) != nullptr) continue;
    return make_error(ErrorCode::kInvalidArgument, "{} line {}: there is no subcommand '{}'", file,
                      line, printable(name));
  }
  Chosen chosen;
  for (const TomlSetting& setting : parsed->settings) {
    const std::string place = fmt::format("{} line {}", file, setting.line);
    if (setting.table.empty()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}: '{}' belongs to no subcommand; put it below one, such as [run]", place,
                        printable(setting.name));
    }
    const CLI::App* const its = find(setting.table);
    if (its == nullptr) {
      return make_error(ErrorCode::kInvalidArgument, "{}: there is no subcommand '{}'", place,
                        printable(setting.table));
    }
    const CLI::Option* const option =
        its->get_option_no_throw((setting.name.size() == 1 ? "-" : "--") + setting.name);
    if (option == nullptr || option == its->get_help_ptr()) {
      return make_error(ErrorCode::kInvalidArgument, "{}: pumice {} has no setting '{}'", place,
                        its->get_name(), printable(setting.name));
    }
    if (its == &command) chosen[option] = {.place = place, .values = setting.values};
  }
  return chosen;
}

/// As if the flag had been given. Nothing is thrown.
Status set(CLI::Option& option, const Setting& setting) {
  try {
    for (const std::string& value : setting.values) option.add_result(value);
    option.run_callback();
  } catch (const CLI::Error& error) {
    return make_error(ErrorCode::kInvalidArgument, "{}: {}", setting.place, error.what());
  }
  return {};
}

/// A model that a flag gives leaves no place for another.
constexpr const char* kModels[] = {"--model", "--hf", "--synthetic"};

bool is_excluded_by_a_flag(const CLI::App& command, const CLI::Option& option) {
  const auto is = [&](const char* name) { return command.get_option_no_throw(name) == &option; };
  const auto is_given = [&](const char* name) {
    const CLI::Option* const other = command.get_option_no_throw(name);
    return other != nullptr && other->count() > 0;
  };
  if (std::ranges::any_of(kModels, is) && std::ranges::any_of(kModels, is_given)) return true;
  const std::set<CLI::Option*> excludes = option.get_excludes();
  return std::ranges::any_of(excludes, [](const CLI::Option* one) { return one->count() > 0; });
}

}  // namespace

Settings::Settings(CLI::App& app) {
  for (CLI::App* const command : app.get_subcommands([](CLI::App*) { return true; })) {
    for (CLI::Option* const option : command->get_options()) {
      if (option->get_envname().empty()) continue;
      variables_[option] = option->get_envname();
      option->envname("");
    }
  }
}

void Settings::show_in_help() {
  for (const auto& [option, variable] : variables_) option->envname(variable);
}

Status Settings::apply(CLI::App& command, const std::string& file, bool is_chosen) const {
  Chosen in_file;
  if (!file.empty()) {
    PUMICE_TRY(const std::optional<std::string> text, read_settings(file));
    if (!text && is_chosen)
      return cannot_read(file,
                         system_reason(std::make_error_code(std::errc::no_such_file_or_directory)));
    if (text) {
      PUMICE_TRY(in_file, read_chosen(*command.get_parent(), command, file, *text));
    }
  }
  // A list of its own: what is set here excludes nothing.
  std::vector<std::pair<CLI::Option*, Setting>> to_set;
  for (CLI::Option* const option : command.get_options()) {
    if (option->count() > 0 || is_excluded_by_a_flag(command, *option)) continue;
    const auto variable = variables_.find(option);
    const std::string value = variable == variables_.end()
                                  ? ""
                                  : environment_variable(variable->second.c_str()).value_or("");
    if (!value.empty()) {
      to_set.emplace_back(option, Setting{.place = fmt::format("{}={}", variable->second,
                                                               printable(value, kShownBytes)),
                                          .values = {value}});
    } else if (const auto found = in_file.find(option); found != in_file.end()) {
      to_set.emplace_back(option, found->second);
    }
  }
  for (const auto& [option, setting] : to_set) PUMICE_TRY_STATUS(set(*option, setting));
  return {};
}

}  // namespace pumice::tools
