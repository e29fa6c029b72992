// Completions for shells, written from the program's flags: commands, flags, the values of flags
// that have a list of them; files for other values that are no numbers.
#pragma once

#include <span>
#include <string>

#include "tools/flag_list.hpp"

namespace pumice::tools {

// The first of `commands` is the program. Each is a script that the shell reads when it first
// completes a line of pumice; it needs nothing but the shell.

std::string bash_completion(std::span<const CommandEntry> commands);
std::string zsh_completion(std::span<const CommandEntry> commands);
std::string fish_completion(std::span<const CommandEntry> commands);

}  // namespace pumice::tools
