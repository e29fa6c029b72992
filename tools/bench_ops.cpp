// pumice bench --ops: every op's speed against what the device can do.
#include <fmt/format.h>

#include "bench/ops_report.hpp"
#include "shaders/spirv.hpp"
#include "tools/bench.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {

Status bench_ops(const BenchOptions& options) {
  const Logger logger = stderr_logger(options.verbose);
  PUMICE_TRY(const std::shared_ptr<vk::Device> device, open_device(options.device, logger));
  vk::PipelineLibrary pipelines(device, cache_directory(), spirv_hash());
  const ops::BenchScale scale = ops::BenchScale::of(device->plan());
  const std::vector<ops::OpCase> cases = ops::all_bench_cases(scale);
  bench::OpsReport report;
  {
    ProgressBar bar("measuring");
    report = bench::bench_ops(pipelines, cases,
                              {.timing = {.repetitions = options.repetitions},
                               .filter = options.op_filter,
                               .progress = [&](size_t done, size_t total, const std::string& next) {
                                 bar.update(done, total);
                                 logger.debug("{}/{} {}", done, total, next);
                               }});
  }
  report.scale = scale;
  pipelines.save();
  if (report.rows.empty() && !report.ended) {
    return make_error(ErrorCode::kInvalidArgument, "--op '{}': no op or case has that in its name",
                      options.op_filter);
  }
  if (options.output == "json") {
    using Json = nlohmann::json;
    fmt::print("{}\n",
               to_json(report, *device).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", to_markdown(report, *device));
  }
  return bench::verdict(report);
}

}  // namespace pumice::tools
