// What this program was built from, for records.
#pragma once

#include <string_view>

namespace pumice::bench {

std::string_view build_commit();  ///< abbreviated; "unknown" outside a repository
bool build_is_dirty();            ///< tracked files differed from the commit when it was built

}  // namespace pumice::bench
