// POST /v1/messages, as Anthropic has it.
#include <fmt/core.h>

#include <utility>

#include "base/json.hpp"
#include "base/printable.hpp"
#include "tools/serve/wires/chat_input.hpp"
#include "tools/serve/wires/openai_common.hpp"
#include "tools/serve/wires/wires.hpp"

namespace pumice::serve {
namespace {

/// A block that one client's every request has another of, before everything else: with it no
/// prompt would begin like the one before.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

Json message_usage(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

std::string_view stop_reason(const ChoiceEnd& end) {
  switch (end.finish) {
    case Finish::kLength:
      return "max_tokens";
    case Finish::kToolCalls:
      return "tool_use";
    case Finish::kStopString:
      return "stop_sequence";
    default:
      return "end_turn";
  }
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json arguments_json(const std::string& text) {
  Result<Json> json = read_ordered_json(text, text.size());
  return json.ok() && json->is_object() ? std::move(json).value() : Json::object();
}

class MessagesWriter final : public AnswerWriter {
 public:
  explicit MessagesWriter(const WireContext& context) : model_(context.model.id) {}

  std::string whole(std::span<const ChoiceResult> choices, const Usage& usage) override;
  std::string begin(const Usage& usage) override;
  std::string piece(const ChoicePiece& piece) override;
  std::string end_choice(uint32_t choice, const ChoiceEnd& end) override;
  std::string end(const Usage& usage) override;
  std::string fail(const ApiError& error) override {
    return fmt::format("event: error\ndata: {}\n\n", anthropic_error(error, ""));
  }
  std::string keep_alive() const override { return sse("ping", {{"type", "ping"}}); }

 private:
  enum class Block { kNone, kText, kThinking, kTool };

  Json message(Json content, const ChoiceEnd* end, const Usage& usage) const;
  std::string open(Block block, Json content);
  std::string close();
  std::string delta(Json delta) const;

  const std::string id_ = new_id("msg_");
  const std::string model_;
  Block block_ = Block::kNone;
  int index_ = -1;
  ChoiceEnd end_;
};

Json MessagesWriter::message(Json content, const ChoiceEnd* end, const Usage& usage) const {
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_},
          {"content", std::move(content)},
          {"stop_reason", end != nullptr ? Json(stop_reason(*end)) : Json()},
          {"stop_sequence", end != nullptr ? or_null(end->stop_string) : Json()},
          {"usage", message_usage(usage)}};
}

std::string MessagesWriter::whole(std::span<const ChoiceResult> choices, const Usage& usage) {
  const ChoiceResult& choice = choices[0];
  Json content = Json::array();
  if (!choice.reasoning.empty()) {
    content.push_back({{"type", "thinking"}, {"thinking", choice.reasoning}, {"signature", ""}});
  }
  if (!choice.text.empty() || choice.calls.empty()) {
    content.push_back({{"type", "text"}, {"text", choice.text}});
  }
  for (const ToolCall& call : choice.calls) {
    content.push_back({{"type", "tool_use"},
                       {"id", call.id},
                       {"name", call.name},
                       {"input", arguments_json(call.arguments)}});
  }
  return dumped(message(std::move(content), &choice.end, usage));
}

std::string MessagesWriter::begin(const Usage& usage) {
  return sse("message_start",
             {{"type", "message_start"}, {"message", message(Json::array(), nullptr, usage)}});
}

std::string MessagesWriter::open(Block block, Json content) {
  std::string text = close();
  block_ = block;
  ++index_;
  return text + sse("content_block_start", {{"type", "content_block_start"},
                                            {"index", index_},
                                            {"content_block", std::move(content)}});
}

std::string MessagesWriter::close() {
  const Block block = std::exchange(block_, Block::kNone);
  if (block == Block::kNone) return {};
  std::string text;
  if (block == Block::kThinking) text = delta({{"type", "signature_delta"}, {"signature", ""}});
  return text + sse("content_block_stop", {{"type", "content_block_stop"}, {"index", index_}});
}

std::string MessagesWriter::delta(Json its) const {
  return sse("content_block_delta",
             {{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(its)}});
}

std::string MessagesWriter::piece(const ChoicePiece& piece) {
  std::string text;
  for (const AnswerEvent& event : piece.events) {
    switch (event.kind) {
      case AnswerEvent::Kind::kText:
        if (block_ != Block::kText) text += open(Block::kText, {{"type", "text"}, {"text", ""}});
        text += delta({{"type", "text_delta"}, {"text", event.text}});
        break;
      case AnswerEvent::Kind::kReasoning:
        if (block_ != Block::kThinking) {
          text +=
              open(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
        }
        text += delta({{"type", "thinking_delta"}, {"thinking", event.text}});
        break;
      case AnswerEvent::Kind::kCallBegun:
        text += open(Block::kTool, {{"type", "tool_use"},
                                    {"id", event.id},
                                    {"name", event.text},
                                    {"input", Json::object()}});
        break;
      case AnswerEvent::Kind::kArguments:
        text += delta({{"type", "input_json_delta"}, {"partial_json", event.text}});
        break;
      case AnswerEvent::Kind::kCallEnded:
        text += close();
        break;
      default:
        break;
    }
  }
  return text;
}

std::string MessagesWriter::end_choice(uint32_t, const ChoiceEnd& end) {
  end_ = end;
  std::string text;
  if (index_ < 0) text = open(Block::kText, {{"type", "text"}, {"text", ""}});
  return text + close();
}

std::string MessagesWriter::end(const Usage& usage) {
  return sse("message_delta",
             {{"type", "message_delta"},
              {"delta",
               {{"stop_reason", stop_reason(end_)}, {"stop_sequence", or_null(end_.stop_string)}}},
              {"usage", message_usage(usage)}}) +
         sse("message_stop", {{"type", "message_stop"}});
}

// ---- requests

void read_system(Fields& fields, std::vector<Message>& messages) {
  const Json* const system = fields.find("system");
  if (system == nullptr) return;
  std::string text;
  if (system->is_array()) {
    for (size_t i = 0; i < system->size(); ++i) {
      const std::string path = fmt::format("system[{}]", i);
      const Json blocks = Json::array({(*system)[i]});
      const auto block = read_text_content(&blocks, path, {"text"}, fields);
      if (!block) return;
      if (block->starts_with(kBillingHeader)) continue;
      text += (text.empty() ? "" : "\n\n") + *block;
    }
  } else if (const auto all = read_text_content(system, "system", {"text"}, fields)) {
    text = *all;
  }
  if (!text.empty()) messages.push_back({.role = "system", .content = std::move(text)});
}

/// One block of a message. Results of tools are messages of their own here, before what else the
/// user says in the same one.
void read_block(const Json& json, const std::string& path, Fields& errors, Message& message,
                std::vector<Message>& results) {
  if (!check_object(json, path, errors)) return;
  Fields fields(json, path + ".");
  std::string type;
  fields.read("type", type);
  if (type == "text") {
    std::string text;
    fields.read("text", text);
    message.content += text;
  } else if (type == "thinking") {
    fields.read("thinking", message.reasoning);
  } else if (type == "tool_use") {
    ToolCall call;
    fields.read("id", call.id);
    fields.read("name", call.name);
    const Json* const input = fields.find("input");
    call.arguments = input != nullptr ? dumped(*input) : "{}";
    message.calls.push_back(std::move(call));
  } else if (type == "tool_result") {
    Message result{.role = "tool"};
    fields.read("tool_use_id", result.call_id);
    const auto text =
        read_text_content(fields.find("content"), path + ".content", {"text"}, fields);
    result.content = text.value_or("");
    results.push_back(std::move(result));
  } else if (type != "redacted_thinking") {
    fields.fail("type", fmt::format("this model reads text only, not a block of type \"{}\"",
                                    printable(type, 40)));
  }
  if (fields.error()) errors.fail(*fields.error());
}

void read_message(const Json& json, const std::string& path, Fields& errors,
                  std::vector<Message>& messages) {
  if (!check_object(json, path, errors)) return;
  Fields fields(json, path + ".");
  Message message;
  fields.read("role", message.role);
  if (message.role != "user" && message.role != "assistant" && message.role != "system") {
    fields.fail("role", "must be user or assistant");
  }
  const Json* const content = fields.find("content");
  if (content != nullptr && content->is_array()) {
    std::vector<Message> results;
    for (size_t i = 0; i < content->size(); ++i) {
      read_block((*content)[i], fmt::format("{}.content[{}]", path, i), fields, message, results);
    }
    const bool only_results = !results.empty() && message.content.empty();
    messages.insert(messages.end(), results.begin(), results.end());
    if (!only_results) messages.push_back(std::move(message));
  } else if (content != nullptr && content->is_string()) {
    message.content = content->get<std::string>();
    messages.push_back(std::move(message));
  } else {
    fields.fail("content", "must be a string or an array of blocks");
  }
  if (fields.error()) errors.fail(*fields.error());
}

/// As OpenAI has them. Tools of Anthropic's own servers are left out: nobody here could run them.
void read_tools(Fields& fields, const WireContext& context, ChatInput& chat) {
  const auto function_of = [](const Json& tool) -> Json {
    return {{"name", tool.value("name", Json())},
            {"description", tool.value("description", Json(""))},
            {"parameters", tool.value("input_schema", Json::object())}};
  };
  read_tools_of_type(fields, "custom", function_of, context, chat);
}

void read_choice_of_tool(Fields& fields, ChatInput& chat, WireRequest& request) {
  const Json* const choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (!choice->is_object()) return fields.fail("tool_choice", "must be an object");
  Fields its(*choice, "tool_choice.");
  std::string type;
  its.read("type", type);
  bool one = false;
  its.read("disable_parallel_tool_use", one);
  request.one_call = one && !chat.tools->empty();
  if (type == "none") {
    chat.tools = std::make_shared<const Tools>();
  } else if (type == "any") {
    need_call({}, its, chat);
  } else if (type == "tool") {
    std::string name;
    its.read("name", name);
    request.one_call = true;
    need_call({name}, its, chat);
  } else if (type != "auto") {
    its.fail("type", "must be auto, any, tool or none");
  }
  if (its.error()) fields.fail(*its.error());
}

void read_thinking(Fields& fields, ChatInput& chat) {
  const Json* const thinking = fields.find("thinking");
  if (thinking == nullptr || !thinking->is_object()) return;
  const Json type = thinking->value("type", Json());
  if (type == "enabled" || type == "disabled") {
    chat.prompt.variables["enable_thinking"] = type == "enabled";
  }
}

}  // namespace

std::string anthropic_error(const ApiError& error, std::string_view request_id) {
  const auto type = [&]() -> std::string_view {
    switch (error.status) {
      case 401:
        return "authentication_error";
      case 403:
        return "permission_error";
      case 404:
        return "not_found_error";
      case 413:
        return "request_too_large";
      case 429:
        return "rate_limit_error";
      case 503:
        return "overloaded_error";
      default:
        return error.status >= 500 ? "api_error" : "invalid_request_error";
    }
  };
  return dumped({{"type", "error"},
                 {"error", {{"type", type()}, {"message", error.message}}},
                 {"request_id", request_id}});
}

ParsedRequest read_messages(const Json& body, const WireContext& context) {
  Fields fields(body);
  WireRequest request;
  ChatInput chat;
  check_writer(fields, context.model);
  read_system(fields, chat.prompt.messages);
  const Json* const messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields.fail("messages", "must be an array of at least one message");
  } else {
    for (size_t i = 0; i < messages->size(); ++i) {
      read_message((*messages)[i], fmt::format("messages[{}]", i), fields, chat.prompt.messages);
    }
  }
  read_tools(fields, context, chat);
  read_choice_of_tool(fields, chat, request);
  read_format(fields.find("output_format"), "output_format", fields, chat.wish);
  read_constraint(fields, chat.wish);
  read_thinking(fields, chat);
  read_generation(fields, context.model, request.input);
  fields.read("stop_sequences", request.input.stops);
  read_max_tokens(fields, {"max_tokens"}, 1, request.input);
  fields.read("stream", request.stream);
  fields.refuse("container", "this server runs no code");
  fields.refuse("mcp_servers", "this server calls no others");
  fields.ignore({"anthropic_version", "anthropic_beta", "betas", "context_management",
                 "output_config", "speed"});
  if (request.input.n_choices != 1) fields.fail("n", "must be 1 here");
  if (fields.error()) return *fields.error();
  warn_of_unknown(fields, context);
  if (auto error = set_prompt(std::move(chat), context.model, "messages", request)) return *error;
  request.writer = std::make_unique<MessagesWriter>(context);
  return request;
}

}  // namespace pumice::serve
