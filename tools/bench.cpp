// pumice bench: how fast this device runs things.
#include "tools/bench.hpp"

#include "tools/command.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

Status bench(const BenchOptions& options) {
  if (options.device.list) return print_devices(stderr_logger(options.verbose));
  if (options.ops) return bench_ops(options);
  return make_error(ErrorCode::kInvalidArgument,
                    "bench measures ops only so far: give --ops (models: pumice run --profile)");
}

}  // namespace

Command add_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Measure this device");
  command->add_flag(
      "--ops", options->ops,
      "Time every kernel on the shapes of real models against the device's own limits");
  command->add_option("--op", options->op_filter,
                      "Only ops and cases with this in their name, such as 'gemv Q4_K'");
  command->add_option("-r,--repetitions", options->repetitions, "Samples of each time")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "Output format")
      ->check(CLI::IsMember({"md", "json"}))
      ->capture_default_str();
  options->device.add_to(*command);
  command->add_flag("-v,--verbose", options->verbose, "Log every stage to stderr")
      ->envname("PUMICE_VERBOSE");
  command->footer("Examples:\n  pumice bench --ops\n  pumice bench --ops --op 'gemv Q4_K' -o json");
  return {command, [options] { return bench(*options); }};
}

}  // namespace pumice::tools
