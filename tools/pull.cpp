// pumice pull, list, rm: models of a hub, in the cache.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/path.hpp"
#include "hub/hub.hpp"
#include "tools/command.hpp"
#include "tools/hub_options.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

using Json = nlohmann::json;

struct PullOptions {
  std::vector<std::string> names;
  HubFlags hub;
  bool json = false;
};

std::string iso_time(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

Json to_json(const CachedModel& model) {
  Json json{{"name", model.name.text()},  {"repo", model.name.repository()},
            {"quant", model.quant},       {"size_bytes", model.size_bytes},
            {"complete", model.complete}, {"pulled", iso_time(model.pulled)},
            {"files", Json::array()}};
  for (const auto& path : model.files) json["files"].push_back(to_utf8(path));
  return json;
}

void print_json(const std::vector<CachedModel>& models) {
  Json list = Json::array();
  for (const CachedModel& model : models) list.push_back(to_json(model));
  print_text("{}\n", list.dump(2, ' ', false, Json::error_handler_t::replace));
}

/// A program that reads it needs its very bytes.
void print_path(const std::filesystem::path& path) {
  const std::string line = to_utf8(path) + "\n";
  if (is_terminal(Stream::kOutput)) return print_text(std::string_view(line));
  [[maybe_unused]] const Status written = print_output(line);  // finish_output tells
}

Status pull(const PullOptions& options) {
  PUMICE_TRY(const Hub hub, options.hub.hub());
  std::vector<ModelName> names;
  for (const std::string& text : options.names) {
    PUMICE_TRY(ModelName name, ModelName::parse(text));
    names.push_back(std::move(name));
  }
  std::vector<CachedModel> pulled;
  for (const ModelName& name : names) {
    PullDisplay display;
    PUMICE_TRY(CachedModel model, hub.pull(name, display.events()));
    display.finish();
    if (!options.json) print_path(model.files[0]);
    pulled.push_back(std::move(model));
  }
  if (options.json) print_json(pulled);
  return {};
}

Status list(bool json) {
  PUMICE_TRY(const Hub hub, HubFlags{}.hub());
  const std::vector<CachedModel> models = hub.cache().list();
  if (json) {
    print_json(models);
    return {};
  }
  size_t width = 4;
  for (const CachedModel& model : models) width = std::max(width, model.name.text().size());
  print_text("{:<{}}  {:<10}  {:>10}  {}\n", "NAME", width, "QUANT", "SIZE", "PULLED");
  for (const CachedModel& model : models) {
    print_text("{:<{}}  {:<10}  {:>10}  {}{}\n", model.name.text(), width, model.quant,
               format_bytes(model.size_bytes), iso_time(model.pulled).substr(0, 10),
               model.complete ? "" : "  unfinished: pumice pull continues");
  }
  return {};
}

Status remove(const PullOptions& options) {
  PUMICE_TRY(const Hub hub, options.hub.hub());
  std::vector<CachedModel> removed;
  for (const std::string& text : options.names) {
    PUMICE_TRY(const ModelName name, ModelName::parse(text));
    const auto waiting = [&] { print_message("{} is being pulled; waiting\n", name.repository()); };
    PUMICE_TRY(const std::vector<CachedModel> models, hub.remove(name, waiting));
    for (const CachedModel& model : models) {
      print_message("removed {} ({})\n", model.name.text(), format_bytes(model.size_bytes));
    }
    removed.insert(removed.end(), models.begin(), models.end());
  }
  if (options.json) print_json(removed);
  return {};
}

}  // namespace

Command add_pull(CLI::App& app) {
  auto options = std::make_shared<PullOptions>();
  CLI::App* command = app.add_subcommand(
      "pull", "Download a model into the cache, or continue; print where its file is");
  command->add_option("NAME", options->names, "user/repo, user/repo:quant or user/repo:file.gguf")
      ->required();
  options->hub.add_to(*command);
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Without a quant: Q4_K_M, else Q8_0, else the first file. All parts of a split model are\n"
      "pulled, checksums are compared, and what was interrupted continues where it ended.\n"
      "Environment: HF_TOKEN for private and gated models, HF_ENDPOINT for another server,\n"
      "HF_HUB_OFFLINE, https_proxy, PUMICE_NETWORK_TIMEOUT (seconds without bytes; 30).\n"
      "Example: pumice pull ggml-org/gemma-3-1b-it-GGUF:Q4_K_M");
  return {command, [options] { return pull(*options); }};
}

Command add_list(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("list", "List the models in the cache");
  command->add_flag("--json", *json, "Print JSON");
  command->footer("Example: pumice list --json");
  return {command, [json] { return list(*json); }};
}

Command add_rm(CLI::App& app) {
  auto options = std::make_shared<PullOptions>();
  CLI::App* command = app.add_subcommand("rm", "Remove models from the cache, without asking");
  command
      ->add_option("NAME", options->names,
                   "As pumice list prints it; user/repo alone removes all of a repository")
      ->required();
  command->add_flag("--json", options->json, "Print JSON");
  command->footer("Example: pumice rm ggml-org/gemma-3-1b-it-GGUF:Q4_K_M");
  return {command, [options] { return remove(*options); }};
}

}  // namespace pumice::tools
