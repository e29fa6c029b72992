// POST /v1/responses, without memory: each request brings all that was said.
#include <fmt/core.h>

#include <utility>

#include "base/printable.hpp"
#include "tools/serve/wires/chat_input.hpp"
#include "tools/serve/wires/openai_common.hpp"
#include "tools/serve/wires/wires.hpp"

namespace pumice::serve {
namespace {

Json response_usage(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

Json text_part(const std::string& text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

/// What the client said, as the answer repeats it.
struct Said {
  Json instructions;
  Json tools = Json::array();
  Json tool_choice = "auto";
  Json temperature, top_p, max_output_tokens;
  Json metadata = Json::object();
  Json format = {{"type", "text"}};
  bool parallel_tool_calls = true;
};

class ResponseWriter final : public AnswerWriter {
 public:
  ResponseWriter(const WireContext& context, Said said)
      : model_(context.model.id), said_(std::move(said)) {}

  std::string whole(std::span<const ChoiceResult> choices, const Usage& usage) override;
  std::string begin(const Usage& usage) override;
  std::string piece(const ChoicePiece& piece) override;
  std::string end_choice(uint32_t choice, const ChoiceEnd& end) override;
  std::string end(const Usage& usage) override;
  std::string fail(const ApiError& error) override;

 private:
  enum class Item { kNone, kText, kReasoning, kCall };

  Json response(std::string_view status) const;
  Json finished(const Usage& usage) const;
  std::string event(std::string_view type, Json more);
  std::string open(Item kind);
  std::string close();
  Json item_json(bool done) const;
  Json at_item() const;
  std::string open_part(Json part);
  std::string add(const AnswerEvent& event);

  const std::string id_ = new_id("resp_");
  const int64_t created_ = now_s();
  const std::string model_;
  const Said said_;
  int64_t sequence_ = 0;
  Json output_ = Json::array();  // items that are done
  ChoiceEnd end_;
  // The item under way.
  Item item_ = Item::kNone;
  std::string item_id_;
  std::string text_;  // or arguments
  std::string name_, call_id_;
};

Json ResponseWriter::response(std::string_view status) const {
  return {{"id", id_},
          {"object", "response"},
          {"created_at", created_},
          {"status", status},
          {"error", nullptr},
          {"incomplete_details", nullptr},
          {"instructions", said_.instructions},
          {"max_output_tokens", said_.max_output_tokens},
          {"model", model_},
          {"output", output_},
          {"parallel_tool_calls", said_.parallel_tool_calls},
          {"previous_response_id", nullptr},
          {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
          {"store", false},
          {"temperature", said_.temperature},
          {"text", {{"format", said_.format}}},
          {"tool_choice", said_.tool_choice},
          {"tools", said_.tools},
          {"top_p", said_.top_p},
          {"truncation", "disabled"},
          {"usage", nullptr},
          {"metadata", said_.metadata}};
}

Json ResponseWriter::finished(const Usage& usage) const {
  const bool cut = end_.finish == Finish::kLength;
  Json json = response(cut ? "incomplete" : "completed");
  if (cut) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
  json["usage"] = response_usage(usage);
  return json;
}

/// The same items as a stream's.
std::string ResponseWriter::whole(std::span<const ChoiceResult> choices, const Usage& usage) {
  const ChoiceResult& choice = choices[0];
  if (!choice.reasoning.empty()) {
    add({.kind = AnswerEvent::Kind::kReasoning, .text = choice.reasoning});
  }
  if (!choice.text.empty()) add({.kind = AnswerEvent::Kind::kText, .text = choice.text});
  for (const ToolCall& call : choice.calls) {
    add({.kind = AnswerEvent::Kind::kCallBegun, .text = call.name, .id = call.id});
    add({.kind = AnswerEvent::Kind::kArguments, .text = call.arguments});
    add({.kind = AnswerEvent::Kind::kCallEnded});
  }
  end_choice(0, choice.end);
  return dumped(finished(usage));
}

std::string ResponseWriter::event(std::string_view type, Json more) {
  Json json = {{"type", type}, {"sequence_number", sequence_++}};
  json.update(more);
  return sse(type, json);
}

std::string ResponseWriter::begin(const Usage&) {
  const Json json = {{"response", response("in_progress")}};
  const std::string created = event("response.created", json);
  return created + event("response.in_progress", json);
}

Json ResponseWriter::item_json(bool done) const {
  const std::string_view status = done ? "completed" : "in_progress";
  switch (item_) {
    case Item::kReasoning:
      return {{"id", item_id_},
              {"type", "reasoning"},
              {"summary", Json::array()},
              {"content",
               done ? Json::array({{{"type", "reasoning_text"}, {"text", text_}}}) : Json::array()},
              {"status", status}};
    case Item::kCall:
      return {{"id", item_id_},      {"type", "function_call"}, {"status", status},
              {"call_id", call_id_}, {"name", name_},           {"arguments", text_}};
    default:
      return {{"id", item_id_},
              {"type", "message"},
              {"status", status},
              {"role", "assistant"},
              {"content", done ? Json::array({text_part(text_)}) : Json::array()}};
  }
}

Json ResponseWriter::at_item() const {
  return {{"item_id", item_id_}, {"output_index", output_.size()}};
}

std::string ResponseWriter::open_part(Json part) {
  Json json = at_item();
  json["content_index"] = 0;
  json["part"] = std::move(part);
  return event("response.content_part.added", json);
}

std::string ResponseWriter::open(Item kind) {
  std::string text = close();
  item_ = kind;
  text_.clear();
  item_id_ = new_id(kind == Item::kCall ? "fc_" : kind == Item::kReasoning ? "rs_" : "msg_");
  text += event("response.output_item.added",
                {{"output_index", output_.size()}, {"item", item_json(false)}});
  if (kind == Item::kText) text += open_part(text_part(""));
  return text;
}

std::string ResponseWriter::close() {
  if (item_ == Item::kNone) return {};
  std::string text;
  Json json = at_item();
  if (item_ == Item::kCall) {
    json["name"] = name_;
    json["arguments"] = text_;
    text = event("response.function_call_arguments.done", json);
  } else {
    json["content_index"] = 0;
    json["text"] = text_;
    const bool is_text = item_ == Item::kText;
    text = event(is_text ? "response.output_text.done" : "response.reasoning_text.done", json);
    json.erase("text");
    json["part"] = text_part(text_);
    if (is_text) text += event("response.content_part.done", json);
  }
  Json item = item_json(true);
  text += event("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
  output_.push_back(std::move(item));
  item_ = Item::kNone;
  return text;
}

std::string ResponseWriter::add(const AnswerEvent& piece) {
  std::string text;
  const auto delta = [&](std::string_view type, bool has_parts) {
    text_ += piece.text;
    Json json = at_item();
    if (has_parts) json["content_index"] = 0;
    json["delta"] = piece.text;
    return event(type, json);
  };
  switch (piece.kind) {
    case AnswerEvent::Kind::kText:
      if (item_ != Item::kText) text += open(Item::kText);
      return text + delta("response.output_text.delta", true);
    case AnswerEvent::Kind::kReasoning:
      if (item_ != Item::kReasoning) text += open(Item::kReasoning);
      return text + delta("response.reasoning_text.delta", true);
    case AnswerEvent::Kind::kCallBegun:
      text = close();
      name_ = piece.text;
      call_id_ = piece.id;
      return text + open(Item::kCall);
    case AnswerEvent::Kind::kArguments:
      return delta("response.function_call_arguments.delta", false);
    case AnswerEvent::Kind::kCallEnded:
      return close();
    default:
      return text;
  }
}

std::string ResponseWriter::piece(const ChoicePiece& piece) {
  std::string text;
  for (const AnswerEvent& event : piece.events) text += add(event);
  return text;
}

std::string ResponseWriter::end_choice(uint32_t, const ChoiceEnd& end) {
  end_ = end;
  std::string text;
  if (item_ == Item::kNone && output_.empty()) text = open(Item::kText);
  return text + close();
}

std::string ResponseWriter::end(const Usage& usage) {
  Json json = finished(usage);
  const std::string type = fmt::format("response.{}", json["status"].get<std::string>());
  return event(type, {{"response", std::move(json)}});
}

std::string ResponseWriter::fail(const ApiError& error) {
  Json json = response("failed");
  json["error"] = {{"code", error.code.empty() ? "server_error" : error.code},
                   {"message", error.message}};
  return event("response.failed", {{"response", std::move(json)}});
}

// ---- requests

/// The assistant's last message, to which its next item belongs too.
Message& assistant_of(std::vector<Message>& messages) {
  if (messages.empty() || messages.back().role != "assistant") {
    messages.push_back({.role = "assistant"});
  }
  return messages.back();
}

void read_item(const Json& json, const std::string& path, Fields& errors,
               std::vector<Message>& messages) {
  if (!check_object(json, path, errors)) return;
  Fields fields(json, path + ".");
  std::string type = "message";
  fields.read("type", type);
  if (type == "message") {
    std::string role;
    fields.read("role", role);
    if (role.empty()) fields.fail("role", "is missing");
    const auto text = read_text_content(fields.find("content"), path + ".content",
                                        {"input_text", "output_text", "text", "refusal"}, fields);
    if (role == "assistant") {
      assistant_of(messages).content += text.value_or("");
    } else {
      messages.push_back({.role = role, .content = text.value_or("")});
    }
  } else if (type == "function_call") {
    ToolCall call;
    fields.read("call_id", call.id);
    fields.read("name", call.name);
    fields.read("arguments", call.arguments);
    assistant_of(messages).calls.push_back(std::move(call));
  } else if (type == "function_call_output") {
    Message result{.role = "tool"};
    fields.read("call_id", result.call_id);
    const auto text = read_text_content(fields.find("output"), path + ".output",
                                        {"input_text", "output_text", "text"}, fields);
    result.content = text.value_or("");
    messages.push_back(std::move(result));
  } else if (type == "reasoning") {
    const auto text = read_text_content(fields.find("content"), path + ".content",
                                        {"reasoning_text", "text"}, fields);
    if (text && !text->empty()) {
      // It begins another answer.
      messages.push_back({.role = "assistant", .reasoning = *text});
    }
  } else {
    fields.fail("type",
                fmt::format("this server does not know items of type \"{}\"", printable(type, 40)));
  }
  if (fields.error()) errors.fail(*fields.error());
}

void read_input(Fields& fields, std::vector<Message>& messages) {
  const Json* const input = fields.find("input");
  if (input == nullptr) return fields.fail("input", "is missing");
  if (input->is_string()) {
    messages.push_back({.role = "user", .content = input->get<std::string>()});
    return;
  }
  if (!input->is_array()) return fields.fail("input", "must be a string or an array of items");
  for (size_t i = 0; i < input->size(); ++i) {
    read_item((*input)[i], fmt::format("input[{}]", i), fields, messages);
  }
}

/// Clients send tools of OpenAI's servers beside their own; those are left out, as nobody here
/// could run them.
void read_tools(Fields& fields, const WireContext& context, ChatInput& chat, Said& said) {
  const auto function_of = [&](const Json& tool) {
    said.tools.push_back(tool);
    Json function = tool;
    function.erase("type");
    return function;
  };
  read_tools_of_type(fields, "function", function_of, context, chat);
}

void read_choice(Fields& fields, ChatInput& chat, WireRequest& request, Said& said) {
  fields.read("parallel_tool_calls", said.parallel_tool_calls);
  request.one_call = !said.parallel_tool_calls && !chat.tools->empty();
  const Json* const choice = fields.find("tool_choice");
  if (choice != nullptr) said.tool_choice = *choice;
  read_tool_choice(choice, fields, chat, request);
}

void read_form(Fields& fields, ChatInput& chat, Said& said) {
  if (const Json* const text = fields.find("text"); text != nullptr && text->is_object()) {
    const Json format = text->value("format", Json());
    read_format(&format, "text.format", fields, chat.wish);
    if (!format.is_null()) said.format = format;
  }
  read_constraint(fields, chat.wish);
  const Json* const reasoning = fields.find("reasoning");
  if (reasoning == nullptr || !reasoning->is_object()) return;
  const Json effort = reasoning->value("effort", Json());
  if (!effort.is_null()) chat.prompt.variables["reasoning_effort"] = effort;
}

}  // namespace

ParsedRequest read_response(const Json& body, const WireContext& context) {
  Fields fields(body);
  WireRequest request{.fails_in_stream = true};
  ChatInput chat;
  Said said;
  check_writer(fields, context.model);
  constexpr std::string_view kStateless =
      "this server keeps no conversations; send all that was said as input";
  fields.refuse("previous_response_id", kStateless);
  fields.refuse("conversation", kStateless);
  fields.refuse("background", "this server answers while the client waits");
  fields.refuse("prompt", "this server has no stored prompts");
  std::string instructions;
  fields.read("instructions", instructions);
  if (!instructions.empty()) {
    said.instructions = instructions;
    chat.prompt.messages.push_back({.role = "system", .content = std::move(instructions)});
  }
  read_input(fields, chat.prompt.messages);
  read_tools(fields, context, chat, said);
  read_form(fields, chat, said);
  read_choice(fields, chat, request, said);
  read_generation(fields, context.model, request.input);
  read_max_tokens(fields, {"max_output_tokens"}, 1, request.input);
  if (const Json* const metadata = fields.find("metadata")) said.metadata = *metadata;
  fields.read("stream", request.stream);
  fields.refuse("top_logprobs", "log probabilities are told by the other endpoints", 0);
  fields.ignore({"include", "truncation", "max_tool_calls", "stream_options", "client_metadata"});
  if (request.input.n_choices != 1) fields.fail("n", "must be 1 here");
  if (fields.error()) return *fields.error();
  warn_of_unknown(fields, context);
  const SamplerOptions& sampling = request.input.sampling;
  said.temperature = sampling.temperature;
  said.top_p = sampling.top_p;
  if (request.input.max_tokens != 0) said.max_output_tokens = request.input.max_tokens;
  if (auto error = set_prompt(std::move(chat), context.model, "input", request)) return *error;
  request.writer = std::make_unique<ResponseWriter>(context, std::move(said));
  return request;
}

}  // namespace pumice::serve
