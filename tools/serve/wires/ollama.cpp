#include "tools/serve/wires/ollama.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include "tools/serve/wires/openai_common.hpp"

namespace pumice::serve {
namespace {

/// Whose answers these are like: clients compare it, number by number, with what they need.
constexpr std::string_view kVersion = "0.13.3";
Json details_of(const ModelCard& model) {
  return {{"format", "gguf"},
          {"family", model.architecture},
          {"families", Json::array({model.architecture})}};
}

}  // namespace

Json ollama_version() { return {{"version", kVersion}}; }

Json ollama_tag(const ModelCard& model) {
  return {{"name", model.id},
          {"model", model.id},
          {"modified_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(model.created))},
          {"size", model.file_bytes},
          {"details", details_of(model)}};
}

std::variant<Json, ApiError> ollama_show(const Json& body, const WireContext& context) {
  const ServedModel& model = context.model;
  Json named = Json::object();
  for (const char* const field : {"name", "model"}) {
    if (!body.contains(field) || !body[field].is_string()) continue;
    std::string name = body[field].get<std::string>();
    if (name.ends_with(kOllamaLatest) && !model.is_called(name))
      name.resize(name.size() - kOllamaLatest.size());
    named["model"] = name;
  }
  Fields fields(named);
  check_model(fields, model);
  if (fields.error()) return *fields.error();
  Json abilities = Json::array();
  if (model.writes()) abilities.push_back("completion");
  if (model.writes() && model.has_template) abilities.push_back("tools");
  if (model.embeds()) abilities.push_back("embedding");
  return Json{{"details", details_of(model)},
              {"model_info",
               {{"general.architecture", model.architecture},
                {model.architecture + ".context_length", model.window_tokens}}},
              {"capabilities", abilities}};
}

std::string ollama_error(const ApiError& error, std::string_view) {
  return dumped({{"error", error.message}});
}

}  // namespace pumice::serve
