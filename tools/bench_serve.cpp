// pumice bench --serve: several requests at once on the real engine.
#include "bench/serve.hpp"

#include <nlohmann/json.hpp>
#include "tools/bench.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {

Status bench_serve(const BenchOptions& options) {
  PUMICE_TRY_STATUS(require_md_or_json(options));
  PUMICE_TRY_STATUS(options.model.validate());
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY(const ModelSource source, options.model.open_source());
  PUMICE_TRY(const host::OpenedModel opened, open_model(options.model, source, logger));
  ServeOptions serve{.n_streams = options.n_streams,
                     .long_prompt_tokens = options.long_prompt_tokens,
                     .tpot_target_s = options.tpot_target_ms / 1e3,
                     .kv_type = options.model.kv_type(),
                     .math = options.model.math_kind(),
                     .stop = InterruptGuard::interrupted};
  PUMICE_TRY(const nlohmann::json run, checked_run(options, opened, source, logger));
  const InterruptGuard interrupt;
  PUMICE_TRY(const ServeReport report,
             run_serve_bench(opened.pipelines, opened.model, serve,
                             [&](std::string_view workload) { logger.info("{}", workload); }));
  const auto json = [&] {
    nlohmann::json record = serve_report_json(report);
    record.update(run);
    return record;
  };
  print_report(options, json, [&] { return serve_report_text(report); });
  if (report.cancels.blocks_free != report.cancels.blocks) {
    return make_error(ErrorCode::kInternal, "{} of {} KV blocks were not given back",
                      report.cancels.blocks - report.cancels.blocks_free, report.cancels.blocks);
  }
  return {};
}

}  // namespace pumice::tools
