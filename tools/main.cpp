// The `pumice` program: parses the command line, runs one subcommand, turns errors into one line on
// stderr and the documented exit code.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <sstream>
#include <system_error>
#include <vector>

#include "base/file_error.hpp"
#include "tools/command.hpp"
#include "tools/interrupt.hpp"
#include "tools/settings_file.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

// Names people know from other runtimes with one dash and several letters, which CLI11 would read
// as a group of one-letter flags.
constexpr std::string_view kSingleDashNames[] = {"-ub", "-ctk", "-ctv", "-dev", "-sys",
                                                 "-np", "-oe",  "-pg",  "-hf"};

std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {  // CLI11 takes them in reverse
    std::string argument = argv[i];
    const std::string_view before = argv[i - 1];
    const bool is_text = before == "-p" || before == "--prompt";
    for (const std::string_view name : kSingleDashNames) {
      const bool is_name = argument == name || argument.starts_with(std::string(name) + "=");
      if (is_name && !is_text) argument = fmt::format("-{}", argument);
    }
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

/// An argument as a shell would take it again.
std::string in_shell(const std::string& argument) {
  const bool plain = argument.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                         "-_=+,.:/@%") == std::string::npos;
  if (plain && !argument.empty()) return argument;
  std::vector<std::string> parts = CLI::detail::split(argument, '\'');
  if (argument.empty()) parts = {""};
  return fmt::format("'{}'", fmt::join(parts, "'\\''"));
}

std::string command_line(int argc, char** argv) {
  std::vector<std::string> words = {"pumice"};
  for (int i = 1; i < argc; ++i) words.push_back(in_shell(argv[i]));
  return fmt::format("{}", fmt::join(words, " "));
}

/// A flag problem in one line, with where to look. A settings file that cannot be read is a file's.
Error usage_error(const CLI::App& app, const SettingsFile& settings, const CLI::ParseError& error) {
  std::string command = "pumice";
  for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
  std::string message = settings.with_place(error.what());
  const std::vector<std::string> unknown = app.remaining();
  if (app.get_subcommands().empty() && !unknown.empty()) {
    message = fmt::format("unknown subcommand or flag '{}'", unknown.front());
  }
  const bool is_file = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::FileError);
  return make_error(is_file ? ErrorCode::kBadFile : ErrorCode::kInvalidArgument,
                    "{} (see {} --help)", message, command);
}

/// Whatever `status` says, output that did not arrive and an interrupt are no success.
int end(Status status) {
  Status output = finish_output();
  if (status.ok()) status = output;
  end_without_interrupts();
  if (status.ok() && InterruptGuard::interrupted()) {
    status = make_error(ErrorCode::kCancelled, "interrupted");
  }
  if (status.ok()) return 0;
  print_error(status.error());
  return exit_code(status.error().code);
}

/// What CLI11 prints by itself: help and version.
Status print_help(const CLI::App& app, const CLI::ParseError& request) {
  std::ostringstream text;
  app.exit(request, text, text);
  return print_output(text.str());
}

Status run(int argc, char** argv) {
  CLI::App app("Pumice runs GGUF language models on any Vulkan 1.3 device.", "pumice");
  app.footer(
      "Flags may also come from PUMICE_* environment variables or a config file; a flag beats\n"
      "the environment, which beats the file.\n"
      "Exit codes: 0 ok, 1 internal error, 2 usage, 3 no usable device, 4 bad file (read or\n"
      "written), 5 does not fit (memory, context, disk), 6 self-test failed, 75 device lost,\n"
      "130 interrupted. Without a subcommand this help is printed.");
  app.set_version_flag("--version", PUMICE_VERSION);
  app.allow_config_extras(CLI::config_extras_mode::error);
  // CLI11 2.1 does not look at the environment for the settings file.
  const char* const chosen_config = std::getenv("PUMICE_CONFIG");
  const bool config_chosen = chosen_config != nullptr && *chosen_config != '\0';
  app.set_config("--config", config_chosen ? chosen_config : config_file().string(),
                 "Settings file (TOML), also PUMICE_CONFIG", config_chosen);
  const auto settings = std::make_shared<SettingsFile>(app);
  app.config_formatter(settings);
  app.require_subcommand(1);
  const std::string typed = command_line(argc, argv);
  // clang-format off
  const Command commands[] = {
      add_run(app),
      add_chat(app),
      add_bench(app, typed),
      add_report(app),
      add_info(app),
      add_tokenize(app),
      add_template(app),
      add_logits(app),
      add_perplexity(app),
      add_embed(app),
      add_sim(app),
      add_synth(app),
      add_pull(app),
      add_list(app),
      add_rm(app),
  };
  // clang-format on
  if (argc <= 1) return print_output(app.help());
  try {
    app.parse(arguments_of(argc, argv));
    check_environment(app);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return print_help(app, error);
    return usage_error(app, *settings, error);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return {};
}

}  // namespace
}  // namespace pumice::tools

int main(int argc, char** argv) {
  using namespace pumice;
  tools::open_missing_streams();
  tools::watch_interrupts();
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the limit of its size is an error to report
  try {
    return tools::end(tools::run(argc, argv));
  } catch (const std::bad_alloc&) {
    return tools::end(make_error(ErrorCode::kDoesNotFit, "host memory is exhausted"));
  } catch (const std::system_error& error) {
    // fmt::print throws when standard output cannot be written.
    if (std::ferror(stdout) != 0)
      return tools::end(cannot_write("standard output", error.code().value()));
    const bool is_limit = error.code() == std::errc::resource_unavailable_try_again ||
                          error.code() == std::errc::not_enough_memory;
    return tools::end(make_error(is_limit ? ErrorCode::kDoesNotFit : ErrorCode::kInternal,
                                 "a thread or another resource of the system: {}", error.what()));
  } catch (const std::exception& error) {
    return tools::end(make_error(ErrorCode::kInternal, "internal error: {}", error.what()));
  }
}
