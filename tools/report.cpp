// pumice report: files of results as one HTML page.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <ctime>
#include <memory>

#include "base/output_file.hpp"
#include "base/path.hpp"
#include "bench/report_page.hpp"
#include "tools/command.hpp"
#include "tools/result_files.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

struct ReportOptions {
  std::vector<std::string> files;
  std::string output;
};

Status report(const ReportOptions& options) {
  std::vector<std::filesystem::path> inputs;
  for (const std::string& file : options.files) inputs.push_back(from_utf8(file));
  PUMICE_TRY_STATUS(check_not_an_input(from_utf8(options.output), inputs));
  PUMICE_TRY(const std::vector<bench::ResultFile> files, read_result_files(options.files));
  const std::string made = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
  PUMICE_TRY(const std::string page,
             bench::report_page(files, bench::built_in_report_parts(), made));
  if (options.output == "-") return print_output(page);
  return write_file(from_utf8(options.output), page);
}

}  // namespace

Command add_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command =
      app.add_subcommand("report", "Make one HTML page of files of benchmark results");
  command
      ->add_option("files", options->files,
                   "Results of pumice bench (-o json, -o jsonl), llama-bench or gpu-check")
      ->required()
      ->type_name("FILES");
  command->add_option("-o,--output", options->output, "The page to write; - is standard output")
      ->required()
      ->type_name("FILE");
  command->footer("Example: pumice report bench/results/*.json -o report.html");
  return {command, [options] { return report(*options); }};
}

}  // namespace pumice::tools
