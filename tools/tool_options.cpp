#include "tools/tool_options.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.hpp"
#include "base/path.hpp"
#include "base/printable.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Kind = AnswerEvent::Kind;

constexpr size_t kMaxVariableBytes = 1 << 20;
constexpr size_t kMaxMessagesBytes = 64 << 20;

/// "NAME=VALUE"; a value that is JSON is that, another one a text.
Status add_variable(const std::string& text, OrderedJson& variables) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--template-var '{}': expected NAME=VALUE, such as enable_thinking=false",
                      printable(text, 60));
  }
  const std::string value = text.substr(equals + 1);
  const Result<OrderedJson> json = read_ordered_json(value, kMaxVariableBytes);
  variables[text.substr(0, equals)] = json.ok() ? *json : OrderedJson(value);
  return {};
}

nlohmann::json event_json(const AnswerEvent& event) {
  nlohmann::json json = {{"type", answer_event_name(event.kind)}};
  const bool is_of_call = event.kind == Kind::kCallBegun || event.kind == Kind::kArguments ||
                          event.kind == Kind::kCallEnded;
  if (is_of_call) json["call"] = event.call;
  if (event.kind == Kind::kCallBegun) {
    json["name"] = event.text;
    json["id"] = event.id;
  } else if (event.kind == Kind::kCallEnded) {
    json["complete"] = event.complete;
  } else if (event.kind == Kind::kFinish) {
    json["calls"] = event.call;
  } else {
    json["text"] = event.text;
  }
  return json;
}

}  // namespace

void TextOptions::add_template_to(CLI::App& app) {
  app.add_option("--chat-template", template_file,
                 "Jinja template to use instead of the model's own, a file");
}

void TextOptions::add_format_to(CLI::App& app) {
  app.add_option("--tool-format", format,
                 "How the model writes calls and reasoning, instead of what its template shows");
}

void ToolOptions::add_to(CLI::App& app) {
  texts.add_template_to(app);
  app.add_option("--tools", file,
                 "A JSON file of functions that the model may call, as OpenAI's \"tools\"");
  app.add_option("--tool-choice", choice,
                 "auto: the model calls if it likes; none: it may not; required: it calls one or "
                 "more; NAME: it calls that one")
      ->capture_default_str();
  texts.add_format_to(app);
  app.add_option("--template-var", variables,
                 "A variable of the chat template, such as enable_thinking=false; repeatable")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
}

bool ToolOptions::is_used() const { return texts.is_used() || !file.empty() || !variables.empty(); }

Status ToolOptions::validate() const {
  OrderedJson ignored;
  for (const std::string& variable : variables) PUMICE_TRY_STATUS(add_variable(variable, ignored));
  if (!needs_call() || !file.empty()) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "--tool-choice '{}': there is nothing to call; --tools FILE offers tools",
                    printable(choice, 60));
}

Status ToolOptions::choose(host::AnswerInput& answer, AnswerWish& wish) const {
  const Status chosen = choose_tools(choice, answer.tools, wish);
  if (chosen.ok()) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "--tool-choice '{}': {}; it must be auto, none, required or a tool's name",
                    printable(choice, 60), chosen.error().message);
}

Result<host::AnswerInput> ToolOptions::read() const {
  host::AnswerInput answer;
  for (const std::string& variable : variables) {
    PUMICE_TRY_STATUS(add_variable(variable, answer.variables));
  }
  if (file.empty()) return answer;
  PUMICE_TRY(const std::string text, read_text_file(from_utf8(file)));
  Result<Tools> tools = Tools::parse(text);
  if (!tools.ok()) {
    return make_error(ErrorCode::kBadFile, "{}: {}", file, tools.error().message);
  }
  answer.tools = std::make_shared<const Tools>(*std::move(tools));
  return answer;
}

Result<std::optional<std::string>> TextOptions::read_template() const {
  if (template_file.empty()) return std::optional<std::string>();
  PUMICE_TRY(std::string text, read_text_file(from_utf8(template_file)));
  return std::optional(std::move(text));
}

Result<host::ModelTexts> TextOptions::read(const GgufFile& model) const {
  const bool from_file = !template_file.empty();
  PUMICE_TRY(const std::optional<std::string> chat_template, read_template());
  PUMICE_TRY(host::ModelTexts texts, host::ModelTexts::read(model, chat_template, format));
  if (!texts.format->ok()) {
    const Error& error = texts.format->error();
    return make_error(error.code, "{}: {}{}",
                      from_file ? template_file : std::string(host::kChatTemplateKey),
                      error.message, from_file ? "" : " (--chat-template FILE takes another)");
  }
  return texts;
}

Result<host::ModelTexts> ToolOptions::read_texts(const GgufFile& model) const {
  PUMICE_TRY(host::ModelTexts read, texts.read(model));
  if (is_used() && (*read.format)->is_plain()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the model has no chat template, so it knows neither tools nor roles; "
                      "--chat-template FILE gives it one");
  }
  return read;
}

Result<std::vector<ChatMessage>> read_messages_file(const std::string& file) {
  const auto bad = [&](std::string_view what) {
    return make_error(ErrorCode::kBadFile, "{}: {}", file, what);
  };
  PUMICE_TRY(const std::string text, read_text_file(from_utf8(file)));
  const Result<OrderedJson> json = read_ordered_json(text, kMaxMessagesBytes);
  if (!json.ok()) return bad(json.error().message);
  Result<std::vector<ChatMessage>> messages = read_messages(*json);
  if (!messages.ok()) return bad(messages.error().message);
  return messages;
}

Result<size_t> n_prompt_tokens(const host::ModelTexts& texts,
                               const std::vector<ChatMessage>& messages,
                               const host::AnswerInput& answer) {
  const Result<ChatPrompt>& prompt = texts.prompt->get();
  if (!prompt.ok()) return prompt.error();
  PUMICE_TRY(const RenderedPrompt rendered,
             prompt->render(
                 {.messages = messages, .tools = answer.tools.get(), .variables = answer.variables},
                 *texts.tokenizer));
  PUMICE_TRY(const std::vector<TokenId> tokens, ChatFormat::encode(*texts.tokenizer, rendered));
  return tokens.size();
}

void add_answer(std::span<const AnswerEvent> events, nlohmann::json& json) {
  std::string text;
  std::string reasoning;
  std::vector<ToolCall> calls;
  json["events"] = nlohmann::json::array();
  for (const AnswerEvent& event : events) {
    if (event.kind == Kind::kText) text += event.text;
    if (event.kind == Kind::kReasoning) reasoning += event.text;
    if (event.kind == Kind::kCallBegun) calls.push_back({.id = event.id, .name = event.text});
    if (event.kind == Kind::kArguments) calls.back().arguments += event.text;
    json["events"].push_back(event_json(event));
  }
  json["text"] = text;
  json["reasoning"] = reasoning;
  json["tool_calls"] = nlohmann::json(calls_json(calls));
}

}  // namespace pumice::tools
