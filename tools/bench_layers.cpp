// pumice bench --layers: where a step goes.
#include "base/output_file.hpp"

#include <nlohmann/json.hpp>
#include "base/path.hpp"
#include "bench/layers.hpp"
#include "tools/bench.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

/// Without sizes a long prompt and some steps, a short one on CPU drivers.
std::vector<bench::ModelTest> layer_tests_of(const BenchOptions& options, bool small) {
  return grid_of(options, {.n_prompt = small ? 64u : 512u, .n_gen = small ? 4u : 16u}).tests();
}

Status check(const BenchOptions& options) {
  PUMICE_TRY_STATUS(options.model.validate());
  PUMICE_TRY_STATUS(require_md_or_json(options));
  PUMICE_TRY_STATUS(
      check_not_an_input(from_utf8(options.trace), std::vector{from_utf8(options.model.model)}));
  if (!options.prompt_and_gen.empty() || options.n_parallel != std::vector<uint32_t>{1}) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--layers looks at one request that reads (-p) or generates (-n); leave out "
                      "-pg and -np");
  }
  if (layer_tests_of(options, false).empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "nothing to measure: -p and -n are both 0; give one, as in -p 512 -n 16");
  }
  return {};
}

/// The tests without and with timestamps, then the device's speeds, when the model has left its
/// memory.
Status measure(const BenchOptions& options, const ModelSource& source, const Logger& logger,
               bench::LayersReport& report) {
  PUMICE_TRY(host::OpenedModel opened, open_model(options.model, source, logger));
  const vk::DevicePlan& plan = opened.device->plan();
  report.n_layers = opened.model->n_layers();
  report.timestamp_period_ns = plan.timestamp_period_ns;
  PUMICE_TRY(report.model.run, checked_run(options, opened, source, logger));
  const bool small = plan.device_class == vk::DeviceClass::kCpu;
  const uint32_t n_vocab = opened.model->program.n_vocab;
  const uint32_t repetitions = options.repetitions.value_or(3);
  const EngineOptions base = options.model.engine_options();
  EngineOptions profiling = base;
  profiling.profile = true;

  const InterruptGuard interrupt;
  const std::vector<bench::ModelTest> tests = layer_tests_of(options, small);
  std::optional<ProgressBar> bar;
  for (const bench::TestGroup& group : bench::group_tests(tests)) {
    PUMICE_TRY(const std::unique_ptr<Engine> engine,
               make_engine(opened, bench::engine_options(group, profiling)));
    for (const bench::ModelTest& test : group.tests) {
      bar.emplace(test.name());
      bar->update(report.tests.size(), tests.size());
      PUMICE_TRY(bench::TracedTest traced, bench::trace_test(*engine, n_vocab, test, repetitions,
                                                             InterruptGuard::interrupted));
      report.tests.push_back(std::move(traced));
    }
  }
  bench::ModelBench untraced{
      .make_engine =
          [&](const bench::TestGroup& group) {
            return make_engine(opened, bench::engine_options(group, base));
          },
      .n_vocab = n_vocab,
      .repetitions = repetitions,
      .delay_s = options.delay_s,
      .stop = InterruptGuard::interrupted,
      .begins = [&](const bench::ModelTest& test) { bar.emplace(test.name() + ", untraced"); },
  };
  const std::vector<bench::ModelRow> rows = bench::bench_models(tests, untraced);
  for (size_t i = 0; i < rows.size(); ++i) report.tests[i].untraced = rows[i];
  PUMICE_TRY_STATUS(bench::verdict(rows));
  opened.model.reset();
  bar.emplace("measuring the device");
  PUMICE_TRY(report.peaks,
             bench::measure_peaks(*opened.pipelines,
                                  {.repetitions = repetitions, .stop = InterruptGuard::interrupted},
                                  [&](const std::string& what) { logger.debug("{}", what); }));
  return {};
}

}  // namespace

Status bench_layers(const BenchOptions& options) {
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY_STATUS(check(options));
  PUMICE_TRY(const ModelSource source, options.model.open_source());
  bench::LayersReport report{
      .model = bench::model_record(options.model.model_name(), source.file()),
      .tests = {},
      .peaks = {},
      .ended = {}};
  Status status = measure(options, source, logger, report);
  if (report.tests.empty()) return status;
  if (!status.ok()) report.ended = status.error();
  print_report(
      options, [&] { return to_json(report); }, [&] { return to_markdown(report); });
  if (!options.trace.empty()) {
    const std::string text =
        trace_events(report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const Status written = write_file(from_utf8(options.trace), text);
    if (status.ok()) status = written;
  }
  return status;
}

}  // namespace pumice::tools
