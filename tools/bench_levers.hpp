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
  bool advise = false;
  double ttft_target_ms = 0;  ///< of --advise

  void add_to(CLI::App& command);
  bool asked_for() const { return advise || !ab.empty(); }
};

/// --ab. What was measured before an error is printed.
Status bench_ab(const BenchOptions& options);

/// --advise. What was measured before an error is printed.
Status bench_advise(const BenchOptions& options);

}  // namespace pumice::tools
