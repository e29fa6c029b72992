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

/// Declare `path` and skip the running test, saying why, if it is absent.
#define PUMICE_REQUIRE_SHARED(path, relative)                               \
  const std::filesystem::path path = ::pumice::test::shared_path(relative); \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << relative
