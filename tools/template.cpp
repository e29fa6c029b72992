// pumice template: what a chat template makes of a conversation.
#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/json.hpp"
#include "base/printable.hpp"
#include "format/gguf.hpp"
#include "text/chat_template.hpp"
#include "tools/command.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;
constexpr std::string_view kKey = "tokenizer.chat_template";
constexpr size_t kMaxContextBytes = 64 << 20;  // far beyond what any model reads

struct TemplateOptions {
  std::string model;
  std::string file;
  std::string name;
  std::string context;
  std::string now;
  bool add_generation_prompt = false;
};

/// What a model without the template asked for has instead.
Error no_template(const GgufFile& file, const TemplateOptions& options) {
  std::string names;
  for (const GgufValue& value : file.metadata()) {
    const std::string prefix = std::string(kKey) + ".";
    if (value.key.starts_with(prefix)) {
      names += fmt::format(" --name {}", printable(value.key.substr(prefix.size()), 40));
    }
  }
  const std::string wanted = options.name.empty() ? "" : fmt::format(" '{}'", options.name);
  return make_error(ErrorCode::kBadFile, "{}: the model has no chat template{}; {}", options.model,
                    wanted,
                    names.empty() ? "give one with --file" : fmt::format("it has:{}", names));
}

Result<std::string> source_of(const TemplateOptions& options, const GgufFile* file) {
  if (!options.file.empty()) return read_text_file(options.file);
  const std::string key =
      options.name.empty() ? std::string(kKey) : fmt::format("{}.{}", kKey, options.name);
  if (file->find(key) == nullptr) return no_template(*file, options);
  PUMICE_TRY(const std::string_view source, file->get<std::string_view>(key));
  return std::string(source);
}

/// The text of the token that metadata name, for templates that print it.
std::optional<std::string> token_text(const GgufFile& file, std::string_view key) {
  const auto id = file.get_or<uint32_t>(key, UINT32_MAX);
  const auto tokens = file.get_strings("tokenizer.ggml.tokens");
  if (!id.ok() || !tokens.ok() || *id >= tokens->size()) return std::nullopt;
  auto token = tokens->begin();
  for (uint32_t i = 0; i < *id; ++i) ++token;
  return std::string(*token);
}

Result<OrderedJson> context_of(const TemplateOptions& options, const GgufFile* file) {
  PUMICE_TRY(const std::string text, read_prompt(nullptr, options.context));
  const std::string where = options.context.empty() ? "standard input" : options.context;
  Result<OrderedJson> read = read_ordered_json(text, kMaxContextBytes);
  if (!read.ok()) return make_error(ErrorCode::kBadFile, "{}: {}", where, read.error().message);
  OrderedJson context = *std::move(read);
  if (!context.is_object()) {
    return make_error(ErrorCode::kBadFile,
                      "{}: not a JSON object, such as {{\"messages\": [{{\"role\": \"user\", "
                      "\"content\": \"Hello\"}}]}}",
                      where);
  }
  if (options.add_generation_prompt) context["add_generation_prompt"] = true;
  if (file == nullptr) return context;
  for (const std::string kind : {"bos", "eos"}) {
    const std::string variable = kind + "_token";
    if (context.contains(variable)) continue;
    const auto token = token_text(*file, fmt::format("tokenizer.ggml.{}_token_id", kind));
    if (token) context[variable] = *token;
  }
  return context;
}

/// "2025-07-10" or "2025-07-10T12:00:00", with a space for the T and without the seconds too.
Result<std::tm> parse_time(const std::string& text) {
  for (const char* format :
       {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"}) {
    std::tm time{};
    const char* end = ::strptime(text.c_str(), format, &time);
    if (end == nullptr || *end != '\0') continue;
    time.tm_isdst = -1;
    return time;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "--now: '{}' is not a time such as 2025-07-10 or 2025-07-10T12:00:00",
                    printable(text, 40));
}

Status render_template(const TemplateOptions& options) {
  if (options.model.empty() && options.file.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "give a model with -m or a template with --file");
  }
  RenderOptions rendering;
  if (!options.now.empty()) {
    PUMICE_TRY(rendering.now, parse_time(options.now));
  }
  std::optional<GgufFile> model;
  if (!options.model.empty()) {
    PUMICE_TRY(model, GgufFile::open(options.model));
  }
  const GgufFile* file = model ? &*model : nullptr;
  PUMICE_TRY(const std::string source, source_of(options, file));
  PUMICE_TRY(const ChatTemplate chat_template, ChatTemplate::parse(source));
  PUMICE_TRY(const OrderedJson context, context_of(options, file));
  PUMICE_TRY(const std::string text, chat_template.render(context, rendering));
  return print_output(text);
}

}  // namespace

Command add_template(CLI::App& app) {
  auto options = std::make_shared<TemplateOptions>();
  CLI::App* command =
      app.add_subcommand("template", "Show what a chat template makes of a conversation");
  command
      ->add_option("-m,--model", options->model,
                   "GGUF file with the template, and the tokens bos_token and eos_token")
      ->envname("PUMICE_MODEL");
  command->add_option("--file", options->file, "A Jinja template, instead of the model's");
  command->add_option("--name", options->name,
                      "Another of the model's templates, such as tool_use");
  command->add_option("--context", options->context,
                      "JSON object with messages and other variables (default: standard input)");
  command->add_flag("--add-generation-prompt", options->add_generation_prompt,
                    "End where the assistant's answer begins");
  command->add_option("--now", options->now,
                      "The time that the template sees, as 2025-07-10T12:00:00");
  command->footer(
      "Example: pumice template -m model.gguf --context chat.json --add-generation-prompt");
  return {command, [options] { return render_template(*options); }};
}

}  // namespace pumice::tools
