// A subcommand: options bound to a CLI11 app, and what runs when it was chosen. One file each.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "base/result.hpp"

namespace pumice::tools {

struct Command {
  CLI::App* app = nullptr;
  std::function<Status()> run;
};

Command add_run(CLI::App& app);
Command add_chat(CLI::App& app);
Command add_info(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_template(CLI::App& app);
Command add_logits(CLI::App& app);
Command add_embed(CLI::App& app);
Command add_eval(CLI::App& app);
Command add_perplexity(CLI::App& app);
Command add_sim(CLI::App& app);
Command add_tune(CLI::App& app);
Command add_pull(CLI::App& app);
Command add_list(CLI::App& app);
Command add_rm(CLI::App& app);
Command add_synth(CLI::App& app);
/// Hidden: man pages and shell completions of all commands of `app`.
Command add_manual(CLI::App& app);
Command add_serve(CLI::App& app);
/// `command_line`: as it was typed, for the records.
Command add_report(CLI::App& app);
Command add_bench(CLI::App& app, const std::string& command_line);

}  // namespace pumice::tools
