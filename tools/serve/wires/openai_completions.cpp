// POST /v1/completions
#include <fmt/core.h>

#include <utility>

#include "engine/engine_limits.hpp"
#include "text/detokenizer.hpp"
#include "text/utf8.hpp"
#include "tools/serve/wires/constraint.hpp"
#include "tools/serve/wires/openai_common.hpp"
#include "tools/serve/wires/prompts.hpp"
#include "tools/serve/wires/wires.hpp"

namespace pumice::serve {
namespace {

size_t n_characters(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return n;
}

class CompletionWriter final : public AnswerWriter {
 public:
  struct Echo {
    std::string text;
    TokenId first_token = 0;  ///< of the prompt, behind which nothing is known
  };

  CompletionWriter(const WireContext& context, uint32_t n_choices, bool usage, bool log_probs,
                   std::vector<Echo> echoes)
      : tokenizer_(context.model.tokenizer),
        model_(context.model.id),
        n_choices_(n_choices),
        usage_(usage),
        log_probs_(log_probs),
        echoes_(std::move(echoes)) {}

  std::string whole(std::span<const ChoiceResult> choices, const Usage& usage) override;
  std::string begin(const Usage& usage) override;
  std::string piece(const ChoicePiece& piece) override;
  std::string end_choice(uint32_t choice, const ChoiceEnd& end) override {
    return chunk(choice, "", nullptr, finish_name(end.finish));
  }
  std::string end(const Usage& usage) override;
  std::string fail(const ApiError& error) override { return sse(openai_error_json(error)); }

 private:
  /// Null: the prompt is not to be told.
  const Echo* echo_of(size_t choice) const {
    return echoes_.empty() ? nullptr : &echoes_[choice / n_choices_];
  }
  Json head() const {
    return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", model_}};
  }
  std::string chunk(size_t choice, std::string text, Json log_probs, Json finish = nullptr) const;
  Json log_probs_of(size_t choice, bool is_first, std::span<const ScoredToken> prompt,
                    std::span<const ScoredToken> tokens);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::string id_ = new_id("cmpl-");
  const int64_t created_ = now_s();
  const std::string model_;
  const uint32_t n_choices_;  // of each prompt
  const bool usage_;
  const bool log_probs_;
  const std::vector<Echo> echoes_;  // by prompt
  std::vector<size_t> offsets_;     // by choice: characters of the tokens so far
};

Json CompletionWriter::log_probs_of(size_t choice, bool is_first,
                                    std::span<const ScoredToken> prompt,
                                    std::span<const ScoredToken> tokens) {
  if (!log_probs_) return nullptr;
  if (offsets_.size() <= choice) offsets_.resize(choice + 1);
  Json json = {{"tokens", Json::array()},
               {"token_logprobs", Json::array()},
               {"top_logprobs", Json::array()},
               {"text_offset", Json::array()}};
  const auto add = [&](const ScoredToken& token) {
    const std::string text = token_text(token_bytes(*tokenizer_, token.token));
    json["tokens"].push_back(text);
    json["text_offset"].push_back(offsets_[choice]);
    offsets_[choice] += n_characters(text);
    Json best = nullptr;
    if (token.log_probs) {
      best = Json::object();
      for (const TokenLogProb& one : token.log_probs->best) {
        best[token_text(token_bytes(*tokenizer_, one.token))] = one.log_prob;
      }
    }
    json["token_logprobs"].push_back(token.log_probs ? Json(token.log_probs->log_prob) : Json());
    json["top_logprobs"].push_back(std::move(best));
  };
  const Echo* const echo = echo_of(choice);
  if (echo != nullptr && is_first) add({.token = echo->first_token});
  for (const ScoredToken& token : prompt) add(token);
  for (const ScoredToken& token : tokens) add(token);
  return json;
}

std::string CompletionWriter::whole(std::span<const ChoiceResult> choices, const Usage& usage) {
  Json answer = head();
  answer["choices"] = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    const Echo* const echo = echo_of(i);
    answer["choices"].push_back(
        {{"index", i},
         {"text", (echo != nullptr ? echo->text : "") + choices[i].text},
         {"logprobs", log_probs_of(i, true, choices[i].prompt, choices[i].tokens)},
         {"finish_reason", finish_name(choices[i].end.finish)}});
  }
  answer["usage"] = openai_usage(usage);
  answer["timings"] = timings_of(usage);
  return dumped(answer);
}

std::string CompletionWriter::chunk(size_t choice, std::string text, Json log_probs,
                                    Json finish) const {
  Json json = head();
  json["choices"] = Json::array({{{"index", choice},
                                  {"text", std::move(text)},
                                  {"logprobs", std::move(log_probs)},
                                  {"finish_reason", std::move(finish)}}});
  if (usage_) json["usage"] = nullptr;
  return sse(json);
}

std::string CompletionWriter::begin(const Usage&) {
  std::string text;
  for (size_t i = 0; i < echoes_.size() * n_choices_; ++i) {
    text += chunk(i, echo_of(i)->text, log_probs_of(i, true, {}, {}));
  }
  return text;
}

std::string CompletionWriter::piece(const ChoicePiece& piece) {
  std::string text;
  for (const AnswerEvent& event : piece.events) text += event.text;
  const bool has_tokens = !piece.tokens.empty() || !piece.prompt.empty();
  if (text.empty() && !has_tokens) return {};
  Json log_probs =
      has_tokens ? log_probs_of(piece.choice, false, piece.prompt, piece.tokens) : Json();
  return chunk(piece.choice, std::move(text), std::move(log_probs));
}

std::string CompletionWriter::end(const Usage& usage) {
  std::string text;
  if (usage_) {
    Json json = head();
    json["choices"] = Json::array();
    json["usage"] = openai_usage(usage);
    json["timings"] = timings_of(usage);
    text = sse(json);
  }
  return text + "data: [DONE]\n\n";
}

/// The model writes what belongs between each prompt and that text.
void read_suffix(Fields& fields, const ServedModel& model, bool echo, GenerationInput& input) {
  const Vocabulary& vocabulary = model.tokenizer->vocabulary();
  if (!vocabulary.fill_tokens()) {
    return fields.refuse("suffix", "this model does not fill in the middle", "");
  }
  std::string text;
  fields.read("suffix", text);
  if (text.empty()) return;
  if (echo) return fields.fail("echo", "does not go with suffix");
  Result<std::vector<TokenId>> suffix =
      model.tokenizer->encode(text, {.add_special = false, .parse_special = true});
  if (!suffix.ok()) return fields.fail("suffix", suffix.error().message);
  const FillTokens& tokens = *vocabulary.fill_tokens();
  for (std::vector<TokenId>& prompt : input.prompts) {
    const bool has_bos = vocabulary.bos() && !prompt.empty() && prompt.front() == *vocabulary.bos();
    prompt.insert(prompt.begin() + (has_bos ? 1 : 0), tokens.prefix);
    prompt.push_back(tokens.suffix);
    prompt.insert(prompt.end(), suffix->begin(), suffix->end());
    prompt.push_back(tokens.middle);
  }
}

}  // namespace

ParsedRequest read_completion(const Json& body, const WireContext& context) {
  Fields fields(body);
  WireRequest request;
  GenerationInput& input = request.input;
  check_writer(fields, context.model);
  input.prompts = read_prompts(fields, "prompt", kMostPrompts, context.model);
  read_generation(fields, context.model, input);
  fields.read("cache_hit_threshold", input.cache_hit_threshold, 0, 1);
  ConstraintWish wish;
  read_constraint(fields, wish);
  read_format(fields.find("response_format"), "response_format", fields, wish);
  bool echo = false;
  fields.read("echo", echo);
  input.max_tokens = 16;  // OpenAI's
  if (fields.has("max_tokens")) read_max_tokens(fields, {"max_tokens"}, echo ? 0 : 1, input);
  if (const Json* const most = fields.find("max_tokens"); echo && most && *most == 0) {
    // The engine's steps end with a token; it is not told.
    request.no_tokens = true;
    input.max_tokens = 1;
  }
  if (fields.has("logprobs") && !(*fields.find("logprobs") == false)) {
    uint32_t n_best = 0;
    fields.read("logprobs", n_best, 0, kMostLogProbs);
    input.log_probs = n_best;
  }
  input.scores = echo && input.log_probs.has_value();
  read_suffix(fields, context.model, echo, input);
  fields.ignore({"add_special_tokens"});
  const StreamOptions stream = read_stream(fields, context.always_usage);
  if (fields.error()) return *fields.error();
  warn_of_unknown(fields, context);
  if (auto error = set_constraint(wish, {}, context.model, request)) return *error;
  std::vector<CompletionWriter::Echo> echoes;
  const Json& prompt = body["prompt"];
  for (size_t i = 0; echo && i < input.prompts.size(); ++i) {
    const Json& its = prompt.is_array() && !is_token_array(prompt) ? prompt[i] : prompt;
    echoes.push_back({its.is_string() ? its.get<std::string>()
                                      : detokenize(*context.model.tokenizer, input.prompts[i]),
                      input.prompts[i].front()});
  }
  request.stream = stream.stream;
  request.writer = std::make_unique<CompletionWriter>(
      context, input.n_choices, stream.usage, input.log_probs.has_value(), std::move(echoes));
  return request;
}

}  // namespace pumice::serve
