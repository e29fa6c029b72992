// Files of results that a user names.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "bench/result_file.hpp"

namespace pumice::tools {

/// One of them, as it is. Errors: kBadFile.
Result<std::string> read_result_text(const std::string& path);

/// All of them, in order. Errors: kBadFile for the first that cannot be read.
Result<std::vector<bench::ResultFile>> read_result_files(std::span<const std::string> paths);

}  // namespace pumice::tools
