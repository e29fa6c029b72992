// pumice bench: how fast this device runs things.
#include "tools/bench.hpp"

#include <fmt/format.h>

#include "tools/command.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

Status bench(const BenchOptions& options) {
  if (options.model.device.list) return print_devices(stderr_logger(options.model.verbose));
  if (options.ops) return bench_ops(options);
  if (options.serve) return bench_serve(options);
  if (!options.model.model.empty()) return bench_model(options);
  return make_error(ErrorCode::kInvalidArgument,
                    "nothing to measure: give a model with -m FILE (pumice synth makes one), or "
                    "--ops for the kernels");
}

}  // namespace

void print_report(const BenchOptions& options, const std::function<nlohmann::json()>& json,
                  const std::function<std::string()>& markdown) {
  const auto print = [&](const std::string& format, std::FILE* stream) {
    using Json = nlohmann::json;
    if (format == "json") {
      fmt::print(stream, "{}\n", json().dump(2, ' ', false, Json::error_handler_t::replace));
    } else if (format == "md") {
      fmt::print(stream, "{}", markdown());
    }
  };
  print(options.output, stdout);
  print(options.error_output, stderr);
}

Command add_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Measure a model, or every kernel");
  options->model.add_to(*command, "auto", "f16");
  command->add_option("-p,--n-prompt", options->n_prompt, "Prompt lengths to measure (0: none)")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0u, 1u << 24));
  command->add_option("-n,--n-gen", options->n_gen, "Generated lengths to measure (0: none)")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0u, 1u << 24));
  command->add_flag("--ops", options->ops,
                    "Time every kernel on the shapes of real models against the device's limits");
  command->add_option("--op", options->op_filter,
                      "With --ops: only ops and cases with this in their name");
  CLI::Option* const serve = command->add_flag(
      "--serve", options->serve,
      "Several requests at once: streams beside a long prompt, shared prompts, an agent's growing "
      "context, cancels");
  command
      ->add_option("--streams", options->n_streams,
                   "With --serve: requests that decode all the while")
      ->capture_default_str()
      ->check(CLI::Range(1u, 256u))
      ->needs(serve);
  command
      ->add_option("--long-prompt", options->long_prompt_tokens,
                   "With --serve: tokens of the long prompt (default: 8192, or what this device "
                   "reads in about two seconds)")
      ->check(CLI::Range(64u, 1u << 20))
      ->needs(serve);
  command
      ->add_option(
          "--tpot-target", options->tpot_target_ms,
          "With --serve: milliseconds between tokens that adaptive chunks aim at (default: "
          "three times the idle gap)")
      ->check(CLI::PositiveNumber)
      ->needs(serve);
  command
      ->add_option("--seconds", options->seconds,
                   "With --ops: begin no row later (0: no limit; default: 50 on CPU drivers, 120)")
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("-r,--repetitions", options->repetitions, "Samples of each time")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "Output format")
      ->check(CLI::IsMember({"md", "json"}))
      ->capture_default_str();
  command->add_option("--output-err,--oe", options->error_output, "-oe: the same to stderr")
      ->check(CLI::IsMember({"none", "md", "json"}))
      ->capture_default_str();
  command->footer(
      "Examples:\n  pumice bench -m model.gguf -p 512 -n 128\n  pumice bench --ops --op 'gemv "
      "Q4_K' "
      "-o json\n"
      "  pumice bench -m model.gguf --serve");
  return {command, [options] { return bench(*options); }};
}

}  // namespace pumice::tools
