// pumice bench: how fast this device runs things.
#include "tools/bench.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "bench/build_info.hpp"
#include "bench/records.hpp"
#include "tools/command.hpp"
#include "tools/flags.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr uint32_t kMostTokens = 1u << 24;
constexpr uint32_t kMostParallel = 256;
constexpr uint32_t kMostBatch = 1u << 16;

/// Errors if more than one report is asked for.
Status check_modes(const BenchOptions& options) {
  const LeverOptions& levers = options.levers;
  const std::pair<bool, const char*> modes[] = {{!options.compare.empty(), "--compare"},
                                                {!options.submit.empty(), "--submit"},
                                                {options.pts, "--pts"},
                                                {options.ops, "--ops"},
                                                {options.serve, "--serve"},
                                                {!options.server.url.empty(), "--server"},
                                                {options.explain, "--explain"},
                                                {options.layers, "--layers"},
                                                {!levers.ab.empty(), "--ab"},
                                                {levers.advise, "--advise"},
                                                {options.frames.asked_for, "--frame-impact"}};
  std::vector<std::string_view> asked_for;
  for (const auto& [is_asked_for, name] : modes) {
    if (is_asked_for) asked_for.emplace_back(name);
  }
  if (asked_for.size() <= 1) return {};
  return make_error(ErrorCode::kInvalidArgument, "{}: one report at a time; leave out all but one",
                    fmt::join(asked_for, " and "));
}

Status bench(BenchOptions options) {
  if (options.model.device.list) return print_devices(stderr_logger(options.model.verbose));
  PUMICE_TRY_STATUS(check_modes(options));
  if (!options.compare.empty()) return bench_compare(options);
  if (!options.submit.empty()) return bench_submit(options);
  if (options.ops) return bench_ops(options);
  if (!options.server.url.empty()) return bench_server(options);
  PUMICE_TRY_STATUS(options.model.resolve());
  if (options.model.model_name().empty()) {
    PUMICE_TRY(const host::ChosenDevice chosen,
               choose_device(options.model.device, stderr_logger(options.model.verbose)));
    options.model.synthetic = bench::default_model(chosen.plan);
    options.model_is_default = true;
  }
  if (options.tpot_target_ms > 0 && !options.serve && !options.levers.advise) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--tpot-target works with --serve and --advise only; give one of them");
  }
  if (options.serve) return bench_serve(options);
  if (options.frames.asked_for) return bench_frames(options);
  if (options.explain) return bench_explain(options);
  if (options.levers.advise) return bench_advise(options);
  if (!options.levers.ab.empty()) return bench_ab(options);
  if (options.layers) return bench_layers(options);
  return bench_model(options);
}

/// A flag that is given any number of times and fills `target` with what `parse` makes of each; a
/// first one takes the place of what was there.
template <typename T, typename Parse>
CLI::Option* add_list(CLI::App& app, const std::string& names, std::vector<T>& target,
                      const std::string& help, Parse parse) {
  const auto read = [&target, parse](const std::vector<std::string>& texts) {
    target.clear();
    for (const std::string& text : texts) parse(text, target);
  };
  return app.add_option_function<std::vector<std::string>>(names, read, help)
      ->allow_extra_args(false);
}

/// Numbers and ranges from `least` to `most`.
CLI::Option* add_numbers(CLI::App& app, const std::string& names, std::vector<uint32_t>& target,
                         uint32_t least, uint32_t most, const std::string& help) {
  const std::string flag = names.substr(0, names.find(','));
  const auto parse = [flag, least, most](const std::string& text, std::vector<uint32_t>& numbers) {
    const Result<std::vector<uint32_t>> parsed = parse_numbers(flag, text);
    if (!parsed.ok()) throw CLI::ValidationError(parsed.error().message);
    for (const uint32_t number : *parsed) {
      if (number < least || number > most) {
        throw CLI::ValidationError(
            fmt::format("{}: {} is not in {} to {}", flag, number, least, most));
      }
      numbers.push_back(number);
    }
  };
  return add_list(app, names, target, help, parse)->type_name("LIST");
}

void add_tests(CLI::App& command, BenchOptions& options) {
  add_numbers(command, "-p,--n-prompt", options.n_prompt, 0, kMostTokens,
              "Prompt lengths (default 512; less on a slow device)");
  add_numbers(command, "-n,--n-gen", options.n_gen, 0, kMostTokens,
              "Tokens to generate (default 128; less on a slow device)");
  using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;
  add_list(command, "--pg", options.prompt_and_gen, "A prompt, then generation, as in 512,128",
           [](const std::string& text, Pairs& pairs) {
             const Result<std::pair<uint32_t, uint32_t>> pair = parse_pair("-pg", text);
             if (!pair.ok()) throw CLI::ValidationError(pair.error().message);
             if (std::max(pair->first, pair->second) > kMostTokens) {
               throw CLI::ValidationError(fmt::format("-pg: {} is too large", text));
             }
             pairs.push_back(*pair);
           })
      ->type_name("P,N");
  add_numbers(command, "-d,--n-depth", options.n_depth, 0, kMostTokens,
              "Tokens in the context before the clock starts");
  add_numbers(command, "--np,--n-parallel", options.n_parallel, 1, kMostParallel,
              "Requests at once");
  add_numbers(command, "-b,--batch-size", options.n_batch, kKvBlockTokens, kMostBatch,
              "Maximum tokens computed in one step");
  add_numbers(command, "--ub,--ubatch-size", options.n_ubatch, 1, kMostBatch,
              "Maximum tokens of one prompt computed in one step");
  command.add_option("--delay", options.delay_s, "Seconds to wait before each test")
      ->check(number_in(0, 3600));
}

void add_serve(CLI::App& command, BenchOptions& options) {
  CLI::Option* const serve = command.add_flag(
      "--serve", options.serve,
      "Several requests at once: streams beside a long prompt, shared prompts, an agent's growing "
      "context, cancels");
  add_number(command, "--streams", options.n_streams, 1u, 256u,
             "With --serve or --advise: requests that decode all the while");
  command
      .add_option("--long-prompt", options.long_prompt_tokens,
                  "With --serve: tokens of the long prompt (default: 8192, or what this device "
                  "reads in about two seconds)")
      ->check(CLI::Range(64u, 1u << 20))
      ->needs(serve);
  command
      .add_option("--tpot-target", options.tpot_target_ms,
                  "With --serve: milliseconds between tokens that adaptive chunks aim at (default: "
                  "three times the idle gap, or what the best fixed chunks reach); with --advise: "
                  "the target")
      ->check(number_in(kLeastNumber, kMostNumber));
}

void add_ops(CLI::App& command, BenchOptions& options) {
  command.add_flag("--ops", options.ops,
                   "Time every kernel on the shapes of real models against the device's limits");
  command.add_option("--op", options.op_filter,
                     "With --ops: only ops and cases with this in their name");
  command
      .add_option("--seconds", options.seconds,
                  "With --ops: begin no row later (0: no limit; default: 50 on CPU drivers, 120)")
      ->check(number_in(0, 1e6));
}

void add_explain(CLI::App& command, BenchOptions& options) {
  CLI::Option* const explain = command.add_flag(
      "--explain", options.explain,
      "What the tests cost on paper (flops, bytes, where attention outweighs the rest), how fast "
      "this device could be at best, and how fast it is");
  command
      .add_flag("--no-measure", options.no_measure,
                "With --explain: the paper only, which needs no device")
      ->needs(explain);
}

void add_layers(CLI::App& command, BenchOptions& options) {
  CLI::Option* const layers = command.add_flag(
      "--layers", options.layers,
      "Where the steps of the tests go: every dispatch timed by the device's clock, by part of the "
      "model, and what the host spends");
  command
      .add_option("--trace", options.trace,
                  "With --layers: write the steps to a file that Perfetto and Chrome load")
      ->type_name("FILE")
      ->needs(layers);
}

void add_levers(CLI::App& command, LeverOptions& levers) {
  command
      .add_option("--ab", levers.ab,
                  "A configuration in turns with the default, or, given twice, the second with the "
                  "first: KEY=VALUE,... of math, kv, chunk, batch, split, prefix_cache, run_ahead, "
                  "invariant, variant, limit; null compares the default with itself")
      ->expected(1)
      ->take_all()
      ->type_name("CONFIG");
  CLI::Option* const advised =
      command.add_flag("--advise", levers.advise,
                       "Measure what would bring the model to --ttft-target and --tpot-target: "
                       "arithmetic, kernels, KV type, chunks, prefix reuse, a smaller window");
  command
      .add_option("--ttft-target", levers.ttft_target_ms,
                  "With --advise: milliseconds to the first token")
      ->check(number_in(kLeastNumber, kMostNumber))
      ->needs(advised);
}

void add_compare(CLI::App& command, BenchOptions& options) {
  command
      .add_option(
          "--compare", options.compare,
          "Measure nothing; print ratios between files of results (-o json), the first being "
          "the base; llama-bench's files too")
      ->type_name("FILES");
  command
      .add_option("--submit", options.submit,
                  "Measure nothing; print what of a file of results (-o json) is to be submitted, "
                  "or refuse it, naming what lacks: an output check, clocks, the driver, the "
                  "model's hash")
      ->type_name("FILE");
}

void add_output(CLI::App& command, BenchOptions& options) {
  CLI::Option* const pts =
      command.add_flag("--pts", options.pts,
                       "Print a line a test, \"pp512: 123.45 t/s\", for the Phoronix Test Suite");
  command.add_flag("--no-check", options.no_check,
                   "Do not compare logits with fp64 first; records say so");
  std::vector<std::string> formats(std::begin(bench::kRecordFormats),
                                   std::end(bench::kRecordFormats));
  command
      .add_option("-r,--repetitions", options.repetitions,
                  "Samples of each measurement (default 5)")
      ->check(CLI::Range(1u, 1000u));
  add_choice(command, "-o,--output", options.output, formats, "Output format")->excludes(pts);
  formats.insert(formats.begin(), "none");
  add_choice(command, "--output-err,--oe", options.error_output, formats, "The same to stderr");
}

}  // namespace

void print_report(const BenchOptions& options, const std::function<nlohmann::json()>& json,
                  const std::function<std::string()>& markdown) {
  const auto text_in = [&](const std::string& format) -> std::string {
    if (format == "none") return {};
    if (format == "md") {
      const std::string text = markdown();
      // Results that are read are marked by those who read them.
      if (!options.compare.empty() || !bench::build_is_dirty()) return text;
      return fmt::format("{}\nBuilt from a work tree that differs from commit {} (dirty)\n", text,
                         bench::build_commit());
    }
    const nlohmann::json report = json();
    if (format == "json") {
      return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    }
    const std::vector<nlohmann::json> records(report.begin(), report.end());
    if (format == "csv") return bench::to_csv(records);
    if (format == "sql") return bench::to_sql(records);
    std::string lines;
    for (const nlohmann::json& record : records) lines += bench::to_jsonl(record) + "\n";
    return lines;
  };
  print_text("{}", text_in(options.output));
  print_message(std::string_view(text_in(options.error_output)));
}

Status require_md_or_json(const BenchOptions& options) {
  for (const std::string& format : {options.output, options.error_output}) {
    if (format == "md" || format == "json" || format == "none") continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "-o {}: this report is written as md or json only", format);
  }
  return {};
}

Command add_bench(CLI::App& app, const std::string& command_line) {
  auto options = std::make_shared<BenchOptions>();
  options->command = command_line;
  CLI::App* command = app.add_subcommand(
      "bench",
      "Measure a model, or every kernel; without flags a synthetic model sized for this device");
  const auto group = [command](const char* name) { command->option_defaults()->group(name); };
  group("Model and device");
  options->model.add_to(*command, "auto", "f16");
  options->model.add_synthetic_to(*command);
  group("Tests");
  add_tests(*command, *options);
  group("Output");
  add_output(*command, *options);
  group("Instead: kernels by themselves");
  add_ops(*command, *options);
  group("Instead: where time goes and could go");
  add_explain(*command, *options);
  add_layers(*command, *options);
  group("Instead: several requests at once");
  add_serve(*command, *options);
  group("Instead: a load on a server");
  options->server.add_to(*command);
  group("Instead: beside a program that draws");
  options->frames.add_to(*command);
  group("Instead: what a choice is worth");
  add_levers(*command, options->levers);
  group("Instead: files of results");
  add_compare(*command, *options);
  group(kDefaultGroup);
  command->footer(
      "Lists: 128,512 or 512-2048+512 or 1-64*2; every combination is a test. Tests are named as\n"
      "in llama-bench: pp512 reads 512 tokens, tg128 generates 128, pp512+tg128 does both,\n"
      "@ d4096 with 4096 tokens in the context, x4 four requests at once.\n"
      "Examples:\n"
      "  pumice bench\n"
      "  pumice bench --synthetic llama-8b:q4_k\n"
      "  pumice bench -m model.gguf -p 512 -n 128\n"
      "  pumice bench -m model.gguf -p 512 -n 32 -d 0-16384+4096 -o jsonl\n"
      "  pumice bench -m model.gguf -p 0 -n 128 -np 1-16*2\n"
      "  pumice bench -m model.gguf --serve\n"
      "  pumice bench --server http://127.0.0.1:8080 --clients 16 --requests 200\n"
      "  pumice bench -m model.gguf --frame-impact\n"
      "  pumice bench --ops --op 'gemv Q4_K' -o json\n"
      "  pumice bench --explain --no-measure --synthetic llama-8b:Q4_K -p 512 -n 128 -d 0,8192\n"
      "  pumice bench --layers -m model.gguf -p 512 -n 16 --trace steps.json\n"
      "  pumice bench --advise --ttft-target 500 --tpot-target 50 -m model.gguf\n"
      "  pumice bench --ab math=f16 -m model.gguf\n"
      "  pumice bench --compare before.json after.json\n"
      "  pumice bench -m model.gguf -o json > mine.json && pumice bench --submit mine.json");
  return {command, [options] { return bench(*options); }};
}

}  // namespace pumice::tools
