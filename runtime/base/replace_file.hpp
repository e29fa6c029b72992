// Writing small files of our own (caches, passports) so that a reader never sees half of one.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.hpp"

namespace pumice {

/// Write beside `path` and rename over it; missing folders are made. Errors: kInternal with the
/// system's reason; the old file is then as it was.
Status replace_file(const std::filesystem::path& path, std::string_view content);

}  // namespace pumice
