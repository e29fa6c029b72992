// The settings file: TOML as far as CLI11 reads it, with errors that name the file and the line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace pumice::tools {

class SettingsFile : public CLI::ConfigTOML {
 public:
  /// Of the options of `app`, which knows the file's name and outlives this.
  explicit SettingsFile(const CLI::App& app) : app_(app) {}

  /// Without what the environment sets: CLI11 would let the file win. Throws CLI::ConfigError for a
  /// line that is no setting; CLI11 alone ignores some of them.
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;

  /// `message`, and in front of it the place of the setting that it names, if that is in the file.
  std::string with_place(const std::string& message) const;

 private:
  struct Setting {
    size_t line = 0;
    const CLI::Option* option = nullptr;
  };

  std::string path() const;
  CLI::ConfigError error(size_t line, const std::string& what) const;
  void add(size_t line, const std::string& section, const std::string& name) const;

  const CLI::App& app_;
  mutable std::vector<Setting> settings_;  ///< of the last file, those that count
};

/// After parsing: CLI11 2.5 leaves out values of the environment that an option does not take, as
/// if they were not there. Throws CLI::ParseError for the first of them.
void check_environment(const CLI::App& app);

}  // namespace pumice::tools
