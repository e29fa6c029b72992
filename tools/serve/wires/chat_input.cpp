#include "tools/serve/wires/chat_input.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/printable.hpp"
#include "text/conversation.hpp"

namespace pumice::serve {
namespace {

std::optional<ToolCall> read_call(const Json& json, const std::string& path, Fields& errors) {
  if (!check_object(json, path, errors)) return std::nullopt;
  Fields fields(json, path + ".");
  ToolCall call;
  fields.read("id", call.id);
  if (const Json* const function = fields.find("function"); function && function->is_object()) {
    Fields its(*function, path + ".function.");
    its.read("name", call.name);
    // Some clients send the object itself.
    if (const Json* const arguments = its.find("arguments")) {
      call.arguments = arguments->is_string() ? arguments->get<std::string>() : dumped(*arguments);
    }
    if (its.error()) fields.fail(*its.error());
  } else {
    fields.fail("function", "must be an object; only calls of functions are known");
  }
  if (fields.error()) {
    errors.fail(*fields.error());
    return std::nullopt;
  }
  return call;
}

/// What looks like a call where nothing can be called is text. Harmony's messages are not to be
/// told apart without their headers.
AnswerFormat without_calls(const AnswerFormat& format) {
  if (format.shape == CallShape::kHarmony) return format;
  return {.name = format.name,
          .think_open = format.think_open,
          .think_close = format.think_close,
          .thinks_anywhere = format.thinks_anywhere,
          .dropped = format.dropped};
}

void read_tools(Fields& fields, ChatInput& chat) {
  const Json* const list = fields.find("tools");
  if (list == nullptr || (list->is_array() && list->empty())) return;
  Result<Tools> tools = Tools::create(*list);
  if (!tools.ok()) return fields.fail("tools", tools.error().message);
  chat.tools = std::make_shared<const Tools>(std::move(tools).value());
}

void read_template_variables(Fields& fields, Json& variables) {
  if (const Json* const kwargs = fields.find("chat_template_kwargs")) {
    if (!kwargs->is_object()) return fields.fail("chat_template_kwargs", "must be an object");
    variables = *kwargs;
  }
  for (const char* const name : {"reasoning_effort", "enable_thinking"}) {
    const Json* const value = fields.find(name);
    if (value != nullptr && !variables.contains(name)) variables[name] = *value;
  }
}

/// Of a function in a tool choice.
std::optional<std::string> name_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const Json* its = &json;
  if (json.contains("function") && json["function"].is_object()) its = &json["function"];
  const Json name = its->value("name", Json());
  return name.is_string() ? std::optional(name.get<std::string>()) : std::nullopt;
}

void offer_only(const std::vector<std::string>& names, ChatInput& chat) {
  Json list = Json::array();
  for (const Json& tool : chat.tools->json()) {
    const std::string name = tool["function"]["name"].get<std::string>();
    if (std::find(names.begin(), names.end(), name) != names.end()) list.push_back(tool);
  }
  chat.tools = std::make_shared<const Tools>(Tools::create(list).value());
}

void read_allowed_tools(const Json& choice, Fields& errors, ChatInput& chat) {
  const Json& its = choice.contains("allowed_tools") ? choice["allowed_tools"] : choice;
  std::vector<std::string> names;
  const Json tools = its.is_object() ? its.value("tools", Json()) : Json();
  for (size_t i = 0; tools.is_array() && i < tools.size(); ++i) {
    const std::optional<std::string> name = name_of(tools[i]);
    if (name) names.push_back(*name);
  }
  if (names.empty()) return errors.fail("tool_choice", "allows no function");
  if (its.value("mode", Json()) == "required") return need_call(std::move(names), errors, chat);
  offer_only(names, chat);
}

}  // namespace

void read_tools_of_type(Fields& fields, std::string_view type,
                        const std::function<Json(const Json&)>& function_of,
                        const WireContext& context, ChatInput& chat) {
  const Json* const list = fields.find("tools");
  if (list == nullptr) return;
  if (!list->is_array()) return fields.fail("tools", "must be an array");
  Json tools = Json::array();
  for (const Json& tool : *list) {
    if (!tool.is_object()) return fields.fail("tools", "must be an array of objects");
    const Json its = tool.value("type", Json());
    if (!its.is_null() && its != type) {
      warn_of_tool(its, context);
      continue;
    }
    tools.push_back(function_of(tool));
  }
  Result<Tools> made = Tools::create(tools);
  if (!made.ok()) return fields.fail("tools", made.error().message);
  chat.tools = std::make_shared<const Tools>(std::move(made).value());
}

void need_call(std::vector<std::string> names, Fields& errors, ChatInput& chat) {
  const Status needed = pumice::need_call(std::move(names), *chat.tools, chat.wish.answer);
  if (!needed.ok()) return errors.fail("tool_choice", needed.error().message);
  if (chat.wish.field.empty()) chat.wish.field = "tool_choice";
}

void read_tool_choice(const Json* choice, Fields& errors, ChatInput& chat, WireRequest& request) {
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") {
    chat.tools = std::make_shared<const Tools>();
    return;
  }
  if (*choice == "required") return need_call({}, errors, chat);
  const Json type = choice->is_object() ? choice->value("type", Json()) : Json();
  if (type == "allowed_tools") return read_allowed_tools(*choice, errors, chat);
  const std::optional<std::string> name = name_of(*choice);
  if (type != "function" || !name) {
    return errors.fail("tool_choice", "must be auto, none, required or a function");
  }
  request.one_call = true;
  need_call({*name}, errors, chat);
}

std::optional<std::string> read_text_content(const Json* content, const std::string& path,
                                             std::initializer_list<std::string_view> types,
                                             Fields& errors) {
  if (content == nullptr || content->is_null()) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    errors.fail(bad_field(path, "must be a string or an array of parts"));
    return std::nullopt;
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    const std::string where = fmt::format("{}[{}]", path, i);
    const std::string type = part.is_object() && part.contains("type") && part["type"].is_string()
                                 ? part["type"].get<std::string>()
                                 : "";
    const bool is_text = std::find(types.begin(), types.end(), type) != types.end();
    const char* const member = type == "refusal" ? "refusal" : "text";
    if (!is_text || !part.contains(member) || !part[member].is_string()) {
      errors.fail(bad_field(where, fmt::format("this model reads text only, not a part of type "
                                               "\"{}\"",
                                               printable(type, 40))));
      return std::nullopt;
    }
    text += part[member].get<std::string>();
  }
  return text;
}

std::optional<Message> read_openai_message(const Json& json, const std::string& path,
                                           Fields& errors) {
  if (!check_object(json, path, errors)) return std::nullopt;
  Fields fields(json, path + ".");
  Message message;
  fields.read("role", message.role);
  if (message.role.empty()) fields.fail("role", "is missing");
  const std::optional<std::string> content =
      read_text_content(fields.find("content"), path + ".content", {"text", "refusal"}, fields);
  message.content = content.value_or("");
  fields.read("reasoning", message.reasoning);
  fields.read("reasoning_content", message.reasoning);
  fields.read("tool_call_id", message.call_id);
  if (const Json* const calls = fields.find("tool_calls")) {
    if (!calls->is_array()) fields.fail("tool_calls", "must be an array");
    for (size_t i = 0; calls->is_array() && i < calls->size(); ++i) {
      auto call = read_call((*calls)[i], fmt::format("{}.tool_calls[{}]", path, i), fields);
      if (call) message.calls.push_back(*std::move(call));
    }
  }
  if (fields.error()) {
    errors.fail(*fields.error());
    return std::nullopt;
  }
  return message;
}

ChatInput read_openai_chat(Fields& fields, WireRequest& request) {
  ChatInput chat;
  const Json* const messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields.fail("messages", "must be an array of at least one message");
    return chat;
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    auto message = read_openai_message((*messages)[i], fmt::format("messages[{}]", i), fields);
    if (!message) return chat;
    chat.prompt.messages.push_back(*std::move(message));
  }
  read_tools(fields, chat);
  bool parallel = true;
  fields.read("parallel_tool_calls", parallel);
  request.one_call = !parallel && !chat.tools->empty();
  read_format(fields.find("response_format"), "response_format", fields, chat.wish);
  read_constraint(fields, chat.wish);
  read_tool_choice(fields.find("tool_choice"), fields, chat, request);
  read_template_variables(fields, chat.prompt.variables);
  fields.refuse("functions", "use tools");
  fields.refuse("function_call", "use tool_choice", "auto");
  fields.refuse("audio", "this model writes text only");
  fields.refuse("modalities", "this model writes text only", Json::array({"text"}));
  fields.refuse("web_search_options", "this server does not search");
  fields.refuse("documents", "this server does not search");
  fields.ignore({"verbosity", "reasoning", "include_reasoning", "reasoning_format",
                 "add_generation_prompt", "continue_final_message", "include_obfuscation"});
  return chat;
}

std::optional<ApiError> set_prompt(ChatInput chat, const ServedModel& model, std::string_view field,
                                   WireRequest& request) {
  const Result<ChatPrompt>& format = *model.chat;
  if (!format.ok()) {
    return ApiError{.message =
                        "messages cannot be prompts of this model: " + format.error().message};
  }
  chat.prompt.tools = chat.tools.get();
  const Result<RenderedPrompt> rendered = format->render(chat.prompt, *model.tokenizer);
  if (!rendered.ok()) return bad_field(std::string(field), rendered.error().message);
  Result<std::vector<TokenId>> tokens = ChatFormat::encode(*model.tokenizer, *rendered);
  if (!tokens.ok()) return bad_field(std::string(field), tokens.error().message);
  if (tokens->empty()) return bad_field(std::string(field), "the prompt is empty");
  request.input.prompts = {std::move(tokens).value()};
  request.prompt_field = field;
  request.prompt_text = rendered->text;
  AnswerForm form{.format = format->answers()};
  if (chat.tools->empty()) form.format = without_calls(form.format);
  AnswerFrame frame = format->frame(rendered->text, chat.prompt);
  form.options.begins_reasoning = frame.begins_reasoning;
  form.options.tools = std::move(chat.tools);
  request.form = std::move(form);
  frame.format = &request.form->format;
  frame.tools = request.form->options.tools.get();
  chat.wish.answer.one_call = request.one_call;
  return set_constraint(chat.wish, frame, model, request);
}

}  // namespace pumice::serve
