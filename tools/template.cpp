// pumice template: what a chat template makes of a conversation.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/json.hpp"
#include "base/path.hpp"
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
  if (!options.file.empty()) return read_text_file(from_utf8(options.file));
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

/// Takes a number of up to `n_digits` digits, at most `most`, and `ends_with` behind it from the
/// front of `text`.
bool take_number(std::string_view& text, int& number, size_t n_digits, int most,
                 std::string_view ends_with) {
  const std::string_view digits = text.substr(0, n_digits);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || digits[0] == '-' || number > most) return false;
  text.remove_prefix(static_cast<size_t>(end - digits.data()));
  if (!text.starts_with(ends_with)) return false;
  text.remove_prefix(ends_with.size());
  return true;
}

/// "2025-07-10" or "2025-07-10T12:00:00", with a space for the T and without the seconds too.
std::optional<std::tm> time_in(std::string_view text) {
  int year = 0, month = 0, day = 0;
  std::tm time{};
  time.tm_isdst = -1;
  if (!take_number(text, year, 4, 9999, "-") || !take_number(text, month, 2, 12, "-") ||
      !take_number(text, day, 2, 31, "")) {
    return std::nullopt;
  }
  if (text.starts_with('T') || text.starts_with(' ')) {
    text.remove_prefix(1);
    if (!take_number(text, time.tm_hour, 2, 23, ":")) return std::nullopt;
    if (!take_number(text, time.tm_min, 2, 59, "")) return std::nullopt;
    if (text.starts_with(':')) {
      text.remove_prefix(1);
      if (!take_number(text, time.tm_sec, 2, 60, "")) return std::nullopt;
    }
  }
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!text.empty() || !date.ok()) return std::nullopt;
  const std::chrono::sys_days days = date;
  const std::chrono::sys_days new_year = date.year() / std::chrono::January / 1;
  time.tm_year = year - 1900;
  time.tm_mon = month - 1;
  time.tm_mday = day;
  time.tm_wday = static_cast<int>(std::chrono::weekday(days).c_encoding());
  time.tm_yday = static_cast<int>((days - new_year).count());
  return time;
}

Result<std::tm> parse_time(const std::string& text) {
  if (const std::optional<std::tm> time = time_in(text)) return *time;
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
    PUMICE_TRY(model, GgufFile::open(from_utf8(options.model)));
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
  CLI::App* command = app.add_subcommand("template", "Render a conversation with a chat template");
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
