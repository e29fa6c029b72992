#include "tools/serve/wires/openai_common.hpp"

#include <fmt/core.h>

#include <charconv>
#include <chrono>
#include <random>

#include "base/printable.hpp"
#include "engine/engine_limits.hpp"
#include "text/text_stream.hpp"
#include "text/utf8.hpp"

namespace pumice::serve {
namespace {

void read_logit_bias(Fields& fields, const ServedModel& model, SamplerOptions& sampling) {
  const Json* const bias = fields.find("logit_bias");
  if (bias == nullptr) return;
  constexpr std::string_view kWhat = "must be an object of token ids and numbers from -100 to 100";
  if (!bias->is_object()) return fields.fail("logit_bias", kWhat);
  if (bias->size() > kMaxLogitBias) {
    return fields.fail("logit_bias", fmt::format("has more than {} tokens", kMaxLogitBias));
  }
  for (const auto& [key, value] : bias->items()) {
    uint32_t token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    const bool is_token = error == std::errc() && end == key.data() + key.size() && !key.empty();
    const double amount = value.is_number() ? value.get<double>() : 1e9;
    if (!is_token || amount < -100 || amount > 100) return fields.fail("logit_bias", kWhat);
    if (!model.tokenizer->vocabulary().contains(token)) {
      return fields.fail("logit_bias", fmt::format("token {} is outside the vocabulary of {}",
                                                   token, model.tokenizer->vocabulary().size()));
    }
    // -100 bans a token, as OpenAI has it.
    const float added =
        amount <= -100 ? -std::numeric_limits<float>::infinity() : static_cast<float>(amount);
    sampling.logit_bias.emplace_back(token, added);
  }
}

void read_seed(Fields& fields, const ServedModel& model, SamplerOptions& sampling) {
  int64_t seed = -1;
  fields.read("seed", seed, std::numeric_limits<int64_t>::min(),
              std::numeric_limits<int64_t>::max());
  if (fields.has("seed") && seed != -1) {
    sampling.seed = static_cast<uint64_t>(seed);
  } else if (model.draws_seeds) {
    sampling.seed = std::random_device{}();
  }
}

void read_class(Fields& fields, GenerationInput& input) {
  int64_t priority = 0;
  fields.read("priority", priority, std::numeric_limits<int32_t>::min(),
              std::numeric_limits<int32_t>::max());
  input.priority = static_cast<int32_t>(priority);
  std::string name;
  fields.read("service_class", name);
  if (name.empty() || name == "normal") return;
  if (name == "interactive") {
    input.service_class = ServiceClass::kInteractive;
  } else if (name == "batch") {
    input.service_class = ServiceClass::kBatch;
  } else {
    fields.fail("service_class", "must be interactive, normal or batch");
  }
}

}  // namespace

void read_generation(Fields& fields, const ServedModel& model, GenerationInput& input) {
  SamplerOptions& sampling = input.sampling;
  sampling = model.sampling;
  input.adapter = model.adapter;
  fields.read("temperature", sampling.temperature, 0, 100);
  fields.read("top_p", sampling.top_p, 0, 1);
  int64_t top_k = sampling.top_k;
  fields.read("top_k", top_k, -1, std::numeric_limits<uint32_t>::max());
  sampling.top_k = top_k < 0 ? 0 : static_cast<uint32_t>(top_k);
  fields.read("min_p", sampling.min_p, 0, 1);
  fields.read("presence_penalty", sampling.presence_penalty, -100, 100);
  fields.read("frequency_penalty", sampling.frequency_penalty, -100, 100);
  fields.read("repetition_penalty", sampling.repeat_penalty, 1e-3, 1e3);
  fields.read("repeat_penalty", sampling.repeat_penalty, 1e-3, 1e3);
  read_seed(fields, model, sampling);
  read_logit_bias(fields, model, sampling);
  fields.read("n", input.n_choices, 1, 128);
  fields.read("stop", input.stops);
  if (const Status stops = validate_stop_strings(input.stops); !stops.ok()) {
    fields.fail("stop", stops.error().message);
  }
  fields.read("ignore_eos", input.ignore_end);
  fields.read("cache_salt", input.salt);
  read_class(fields, input);
  fields.read("timeout_s", input.timeout_s, 1e-3, 1e9);
  if (const Status valid = sampling.validate(model.tokenizer->vocabulary().size()); !valid.ok()) {
    fields.fail(ApiError{.message = valid.error().message});
  }
  fields.refuse("mirostat", "this sampler does not exist here", 0);
  fields.refuse("min_tokens", "this server cannot do that", 0);
  fields.refuse("best_of", "only as many answers as n are made", input.n_choices);
  fields.refuse("lora", "adapters are asked for by their names, as \"model\" (--lora NAME=FILE)");
  fields.ignore({"user", "store", "metadata", "service_tier", "prompt_cache_key",
                 "prompt_cache_retention", "safety_identifier", "cache_prompt", "add_bos_token"});
}

void read_max_tokens(Fields& fields, std::initializer_list<std::string_view> names, uint32_t least,
                     GenerationInput& input) {
  int64_t most = -1;
  for (const std::string_view name : names) {
    const int64_t before = most;
    most = -1;
    fields.read(name, most, -1, std::numeric_limits<uint32_t>::max());
    if (most >= 0 && most < least) {
      fields.fail(name, fmt::format("must be at least {}", least));
    }
    if (before >= 0) most = before;
  }
  input.max_tokens = most > 0 ? static_cast<uint32_t>(most) : 0;
}

StreamOptions read_stream(Fields& fields, bool always_usage) {
  StreamOptions options{.usage = always_usage};
  fields.read("stream", options.stream);
  const Json* const more = fields.find("stream_options");
  if (more == nullptr) return options;
  if (!more->is_object()) {
    fields.fail("stream_options", "must be an object");
    return options;
  }
  Fields its(*more, "stream_options.");
  its.read("include_usage", options.usage);
  options.usage |= always_usage;
  if (its.error()) fields.fail(*its.error());
  return options;
}

void check_model(Fields& fields, const ServedModel& model) {
  std::string name;
  fields.read("model", name);
  if (model.is_called(name)) return;
  fields.fail(ApiError{.status = 404,
                       .type = "not_found_error",
                       .message = fmt::format("the model '{}' does not exist here; this server has "
                                              "'{}' (--model-alias gives it further names)",
                                              printable(name, 100), model.id),
                       .param = "model",
                       .code = "model_not_found"});
}

void check_writer(Fields& fields, const ServedModel& model) {
  check_model(fields, model);
  if (model.writes()) return;
  fields.fail("model",
              model.ranks()
                  ? fmt::format("'{}' ranks texts and writes none; ask it at /v1/rerank", model.id)
                  : fmt::format("'{}' turns texts into vectors and writes no text; ask it "
                                "at /v1/embeddings",
                                model.id));
}

Json openai_error_json(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", or_null(error.param)},
            {"code", or_null(error.code)}}}};
}

std::string openai_error(const ApiError& error, std::string_view) {
  return dumped(openai_error_json(error));
}

Json openai_usage(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details",
           {{"reasoning_tokens", usage.reasoning_tokens},
            {"accepted_prediction_tokens", usage.accepted_tokens},
            {"rejected_prediction_tokens", usage.drafted_tokens - usage.accepted_tokens}}}};
}

Json timings_of(const Usage& usage) {
  return {{"cache_n", usage.cached_tokens},
          {"prompt_n", usage.prompt_tokens - usage.cached_tokens},
          {"prompt_ms", usage.prompt_ms},
          {"predicted_n", usage.completion_tokens},
          {"predicted_ms", usage.predicted_ms}};
}

std::string new_id(std::string_view prefix) {
  std::random_device random;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, random(), random(), random());
}

int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string token_bytes(const Tokenizer& tokenizer, TokenId token) {
  std::string bytes;
  tokenizer.append_bytes(token, true, bytes);
  return bytes;
}

Json bytes_json(std::string_view bytes) {
  Json json = Json::array();
  for (const char c : bytes) json.push_back(static_cast<uint8_t>(c));
  return json;
}

std::string token_text(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(bytes.substr(at));
    if (step.kind != Utf8Kind::kComplete) {
      std::string text = "bytes:";
      for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
      return text;
    }
    at += step.length;
  }
  return std::string(bytes);
}

}  // namespace pumice::serve
