// What the system's errors in writing are to us, the same everywhere.
#pragma once

#include <string_view>
#include <system_error>

#include "base/result.hpp"

namespace pumice {

/// `name`: the file or stream. kDoesNotFit where a disk, a quota or a size limit is full,
/// kCancelled where a signal interrupted it, else kBadFile.
Error cannot_write(std::string_view name, std::error_code error);
/// The same for an errno.
Error cannot_write(std::string_view name, int error_number);

}  // namespace pumice
