// Man pages of the program and its commands, written from their flags.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/flag_list.hpp"

namespace pumice::tools {

struct ManPage {
  std::string name;  ///< "pumice-run"; section 1
  std::string text;  ///< roff with the macros of man(7)
};

/// Of `commands`, the first of which is the program. They have no date, so that equal programs have
/// equal pages.
std::vector<ManPage> man_pages(std::span<const CommandEntry> commands, std::string_view version);

}  // namespace pumice::tools
