// pumice bench --ops: every op's speed against what the device can do.
#include "base/folders.hpp"
#include "bench/machine_state.hpp"

#include <nlohmann/json.hpp>
#include "bench/ops_report.hpp"
#include "tools/bench.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {

Status bench_ops(const BenchOptions& options) {
  PUMICE_TRY_STATUS(require_md_or_json(options));
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY(const std::shared_ptr<vk::Device> device, open_device(options.model.device, logger));
  const auto [pipelines, verdict] =
      host::open_pipelines(device, cache_directory(), logger);  // those that models would run
  const ops::BenchScale scale = ops::BenchScale::of(device->plan());
  const std::vector<ops::OpCase> cases = ops::all_bench_cases(scale);
  const nlohmann::json before = bench::read_machine(*device);
  bench::OpsReport report;
  {
    const bench::TimingOptions timing{.repetitions = options.repetitions.value_or(5),
                                      .stop = InterruptGuard::interrupted};
    const InterruptGuard interrupt;
    ProgressBar bar("measuring");
    report = bench::bench_ops(
        *pipelines, cases,
        {.timing = timing,
         .filter = options.op_filter,
         .time_limit_s =
             options.seconds < 0 ? bench::default_time_limit_s(device->plan()) : options.seconds,
         .progress = [&](size_t done, size_t total, const std::string& next) {
           bar.update(done, total);
           logger.debug("{}/{} {}", done, total, next);
         }});
  }
  report.scale = scale;
  if (report.rows.empty() && report.n_left_out == 0 && !report.ended) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--op '{}': no op or case of this device has that in its name",
                      options.op_filter);
  }
  pipelines->save();
  print_report(
      options,
      [&] {
        nlohmann::json record = to_json(report, *device);
        record["command"] = options.command;
        record["machine"] = {{"before", before}, {"after", bench::read_machine(*device)}};
        return record;
      },
      [&] { return to_markdown(report, *device); });
  return bench::verdict(report);
}

}  // namespace pumice::tools
