// Where tests find files.
#pragma once

#include <filesystem>
#include <string>

namespace pumice::test {

/// Path of `relative` below the folder of shared data (reference logits, vocabularies, malformed
/// files), which a checkout may lack; nor need the path exist.
std::filesystem::path shared_path(const std::string& relative);

/// Path of `relative` below the repository.
std::filesystem::path source_path(const std::string& relative);

}  // namespace pumice::test
