#include "tools/serve/wires/tokens.hpp"

#include <fmt/core.h>

#include "text/detokenizer.hpp"
#include "tools/serve/wires/chat_input.hpp"
#include "tools/serve/wires/openai_common.hpp"
#include "tools/serve/wires/prompts.hpp"

namespace pumice::serve {
namespace {

/// The prompt of a chat: its tokens are the request's only ones.
std::optional<ApiError> read_chat_prompt(Fields& fields, const WireContext& context,
                                         WireRequest& request) {
  check_model(fields, context.model);
  ChatInput chat = read_openai_chat(fields, request);
  if (fields.error()) return fields.error();
  return set_prompt(std::move(chat), context.model, "messages", request);
}

/// As llm-d's routers read it.
Json rendered(const std::vector<TokenId>& tokens, const ServedModel& model) {
  return {{"model", model.id}, {"token_ids", tokens}, {"features", nullptr}};
}

Json tokens_json(const std::vector<TokenId>& tokens, bool with_pieces, const Tokenizer& tokenizer) {
  if (!with_pieces) return tokens;
  Json json = Json::array();
  for (const TokenId token : tokens) {
    const std::string bytes = token_bytes(tokenizer, token);
    const std::string text = token_text(bytes);
    json.push_back({{"id", token}, {"piece", text == bytes ? Json(text) : bytes_json(bytes)}});
  }
  return json;
}

JsonOrError count(Wire wire, const Json& body, const WireContext& context, Json answer) {
  const ParsedRequest parsed = wire(body, context);
  if (const auto* const error = std::get_if<ApiError>(&parsed)) return *error;
  answer["input_tokens"] = std::get<WireRequest>(parsed).input.prompts[0].size();
  return answer;
}

}  // namespace

JsonOrError tokenize(const Json& body, const WireContext& context) {
  Fields fields(body);
  std::vector<TokenId> tokens;
  bool with_pieces = false;
  fields.read("with_pieces", with_pieces);
  fields.read("return_token_strs", with_pieces);
  if (fields.has("messages")) {
    WireRequest request;
    if (auto error = read_chat_prompt(fields, context, request)) return *error;
    tokens = std::move(request.input.prompts[0]);
  } else {
    check_model(fields, context.model);
    // llama-server's field and defaults, then vLLM's.
    const bool is_content = fields.has("content");
    EncodeOptions options{.add_special = !is_content, .parse_special = true};
    std::string text;
    fields.read(is_content ? "content" : "prompt", text);
    if (!is_content && !fields.has("prompt")) fields.fail("content", "is missing");
    fields.read("add_special", options.add_special);
    fields.read("add_special_tokens", options.add_special);
    fields.read("parse_special", options.parse_special);
    if (fields.error()) return *fields.error();
    Result<std::vector<TokenId>> encoded = context.model.tokenizer->encode(text, options);
    if (!encoded.ok()) return api_error_of(encoded.error());
    tokens = std::move(encoded).value();
  }
  return Json{{"tokens", tokens_json(tokens, with_pieces, *context.model.tokenizer)},
              {"count", tokens.size()},
              {"max_model_len", context.model.window_tokens}};
}

JsonOrError detokenize_tokens(const Json& body, const WireContext& context) {
  Fields fields(body);
  check_model(fields, context.model);
  const Json* const json = fields.find("tokens");
  std::vector<TokenId> tokens;
  const bool is_array = json != nullptr && json->is_array();
  for (size_t i = 0; is_array && i < json->size(); ++i) {
    const Json& token = (*json)[i];
    const bool is_token = token.is_number_unsigned() &&
                          token.get<uint64_t>() < context.model.tokenizer->vocabulary().size();
    if (!is_token) {
      fields.fail(fmt::format("tokens[{}]", i), "is not a token of this model");
      break;
    }
    tokens.push_back(token.get<TokenId>());
  }
  if (!is_array) fields.fail("tokens", "must be an array of token ids");
  if (fields.error()) return *fields.error();
  const std::string text = detokenize(*context.model.tokenizer, tokens,
                                      {.start = TextStart::kBeginning, .show_control = true});
  return Json{{"content", text}, {"prompt", text}};
}

JsonOrError apply_template(const Json& body, const WireContext& context) {
  Fields fields(body);
  WireRequest request;
  if (auto error = read_chat_prompt(fields, context, request)) return *error;
  return Json{{"prompt", std::move(request.prompt_text)}};
}

JsonOrError render_completion(const Json& body, const WireContext& context) {
  Fields fields(body);
  check_model(fields, context.model);
  const std::vector<std::vector<TokenId>> prompts =
      read_prompts(fields, "prompt", kMostPrompts, context.model);
  if (fields.error()) return *fields.error();
  Json json = Json::array();
  for (const std::vector<TokenId>& tokens : prompts) {
    json.push_back(rendered(tokens, context.model));
  }
  return json;
}

JsonOrError render_chat(const Json& body, const WireContext& context) {
  Fields fields(body);
  WireRequest request;
  if (auto error = read_chat_prompt(fields, context, request)) return *error;
  return rendered(request.input.prompts[0], context.model);
}

JsonOrError count_message_tokens(const Json& body, const WireContext& context) {
  return count(read_messages, body, context, Json::object());
}

JsonOrError count_response_tokens(const Json& body, const WireContext& context) {
  return count(read_response, body, context, {{"object", "response.input_tokens"}});
}

}  // namespace pumice::serve
