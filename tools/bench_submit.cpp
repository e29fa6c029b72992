// pumice bench --submit: results that others may rely on, or what they lack.
#include <nlohmann/json.hpp>

#include "base/path.hpp"
#include "bench/submission.hpp"
#include "tools/bench.hpp"
#include "tools/result_files.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {

Status bench_submit(const BenchOptions& options) {
  PUMICE_TRY(const std::string text, read_result_text(options.submit));
  PUMICE_TRY(const nlohmann::json ready, bench::submission(text, options.submit));
  PUMICE_TRY_STATUS(
      print_output(ready.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
  print_message("pumice: {} with all evidence: this can be submitted\n",
                counted(ready["records"].size(), "record"));
  return {};
}

}  // namespace pumice::tools
