// pumice sim: the scheduler and the cache in virtual time, over a trace or a synthetic mix.
#include <fmt/core.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/json.hpp"
#include "base/path.hpp"
#include "scheduler/simulator.hpp"
#include "tools/command.hpp"
#include "tools/flags.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

using Json = nlohmann::json;

// What a simulation remembers grows with these: about 10 KB a stream, 1 KB a request.
constexpr uint32_t kMostStreams = 1u << 14;
constexpr uint32_t kMostSynthetic = 1'000'000;
constexpr uint32_t kMostChunk = 1u << 20;
constexpr double kMostAgingS = 3600;
/// A profile with all its histograms is far smaller.
constexpr size_t kMaxDeviceModelBytes = 16 << 20;

Status check_all(std::string_view flag, std::span<const uint32_t> numbers, uint32_t most) {
  for (const uint32_t number : numbers) {
    if (number > most) {
      return make_error(ErrorCode::kInvalidArgument, "{}: {} is more than {}", flag, number, most);
    }
  }
  return {};
}

const std::map<std::string, KeptStates> kKeptStates = {{"none", KeptStates::kNone},
                                                       {"edge", KeptStates::kPromptEdge},
                                                       {"branch", KeptStates::kBranch},
                                                       {"both", KeptStates::kEdgeAndBranch},
                                                       {"every", KeptStates::kEveryEdge}};

struct SimOptions {
  std::string trace;
  uint32_t n_synthetic = 0;
  double rate = 4;
  uint64_t seed = 1;
  uint32_t n_requests = 0;
  std::string blocks = "inf";
  uint32_t block_size = 0;
  uint32_t state_pages = 0;
  std::string keep_states = "both";
  std::string policy = "adaptive";
  std::string device_model;
  uint32_t token_budget = 2048;
  uint32_t chunk_tokens = 512;
  double tpot_target_ms = 50;
  double aging_s = SchedulerOptions{}.aging_s;
  uint32_t parallel = 256;
  double speed_up = 1;
  std::string goodput;
  bool uncalibrated = false;
  bool sweep = false;
  std::string sweep_chunks = "0,32,64,128,256,512,1024,2048,8192";
  std::string sweep_decodes = "0,1,8,32,128";
  uint32_t sweep_prompt = 8192;
  bool latecomer = false;
  uint32_t n_batch = LatecomerOptions{}.n_batch;
  uint32_t long_prompt = LatecomerOptions{}.long_prompt_tokens;
  uint32_t late_prompt = LatecomerOptions{}.prompt_tokens;
  bool json = false;
};

// A 8-billion-parameter model in 16 bits on a GPU with 4 TB/s and 400 usable TFLOP/s: 16 GB of
// weights a step, 128 KiB of KV a token, 16 GFLOP a token and 0.5 MFLOP a token and position.
constexpr StepCost kDefaultDevice{.fixed = 4e-3,
                                  .per_row = 1e-5,
                                  .per_row_context = 3.3e-8,
                                  .per_token = 4e-5,
                                  .per_token_context = 1.3e-9};

Result<StepCost> read_device_model(const std::string& path) {
  if (path.empty()) return kDefaultDevice;
  PUMICE_TRY(const std::string text, read_text_file(from_utf8(path)));
  Result<Json> read = read_json(text, kMaxDeviceModelBytes);
  if (!read.ok()) return make_error(ErrorCode::kBadFile, "{}: {}", path, read.error().message);
  Json json = *std::move(read);
  // A scheduling profile has the coefficients under "cost".
  if (json.is_object() && json.contains("cost")) json = Json(json["cost"]);
  Result<StepCost> cost = step_cost_from_json(json);
  if (!cost.ok()) return make_error(ErrorCode::kBadFile, "{}: {}", path, cost.error().message);
  return cost;
}

Result<Trace> load_trace(const SimOptions& options) {
  if (options.trace.empty() == (options.n_synthetic == 0)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "give one of --trace FILE, --synthetic N, --sweep and --latecomer");
  }
  if (options.n_synthetic > 0) {
    return make_synthetic_trace(
        {.n_requests = options.n_synthetic, .requests_per_s = options.rate, .seed = options.seed},
        options.block_size != 0 ? options.block_size : 16);
  }
  PUMICE_TRY(Trace trace, read_trace(from_utf8(options.trace), options.block_size));
  if (options.n_requests != 0 && options.n_requests < trace.requests.size()) {
    trace.requests.resize(options.n_requests);
  }
  return trace;
}

SchedulerOptions scheduler_options(const SimOptions& options) {
  SchedulerOptions scheduler{.token_budget = options.token_budget,
                             .chunk_tokens = options.token_budget,
                             .max_running = options.parallel,
                             .aging_s = options.aging_s};
  if (options.policy == "adaptive") scheduler.tpot_target_s = options.tpot_target_ms / 1e3;
  if (options.policy == "fixed") scheduler.chunk_tokens = options.chunk_tokens;
  if (options.policy == "monolithic") scheduler.token_budget = scheduler.chunk_tokens = 1u << 20;
  return scheduler;
}

/// What kept states cost and brought, of the first recurrent group: the others have as many.
struct StateReport {
  uint64_t kept = 0;
  uint64_t evicted = 0;
  uint64_t missed = 0;  ///< prompts of which more was known than a state was kept of
};
StateReport state_report(const CacheStats& cache) {
  const KindStats& first = cache.kinds.at(1);
  return {.kept = first.kept_states,
          .evicted = first.evicted_blocks,
          .missed = cache.misses[static_cast<size_t>(MissReason::kGroup)]};
}

Json to_json(const StateReport& states) {
  return {{"kept", states.kept}, {"evicted", states.evicted}, {"missed", states.missed}};
}

Json to_json(const SimulationReport& report, const PrefixHits& hits, const StepCost& device) {
  Json misses = Json::object();
  for (size_t i = 0; i < kMissReasonCount; ++i) {
    misses[std::string(miss_reason_name(static_cast<MissReason>(i)))] = report.cache.misses[i];
  }
  Json states = nullptr;
  if (report.cache.kinds.size() > 1) {
    states = {{"one_by_one", to_json(state_report(hits.cache))},
              {"scheduled", to_json(state_report(report.cache))}};
  }
  return {{"requests", report.n_requests},
          {"refused", report.n_refused},
          {"prefix_hit_rate", hits.rate()},
          {"scheduled_hit_rate", report.hit_rate},
          {"states", states},
          {"misses", misses},
          {"evicted_blocks", report.cache.evicted_blocks},
          {"virtual_s", report.virtual_s},
          {"wall_s", report.wall_s},
          {"output_tokens_per_s", report.output_tokens_per_s},
          {"total_tokens_per_s", report.total_tokens_per_s},
          {"goodput_requests_per_s", report.goodput_requests_per_s},
          {"device_model", device},
          {"scheduler", telemetry_to_json(report.telemetry, 0)}};
}

void print_row(const char* name, const Histogram& histogram, double scale) {
  print_text("{:<22} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}\n", name, histogram.mean() * scale,
             histogram.percentile(0.5) * scale, histogram.percentile(0.9) * scale,
             histogram.percentile(0.99) * scale);
}

void print_report(const SimulationReport& report, const PrefixHits& hits) {
  const Telemetry& t = report.telemetry;
  print_text("{} requests ({} refused) in {:.1f} s of virtual time, simulated in {:.2f} s\n",
             report.n_requests, report.n_refused, report.virtual_s, report.wall_s);
  print_text("prefix hit rate {:.2f} % one by one, {:.2f} % as scheduled; {} blocks evicted\n",
             100 * hits.rate(), 100 * report.hit_rate, report.cache.evicted_blocks);
  if (report.cache.kinds.size() > 1) {
    const StateReport states = state_report(report.cache);
    print_text("{} states of {} pages kept, {} given up, {} missed\n", states.kept,
               report.cache.kinds.size() - 1, states.evicted, states.missed);
  }
  print_text("{:.1f} output tok/s, {:.1f} tok/s with prompts, goodput {:.3f} requests/s\n",
             report.output_tokens_per_s, report.total_tokens_per_s, report.goodput_requests_per_s);
  print_text("{} steps, {} preemptions, {} steps over the target at the smallest chunk\n\n",
             t.steps, t.preemptions, t.target_misses);
  print_text("{:<22} {:>10} {:>10} {:>10} {:>10}\n", "", "mean", "p50", "p90", "p99");
  print_row("TTFT ms", t.ttft_seconds, 1e3);
  print_row("TPOT ms", t.tpot_seconds, 1e3);
  print_row("ITL ms", t.itl_seconds, 1e3);
  print_row("E2EL ms", t.e2e_seconds, 1e3);
  print_row("queue ms", t.wait_seconds, 1e3);
  print_row("prefill ms", t.prefill_seconds, 1e3);
  print_row("chunk tokens", t.chunk_tokens, 1);
  print_row("prefill iterations", t.prefill_iterations, 1);
}

Status sweep(const SimOptions& options) {
  TradeOffOptions sweep{.chunk_tokens = {}, .active_decodes = {}};
  PUMICE_TRY(sweep.device, read_device_model(options.device_model));
  PUMICE_TRY(sweep.chunk_tokens, parse_numbers("--chunks", options.sweep_chunks));
  PUMICE_TRY(sweep.active_decodes, parse_numbers("--decodes", options.sweep_decodes));
  PUMICE_TRY_STATUS(check_all("--chunks", sweep.chunk_tokens, kMostChunk));
  PUMICE_TRY_STATUS(check_all("--decodes", sweep.active_decodes, kMostStreams));
  sweep.prompt_tokens = options.sweep_prompt;
  sweep.tpot_target_s = options.tpot_target_ms / 1e3;
  if (options.block_size != 0) sweep.block_tokens = options.block_size;
  PUMICE_TRY(const std::vector<TradeOff> rows, sweep_chunks(sweep));
  if (options.json) {
    Json json = Json::array();
    for (const TradeOff& row : rows) {
      json.push_back({{"chunk_tokens", row.chunk_tokens},
                      {"adaptive", row.chunk_tokens == 0},
                      {"active_decodes", row.active_decodes},
                      {"median_ttft_s", row.ttft_s},
                      {"itl_p99_s", row.itl_p99_s},
                      {"tokens_per_s", row.tokens_per_s}});
    }
    print_text("{}\n", Json{{"prompt_tokens", sweep.prompt_tokens},
                            {"tpot_target_s", sweep.tpot_target_s},
                            {"device_model", sweep.device},
                            {"rows", json}}
                           .dump(2));
    return {};
  }
  print_text(
      "prompts of {} tokens arriving beside streams that decode; adaptive chunks aim at {} "
      "ms between tokens\n\n",
      sweep.prompt_tokens, options.tpot_target_ms);
  print_text("{:>8} {:>9} {:>15} {:>13} {:>11}\n", "streams", "chunk", "median TTFT ms",
             "p99 gap ms", "tok/s");
  for (const TradeOff& row : rows) {
    const std::string chunk = row.chunk_tokens == 0 ? "adaptive" : std::to_string(row.chunk_tokens);
    const std::string gap =
        row.active_decodes == 0 ? "-" : fmt::format("{:.1f}", row.itl_p99_s * 1e3);
    print_text("{:>8} {:>9} {:>15.1f} {:>13} {:>11.0f}\n", row.active_decodes, chunk,
               row.ttft_s * 1e3, gap, row.tokens_per_s);
  }
  return {};
}

Status latecomer(const SimOptions& options) {
  LatecomerOptions simulated{.scheduler = scheduler_options(options),
                             .n_batch = options.n_batch,
                             .long_prompt_tokens = options.long_prompt,
                             .prompt_tokens = options.late_prompt};
  PUMICE_TRY(const std::optional<uint32_t> blocks, parse_limit_or_inf("--blocks", options.blocks));
  simulated.n_pages = blocks.value_or(kUnlimitedPages);
  if (options.block_size != 0) simulated.block_tokens = options.block_size;
  PUMICE_TRY(simulated.device, read_device_model(options.device_model));
  PUMICE_TRY(const LatecomerReport report, simulate_latecomer(simulated));
  if (options.json) {
    Json rows = Json::array();
    for (const Latecomer& row : report.rows) {
      rows.push_back({{"amid", row.amid},
                      {"steps", row.steps},
                      {"ttft_s", row.ttft_s},
                      {"preemptions", row.preemptions}});
    }
    const bool ages = std::isfinite(report.batch_ttft_s);
    print_text("{}\n", Json{{"prompt_tokens", simulated.prompt_tokens},
                            {"device_model", simulated.device},
                            {"rows", rows},
                            {"aging_s", options.aging_s},
                            {"batch_ttft_s", ages ? Json(report.batch_ttft_s) : Json()}}
                           .dump(2));
    return {};
  }
  print_text(
      "an interactive request with a prompt of {} tokens, when others have all places; their long "
      "prompt is\ninteractive too\n\n{:<44} {:>20} {:>9} {:>10}\n",
      simulated.prompt_tokens, "amid", "steps to first token", "TTFT ms", "made way");
  for (const Latecomer& row : report.rows) {
    print_text("{:<44} {:>20} {:>9.1f} {:>10}\n", row.amid, row.steps, row.ttft_s * 1e3,
               row.preemptions);
  }
  if (std::isfinite(report.batch_ttft_s)) {
    print_text(
        "\na batch request beside an interactive one that never ends, with one place: first token "
        "after {:.1f} s\n",
        report.batch_ttft_s);
  } else {
    print_text("\nwithout aging a batch request may wait for ever\n");
  }
  return {};
}

Status sim(const SimOptions& options) {
  if (options.sweep) return sweep(options);
  if (options.latecomer) return latecomer(options);
  PUMICE_TRY(const Trace trace, load_trace(options));
  SimulationOptions simulation{.scheduler = scheduler_options(options),
                               .calibrated = !options.uncalibrated,
                               .speed_up = options.speed_up};
  PUMICE_TRY(const std::optional<uint32_t> blocks, parse_limit_or_inf("--blocks", options.blocks));
  simulation.n_pages = blocks.value_or(kUnlimitedPages);
  simulation.kept_states = kKeptStates.at(options.keep_states);
  if (options.state_pages > 0) {
    simulation.kinds.resize(1 + options.state_pages,
                            {.name = "state", .form = StateForm::kRecurrent});
    simulation.kinds[0] = {};
  }
  PUMICE_TRY(simulation.device, read_device_model(options.device_model));
  PUMICE_TRY(const Goodput goodput, parse_goodput(options.goodput));
  simulation.goodput_ttft_s = goodput.ttft_s;
  simulation.goodput_tpot_s = goodput.tpot_s;
  const PrefixHits hits = find_prefix_hits(trace, simulation);
  ProgressBar bar("simulating");
  PUMICE_TRY(
      const SimulationReport report, simulate(trace, simulation, [&](size_t done, size_t total) {
        bar.update(done, total);
        return true;  // nothing is kept of half a simulation, so an interrupt ends it at once
      }));
  if (options.json) {
    print_text("{}\n", to_json(report, hits, simulation.device).dump(2));
  } else {
    print_report(report, hits);
  }
  return {};
}

}  // namespace

Command add_sim(CLI::App& app) {
  auto options = std::make_shared<SimOptions>();
  CLI::App* command =
      app.add_subcommand("sim", "Simulate scheduling and caching over a trace, with no device");
  command->add_option("--trace", options->trace,
                      "Azure's CSV (arrivals, lengths) or Mooncake's JSONL (with block ids)");
  command
      ->add_option("--synthetic", options->n_synthetic,
                   "Instead: this many requests with shared system prompts")
      ->check(CLI::Range(1u, kMostSynthetic));
  add_number(*command, "--rate", options->rate, kLeastNumber, kMostNumber,
             "Arrivals a second of --synthetic");
  command->add_option("-s,--seed", options->seed, "Seed of --synthetic")->capture_default_str();
  command->add_option("--requests", options->n_requests, "Only the first requests of the trace");
  command->add_option("--blocks", options->blocks, "KV blocks of the device, or inf")
      ->capture_default_str();
  command
      ->add_option("--block-size", options->block_size,
                   "Tokens in a block (default: 512 for Mooncake's traces, else 16)")
      ->check(CLI::Range(1u, 65536u));
  add_number(*command, "--state-pages", options->state_pages, 0u, kMaxKinds - 1,
             "Pages, as large as a block, that the state of a model with recurrent layers "
             "takes");
  add_choice(*command, "--keep-states", options->keep_states,
             {"none", "edge", "branch", "both", "every"},
             "At which blocks' ends of a prompt they are kept: none, edge (the last), branch "
             "(where it left what was known), both, every");
  add_choice(*command, "--policy", options->policy, {"adaptive", "fixed", "monolithic"},
             "How prompts are cut: adaptive (to --tpot-target), fixed (--chunk), monolithic");
  command->add_option("--device-model", options->device_model,
                      "JSON of what a step costs, or a scheduling profile (default: an "
                      "8-billion-parameter model on a large GPU)");
  add_number(*command, "-b,--batch-size", options->token_budget, 1u, 1u << 20,
             "Maximum tokens in a step");
  add_number(*command, "--chunk", options->chunk_tokens, 1u, 1u << 20,
             "Prompt tokens in a step, policy fixed");
  add_number(*command, "--tpot-target", options->tpot_target_ms, kLeastNumber, kMostNumber,
             "Milliseconds between tokens");
  add_number(*command, "--aging", options->aging_s, 0, kMostAgingS,
             "Seconds after which a service class that is not served gets a turn; 0: never");
  add_number(*command, "--np,--parallel", options->parallel, 1u, 1u << 20,
             "Requests that run at once");
  add_number(*command, "--speed-up", options->speed_up, kLeastNumber, kMostNumber,
             "Arrivals come this much faster");
  command->add_option("--goodput", options->goodput,
                      "Objectives a request must meet to count: 'ttft:MS tpot:MS'");
  command->add_flag("--uncalibrated", options->uncalibrated,
                    "Let the scheduler learn the device on the way");
  command->add_flag("--sweep", options->sweep,
                    "Print how chunk size trades a prompt's latency against the streams' gaps");
  command->add_option("--chunks", options->sweep_chunks, "Chunk sizes of --sweep; 0 is adaptive")
      ->capture_default_str();
  command->add_option("--decodes", options->sweep_decodes, "Streams beside the prompts of --sweep")
      ->capture_default_str();
  add_number(*command, "--prompt-tokens", options->sweep_prompt, 1u, 1u << 20,
             "Length of the prompts of --sweep");
  command->add_flag("--latecomer", options->latecomer,
                    "Print how soon an interactive request gets its first token when batch "
                    "requests have all places and a long prompt is being read");
  add_number(*command, "--batch", options->n_batch, 1u, kMostStreams,
             "Batch requests, and places, of --latecomer");
  add_number(*command, "--long-prompt", options->long_prompt, 1u, 1u << 20,
             "Length of the long one of --latecomer");
  add_number(*command, "--late-prompt", options->late_prompt, 1u, 1u << 20,
             "Length of the latecomer's own prompt");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  pumice sim --trace conversation.jsonl --blocks 10000\n"
      "  pumice sim --synthetic 2000 --rate 10 --goodput 'ttft:500 tpot:50'\n"
      "  pumice sim --sweep --tpot-target 30\n"
      "  pumice sim --latecomer --batch 8 --long-prompt 100000 --aging 30");
  return {command, [options] { return sim(*options); }};
}

}  // namespace pumice::tools
