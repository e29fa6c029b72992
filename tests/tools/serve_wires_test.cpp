// What the server's wires make of requests and of answers, without a server or a device.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "tests/answers/byte_tokens.hpp"
#include "tools/serve/service/answer_reader.hpp"
#include "tools/serve/service/metrics.hpp"
#include "tools/serve/wires/chat_input.hpp"
#include "tools/serve/wires/embeddings.hpp"
#include "tools/serve/wires/openai_common.hpp"
#include "tools/serve/wires/ranking.hpp"
#include "tools/serve/wires/tokens.hpp"
#include "tools/serve/wires/wires.hpp"

namespace pumice::serve {
namespace {

constexpr std::string_view kTemplate =
    "{% for t in tools %}[{{ t.function.name }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content or '' }}{{ m.content or '' }}"
    "{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% "
    "endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking %}<think>\n{% endif %}{% endif "
    "%}";
constexpr std::string_view kTools =
    R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";

Json parse(std::string_view text) { return read_ordered_json(text, text.size()).value(); }

class Wires : public testing::Test {
 protected:
  Wires() {
    model_.id = "m";
    model_.tokenizer = tokens_.tokenizer();
    model_.window_tokens = 1000;
    model_.constraints =
        std::make_shared<ConstraintCache>(std::make_shared<ConstraintCompiler>(model_.tokenizer));
    model_.chat = std::make_shared<const Result<ChatPrompt>>(
        ChatPrompt::create(kTemplate, model_.tokenizer->vocabulary(), "qwen3"));
    EXPECT_TRUE(model_.chat->ok());
  }

  WireRequest request(Wire wire, const Json& body) {
    ParsedRequest parsed = wire(body, {.model = model_});
    if (const auto* const error = std::get_if<ApiError>(&parsed)) {
      ADD_FAILURE() << error->message;
      return {};
    }
    return std::get<WireRequest>(std::move(parsed));
  }
  ApiError error(Wire wire, std::string_view body) {
    const ParsedRequest parsed = wire(parse(body), {.model = model_});
    if (const auto* const found = std::get_if<ApiError>(&parsed)) return *found;
    ADD_FAILURE() << "accepted: " << body;
    return {};
  }

  /// As the server reads an answer whose text comes in pieces of so many bytes.
  struct Answer {
    std::string stream;
    std::string whole;
  };
  Answer answer(Wire wire, const Json& body, std::string_view text, size_t n_bytes) {
    WireRequest streamed = request(wire, body);
    const WireRequest whole = request(wire, body);
    AnswerReader reader(model_.tokenizer, streamed.form ? &*streamed.form : nullptr, {});
    const Usage usage{.prompt_tokens = 7, .cached_tokens = 2, .completion_tokens = 5};
    Answer answer{.stream = streamed.writer->begin(usage)};
    std::vector<ChoiceResult> results(1);
    for (size_t at = 0;; at += n_bytes) {
      host::Event event{.kind = host::Event::Kind::kToken};
      const bool ends = at >= text.size();
      if (ends) event.kind = host::Event::Kind::kFinished;
      if (!ends) event.text = std::string(text.substr(at, n_bytes));
      ChoicePiece piece;
      reader.read(event, piece.events);
      results[0].add(piece);
      answer.stream += streamed.writer->piece(piece);
      if (ends) break;
    }
    results[0].end.finish = reader.n_calls() > 0 ? Finish::kToolCalls : Finish::kStop;
    answer.stream += streamed.writer->end_choice(0, results[0].end);
    answer.stream += streamed.writer->end(usage);
    answer.whole = whole.writer->whole(results, usage);
    return answer;
  }

  static std::vector<Json> events_of(std::string_view stream) {
    std::vector<Json> events;
    for (size_t at = stream.find("data: "); at != std::string_view::npos;
         at = stream.find("data: ", at)) {
      const size_t end = stream.find('\n', at);
      const std::string_view data = stream.substr(at + 6, end - at - 6);
      if (data != "[DONE]") events.push_back(parse(data));
      at = end;
    }
    return events;
  }

  ByteTokens tokens_{{"<end>"}};
  ServedModel model_;
};

TEST_F(Wires, ACompletionIsTokensOrTextAndWhatSaysHowItGoesOn) {
  const WireRequest text = request(
      read_completion,
      parse(R"({"prompt": "ab", "max_tokens": 3, "temperature": 0.5, "top_k": -1, "seed": -7,
                "stop": "x", "n": 2, "logit_bias": {"5": -100, "6": 2}, "logprobs": 4,
                "priority": -3, "service_class": "batch", "cache_salt": "s", "unknown": 1})"));
  const GenerationInput& input = text.input;
  EXPECT_EQ(input.prompts.size(), 1u);
  EXPECT_EQ(input.n_choices, 2u);
  EXPECT_EQ(input.max_tokens, 3u);
  EXPECT_EQ(input.sampling.temperature, 0.5f);
  EXPECT_EQ(input.sampling.top_k, 0u);
  EXPECT_EQ(input.sampling.seed, static_cast<uint64_t>(-7));
  EXPECT_EQ(input.stops, std::vector<std::string>{"x"});
  EXPECT_EQ(input.log_probs, 4u);
  EXPECT_EQ(input.sampling.logit_bias[1], std::make_pair(6u, 2.0f));
  EXPECT_LT(input.sampling.logit_bias[0].second, -1e30f);
  EXPECT_EQ(input.priority, -3);
  EXPECT_EQ(input.service_class, ServiceClass::kBatch);
  EXPECT_EQ(input.salt, "s");
  const WireRequest many = request(
      read_completion, parse(R"({"prompt": [[5, 6], [7]], "echo": true, "max_tokens": 0})"));
  EXPECT_EQ(many.input.prompts, (std::vector<std::vector<TokenId>>{{5, 6}, {7}}));
  EXPECT_TRUE(many.no_tokens);
}

TEST_F(Wires, WhatBelongsBetweenTwoTextsIsAskedForByTokensOfTheVocabulary) {
  const std::string_view asked = R"({"prompt": "ab", "suffix": "c"})";
  EXPECT_EQ(error(read_completion, asked).param, "suffix");
  request(read_completion, parse(R"({"prompt": "ab", "suffix": ""})"));
  const ByteTokens fills({"<end>", "<fim_prefix>", "<fim_suffix>", "<fim_middle>"});
  model_.tokenizer = fills.tokenizer();
  const auto tokens_of = [&](std::string_view text) {
    return model_.tokenizer->encode(text, {.parse_special = true}).value();
  };
  EXPECT_EQ(request(read_completion, parse(asked)).input.prompts[0],
            tokens_of("<fim_prefix>ab<fim_suffix>c<fim_middle>"));
  EXPECT_EQ(request(read_completion, parse(R"({"prompt": "ab", "suffix": ""})")).input.prompts[0],
            tokens_of("ab"));
  EXPECT_EQ(error(read_completion, R"({"prompt": "ab", "suffix": "c", "echo": true})").param,
            "echo");
}

TEST_F(Wires, APredictionIsTokensOfNoMoreThanAnAnswerCanHave) {
  const std::string_view asked =
      R"({"messages": [{"role": "user", "content": "a"}], "timeout_s": 2.5, "prediction": )";
  const auto prediction = [&](const std::string& json) {
    return request(read_chat, parse(std::string(asked) + json + "}")).input.prediction;
  };
  const std::vector<TokenId> ab = model_.tokenizer->encode("ab", {.add_special = false}).value();
  EXPECT_EQ(prediction(R"({"type": "content", "content": "ab"})"), ab);
  EXPECT_EQ(prediction(R"({"type": "content", "content": [{"type": "text", "text": "a"},
                                                        {"type": "text", "text": "b"}]})"),
            ab);
  EXPECT_TRUE(prediction("null").empty());
  model_.window_tokens = 5;
  EXPECT_EQ(prediction(R"({"type": "content", "content": "abcdefgh"})").size(), 5u);
  EXPECT_EQ(request(read_chat, parse(std::string(asked) + "null}")).input.timeout_s, 2.5);
  for (const std::string_view bad :
       {R"("ab")", R"({"content": "ab"})", R"({"type": "content"})",
        R"({"type": "content", "content": [{"type": "image_url"}]})"}) {
    const ApiError refused = error(read_chat, std::string(asked) + std::string(bad) + "}");
    EXPECT_TRUE(refused.message.find("prediction") != std::string::npos ||
                refused.param.starts_with("prediction"))
        << refused.message;
  }
}

TEST_F(Wires, VectorsAreAskedForByTextOrTokensAndWrittenAsNumbersOrBytes) {
  const std::string body =
      R"({"input": ["ab", "c"], "dimensions": 2, "encoding_format": "base64"})";
  EXPECT_EQ(std::get<ApiError>(read_embeddings(parse(body), {.model = model_})).param, "model");
  model_.vector_width = 3;
  EXPECT_EQ(error(read_completion, R"({"prompt": "a"})").param, "model");
  EXPECT_EQ(error(read_chat, R"({"messages": [{"role": "user", "content": "a"}]})").param, "model");
  EXPECT_EQ(error(read_messages, R"({"messages": [{"role": "user", "content": "a"}]})").param,
            "model");
  EXPECT_EQ(error(read_response, R"({"input": "a"})").param, "model");
  const auto request = std::get<VectorRequest>(read_embeddings(parse(body), {.model = model_}));
  EXPECT_EQ(request.texts.size(), 2u);
  const Json bytes = parse(request.answer({{3, 4, 5}, {0, -2, 1}}));
  // 0.6 and 0.8, 0 and -1: little-endian.
  EXPECT_EQ(bytes["data"][0]["embedding"], "mpkZP83MTD8=");
  EXPECT_EQ(bytes["data"][1]["embedding"], "AAAAAAAAgL8=");
  EXPECT_EQ(bytes["data"][1]["index"], 1);
  EXPECT_EQ(bytes["usage"]["prompt_tokens"], request.n_tokens());
  const auto whole = std::get<VectorRequest>(
      read_embeddings(parse(R"({"input": ["ab", "c"]})"), {.model = model_}));
  const Json numbers = parse(whole.answer({{0, 0, 2}, {0, 0, 0}}));
  EXPECT_EQ(numbers["data"][0]["embedding"], Json({0, 0, 1}));
  EXPECT_EQ(numbers["data"][1]["embedding"], Json({0, 0, 0}));
}

TEST_F(Wires, DocumentsAreRankedBestFirstByWhatTheModelGivesOfEachPair) {
  const std::string body =
      R"({"query": "ab", "documents": ["a", {"text": "b"}, "c"], "top_n": 2, "return_documents": true})";
  const auto refused = [&](auto read, std::string_view text) {
    return std::get<ApiError>(read(parse(std::string(text)), {.model = model_}));
  };
  EXPECT_EQ(refused(read_rerank, body).param, "model");
  model_.vector_width = 1;
  EXPECT_EQ(refused(read_rerank, body).param, "model");
  model_.relevant_label = 0;
  EXPECT_NE(error(read_completion, R"({"prompt": "a"})").message.find("/v1/rerank"),
            std::string::npos);
  EXPECT_NE(refused(read_embeddings, R"({"input": "a"})").message.find("/v1/rerank"),
            std::string::npos);

  const auto request = std::get<VectorRequest>(read_rerank(parse(body), {.model = model_}));
  ASSERT_EQ(request.texts.size(), 3u);
  const Json answer = parse(request.answer({{-3}, {0}, {-1}}));
  ASSERT_EQ(answer["results"].size(), 2u);
  EXPECT_EQ(answer["results"][0],
            Json({{"index", 1}, {"relevance_score", 0.5}, {"document", {{"text", "b"}}}}));
  EXPECT_EQ(answer["results"][1]["index"], 2);  // among all, not the first two
  EXPECT_NEAR(answer["results"][1]["relevance_score"].get<double>(), 1 / (1 + std::exp(1.0)),
              1e-12);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], request.n_tokens());

  // Of several labels, by the softmax; a text with each of several, or each with its own.
  model_.vector_width = 2;
  model_.relevant_label = 1;
  const auto scores = std::get<VectorRequest>(
      read_score(parse(R"({"text_1": "ab", "text_2": ["a", "b"]})"), {.model = model_}));
  EXPECT_EQ(scores.texts.at(0), request.texts.at(0));
  const Json scored = parse(scores.answer({{2, 2}, {0, 1}}));
  EXPECT_EQ(scored["data"][0]["score"], 0.5);
  EXPECT_NEAR(scored["data"][1]["score"].get<double>(), 1 / (1 + std::exp(-1.0)), 1e-12);
  EXPECT_EQ(
      std::get<VectorRequest>(
          read_score(parse(R"({"text_1": ["a", "ab"], "text_2": ["b", "a"]})"), {.model = model_}))
          .texts.at(1),
      request.texts.at(0));
  EXPECT_EQ(refused(read_score, R"({"text_1": ["a", "b"], "text_2": "c"})").param, "text_2");
  for (const auto& [wrong, param] : std::vector<std::pair<std::string_view, std::string_view>>{
           {R"({"documents": ["a"]})", "query"},
           {R"({"query": "a"})", "documents"},
           {R"({"query": "a", "documents": []})", "documents"},
           {R"({"query": "a", "documents": [1]})", "documents"},
           {R"({"query": "a", "documents": [{"title": "b"}]})", "documents"},
           {R"({"query": "a", "documents": ["b"], "top_n": 0})", "top_n"},
           {R"({"query": "a", "documents": ["b"], "max_tokens_per_doc": 5})",
            "max_tokens_per_doc"}}) {
    EXPECT_EQ(refused(read_rerank, wrong).param, param) << wrong;
  }
}

TEST_F(Wires, WhatCannotBeHonouredIsNamed) {
  for (const auto& [body, field] : std::vector<std::pair<std::string_view, std::string_view>>{
           {R"({"prompt": "a", "n": 1.5})", "n"},
           {R"({"prompt": "a", "top_p": 2})", "top_p"},
           {R"({"prompt": "a", "seed": "x"})", "seed"},
           {R"({"prompt": "a", "guided_regex": "a("})", "guided_regex"},
           {R"({"prompt": "a", "json_schema": {"type": "string", "format": "never"}})",
            "json_schema"},
           {R"({"prompt": "a", "grammar": "root ::= x", "guided_choice": ["a"]})", "guided_choice"},
           {R"({"prompt": "a", "best_of": 3})", "best_of"},
           {R"({"prompt": [1, "a"]})", "prompt"},
           {R"({"prompt": "a", "stream_options": {"include_usage": 1}})",
            "stream_options.include_usage"}}) {
    EXPECT_EQ(error(read_completion, body).param, field) << body;
  }
  const std::string head = R"({"messages": [{"role": "user", "content": "a"}], )";
  EXPECT_EQ(error(read_chat, head + R"("modalities": ["audio"]})").param, "modalities");
  EXPECT_EQ(error(read_chat, head + R"("max_tokens": 0})").param, "max_tokens");
  EXPECT_EQ(error(read_messages, head + R"("mcp_servers": [{}]})").param, "mcp_servers");
  EXPECT_EQ(error(read_response, R"({"input": "a", "previous_response_id": "x"})").param,
            "previous_response_id");
  EXPECT_EQ(error(read_response, R"({"input": [{"type": "item_reference"}]})").param,
            "input[0].type");
}

TEST_F(Wires, ThreeProtocolsMakeOnePromptOfWhatWasSaid) {
  const std::string expected =
      "[f]<system>S<user>Q<assistant><tool_call>{\"name\": \"f\", \"arguments\": {\"a\": "
      "1}}</tool_call>"
      "<tool>R<assistant>";
  const Json chat = parse(R"({"messages": [
      {"role": "developer", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "Q"}]},
      {"role": "assistant", "content": null, "tool_calls": [
          {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "R"}], "tools": )" +
                          std::string(kTools) + "}");
  const Json messages = parse(R"({"max_tokens": 9, "system": [
      {"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "S"}],
      "messages": [{"role": "user", "content": "Q"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "R"}]}],
      "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "w"}]})");
  const Json response = parse(R"({"instructions": "S", "input": [
      {"role": "user", "content": [{"type": "input_text", "text": "Q"}]},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"a\": 1}"},
      {"type": "function_call_output", "call_id": "1", "output": "R"}],
      "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "web_search"}]})");
  EXPECT_EQ(request(read_chat, chat).prompt_text, expected);
  EXPECT_EQ(request(read_messages, messages).prompt_text, expected);
  EXPECT_EQ(request(read_response, response).prompt_text, expected);
  EXPECT_EQ(request(read_messages, messages).input.prompts, request(read_chat, chat).input.prompts);
  const JsonOrError rendered = render_chat(chat, {.model = model_});
  EXPECT_EQ(std::get<Json>(rendered)["token_ids"].size(),
            request(read_chat, chat).input.prompts[0].size());
}

/// Whether an answer may be this text, and nothing less.
bool allows(const WireRequest& request, std::string_view text) {
  EXPECT_NE(request.input.constraint, nullptr);
  Matcher matcher(request.input.constraint);
  for (const char c : text) {
    if (!matcher.accept(ByteTokens::byte(c)).ok()) return false;
  }
  return matcher.can_end().value();
}

TEST_F(Wires, AnswersAreHeldToSchemasAndChoices) {
  const std::string head = R"({"messages": [{"role": "user", "content": "a"}], )";
  const WireRequest object =
      request(read_chat, parse(head + R"("response_format": {"type": "json_object"}})"));
  EXPECT_TRUE(allows(object, R"({"a": 1})"));
  EXPECT_FALSE(allows(object, "[1]"));
  const std::string schema = R"({"type": "object", "properties": {"n": {"enum": [1, 2]}},
      "required": ["n"], "additionalProperties": false})";
  for (const WireRequest& one :
       {request(read_chat, parse(head + R"("response_format": {"type": "json_schema",
            "json_schema": {"name": "x", "schema": )" +
                                 schema + "}}}")),
        request(read_response, parse(R"({"input": "a", "text": {"format": {"type": "json_schema",
            "name": "x", "schema": )" +
                                     schema + "}}}")),
        request(read_completion, parse(R"({"prompt": "a", "guided_json": )" + schema + "}"))}) {
    EXPECT_TRUE(allows(one, R"({"n": 2})"));
    EXPECT_FALSE(allows(one, R"({"n": 3})"));
    EXPECT_FALSE(allows(one, R"({"n": 2)"));
  }
  const WireRequest choice =
      request(read_completion, parse(R"({"prompt": "a", "guided_choice": ["yes", "no"]})"));
  EXPECT_TRUE(allows(choice, "no"));
  EXPECT_FALSE(allows(choice, "maybe"));
  EXPECT_EQ(error(read_chat, head + R"("tool_choice": "required"})").param, "tool_choice");
  EXPECT_EQ(error(read_chat, head + R"("response_format": {"type": "json_schema",
      "json_schema": {"schema": {"type": "string", "format": "never"}}}})")
                .param,
            "response_format.json_schema.schema");
}

TEST_F(Wires, ACallThatIsAskedForIsOneOfTheToolsWithItsArguments) {
  const std::string tools = R"("tools": [
      {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
          "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}}},
      {"type": "function", "function": {"name": "g"}}], )";
  const std::string head = R"({"messages": [{"role": "user", "content": "Q"}], )" + tools;
  const std::string f = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 7}}\n</tool_call>";
  const std::string g = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
  const WireRequest any = request(read_chat, parse(head + R"("tool_choice": "required"})"));
  EXPECT_TRUE(allows(any, f));
  EXPECT_TRUE(allows(any, g + "\n" + f));
  EXPECT_FALSE(allows(any, "hello"));
  EXPECT_TRUE(allows(any, "<think>\nwell\n</think>\n\n" + f));
  const WireRequest one = request(read_chat, parse(head + R"("tool_choice": {"type": "function",
      "function": {"name": "f"}}})"));
  EXPECT_TRUE(allows(one, f));
  EXPECT_FALSE(allows(one, g));
  EXPECT_FALSE(allows(one, f + "\n" + f));
  const WireRequest thinks = request(read_chat, parse(head + R"("enable_thinking": true,
      "response_format": {"type": "json_object"}})"));
  EXPECT_TRUE(allows(thinks, "so\n</think>\n\n{}"));
  EXPECT_TRUE(allows(thinks, "so\n</think>\n\n" + g));
  EXPECT_FALSE(allows(thinks, "{}"));
  EXPECT_EQ(error(read_chat, head + R"("tool_choice": {"type": "function",
      "function": {"name": "h"}}})")
                .param,
            "tool_choice");
}

constexpr std::string_view kWritten =
    "<think>\nhm\n</think>\n\nSee:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, "
    "\"x\"]}}\n"
    "</tool_call>";

TEST_F(Wires, AStreamedChatIsTheWholeOne) {
  const Json body = parse(R"({"messages": [{"role": "user", "content": "Q"}], "stream": true,
      "stream_options": {"include_usage": true}, "tools": )" +
                          std::string(kTools) + "}");
  for (const size_t n : {1, 4, 1000}) {
    const Answer got = answer(read_chat, body, kWritten, n);
    const Json whole = parse(got.whole)["choices"][0];
    std::string content, reasoning, arguments, name, finish;
    size_t n_names = 0;
    const std::vector<Json> events = events_of(got.stream);
    for (const Json& event : events) {
      if (event["choices"].empty()) continue;
      const Json& delta = event["choices"][0]["delta"];
      content += delta.value("content", "");
      reasoning += delta.value("reasoning_content", "");
      if (!event["choices"][0]["finish_reason"].is_null()) {
        EXPECT_TRUE(delta.empty());
        finish = event["choices"][0]["finish_reason"];
      }
      if (!delta.contains("tool_calls")) continue;
      const Json& function = delta["tool_calls"][0]["function"];
      arguments += function["arguments"].get<std::string>();
      n_names += function.contains("name");
    }
    EXPECT_EQ(content, "See:");
    EXPECT_EQ(whole["message"]["content"], content);
    EXPECT_EQ(whole["message"]["reasoning_content"], reasoning);
    EXPECT_EQ(reasoning, "hm");
    EXPECT_EQ(whole["message"]["tool_calls"][0]["function"]["arguments"], arguments);
    EXPECT_EQ(parse(arguments), parse(R"({"a": [1, "x"]})"));
    EXPECT_EQ(n_names, 1u);
    EXPECT_EQ(finish, "tool_calls");
    EXPECT_EQ(whole["finish_reason"], finish);
    EXPECT_EQ(events.back()["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
    EXPECT_TRUE(got.stream.ends_with("data: [DONE]\n\n"));
  }
}

TEST_F(Wires, WithoutToolsWhatLooksLikeACallIsText) {
  const Json body = parse(R"({"messages": [{"role": "user", "content": "Q"}]})");
  const Json message = parse(answer(read_chat, body, kWritten, 3).whole)["choices"][0]["message"];
  EXPECT_FALSE(message.contains("tool_calls"));
  EXPECT_NE(message["content"].get<std::string>().find("<tool_call>"), std::string::npos);
}

TEST_F(Wires, BlocksOfMessagesOpenAndCloseInOrder) {
  const Json body = parse(R"({"max_tokens": 99, "messages": [{"role": "user", "content": "Q"}],
      "stream": true, "tools": [{"name": "f", "input_schema": {}}]})");
  const Answer got = answer(read_messages, body, kWritten, 2);
  std::vector<std::string> types;
  for (const Json& event : events_of(got.stream)) {
    const std::string type = event["type"];
    if (types.empty() || types.back() != type) types.push_back(type);
    if (type == "message_start") {
      EXPECT_EQ(event["message"]["usage"]["input_tokens"], 5);
    }
    if (type == "message_delta") {
      EXPECT_EQ(event["delta"]["stop_reason"], "tool_use");
    }
  }
  const std::vector<std::string> block = {"content_block_start", "content_block_delta",
                                          "content_block_stop"};
  std::vector<std::string> expected = {"message_start"};
  for (int i = 0; i < 3; ++i) expected.insert(expected.end(), block.begin(), block.end());
  expected.insert(expected.end(), {"message_delta", "message_stop"});
  EXPECT_EQ(types, expected);
  const Json whole = parse(got.whole);
  EXPECT_EQ(whole["content"].size(), 3u);
  EXPECT_EQ(whole["content"][2]["input"], parse(R"({"a": [1, "x"]})"));
  EXPECT_EQ(whole["stop_reason"], "tool_use");
}

TEST_F(Wires, AResponsesItemsAreThoseOfItsStream) {
  const Json body = parse(R"({"input": "Q", "stream": true, "tools": [
      {"type": "function", "name": "f", "parameters": {"type": "object"}}]})");
  const Answer got = answer(read_response, body, kWritten, 5);
  const std::vector<Json> events = events_of(got.stream);
  Json items = Json::array();
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    if (events[i]["type"] == "response.output_item.done") items.push_back(events[i]["item"]);
  }
  EXPECT_EQ(events.front()["type"], "response.created");
  EXPECT_EQ(events.back()["type"], "response.completed");
  EXPECT_EQ(events.back()["response"]["output"], items);
  EXPECT_EQ(events.back()["response"]["usage"]["input_tokens"], 7);
  Json whole = parse(got.whole)["output"];
  ASSERT_EQ(whole.size(), 3u);
  for (size_t i = 0; i < whole.size(); ++i) whole[i]["id"] = items[i]["id"];
  EXPECT_EQ(whole, items);
  EXPECT_EQ(items[2]["arguments"], R"({"a": [1, "x"]})");
}

TEST_F(Wires, MetricsAreWhatPrometheusReads) {
  Metrics metrics;
  metrics.add({.status = 200,
               .finish = "stop",
               .prompt_tokens = 3,
               .generated_tokens = 4,
               .decode_s = 3,
               .ttft_s = 0.02,
               .ran = true});
  const Metrics other;
  const std::array<ModelMetrics, 2> models = {
      ModelMetrics{.model = "a\"b", .counts = &metrics},
      ModelMetrics{.model = "c", .counts = &other, .is_loaded = false}};
  const std::string text = metrics_text(models, true);
  EXPECT_NE(
      text.find("vllm:request_success_total{model_name=\"a\\\"b\",finished_reason=\"stop\"} 1\n"),
      std::string::npos);
  EXPECT_NE(
      text.find(
          "pumice:time_to_first_token_seconds_bucket{model_name=\"a\\\"b\",le=\"0.025\"} 1\n"),
      std::string::npos);
  EXPECT_NE(text.find("le=\"0.01\"} 0\n"), std::string::npos);
  EXPECT_NE(text.find("vllm:time_per_output_token_seconds_sum{model_name=\"a\\\"b\"} 1\n"),
            std::string::npos);
  // What a metric is comes once, then the samples of all models.
  EXPECT_NE(
      text.find("# TYPE pumice:model_loaded gauge\npumice:model_loaded{model_name=\"a\\\"b\"} 1\n"
                "pumice:model_loaded{model_name=\"c\"} 0\n"),
      std::string::npos);
}

}  // namespace
}  // namespace pumice::serve
