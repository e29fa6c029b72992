// pumice bench --compare: ratios between files of results.
#include "bench/compare.hpp"

#include "tools/bench.hpp"
#include "tools/result_files.hpp"

namespace pumice::tools {

Status bench_compare(const BenchOptions& options) {
  if (options.compare.size() < 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--compare: give a base and at least one file to compare with it");
  }
  PUMICE_TRY_STATUS(require_md_or_json(options));
  PUMICE_TRY(const std::vector<bench::ResultFile> files, read_result_files(options.compare));
  const bench::Comparison comparison = bench::compare(files);
  print_report(
      options, [&] { return to_json(comparison); }, [&] { return to_markdown(comparison); });
  if (comparison.n_ratios() == 0) {
    return make_error(ErrorCode::kBadFile,
                      "--compare: no test that has a score in {} has one in another file",
                      files.front().name);
  }
  return {};
}

}  // namespace pumice::tools
