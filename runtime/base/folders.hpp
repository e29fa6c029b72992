// Where the system keeps a program's files for its user.
#pragma once

#include <filesystem>

namespace pumice {

// Ours, which need not exist; empty if there is no home.

// On Windows the folders config, cache and state of %LOCALAPPDATA%\pumice.

/// ~/.config/pumice, or where XDG_CONFIG_HOME says.
std::filesystem::path config_directory();
/// ~/.cache/pumice, or where XDG_CACHE_HOME says.
std::filesystem::path cache_directory();
/// ~/.local/state/pumice, or where XDG_STATE_HOME says.
std::filesystem::path state_directory();

/// The home that the account has, whatever HOME says; empty if it has none.
std::filesystem::path account_home();

}  // namespace pumice
