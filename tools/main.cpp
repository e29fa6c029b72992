// The `pumice` program: parses the command line, runs one subcommand, turns errors into one line on
// stderr and the documented exit code.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "tools/command.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

// Names people know from other runtimes with one dash and several letters, which CLI11 would read
// as a group of one-letter flags.
constexpr std::string_view kSingleDashNames[] = {"-ub", "-ctk", "-ctv", "-dev", "-sys"};

std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {  // CLI11 takes them in reverse
    std::string argument = argv[i];
    for (const std::string_view name : kSingleDashNames) {
      const bool is_name = argument == name || argument.starts_with(std::string(name) + "=");
      if (is_name) argument.insert(0, "-");
    }
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

int run(int argc, char** argv) {
  CLI::App app("Pumice runs GGUF language models on any Vulkan 1.3 device.", "pumice");
  app.footer(
      "Flags may also come from PUMICE_* environment variables or a config file; a flag beats\n"
      "the environment, which beats the file.\n"
      "Exit codes: 0 ok, 2 usage, 3 no usable device, 4 bad model or input file, 5 does not fit,\n"
      "6 self-test failed, 75 device lost, 130 interrupted.");
  app.set_version_flag("--version", PUMICE_VERSION);
  app.set_config("--config", config_file().string(), "Settings file (TOML)")
      ->envname("PUMICE_CONFIG");
  app.require_subcommand(1);
  const Command commands[] = {add_run(app), add_info(app), add_tokenize(app), add_logits(app)};
  try {
    app.parse(arguments_of(argc, argv));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_code(ErrorCode::kInvalidArgument);
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const Status status = command.run();
    if (status.ok()) return 0;
    print_error(status.error());
    return exit_code(status.error().code);
  }
  return 0;
}

}  // namespace
}  // namespace pumice::tools

int main(int argc, char** argv) {
  try {
    return pumice::tools::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "pumice: internal error: {}\n", error.what());
    return 1;
  }
}
