// pumice bench --explain: what a model costs on paper, and beside it what this device needs.
#include "bench/explain.hpp"

#include <nlohmann/json.hpp>
#include "shaders/linear/linear.hpp"
#include "tools/bench.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

/// The tests asked for. Without sizes the usual ones, shorter where a CPU driver measures them.
std::vector<bench::ModelTest> explained_tests(const BenchOptions& options, bool small) {
  return grid_of(options,
                 small ? bench::DefaultSizes{.n_prompt = 64, .n_gen = 16} : bench::DefaultSizes{})
      .tests();
}

Status count(const BenchOptions& options, bool small, bench::ExplainReport& report) {
  report.tests.clear();
  for (const bench::ModelTest& test : explained_tests(options, small)) {
    PUMICE_TRY(const bench::TestCost cost, bench::test_cost(report.shape, test));
    report.tests.push_back({.test = test, .cost = cost, .measured = {}});
  }
  if (!report.tests.empty()) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "nothing to explain: -p and -n are both 0; give one, as in -p 512 -n 128");
}

/// Times of the tests, then the device's speeds, when the model has left its memory.
Status measure(const BenchOptions& options, const ModelSource& source, const Logger& logger,
               bench::ExplainReport& report) {
  PUMICE_TRY(host::OpenedModel opened, open_model(options.model, source, logger));
  PUMICE_TRY(report.model.run, checked_run(options, opened, source, logger));
  const bool small = opened.device->plan().device_class == vk::DeviceClass::kCpu;
  PUMICE_TRY_STATUS(count(options, small, report));

  const EngineOptions base = options.model.engine_options();
  const InterruptGuard interrupt;
  std::optional<ProgressBar> bar;
  size_t n_done = 0;
  bench::ModelBench bench{
      .make_engine =
          [&](const bench::TestGroup& group) {
            return make_engine(opened, bench::engine_options(group, base));
          },
      .n_vocab = opened.model->program.n_vocab,
      .repetitions = options.repetitions.value_or(small ? 3 : 5),
      .delay_s = options.delay_s,
      .stop = InterruptGuard::interrupted,
      .begins =
          [&](const bench::ModelTest& test) {
            bar.emplace(test.name());
            bar->update(n_done++, report.tests.size());
          },
  };
  std::vector<bench::ModelTest> tests;
  for (const bench::ExplainedTest& test : report.tests) tests.push_back(test.test);
  const std::vector<bench::ModelRow> rows = bench::bench_models(tests, bench);
  bar.reset();
  for (size_t i = 0; i < rows.size(); ++i) report.tests[i].measured = rows[i];
  if (Status status = bench::verdict(rows);
      !status.ok() && status.error().code != ErrorCode::kDoesNotFit) {
    return status;
  }
  bench::DeviceSpeeds speeds;
  {
    const uint32_t n_prompt = bench::rows_of_a_prompt(report.shape, *opened.pipelines);
    EngineOptions short_engine = base;
    short_engine.context_tokens = n_prompt + 40;
    short_engine.greedy_only = true;
    PUMICE_TRY(const std::unique_ptr<Engine> engine, make_engine(opened, short_engine));
    PUMICE_TRY(speeds.arithmetic, bench::arithmetic_in_use(*engine, n_prompt));
    speeds.arithmetic.most_few_rows = ops::Linear::tuned_gemv_rows(*opened.pipelines);
  }
  opened.model.reset();
  bar.emplace("measuring the device");
  PUMICE_TRY(
      report.peaks,
      bench::measure_peaks(*opened.pipelines,
                           {.repetitions = bench.repetitions, .stop = InterruptGuard::interrupted},
                           [&](const std::string& what) { logger.debug("{}", what); }));
  speeds.roofline = bench::reading_roofline(*report.peaks);
  report.speeds = speeds;
  return bench::verdict(rows);
}

}  // namespace

Status bench_explain(const BenchOptions& options) {
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY_STATUS(options.model.validate());
  PUMICE_TRY_STATUS(require_md_or_json(options));
  PUMICE_TRY(const ModelSource source, options.model.open_source());
  bench::ExplainReport report{
      .model = bench::model_record(options.model.model_name(), source.file()),
      .shape = {},
      .tests = {},
      .peaks = {},
      .speeds = {},
      .ended = {}};
  PUMICE_TRY(report.shape, bench::model_shape(source, options.model.kv_type()));
  PUMICE_TRY_STATUS(count(options, false, report));
  Status measured = options.no_measure ? Status() : measure(options, source, logger, report);
  if (!measured.ok()) report.ended = measured.error();
  print_report(
      options, [&] { return to_json(report); }, [&] { return to_markdown(report); });
  return measured;  // the paper holds without a device
}

}  // namespace pumice::tools
