// Data shared outside the repository (reference logits, vocabularies, malformed files). A checkout
// without it skips the tests that need it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/paths.hpp"

/// Declare `variable`, a path, and skip the running test, saying why, if there is nothing there.
#define PUMICE_REQUIRE_SHARED(variable, relative)                               \
  const std::filesystem::path variable = ::pumice::test::shared_path(relative); \
  if (!std::filesystem::exists(variable)) GTEST_SKIP() << "no shared data: " << relative
