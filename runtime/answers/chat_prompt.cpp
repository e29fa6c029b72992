#include "answers/chat_prompt.hpp"

#include <algorithm>
#include <utility>

#include "base/json.hpp"
#include "base/printable.hpp"

namespace pumice {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kGap = "\n\n";
constexpr size_t kMaxArgumentBytes = size_t{16} << 20;

/// By which templates switch reasoning off.
constexpr const char* kThinkingVariables[] = {"enable_thinking", "thinking"};

std::string_view without_blanks_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

bool is_of_system(const Message& message) {
  return message.role == "system" || message.role == "developer";
}

void append_part(std::string_view part, std::string& text) {
  if (part.empty()) return;
  if (!text.empty()) text += kGap;
  text += part;
}

/// For templates that know no tools: what the first of the formats looks like.
std::string described(const Tools& tools) {
  std::string text = "You may call these functions:\n<tools>\n";
  for (const Json& tool : tools.json()) text += tool.dump() + "\n";
  return text +
         "</tools>\nTo call one, write its name and its arguments as JSON between tags:\n"
         "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"KEY\": \"VALUE\"}}\n</tool_call>\n"
         "The result comes between <tool_response> and </tool_response>.";
}

std::string written(const ToolCall& call) {
  return fmt::format("<tool_call>\n{{\"name\": {}, \"arguments\": {}}}\n</tool_call>",
                     Json(call.name).dump(-1, ' ', false, Json::error_handler_t::replace),
                     call.arguments);
}

/// Every text in it, names of members too.
Status hide_texts(ContentMask& mask, Json& value) {
  if (value.is_string()) {
    PUMICE_TRY(value, mask.hide(value.get_ref<const std::string&>()));
  } else if (value.is_array()) {
    for (Json& one : value) PUMICE_TRY_STATUS(hide_texts(mask, one));
  } else if (value.is_object()) {
    Json hidden = Json::object();
    for (auto& [name, member] : value.items()) {
      PUMICE_TRY_STATUS(hide_texts(mask, member));
      PUMICE_TRY(const std::string key, mask.hide(name));
      hidden[key] = std::move(member);
    }
    value = std::move(hidden);
  }
  return {};
}

/// Gives results without an id those of the calls before, in turn. Errors: a result of no call.
Status match_results(std::vector<Message>& messages) {
  std::vector<std::string> open;
  for (Message& message : messages) {
    if (message.role == "assistant") {
      open.clear();
      for (const ToolCall& call : message.calls) open.push_back(call.id);
    } else if (message.role == "tool") {
      const auto call =
          message.call_id.empty() ? open.begin() : std::ranges::find(open, message.call_id);
      if (call == open.end()) {
        return make_error(
            ErrorCode::kInvalidArgument,
            "a tool's result is for the call '{}', which the assistant's last message "
            "did not make or has the result of",
            printable(message.call_id, 60));
      }
      message.call_id = *call;
      open.erase(call);
    }
  }
  return {};
}

Status check_roles(const std::vector<Message>& messages) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  for (const Message& message : messages) {
    if (std::ranges::find(kRoles, message.role) != std::end(kRoles)) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "a message's role is \"{}\", expected system, developer, user, assistant or "
                      "tool",
                      printable(message.role, 40));
  }
  return {};
}

}  // namespace

Result<ChatPrompt> ChatPrompt::create(std::string_view source, const Vocabulary& vocabulary,
                                      std::string_view architecture, std::string_view format) {
  ChatPrompt prompt;
  PUMICE_TRY(prompt.template_, ChatTemplate::parse(source));
  prompt.named_tags_ = tags_named_in(source);
  if (vocabulary.bos()) prompt.bos_ = vocabulary.text(*vocabulary.bos());
  if (vocabulary.eos()) prompt.eos_ = vocabulary.text(*vocabulary.eos());
  prompt.traits_ = TemplateTraits::probe(*prompt.template_);
  const AnswerFormat* known = nullptr;
  if (!format.empty()) {
    known = find_answer_format(format);
    if (known == nullptr) {
      std::string names;
      for (const AnswerFormat& one : answer_formats()) names += " " + one.name;
      return make_error(ErrorCode::kInvalidArgument,
                        "'{}' is not a format of answers; it must be one of{}",
                        printable(format, 40), names);
    }
  } else if (prompt.traits_.tools) {
    known = answer_format_of(source, architecture);
  }
  if (known != nullptr) {
    prompt.answers_ = *known;
  } else {
    // What tools are described as is what calls are expected to be.
    std::optional<AnswerFormat> derived;
    if (prompt.traits_.tools) derived = derive_answer_format(*prompt.template_, prompt.traits_);
    prompt.answers_ = derived ? *std::move(derived) : answer_formats().front();
  }
  const AnswerFormat& answers = prompt.answers_;
  const bool writes_marks =
      !answers.think_close.empty() && source.find(answers.think_close) != std::string_view::npos;
  prompt.reasons_ =
      prompt.traits_.reasoning || writes_marks || answers.shape == CallShape::kHarmony;
  return prompt;
}

AnswerFrame ChatPrompt::frame(std::string_view prompt, const PromptInput& input) const {
  AnswerFrame frame{.format = &answers_, .begins_reasoning = begins_reasoning(prompt)};
  const std::string_view end = without_blanks_behind(prompt);
  const bool is_over = !answers_.think_close.empty() && end.ends_with(answers_.think_close);
  const bool is_off = std::ranges::any_of(kThinkingVariables, [&](const char* name) {
    const auto variable = input.variables.find(name);
    return variable != input.variables.end() && *variable == false;
  });
  const bool goes_on = !input.messages.empty() && input.messages.back().role == "assistant" &&
                       input.messages.back().calls.empty();
  frame.may_reason = reasons_ && !is_over && !is_off && !goes_on;
  frame.has_header = answers_.shape == CallShape::kHarmony && end.ends_with("<|message|>");
  return frame;
}

bool ChatPrompt::begins_reasoning(std::string_view prompt) const {
  const std::string_view end = without_blanks_behind(prompt);
  return std::ranges::any_of(answers_.think_open,
                             [&](const std::string& open) { return end.ends_with(open); });
}

Result<std::vector<Message>> ChatPrompt::normalised(const PromptInput& input) const {
  PUMICE_TRY_STATUS(check_roles(input.messages));
  std::vector<Message> said = input.messages;
  PUMICE_TRY_STATUS(match_results(said));
  Message system{.role = "system"};
  const auto first = std::ranges::find_if_not(said, is_of_system);
  for (auto message = said.begin(); message != first; ++message) {
    append_part(message->content, system.content);
    system.special = system.special || message->special;
  }
  const bool offers = input.tools != nullptr && !input.tools->empty();
  if (offers && !traits_.tools) append_part(described(*input.tools), system.content);

  std::vector<Message> messages;
  const auto add_of_user = [&](std::string_view content, bool special) {
    if (messages.empty() || messages.back().role != "user" || messages.back().special != special) {
      messages.push_back({.role = "user", .special = special});
    }
    append_part(content, messages.back().content);
  };
  bool joins = false;  // what is said as the user's, and what the user says next
  if (!system.content.empty() && traits_.system) {
    messages.push_back(std::move(system));
  } else if (!system.content.empty()) {
    add_of_user(system.content, system.special);
    joins = true;
  }
  for (auto message = first; message != said.end(); ++message) {
    if (is_of_system(*message) && !traits_.late_system) {
      add_of_user("[system]\n" + message->content, message->special);
      joins = true;
    } else if (message->role == "tool" && !traits_.results) {
      add_of_user("<tool_response>\n" + message->content + "\n</tool_response>", message->special);
      joins = true;
    } else if (message->role == "user" && std::exchange(joins, false)) {
      add_of_user(message->content, message->special);
    } else {
      joins = false;
      Message& added = messages.emplace_back(std::move(*message));
      if (is_of_system(added)) added.role = "system";
      if (traits_.calls) continue;
      for (const ToolCall& call : added.calls) append_part(written(call), added.content);
      added.calls.clear();
    }
  }
  return messages;
}

Result<Json> ChatPrompt::context_of(const std::vector<Message>& messages, const PromptInput& input,
                                    ContentMask& mask) const {
  Json context = input.variables.is_object() ? input.variables : Json::object();
  context["messages"] = Json::array();
  context["add_generation_prompt"] = true;
  context["bos_token"] = bos_;
  context["eos_token"] = eos_;
  const bool offers = input.tools != nullptr && !input.tools->empty();
  if (offers && traits_.tools) {
    Json tools = input.tools->json();
    for (Json& tool : tools) PUMICE_TRY_STATUS(hide_texts(mask, tool["function"]));
    context["tools"] = std::move(tools);
  }
  for (const Message& message : messages) {
    const auto hidden = [&](const std::string& text) -> Result<std::string> {
      return message.special ? text : mask.hide(text);
    };
    Json json = {{"role", message.role}};
    PUMICE_TRY(json["content"], hidden(message.content));
    const bool is_null = traits_.no_content && message.content.empty() && !message.calls.empty();
    if (is_null) json["content"] = nullptr;
    if (!message.reasoning.empty()) {
      PUMICE_TRY(json["reasoning_content"], hidden(message.reasoning));
      json["reasoning"] = json["reasoning_content"];
    }
    for (const ToolCall& call : message.calls) {
      const std::string& text = call.arguments.empty() ? "{}" : call.arguments;
      Result<Json> arguments = read_ordered_json(text, kMaxArgumentBytes);
      if (!arguments.ok() || !arguments->is_object()) {
        return make_error(ErrorCode::kInvalidArgument,
                          "the arguments of a call of '{}' are not a JSON object{}{}",
                          printable(call.name, 60), arguments.ok() ? "" : ": ",
                          arguments.ok() ? "" : arguments.error().message);
      }
      if (!message.special) PUMICE_TRY_STATUS(hide_texts(mask, *arguments));
      PUMICE_TRY(const std::string name, hidden(call.name));
      PUMICE_TRY(const std::string id, hidden(call.id));
      json["tool_calls"].push_back(
          {{"id", id},
           {"type", "function"},
           {"function",
            {{"name", name},
             {"arguments", traits_.string_arguments ? Json(arguments->dump()) : *arguments}}}});
    }
    if (message.role == "tool") {
      PUMICE_TRY(json["tool_call_id"], hidden(message.call_id));
      for (const Message& other : messages) {
        for (const ToolCall& call : other.calls) {
          if (call.id != message.call_id) continue;
          PUMICE_TRY(json["name"], hidden(call.name));
        }
      }
    }
    context["messages"].push_back(std::move(json));
  }
  return context;
}

Result<RenderedPrompt> ChatPrompt::render(const PromptInput& input,
                                          const Tokenizer& tokenizer) const {
  ContentMask mask(tokenizer.special_tokens(), named_tags_);
  PUMICE_TRY(std::vector<Message> messages, normalised(input));
  // An answer that goes on stands behind the prompt as it is.
  std::optional<Message> begun;
  if (!messages.empty() && messages.back().role == "assistant" && messages.back().calls.empty()) {
    begun = std::move(messages.back());
    messages.pop_back();
  }
  PUMICE_TRY(const Json context, context_of(messages, input, mask));
  Result<std::string> text = template_->render(context);
  // A template's own words may quote a message.
  if (!text.ok()) return Error{text.error().code, mask.reveal(text.error().message).text};
  if (begun) {
    constexpr std::string_view kOpen = "<think>";
    const size_t last = text->find_last_not_of(" \t\r\n");
    const bool is_open =
        last != std::string::npos && std::string_view(*text).substr(0, last + 1).ends_with(kOpen);
    std::string content = begun->content;
    if (is_open) *text += begun->reasoning.empty() ? "\n</think>\n\n" : "";
    if (is_open && !begun->reasoning.empty())
      content = begun->reasoning + "\n</think>\n\n" + content;
    if (!begun->special) {
      PUMICE_TRY(content, mask.hide(content));
    }
    *text += content;
  }
  return mask.reveal(*text);
}

}  // namespace pumice
