// The `pumice` program: parses the command line, runs one subcommand, turns errors into one line on
// stderr and the documented exit code.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <system_error>
#include <vector>

#include "tools/command.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

// Names people know from other runtimes with one dash and several letters, which CLI11 would read
// as a group of one-letter flags.
constexpr std::string_view kSingleDashNames[] = {"-ub",  "-ctk", "-ctv", "-dev",
                                                 "-sys", "-np",  "-oe",  "-pg"};

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

/// The settings file, without what the environment sets: CLI11 would let the file win.
class SettingsFile : public CLI::ConfigTOML {
 public:
  explicit SettingsFile(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> settings = CLI::ConfigTOML::from_config(input);
    std::erase_if(settings, [this](const CLI::ConfigItem& item) { return in_environment(item); });
    return settings;
  }

 private:
  bool in_environment(const CLI::ConfigItem& item) const {
    const CLI::App* app = &app_;
    for (const std::string& parent : item.parents) {
      const auto found = app->get_subcommands(
          [&parent](const CLI::App* command) { return command->get_name() == parent; });
      if (found.empty()) return false;
      app = found.front();
    }
    const CLI::Option* option =
        app->get_option_no_throw((item.name.size() == 1 ? "-" : "--") + item.name);
    if (option == nullptr || option->get_envname().empty()) return false;
    const char* const value = std::getenv(option->get_envname().c_str());
    return value != nullptr && *value != '\0';
  }

  const CLI::App& app_;
};

/// A flag problem in one line, with where to look. A settings file that cannot be read is a file's.
Error usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = "pumice";
  for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
  std::string message = error.what();
  const std::vector<std::string> unknown = app.remaining();
  if (app.get_subcommands().empty() && !unknown.empty()) {
    message = fmt::format("unknown subcommand or flag '{}'", unknown.front());
  }
  const bool is_file = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::FileError);
  return make_error(is_file ? ErrorCode::kBadFile : ErrorCode::kInvalidArgument,
                    "{} (see {} --help)", message, command);
}

int fail(const Error& error) {
  print_error(error);
  return exit_code(error.code);
}

int run(int argc, char** argv) {
  CLI::App app("Pumice runs GGUF language models on any Vulkan 1.3 device.", "pumice");
  app.footer(
      "Flags may also come from PUMICE_* environment variables or a config file; a flag beats\n"
      "the environment, which beats the file.\n"
      "Exit codes: 0 ok, 1 internal error, 2 usage, 3 no usable device, 4 bad model or input "
      "file,\n"
      "5 does not fit, 6 self-test failed, 75 device lost, 130 interrupted.");
  app.set_version_flag("--version", PUMICE_VERSION);
  app.allow_config_extras(CLI::config_extras_mode::error);
  // CLI11 2.1 does not look at the environment for the settings file.
  const char* const chosen_config = std::getenv("PUMICE_CONFIG");
  const bool config_chosen = chosen_config != nullptr && *chosen_config != '\0';
  app.set_config("--config", config_chosen ? chosen_config : config_file().string(),
                 "Settings file (TOML), also PUMICE_CONFIG", config_chosen);
  app.config_formatter(std::make_shared<SettingsFile>(app));
  app.require_subcommand(1);
  const Command commands[] = {add_run(app),      add_bench(app, command_line(argc, argv)),
                              add_report(app),   add_info(app),
                              add_tokenize(app), add_logits(app),
                              add_sim(app),      add_synth(app)};
  try {
    app.parse(arguments_of(argc, argv));
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : fail(usage_error(app, error));
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const Status status = command.run();
    if (!status.ok()) return fail(status.error());
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      return fail(make_error(ErrorCode::kInternal, "standard output cannot be written"));
    }
    return 0;
  }
  return 0;
}

}  // namespace
}  // namespace pumice::tools

int main(int argc, char** argv) {
  using pumice::ErrorCode;
  try {
    pumice::tools::end_on_interrupt();
    return pumice::tools::run(argc, argv);
  } catch (const std::bad_alloc&) {
    return pumice::tools::fail({ErrorCode::kDoesNotFit, "host memory is exhausted"});
  } catch (const std::system_error& error) {
    const bool is_limit = error.code() == std::errc::resource_unavailable_try_again ||
                          error.code() == std::errc::not_enough_memory;
    return pumice::tools::fail(
        {is_limit ? ErrorCode::kDoesNotFit : ErrorCode::kInternal,
         fmt::format("a thread or another resource of the system: {}", error.what())});
  } catch (const std::exception& error) {
    fmt::print(stderr, "pumice: internal error: {}\n", error.what());
    return 1;
  }
}
