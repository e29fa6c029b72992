// pumice bench --ab: two configurations in turns, their ratio and what noise is.
#include "base/folders.hpp"
#include "bench/ab.hpp"

#include <nlohmann/json.hpp>

#include "bench/configuration.hpp"
#include "tools/bench.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr uint32_t kDefaultRounds = 10;
constexpr bench::DefaultSizes kCpuSizes{.n_prompt = 64, .n_gen = 16};

struct Side {
  bench::Configuration configuration;
  host::OpenedModel opened;
  std::unique_ptr<Engine> engine;  ///< for the tests that run
  bench::AbSide record;

  explicit Side(bench::Configuration of)
      : configuration(std::move(of)), record{configuration.name(), configuration.limit} {}

  /// What its engine is and has run.
  void note() {
    record.options = engine->options();
    record.variants.insert(engine->variants().begin(), engine->variants().end());
    record.tuning = bench::tuning_to_json(*opened.pipelines);
  }
};

Result<std::pair<bench::Configuration, bench::Configuration>> configurations(
    const std::vector<std::string>& texts) {
  if (texts.size() > 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--ab is given {} times: once for a configuration against the default, "
                      "twice for the second against the first",
                      texts.size());
  }
  std::vector<bench::Configuration> parsed;
  for (const std::string& text : texts) {
    Result<bench::Configuration> one = bench::Configuration::parse(text);
    if (!one.ok()) return make_error(one.error().code, "--ab '{}': {}", text, one.error().message);
    parsed.push_back(*std::move(one));
  }
  if (parsed.size() == 1) parsed.insert(parsed.begin(), bench::Configuration{});
  return std::pair(parsed[0], parsed[1]);
}

/// Shares with `base`, if given, what the configurations allow: pipelines, or device and model, or
/// nothing, which takes the memory of the model twice.
Status open(Side& side, const Side* base, const BenchOptions& options, const ModelSource& source,
            const Logger& logger) {
  const bool same_device = base != nullptr && base->configuration.limit == side.configuration.limit;
  if (same_device) {
    side.opened = base->opened;
    if (base->configuration.variants == side.configuration.variants) return {};
    std::tie(side.opened.pipelines, side.opened.verdict) =
        host::open_pipelines(side.opened.device, cache_directory(), logger);
  } else {
    if (base != nullptr) {
      logger.warning("the limits differ, so there are two devices and the model is loaded twice");
    }
    ModelOptions model = options.model;
    if (!side.configuration.limit.empty()) {
      if (!model.device.limit.empty()) model.device.limit += ',';
      model.device.limit += side.configuration.limit;
    }
    PUMICE_TRY(side.opened, open_model(model, source, logger));
  }
  return bench::choose_variants(*side.opened.pipelines, side.configuration);
}

/// An error of a side's engine. Kernels that a configuration leaves out are no verdict on the
/// device.
Error error_of(const Side& side, const Error& error) {
  const bool chosen =
      !side.configuration.variants.empty() && error.code == ErrorCode::kSelfTestFailed;
  return make_error(chosen ? ErrorCode::kInvalidArgument : error.code, "{}: {}",
                    side.configuration.name(), error.message);
}

Result<std::unique_ptr<Engine>> engine_for(const Side& side, const EngineOptions& base) {
  Result<std::unique_ptr<Engine>> engine =
      make_engine(side.opened, side.configuration.applied_to(base));
  if (engine.ok()) return engine;
  return error_of(side, engine.error());
}

Result<nlohmann::json> evidence_of(const Side& side, const BenchOptions& options,
                                   const ModelSource& source, const Logger& logger) {
  if (options.no_check) return nlohmann::json{{"checked", false}};
  const InterruptGuard interrupt;
  const EngineOptions asked = side.configuration.applied_to(options.model.engine_options());
  const Result<bench::Evidence> evidence =
      check_logits(side.opened, source, asked.kv_type, asked.math, logger);
  if (!evidence.ok()) return error_of(side, evidence.error());
  PUMICE_TRY_STATUS(bench::verdict(*evidence));
  return to_json(*evidence);
}

/// Rows come one by one; what was measured before an error stays.
Status measure(Side& a, Side& b, std::span<const bench::ModelTest> tests, uint32_t rounds,
               const BenchOptions& options, std::vector<bench::AbRow>& rows) {
  const EngineOptions base = options.model.engine_options();
  const InterruptGuard interrupt;
  for (const bench::TestGroup& group : bench::group_tests(tests)) {
    if (group.has_depth && !(a.configuration.prefix_cache.value_or(true) &&
                             b.configuration.prefix_cache.value_or(true))) {
      return make_error(ErrorCode::kInvalidArgument,
                        "prefix_cache=off: a context (-d) is kept in the prefix cache");
    }
    const EngineOptions options_of_group = bench::engine_options(group, base);
    a.engine.reset();
    b.engine.reset();
    PUMICE_TRY(a.engine, engine_for(a, options_of_group));
    PUMICE_TRY(b.engine, engine_for(b, options_of_group));
    PUMICE_TRY(const std::unique_ptr<Engine> a_again, engine_for(a, options_of_group));
    const std::array<Engine*, bench::kAbSides> engines = {a.engine.get(), b.engine.get(),
                                                          a_again.get()};
    ProgressBar bar("measuring");
    for (const bench::ModelTest& test : group.tests) {
      bar.update(rows.size(), tests.size());
      rows.push_back(bench::bench_ab(engines, a.opened.model->program.n_vocab, test, rounds,
                                     InterruptGuard::interrupted,
                                     static_cast<uint32_t>(rows.size()) * (rounds + 1)));
      a.note();
      b.note();
      if (rows.back().error) return *rows.back().error;
    }
  }
  return {};
}

}  // namespace

Status bench_ab(const BenchOptions& options) {
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY_STATUS(options.model.validate());
  PUMICE_TRY(auto sides, configurations(options.levers.ab));
  PUMICE_TRY_STATUS(require_md_or_json(options));
  const uint32_t rounds = options.repetitions.value_or(kDefaultRounds);
  if (rounds < bench::kLeastPairs) {
    return make_error(ErrorCode::kInvalidArgument,
                      "-r {}: an interval of 95 % needs at least {} rounds", rounds,
                      bench::kLeastPairs);
  }
  PUMICE_TRY(const ModelSource source, options.model.open_source());
  Side a{std::move(sides.first)};
  Side b{std::move(sides.second)};
  PUMICE_TRY_STATUS(open(a, nullptr, options, source, logger));
  PUMICE_TRY_STATUS(open(b, &a, options, source, logger));
  const bool is_cpu = a.opened.device->plan().device_class == vk::DeviceClass::kCpu;
  const std::vector<bench::ModelTest> tests =
      grid_of(options, is_cpu ? kCpuSizes : bench::DefaultSizes{}).tests();
  if (tests.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "nothing to measure: -p and -n are both 0; give one, as in -p 512 -n 128");
  }

  nlohmann::json run = describe_run(options, a.opened);
  for (const auto& [name, side] : {std::pair("a", &a), std::pair("b", &b)}) {
    PUMICE_TRY(run["evidence"][name], evidence_of(*side, options, source, logger));
  }
  std::vector<bench::AbRow> rows;
  Status status = measure(a, b, tests, rounds, options, rows);
  if (rows.empty()) return status;
  print_report(
      options,
      [&] {
        nlohmann::json report = to_json(rows, a.record, b.record);
        report.update(run);
        return report;
      },
      [&] { return to_markdown(rows, a.record, b.record); });
  return status;
}

}  // namespace pumice::tools
