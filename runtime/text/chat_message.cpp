// Messages as JSON, as OpenAI's interface has them.
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.hpp"
#include "text/conversation.hpp"

namespace pumice {
namespace {

using Json = nlohmann::ordered_json;

Error bad(std::string_view what) { return make_error(ErrorCode::kInvalidArgument, "{}", what); }

/// Empty where it is not there, or null.
Result<std::string> text_of(const Json& object, const char* name) {
  const auto member = object.find(name);
  if (member == object.end() || member->is_null()) return std::string();
  if (member->is_string()) return member->get<std::string>();
  return bad(fmt::format("a message's \"{}\" is not a text", name));
}

/// A text, or [{"type": "text", "text": …}, …].
Result<std::string> content_of(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return text_of(message, "content");
  std::string text;
  for (const Json& part : *content) {
    const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string() &&
                         (!part.contains("type") || part["type"] == "text");
    if (!is_text) return bad("a message's content has a part that is not text");
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

Result<ToolCall> read_call(const Json& json) {
  const auto function = json.is_object() ? json.find("function") : json.end();
  if (!json.is_object() || function == json.end() || !function->is_object()) {
    return bad("a call is not an object with an object \"function\"");
  }
  ToolCall call;
  PUMICE_TRY(call.id, text_of(json, "id"));
  PUMICE_TRY(call.name, text_of(*function, "name"));
  if (call.name.empty()) return bad("a call has no name");
  const auto arguments = function->find("arguments");
  const bool is_text = arguments != function->end() && arguments->is_string();
  if (is_text) call.arguments = arguments->get<std::string>();
  if (!is_text && arguments != function->end()) {
    call.arguments = arguments->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return call;
}

}  // namespace

Result<ChatMessage> read_message(const Json& json) {
  if (!json.is_object() || !json.contains("role") || !json["role"].is_string()) {
    return bad("a message is not an object with a text \"role\"");
  }
  ChatMessage message{.role = json["role"].get<std::string>()};
  PUMICE_TRY(message.content, content_of(json));
  PUMICE_TRY(message.reasoning, text_of(json, "reasoning_content"));
  if (message.reasoning.empty()) {
    PUMICE_TRY(message.reasoning, text_of(json, "reasoning"));
  }
  PUMICE_TRY(message.call_id, text_of(json, "tool_call_id"));
  const auto calls = json.find("tool_calls");
  const bool has_calls = calls != json.end() && !calls->is_null();
  if (has_calls && !calls->is_array()) return bad("a message's \"tool_calls\" are not a list");
  for (size_t i = 0; has_calls && i < calls->size(); ++i) {
    PUMICE_TRY(message.calls.emplace_back(), read_call((*calls)[i]));
  }
  const bool has_content = json.contains("content") && !json["content"].is_null();
  if (!has_content && message.calls.empty() && message.reasoning.empty()) {
    return bad(
        fmt::format("a message of role '{}' has no \"content\"", printable(message.role, 40)));
  }
  return message;
}

Json calls_json(std::span<const ToolCall> calls) {
  Json all = Json::array();
  for (const ToolCall& call : calls) {
    all.push_back({{"id", call.id},
                   {"type", "function"},
                   {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return all;
}

Json message_json(const ChatMessage& message) {
  Json json = {{"role", message.role}, {"content", message.content}};
  if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
  if (!message.calls.empty()) json["tool_calls"] = calls_json(message.calls);
  if (!message.call_id.empty()) json["tool_call_id"] = message.call_id;
  return json;
}

Result<std::vector<ChatMessage>> read_messages(const Json& json) {
  const bool is_inside = json.is_object() && json.contains("messages");
  const Json& list = is_inside ? json["messages"] : json;
  if (!list.is_array() || list.empty()) return bad("it is not a list of messages");
  std::vector<ChatMessage> messages;
  for (const Json& one : list) {
    PUMICE_TRY(ChatMessage message, read_message(one));
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace pumice
