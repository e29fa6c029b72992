// The modes of `pumice bench`, a file each.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.hpp"
#include "tools/device_options.hpp"

namespace pumice::tools {

struct BenchOptions {
  bool ops = false;
  std::string op_filter;
  uint32_t repetitions = 5;
  std::string output = "md";
  DeviceOptions device;
  bool verbose = false;
};

/// Prints the report to stdout whatever happened. Errors: kSelfTestFailed if a row was wrong.
Status bench_ops(const BenchOptions& options);

}  // namespace pumice::tools
