// pumice bench -m FILE: prompt processing and generation, each by itself.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "bench/configuration.hpp"
#include "bench/machine_state.hpp"
#include "bench/model_bench.hpp"
#include "bench/records.hpp"
#include "tools/bench.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr double kDefaultSeconds = 60;  // of tests that nobody asked for by size

bool asks_for_sizes(const BenchOptions& options) {
  return !options.n_prompt.empty() || !options.n_gen.empty() || !options.prompt_and_gen.empty();
}

/// Sizes that this device does in about a minute, from a short run.
Result<bench::DefaultSizes> probe(const BenchOptions& options, const bench::ModelBench& bench) {
  const bench::ModelTest tests[] = {
      {.n_prompt = 32, .n_batch = options.n_batch[0], .n_ubatch = options.n_ubatch[0]},
      {.n_gen = 4, .n_batch = options.n_batch[0], .n_ubatch = options.n_ubatch[0]}};
  bench::ModelBench quick = bench;
  quick.repetitions = 1;
  quick.ended = {};
  quick.begins = {};
  const std::vector<bench::ModelRow> rows = bench::bench_models(tests, quick);
  PUMICE_TRY_STATUS(bench::verdict(rows));
  const auto seconds_per_token = [](const bench::ModelRow& row) {
    return row.samples[0].ns * 1e-9 / static_cast<double>(row.test.n_tokens());
  };
  const auto n_combinations = options.n_depth.size() * options.n_parallel.size() *
                              options.n_batch.size() * options.n_ubatch.size();
  return bench::default_sizes(seconds_per_token(rows[0]), seconds_per_token(rows[1]),
                              kDefaultSeconds / static_cast<double>(n_combinations));
}

std::string head_of(const vk::Device& device, const std::string& note) {
  const vk::DeviceSnapshot& snapshot = device.snapshot();
  return fmt::format("{} ({}, {} {}, Vulkan {})\n{}\n", snapshot.name,
                     vk::device_type_name(snapshot.type), snapshot.driver_name,
                     snapshot.driver_info, vk::format_api_version(snapshot.api_version), note);
}

}  // namespace

bench::TestGrid grid_of(const BenchOptions& options, const bench::DefaultSizes& sizes) {
  bench::TestGrid grid{.n_prompt = options.n_prompt,
                       .n_gen = options.n_gen,
                       .prompt_and_gen = options.prompt_and_gen,
                       .n_depth = options.n_depth,
                       .n_parallel = options.n_parallel,
                       .n_batch = options.n_batch,
                       .n_ubatch = options.n_ubatch};
  if (grid.n_prompt.empty() && grid.n_gen.empty() && grid.prompt_and_gen.empty()) {
    grid.n_prompt = {sizes.n_prompt};
    grid.n_gen = {sizes.n_gen};
  }
  return grid;
}

Status bench_model(const BenchOptions& options) {
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY_STATUS(options.model.validate());
  if (asks_for_sizes(options) && grid_of(options, {}).tests().empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "nothing to measure: -p and -n are both 0; give one, as in -p 512 -n 128");
  }
  PUMICE_TRY(const ModelSource source, options.model.open_source());
  PUMICE_TRY(const host::OpenedModel opened, open_model(options.model, source, logger));
  bench::ModelRecord record = bench::model_record(options.model.model_name(), source.file());
  record.run = describe_run(options, opened);

  EngineOptions base = options.model.engine_options();
  base.profile = options.model.profile;
  const InterruptGuard interrupt;
  Status checked;
  if (!options.no_check) {
    // The error is a record's, as others are: it does not keep the records from being printed.
    const Result<bench::Evidence> evidence =
        check_logits(opened, source, base.kv_type, base.math, logger);
    if (evidence.ok()) record.evidence = *evidence;
    checked = evidence.ok() ? bench::verdict(*evidence) : Status(evidence.error());
  }
  bench::ModelBench bench{
      .make_engine = [&](const bench::TestGroup& group) -> Result<std::unique_ptr<Engine>> {
        if (!checked.ok()) return checked.error();
        auto engine = make_engine(opened, bench::engine_options(group, base));
        record.run["tuning"] = bench::tuning_to_json(*opened.pipelines);
        return engine;
      },
      .n_vocab = opened.model->program.n_vocab,
      .delay_s = options.delay_s,
      .stop = InterruptGuard::interrupted,
      .read_machine = [&] { return bench::read_machine(*opened.device); },
  };
  bench::DefaultSizes sizes;
  if (!asks_for_sizes(options) && checked.ok()) {
    PUMICE_TRY(sizes, probe(options, bench));
  }
  if (record.evidence) {
    bench.check = [&]() -> Status {
      PUMICE_TRY(const bench::Evidence again,
                 check_logits(opened, source, base.kv_type, base.math, logger, &*record.evidence));
      return bench::verdict(again);
    };
  }
  bench.repetitions = options.repetitions.value_or(sizes.repetitions);
  record.run["scaled_down"] = sizes.scaled_down;
  const std::vector<bench::ModelTest> tests = grid_of(options, sizes).tests();
  const bool stream = options.output == "jsonl";
  std::optional<ProgressBar> bar;
  size_t n_done = 0;
  bench.begins = [&](const bench::ModelTest& test) {
    bar.emplace(test.name());
    bar->update(n_done, tests.size());
  };
  bench.ended = [&](const bench::ModelRow& row) {
    ++n_done;
    bar.reset();
    if (!stream) return;
    print_text("{}\n", bench::to_jsonl(to_json(row, record)));
    std::fflush(stdout);
  };
  if (options.model.profile) {
    bench.engine_done = [](const Engine& engine) {
      print_message(std::string_view(engine.profiler().table()));
    };
  }
  const std::vector<bench::ModelRow> rows = bench::bench_models(tests, bench);

  std::string note;
  if (options.model_is_default) {
    note =
        fmt::format("No model was given: {} (-m FILE or --synthetic PRESET:TYPE measure another)\n",
                    options.model.model_name());
  }
  note += record.evidence ? fmt::format("Checked: {}\n", describe(*record.evidence))
                          : "Not checked against fp64\n";
  if (sizes.scaled_down) {
    note += fmt::format(
        "Scaled down to pp{} and tg{}, {} repetitions: pp512 and tg128 would take more than a "
        "minute here (-p 512 -n 128 measures them)\n",
        sizes.n_prompt, sizes.n_gen, bench.repetitions);
  }
  BenchOptions printed = options;
  if (options.pts) {
    for (const bench::ModelRow& row : rows) print_text("{}", bench::to_pts(row));
  }
  if (stream || options.pts) printed.output = "none";  // was printed row by row
  print_report(
      printed,
      [&] {
        nlohmann::json records = nlohmann::json::array();
        for (const bench::ModelRow& row : rows) records.push_back(to_json(row, record));
        return records;
      },
      [&] { return head_of(*opened.device, note) + to_markdown(rows, record); });
  return bench::verdict(rows);
}

}  // namespace pumice::tools
