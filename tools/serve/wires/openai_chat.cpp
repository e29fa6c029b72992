// POST /v1/chat/completions
#include <fmt/core.h>

#include <utility>

#include "engine/engine_limits.hpp"
#include "tools/serve/wires/chat_input.hpp"
#include "tools/serve/wires/openai_common.hpp"
#include "tools/serve/wires/wires.hpp"

namespace pumice::serve {
namespace {

class ChatWriter final : public AnswerWriter {
 public:
  ChatWriter(const WireContext& context, uint32_t n_choices, bool usage, bool log_probs)
      : tokenizer_(context.model.tokenizer),
        model_(context.model.id),
        both_reasonings_(context.both_reasonings),
        n_choices_(n_choices),
        usage_(usage),
        log_probs_(log_probs) {}

  std::string whole(std::span<const ChoiceResult> choices, const Usage& usage) override;
  std::string begin(const Usage& usage) override;
  std::string piece(const ChoicePiece& piece) override;
  std::string end_choice(uint32_t choice, const ChoiceEnd& end) override;
  std::string end(const Usage& usage) override;
  std::string fail(const ApiError& error) override { return sse(openai_error_json(error)); }

 private:
  Json head(std::string_view object) const {
    return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
  }
  std::string chunk(uint32_t choice, Json delta, Json finish = nullptr, Json log_probs = nullptr);
  Json delta_of(const AnswerEvent& event) const;
  Json log_probs_of(std::span<const ScoredToken> tokens) const;
  Json message_of(const ChoiceResult& choice) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::string id_ = new_id("chatcmpl-");
  const int64_t created_ = now_s();
  const std::string model_;
  const bool both_reasonings_;
  const uint32_t n_choices_;
  const bool usage_;
  const bool log_probs_;
};

Json call_json(const ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

Json ChatWriter::log_probs_of(std::span<const ScoredToken> tokens) const {
  if (!log_probs_) return nullptr;
  const auto one = [&](TokenId token, float log_prob) -> Json {
    const std::string bytes = token_bytes(*tokenizer_, token);
    return {{"token", token_text(bytes)}, {"logprob", log_prob}, {"bytes", bytes_json(bytes)}};
  };
  Json content = Json::array();
  for (const ScoredToken& token : tokens) {
    if (!token.log_probs) continue;
    Json entry = one(token.token, token.log_probs->log_prob);
    entry["top_logprobs"] = Json::array();
    for (const TokenLogProb& best : token.log_probs->best) {
      entry["top_logprobs"].push_back(one(best.token, best.log_prob));
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json ChatWriter::message_of(const ChoiceResult& choice) const {
  const bool only_calls = choice.text.empty() && !choice.calls.empty();
  Json message = {{"role", "assistant"},
                  {"content", only_calls ? Json() : Json(choice.text)},
                  {"refusal", nullptr}};
  if (!choice.reasoning.empty()) {
    message["reasoning_content"] = choice.reasoning;
    if (both_reasonings_) message["reasoning"] = choice.reasoning;
  }
  for (const ToolCall& call : choice.calls) message["tool_calls"].push_back(call_json(call));
  return message;
}

std::string ChatWriter::whole(std::span<const ChoiceResult> choices, const Usage& usage) {
  Json answer = head("chat.completion");
  answer["choices"] = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    answer["choices"].push_back({{"index", i},
                                 {"message", message_of(choices[i])},
                                 {"logprobs", log_probs_of(choices[i].tokens)},
                                 {"finish_reason", finish_name(choices[i].end.finish)}});
  }
  answer["usage"] = openai_usage(usage);
  answer["timings"] = timings_of(usage);
  return dumped(answer);
}

std::string ChatWriter::chunk(uint32_t choice, Json delta, Json finish, Json log_probs) {
  Json json = head("chat.completion.chunk");
  json["choices"] = Json::array({{{"index", choice},
                                  {"delta", std::move(delta)},
                                  {"logprobs", std::move(log_probs)},
                                  {"finish_reason", std::move(finish)}}});
  if (usage_) json["usage"] = nullptr;
  return sse(json);
}

std::string ChatWriter::begin(const Usage&) {
  std::string text;
  for (uint32_t i = 0; i < n_choices_; ++i) {
    text += chunk(i, {{"role", "assistant"}, {"content", ""}});
  }
  return text;
}

/// Null: nothing to tell.
Json ChatWriter::delta_of(const AnswerEvent& event) const {
  const auto call = [&](Json more) -> Json {
    Json its = {{"index", event.call}};
    its.update(more);
    return {{"tool_calls", Json::array({std::move(its)})}};
  };
  switch (event.kind) {
    case AnswerEvent::Kind::kText:
      return {{"content", event.text}};
    case AnswerEvent::Kind::kReasoning: {
      Json delta = {{"reasoning_content", event.text}};
      if (both_reasonings_) delta["reasoning"] = event.text;
      return delta;
    }
    case AnswerEvent::Kind::kCallBegun:
      return call(call_json({event.id, event.text, ""}));
    case AnswerEvent::Kind::kArguments:
      return call({{"function", {{"arguments", event.text}}}});
    default:
      return nullptr;
  }
}

std::string ChatWriter::piece(const ChoicePiece& piece) {
  std::string text;
  Json log_probs = piece.tokens.empty() ? Json() : log_probs_of(piece.tokens);
  for (const AnswerEvent& event : piece.events) {
    Json delta = delta_of(event);
    if (delta.is_null()) continue;
    text += chunk(piece.choice, std::move(delta), nullptr, std::exchange(log_probs, nullptr));
  }
  // Tokens whose text is not final yet.
  if (!log_probs.is_null()) {
    text += chunk(piece.choice, {{"content", ""}}, nullptr, std::move(log_probs));
  }
  return text;
}

std::string ChatWriter::end_choice(uint32_t choice, const ChoiceEnd& end) {
  return chunk(choice, Json::object(), finish_name(end.finish));
}

std::string ChatWriter::end(const Usage& usage) {
  std::string text;
  if (usage_) {
    Json json = head("chat.completion.chunk");
    json["choices"] = Json::array();
    json["usage"] = openai_usage(usage);
    json["timings"] = timings_of(usage);
    text = sse(json);
  }
  return text + "data: [DONE]\n\n";
}

bool read_log_probs(Fields& fields, GenerationInput& input) {
  bool wanted = false;
  uint32_t n_best = 0;
  fields.read("logprobs", wanted);
  fields.read("top_logprobs", n_best, 0, kMostLogProbs);
  if (n_best > 0 && !wanted) fields.fail("top_logprobs", "needs logprobs: true");
  if (wanted) input.log_probs = n_best;
  return wanted;
}

/// A text that the answer may repeat; of no more of it than an answer can have.
void read_prediction(Fields& fields, const ServedModel& model, GenerationInput& input) {
  const Json* const prediction = fields.find("prediction");
  if (prediction == nullptr || !check_object(*prediction, "prediction", fields)) return;
  Fields its(*prediction, "prediction.");
  std::string type;
  its.read("type", type);
  if (type != "content") its.fail("type", "must be content");
  const Json* const content = its.find("content");
  if (content == nullptr) its.fail("content", "is missing");
  const auto text = read_text_content(content, "prediction.content", {"text"}, its);
  if (its.error()) return fields.fail(*its.error());
  Result<std::vector<TokenId>> tokens =
      model.tokenizer->encode(*text, {.add_special = false, .parse_special = false});
  if (!tokens.ok()) return fields.fail("prediction.content", tokens.error().message);
  input.prediction = std::move(tokens).value();
  if (input.prediction.size() > model.window_tokens) input.prediction.resize(model.window_tokens);
}

}  // namespace

ParsedRequest read_chat(const Json& body, const WireContext& context) {
  Fields fields(body);
  WireRequest request;
  check_writer(fields, context.model);
  ChatInput chat = read_openai_chat(fields, request);
  read_generation(fields, context.model, request.input);
  fields.read("cache_hit_threshold", request.input.cache_hit_threshold, 0, 1);
  read_max_tokens(fields, {"max_completion_tokens", "max_tokens"}, 1, request.input);
  read_prediction(fields, context.model, request.input);
  const bool log_probs = read_log_probs(fields, request.input);
  const StreamOptions stream = read_stream(fields, context.always_usage);
  if (fields.error()) return *fields.error();
  warn_of_unknown(fields, context);
  if (auto error = set_prompt(std::move(chat), context.model, "messages", request)) return *error;
  request.stream = stream.stream;
  request.writer =
      std::make_unique<ChatWriter>(context, request.input.n_choices, stream.usage, log_probs);
  return request;
}

}  // namespace pumice::serve
