// The `pumice` program: parses the command line, runs one subcommand, turns errors into one line on
// stderr and the documented exit code.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <new>
#include <sstream>
#include <system_error>
#include <vector>

#include "base/file_error.hpp"
#include "base/folders.hpp"
#include "base/path.hpp"
#include "base/process.hpp"
#include "bench/build_info.hpp"
#include "tools/arguments.hpp"
#include "tools/command.hpp"
#include "tools/interrupt.hpp"
#include "tools/settings.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

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

std::string command_line(const std::vector<std::string>& typed) {
  std::vector<std::string> words = {"pumice"};
  for (const std::string& word : typed) words.push_back(in_shell(word));
  return fmt::format("{}", fmt::join(words, " "));
}

/// A flag problem in one line, with where to look.
Error usage_error(const CLI::App& app, const Arguments& arguments, const CLI::ParseError& error) {
  std::string command = "pumice";
  for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
  return make_error(ErrorCode::kInvalidArgument, "{} (see {} --help)",
                    arguments.as_typed(error.what()), command);
}

std::string version_text() {
  return fmt::format("{} (commit {}{})", PUMICE_VERSION, bench::build_commit(),
                     bench::build_is_dirty() ? ", dirty" : "");
}

/// Whatever `status` says, output that did not arrive and an interrupt are no success.
int end(Status status) {
  Status output = finish_output();
  if (status.ok()) status = output;
  end_without_interrupts();
  if (status.ok() && InterruptGuard::interrupted()) {
    status = make_error(ErrorCode::kCancelled, "interrupted");
  }
  if (!status.ok()) print_error(status.error());
  restore_console();
  return status.ok() ? 0 : exit_code(status.error().code);
}

/// What CLI11 prints by itself: help and version.
Status print_help(const CLI::App& app, const CLI::ParseError& request) {
  std::ostringstream text;
  app.exit(request, text, text);
  return print_output(text.str());
}

/// `words`: what was typed behind the program's name.
Status run(const std::vector<std::string>& words) {
  CLI::App app("Pumice runs GGUF language models on any Vulkan 1.3 device.", "pumice");
  app.footer(
      "A model needs no -m or -hf, and a prompt after it no -p: pumice run FILE \"Once\".\n"
      "Flags may also come from PUMICE_* environment variables or a config file; a flag beats\n"
      "the environment, which beats the file.\n"
      "Exit codes: 0 ok, 1 internal error, 2 usage, 3 no usable device, 4 bad file (read or\n"
      "written), 5 does not fit (memory, context, disk), 6 self-test failed, 75 device lost,\n"
      "130 interrupted. Without a subcommand this help is printed.");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", version_text, "Print the version and its commit");
  std::string config;
  CLI::Option* const config_option =
      app.add_option("--config", config,
                     "Settings file (TOML) instead of ~/.config/pumice/config.toml, also "
                     "PUMICE_CONFIG")
          ->type_name("FILE");
  app.require_subcommand(1);
  const std::string typed = command_line(words);
  // clang-format off
  const Command commands[] = {
      add_run(app),
      add_chat(app),
      add_serve(app),
      add_bench(app, typed),
      add_report(app),
      add_tune(app),
      add_info(app),
      add_tokenize(app),
      add_template(app),
      add_logits(app),
      add_perplexity(app),
      add_eval(app),
      add_embed(app),
      add_sim(app),
      add_synth(app),
      add_pull(app),
      add_list(app),
      add_rm(app),
      add_manual(app),
  };
  // clang-format on
  if (words.empty()) return print_output(app.help());
  Settings settings(app);
  PUMICE_TRY(Arguments arguments, read_arguments(app, words));
  try {
    app.parse(arguments.words);
  } catch (const CLI::ParseError& error) {
    settings.show_in_help();
    if (error.get_exit_code() == 0) return print_help(app, error);
    return usage_error(app, arguments, error);
  }
  bool config_chosen = config_option->count() > 0;
  if (const auto of_environment = environment_variable("PUMICE_CONFIG");
      !config_chosen && !of_environment.value_or("").empty()) {
    config = *of_environment;
    config_chosen = true;
  }
  if (const auto folder = config_directory(); !config_chosen && !folder.empty()) {
    config = to_utf8(folder / "config.toml");
  }
  PUMICE_TRY_STATUS(settings.apply(*app.get_subcommands().front(), config, config_chosen));
  for (const std::string& note : arguments.notes) print_message("pumice: {}\n", note);
  settings.show_in_help();  // the manual has the variables too
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return {};
}

}  // namespace
}  // namespace pumice::tools

int main(int argc, char** argv) {
  using namespace pumice;
  tools::prepare_streams();
  tools::watch_interrupts();
  try {
    std::vector<std::string> words = program_arguments(argc, argv);
    if (!words.empty()) words.erase(words.begin());
    return tools::end(tools::run(words));
  } catch (const std::bad_alloc&) {
    return tools::end(make_error(ErrorCode::kDoesNotFit, "host memory is exhausted"));
  } catch (const std::system_error& error) {
    // fmt::print throws when standard output cannot be written.
    if (std::ferror(stdout) != 0)
      return tools::end(cannot_write("standard output", error.code().value()));
    const bool is_limit = error.code() == std::errc::resource_unavailable_try_again ||
                          error.code() == std::errc::not_enough_memory;
    return tools::end(make_error(is_limit ? ErrorCode::kDoesNotFit : ErrorCode::kInternal,
                                 "the system refused a thread or another resource: {}",
                                 error.what()));
  } catch (const std::exception& error) {
    return tools::end(make_error(ErrorCode::kInternal, "internal error: {}", error.what()));
  }
}
