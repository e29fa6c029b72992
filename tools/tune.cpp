// pumice tune: finds out which kernels and sizes of them are fastest on this device, and keeps it.
#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/folders.hpp"
#include "base/local_time.hpp"
#include "base/path.hpp"
#include "bench/tuner.hpp"
#include "host/opened_model.hpp"
#include "models/model_plan.hpp"
#include "shaders/flash_attention/flash_attention_bench.hpp"
#include "shaders/linear/linear_bench.hpp"
#include "shaders/tuning_overlay.hpp"
#include "tools/command.hpp"
#include "tools/interrupt.hpp"
#include "tools/model_options.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

struct TuneOptions {
  ModelOptions model;
  std::string op;
  double minutes = 10;
  bool dry_run = false;
  bool json = false;

  bool has_model() const {
    return !model.model.empty() || !model.synthetic.empty() || !model.hub.name.empty();
  }
};

/// Products and attention of a model in its own shapes.
Result<std::vector<ops::OpCase>> cases_of_model(const ModelOptions& options,
                                                const ops::BenchScale& scale) {
  PUMICE_TRY(const ModelSource source, options.open_source());
  PUMICE_TRY(const std::shared_ptr<const ModelPlan> plan, ModelPlan::of_source(source));
  std::set<std::tuple<const WeightType*, uint32_t, uint32_t>> seen;
  std::vector<ops::LinearBenchMatrix> matrices;
  for (const WeightLayout::Piece& piece : plan->weights().pieces) {
    for (const WeightLayout::Group& group : piece.groups) {
      for (const WeightLayout::Stack& stack : group.stacks) {
        if (!seen.emplace(stack.type, stack.n_rows, stack.n_cols).second) continue;
        matrices.push_back({stack.type, stack.n_rows, stack.n_cols});
      }
    }
  }
  std::vector<ops::FlashAttention::Shape> shapes;
  for (const AttentionClass& one : plan->loaded().attention_classes) {
    if (one.sinks || one.latent_dim != 0 || one.v_dim != 0 || one.expands) continue;
    shapes.push_back({.n_heads = one.n_heads,
                      .n_kv_heads = one.n_kv_heads,
                      .head_dim = one.head_dim,
                      .kv_type = options.kv_type(),
                      .window = one.window,
                      .soft_cap = static_cast<float>(one.soft_cap)});
  }
  std::vector<ops::OpCase> cases = ops::linear_bench_cases(scale, matrices);
  std::ranges::move(ops::flash_attention_bench_cases(scale, shapes), std::back_inserter(cases));
  return cases;
}

/// Whether a case of a product is of weights that files have most.
bool is_common(const ops::OpCase& one) {
  if (one.op != "gemv" && one.op != "gemm") return true;
  return std::ranges::any_of(std::array{"Q4_K ", "Q6_K ", "Q8_0 ", "F16 "},
                             [&](const char* type) { return one.name.starts_with(type); });
}

/// A model's shapes, or those of well-known ones; what no model's shape is known of, of the latter.
Result<std::vector<ops::OpCase>> choose_cases(const TuneOptions& options,
                                              const vk::DevicePlan& plan) {
  const ops::BenchScale scale = ops::BenchScale::of(plan);
  std::vector<ops::OpCase> cases;
  if (options.has_model()) {
    PUMICE_TRY(cases, cases_of_model(options.model, scale));
  }
  std::set<std::string> of_model;
  for (const ops::OpCase& one : cases) of_model.insert(one.op);
  for (ops::OpCase& one : ops::all_bench_cases(scale)) {
    if (!of_model.contains(one.op) && (is_common(one) || !options.op.empty())) {
      cases.push_back(std::move(one));
    }
  }
  std::erase_if(cases, [&](const ops::OpCase& one) {
    return (one.op + " " + one.name).find(options.op) == std::string::npos ||
           (one.supported && !one.supported(plan));
  });
  if (!cases.empty()) return cases;
  return make_error(ErrorCode::kInvalidArgument,
                    "--op '{}': no op or case of this device has that in its name", options.op);
}

/// Where a row comes from, in the words that TUNING.md asks for.
std::string provenance(const bench::TunedRow& row, const vk::DeviceSnapshot& device) {
  return fmt::format("{:%Y-%m-%d}, {}, {} {}: {:.2f} times as fast as \"{}\" on {} ({})",
                     local_time(std::time(nullptr)), device.name, device.driver_name,
                     device.driver_info, row.gain, row.before, row.op, fmt::join(row.cases, "; "));
}

Status save(const bench::TunerReport& report, const vk::Device& device) {
  std::vector<MeasuredRow> rows;
  for (const bench::TunedRow& row : report.rows) {
    rows.push_back({row.row, provenance(row, device.snapshot())});
  }
  return save_tuning_overlay(cache_directory(), device.snapshot(), rows);
}

void print_table(const bench::TunerReport& report) {
  for (const bench::TunedRow& row : report.rows) {
    print_text("{:>6.2f}x  {}\n{:>9}{}\n", row.gain, row.row, "was ", row.before);
  }
  print_text("{}{} of {} choices raced, {} rows timed, {} of them wrong{}\n",
             report.rows.empty() ? "nothing is faster than what is chosen now; " : "",
             report.n_choices, report.n_all, report.n_raced, report.n_wrong,
             report.n_choices < report.n_all ? "; --minutes allows more" : "");
}

void print_json(const bench::TunerReport& report, const vk::Device& device,
                const std::string& file) {
  nlohmann::json rows = nlohmann::json::array();
  for (const bench::TunedRow& row : report.rows) {
    rows.push_back({{"op", row.op},
                    {"shape", row.shape},
                    {"row", row.row},
                    {"before", row.before},
                    {"gain", row.gain},
                    {"cases", row.cases}});
  }
  print_text("{}\n", nlohmann::json{{"device", device.snapshot().name},
                                    {"file", file},
                                    {"choices", report.n_all},
                                    {"choices_raced", report.n_choices},
                                    {"rows_raced", report.n_raced},
                                    {"rows_wrong", report.n_wrong},
                                    {"rows", rows}}
                         .dump(2));
}

bench::TunerReport race(const TuneOptions& options, const std::shared_ptr<vk::Device>& device,
                        std::span<const ops::OpCase> cases, const Logger& logger) {
  const InterruptGuard interrupt;
  ProgressBar bar("racing");
  const bench::MakePipelines make = [&](std::vector<vk::TuningRow> preferred) {
    return host::open_pipelines(device, cache_directory(), {}, std::move(preferred)).first;
  };
  const std::vector<ops::OpCase> checks = ops::all_op_cases();
  bench::TunerOptions tuner;
  tuner.timing.stop = InterruptGuard::interrupted;
  tuner.time_limit_s = options.minutes * 60;
  tuner.progress = [&](size_t done, size_t total, const std::string& next) {
    bar.update(done, total);
    logger.debug("{}/{} {}", done, total, next);
  };
  return bench::tune(make, cases, checks, tuner);
}

Status tune(TuneOptions& options) {
  if (options.has_model()) {
    PUMICE_TRY_STATUS(options.model.resolve());
  }
  const Logger logger = stderr_logger(options.model.verbose);
  if (!options.dry_run && cache_directory().empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "there is no cache directory to keep rows in: set HOME or XDG_CACHE_HOME, or "
                      "give --dry-run");
  }
  PUMICE_TRY(const std::shared_ptr<vk::Device> device, open_device(options.model.device, logger));
  PUMICE_TRY(const std::vector<ops::OpCase> cases, choose_cases(options, device->plan()));
  const bench::TunerReport report = race(options, device, cases, logger);
  // What was found before an interrupt is not lost.
  const bool saves = !options.dry_run && !report.rows.empty();
  if (saves) PUMICE_TRY_STATUS(save(report, *device));
  const std::string file =
      saves ? to_utf8(tuning_overlay_file(cache_directory(), device->snapshot())) : "";
  if (options.json) {
    print_json(report, *device, file);
  } else {
    print_table(report);
  }
  if (saves) print_message("pumice: the rows are in {}; delete it to undo\n", file);
  if (report.ended) return *report.ended;
  return {};
}

}  // namespace

Command add_tune(CLI::App& app) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* command = app.add_subcommand(
      "tune", "Find the fastest kernels for this device, and use them from now on");
  options->model.add_to(*command, "auto", "f16");
  options->model.add_synthetic_to(*command);
  command->add_option("--op", options->op,
                      "Only ops and cases with this in their name, as in bench --ops");
  command->add_option("--minutes", options->minutes, "Race no longer than this")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1440.0));
  command->add_flag("--dry-run", options->dry_run, "Show what would be kept, and keep nothing");
  command->add_flag("--json", options->json, "Print the result as JSON");
  command->footer(
      "Races the rows of tuning (docs/TUNING.md) that the device could take, on the matrices of a\n"
      "model or, without one, of well-known models. A row is kept if it computes the same and is\n"
      "faster, twice: in tuning-DEVICE-DRIVER.tune in the cache directory, before all others.\n"
      "Nothing else should run on the device meanwhile.\n"
      "Examples:\n"
      "  pumice tune -m model.gguf --minutes 30\n"
      "  pumice tune --synthetic llama-8b:q4_k --op gemv --dry-run");
  return {command, [options] { return tune(*options); }};
}

}  // namespace pumice::tools
