// pumice manual: man pages and shell completions of this very program. Hidden, as it is the build
// that runs it, for installation.
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/output_file.hpp"
#include "base/path.hpp"
#include "tools/command.hpp"
#include "tools/completions.hpp"
#include "tools/flag_list.hpp"
#include "tools/man_pages.hpp"

namespace pumice::tools {
namespace {

Status write_below(const std::filesystem::path& folder, const std::filesystem::path& name,
                   std::string_view text) {
  const std::filesystem::path path = folder / name;
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) {
    return make_error(ErrorCode::kBadFile, "{}: cannot make this folder: {}",
                      to_utf8(path.parent_path()), error.message());
  }
  return write_file(path, text);
}

Status manual(const CLI::App& app, const std::filesystem::path& folder) {
  const std::vector<CommandEntry> commands = list_commands(app);
  for (const ManPage& page : man_pages(commands, PUMICE_VERSION)) {
    PUMICE_TRY_STATUS(write_below(folder, "man/man1/" + page.name + ".1", page.text));
  }
  PUMICE_TRY_STATUS(
      write_below(folder, "bash-completion/completions/pumice", bash_completion(commands)));
  PUMICE_TRY_STATUS(write_below(folder, "zsh/site-functions/_pumice", zsh_completion(commands)));
  return write_below(folder, "fish/vendor_completions.d/pumice.fish", fish_completion(commands));
}

}  // namespace

Command add_manual(CLI::App& app) {
  auto folder = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("manual", "Write man pages and completions for bash, zsh and fish");
  command->group("");
  command
      ->add_option("FOLDER", *folder,
                   "Where man/, bash-completion/, zsh/ and fish/ are made, such as ~/.local/share")
      ->required();
  command->footer("Example: pumice manual ~/.local/share");
  return {command, [&app, folder] { return manual(app, from_utf8(*folder)); }};
}

}  // namespace pumice::tools
