// Data shared outside the repository (reference logits, vocabularies, malformed files). A checkout
// without it skips the tests that need it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace pumice::test {

/// Path of `relative` below the shared folder; it need not exist.
inline std::filesystem::path shared_path(const std::string& relative) {
  return std::filesystem::path(PUMICE_SHARED_DIR) / relative;
}

}  // namespace pumice::test

/// Declare `variable`, a path, and skip the running test, saying why, if there is nothing there.
#define PUMICE_REQUIRE_SHARED(variable, relative)                               \
  const std::filesystem::path variable = ::pumice::test::shared_path(relative); \
  if (!std::filesystem::exists(variable)) GTEST_SKIP() << "no shared data: " << relative
