// Options that commands declare alike: what may be given, and a default that the help shows.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "tools/flag_values.hpp"

namespace pumice::tools {

/// CLI11's name for options of no group: `app.option_defaults()->group(kDefaultGroup)` ends a group.
inline constexpr char kDefaultGroup[] = "Options";

/// A number from `least` to `most`.
template <typename T>
CLI::Option* add_number(CLI::App& app, const std::string& names, T& value,
                        std::type_identity_t<T> least, std::type_identity_t<T> most,
                        const std::string& help) {
  CLI::Option* const option = app.add_option(names, value, help)->capture_default_str();
  if constexpr (std::is_floating_point_v<T>) return option->check(number_in(least, most));
  return option->check(CLI::Range(least, most));
}

/// One of `choices`.
inline CLI::Option* add_choice(CLI::App& app, const std::string& names, std::string& value,
                               const std::vector<std::string>& choices, const std::string& help) {
  return app.add_option(names, value, help)->capture_default_str()->check(CLI::IsMember(choices));
}

}  // namespace pumice::tools
