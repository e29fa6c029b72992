// The modes of `pumice bench` that say what a choice is worth.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace pumice::tools {

struct BenchOptions;

struct LeverOptions {
  std::vector<std::string> ab;  ///< configurations, if any

  void add_to(CLI::App& command);
  bool asked_for() const { return !ab.empty(); }
};

/// --ab. What was measured before an error is printed.
Status bench_ab(const BenchOptions& options);

}  // namespace pumice::tools
