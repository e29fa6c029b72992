// The modes of `pumice bench`, a file each.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "tools/session.hpp"

namespace pumice::tools {

struct BenchOptions {
  ModelOptions model;
  bool ops = false;
  bool serve = false;
  uint32_t n_streams = 4;
  uint32_t long_prompt_tokens = 0;
  double tpot_target_ms = 0;
  std::string op_filter;
  double seconds = -1;  ///< of --ops; 0: no limit, below: the device's default
  std::vector<uint32_t> n_prompt = {512};
  std::vector<uint32_t> n_gen = {128};
  uint32_t repetitions = 5;
  std::string output = "md";
  std::string error_output = "none";  ///< the report once more, on stderr
};

/// Print what -o and -oe ask for.
void print_report(const BenchOptions& options, const std::function<nlohmann::json()>& json,
                  const std::function<std::string()>& markdown);

/// --ops. The report is printed whatever happened. Errors: kSelfTestFailed if a row was wrong.
Status bench_ops(const BenchOptions& options);

/// --serve. Errors: kInternal also if KV blocks leaked.
Status bench_serve(const BenchOptions& options);

/// -m. What was measured before an error is printed.
Status bench_model(const BenchOptions& options);

}  // namespace pumice::tools
