#include "api/options.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "api/structs.hpp"
#include "base/json.hpp"
#include "base/printable.hpp"

namespace pumice::api {
namespace {

/// What a number of the enumeration pumice_`name` stands for: `values` is in its order.
template <typename T>
Result<T> enumerator_of(int32_t number, std::string_view name, std::initializer_list<T> values) {
  if (number >= 0 && static_cast<size_t>(number) < values.size()) return values.begin()[number];
  return make_error(ErrorCode::kInvalidArgument, "unknown {} {}: expected one of pumice_{}", name,
                    number, name);
}

/// Blocks for `tokens` positions.
Result<uint32_t> kv_blocks_of_tokens(uint64_t tokens) {
  const uint64_t blocks = tokens / kKvBlockTokens + (tokens % kKvBlockTokens != 0 ? 1 : 0);
  if (blocks <= std::numeric_limits<uint32_t>::max()) return static_cast<uint32_t>(blocks);
  return make_error(ErrorCode::kInvalidArgument, "kv_tokens is {}, more than any device holds",
                    tokens);
}

Result<KvTypes> read_kv_type(pumice_string given, KvTypes fallback) {
  PUMICE_TRY(const std::string_view kv_type, read_string(given, "kv_type"));
  if (kv_type.empty()) return fallback;
  if (const std::optional<KvTypes> types = KvTypes::parse(kv_type)) return *types;
  return make_error(ErrorCode::kInvalidArgument, "unknown kv_type \"{}\": expected {}",
                    printable(kv_type), fmt::join(kKvTypeNames, ", "));
}

Result<ops::Math> read_arithmetic(pumice_string given) {
  PUMICE_TRY(const std::string_view arithmetic, read_string(given, "arithmetic"));
  if (arithmetic.empty()) return ops::Math::kAuto;
  if (const std::optional<ops::Math> math = ops::parse_math(arithmetic)) return *math;
  return make_error(ErrorCode::kInvalidArgument,
                    "unknown arithmetic \"{}\": expected auto, f32, f16 or i8",
                    printable(arithmetic));
}

Result<EngineOptions> engine_options_of(const pumice_engine_options& options) {
  EngineOptions engine;
  engine.context_tokens = options.context_tokens;
  engine.n_sequences = std::max(options.n_sequences, 1u);
  PUMICE_TRY(engine.kv_blocks, kv_blocks_of_tokens(options.kv_tokens));
  if (options.token_budget != 0) engine.token_budget = options.token_budget;
  if (options.chunk_tokens != 0) engine.chunk_tokens = options.chunk_tokens;
  engine.tpot_target_s = options.token_interval_us * 1e-6;
  PUMICE_TRY(engine.overflow, enumerator_of(options.overflow, "overflow",
                                            {OverflowPolicy::kStop, OverflowPolicy::kShift,
                                             OverflowPolicy::kTruncateOldest}));
  PUMICE_TRY(engine.kv_type, read_kv_type(options.kv_type, engine.kv_type));
  PUMICE_TRY(engine.math, read_arithmetic(options.arithmetic));
  engine.cache_host_bytes = options.cache_host_bytes;
  if (options.allocator != nullptr) {
    PUMICE_TRY(const pumice_allocator allocator, read_struct(options.allocator, "allocator"));
    if (allocator.allocate == nullptr || allocator.free == nullptr) {
      return make_error(ErrorCode::kInvalidArgument, "allocator: allocate or free is NULL");
    }
    engine.host_allocator = {allocator.user, allocator.allocate, allocator.free};
  }
  PUMICE_TRY(engine.invariant, read_bool(options.invariant, "invariant"));
  PUMICE_TRY(const bool no_prefix_cache, read_bool(options.no_prefix_cache, "no_prefix_cache"));
  engine.prefix_cache = !no_prefix_cache;
  PUMICE_TRY(const bool prewarm_later, read_bool(options.prewarm_later, "prewarm_later"));
  engine.prewarm = !prewarm_later;
  return engine;
}

/// Who is served before whom, and what is kept beside the device.
Status read_service(const pumice_engine_options& options, EngineOptions& engine) {
  if (options.aging_us == PUMICE_NO_LIMIT) engine.aging_s = 0;
  if (options.aging_us != 0 && options.aging_us != PUMICE_NO_LIMIT) {
    engine.aging_s = static_cast<double>(options.aging_us) * 1e-6;
  }
  engine.reserved_decode_tokens[static_cast<size_t>(ServiceClass::kInteractive)] =
      options.reserved_interactive_tokens;
  engine.reserved_decode_tokens[static_cast<size_t>(ServiceClass::kNormal)] =
      options.reserved_normal_tokens;
  engine.reserved_decode_tokens[static_cast<size_t>(ServiceClass::kBatch)] =
      options.reserved_batch_tokens;
  const uint64_t reserved = uint64_t{options.reserved_interactive_tokens} +
                            options.reserved_normal_tokens + options.reserved_batch_tokens;
  if (reserved > engine.token_budget) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the classes have {} tokens of a step reserved, of {} (token_budget)",
                      reserved, engine.token_budget);
  }
  PUMICE_TRY(const std::filesystem::path store, read_path(options.prefix_store, "prefix_store"));
  if (store.empty()) {
    if (options.prefix_store_bytes == 0) return {};
    return make_error(ErrorCode::kInvalidArgument,
                      "prefix_store_bytes is set, but prefix_store is empty");
  }
  if (options.cache_host_bytes == 0 || !engine.prefix_cache) {
    return make_error(ErrorCode::kInvalidArgument, "prefix_store needs {}",
                      engine.prefix_cache
                          ? "cache_host_bytes: what comes from it goes through host memory"
                          : "the prefix cache: leave no_prefix_cache unset");
  }
  PUMICE_TRY(engine.prefix_store, absolute_path(store));
  if (options.prefix_store_bytes != 0) engine.prefix_store_bytes = options.prefix_store_bytes;
  return {};
}

Result<SamplerOptions> sampler_of(const pumice_sampling* given) {
  PUMICE_TRY(const pumice_sampling options, read_struct(given, "sampling"));
  SamplerOptions sampler;
  sampler.temperature = options.temperature;
  sampler.top_k = options.top_k;
  if (options.top_p != 0) sampler.top_p = options.top_p;
  sampler.min_p = options.min_p;
  if (options.repeat_penalty != 0) sampler.repeat_penalty = options.repeat_penalty;
  sampler.frequency_penalty = options.frequency_penalty;
  sampler.presence_penalty = options.presence_penalty;
  sampler.seed = options.seed;
  PUMICE_TRY(const std::span<const pumice_logit_bias> biases,
             read_array(options.logit_biases, options.n_logit_biases, "logit_biases"));
  for (const pumice_logit_bias& bias : biases) {
    sampler.logit_bias.emplace_back(bias.token, bias.bias);
  }
  return sampler;
}

}  // namespace

Result<EngineInput> read_engine_options(const pumice_engine_options* given, std::string_view name) {
  PUMICE_TRY(const pumice_engine_options options, read_optional_struct(given, name));
  EngineInput input;
  PUMICE_TRY(input.engine, engine_options_of(options));
  PUMICE_TRY_STATUS(read_service(options, input.engine));
  PUMICE_TRY(input.predicts, read_bool(options.mtp, "mtp"));
  PUMICE_TRY(input.draft_model, read_path(options.draft_model, "draft_model"));
  return input;
}

Result<EmbedderInput> read_embedder_options(const pumice_embedder_options* given) {
  PUMICE_TRY(const pumice_embedder_options options, read_optional_struct(given, "options"));
  EmbedderInput input;
  EmbedderOptions& embedder = input.embedder;
  embedder.text_tokens = options.text_tokens;
  if (options.step_tokens != 0) embedder.step_tokens = options.step_tokens;
  PUMICE_TRY(embedder.kv_type, read_kv_type(options.kv_type, embedder.kv_type));
  PUMICE_TRY(embedder.math, read_arithmetic(options.arithmetic));
  PUMICE_TRY(embedder.invariant, read_bool(options.invariant, "invariant"));
  PUMICE_TRY(const bool as_it_is, read_bool(options.not_normalized, "not_normalized"));
  input.normalizes = !as_it_is;
  return input;
}

Result<ConstraintText> read_constraint_options(const pumice_constraint_options* given) {
  PUMICE_TRY(const pumice_constraint_options options, read_struct(given, "options"));
  using enum ConstraintKind;
  ConstraintText constraint;
  PUMICE_TRY(constraint.kind,
             enumerator_of(options.kind, "constraint_kind", {kJsonSchema, kGbnf, kRegex}));
  PUMICE_TRY(constraint.text, read_text(options.text, "text"));
  return constraint;
}

Result<EngineMode> read_mode(pumice_mode mode) {
  using enum EngineMode;
  return enumerator_of(mode, "mode", {kFast, kBesideGraphics, kBackground});
}

Result<host::LatencyKind> read_latency_kind(pumice_latency_kind kind) {
  using enum host::LatencyKind;
  return enumerator_of(kind, "latency_kind", {kQueue, kFirstToken, kTokenInterval, kTotal});
}

namespace {

/// GenerationRequest::adapter of a name.
Result<uint32_t> read_adapter_name(pumice_string given, std::span<const AdapterSource> adapters) {
  PUMICE_TRY(const std::string_view name, read_text(given, "adapter"));
  if (name.empty()) return 0u;
  const auto found = std::ranges::find(adapters, name, &AdapterSource::name);
  if (found != adapters.end()) return static_cast<uint32_t>(found - adapters.begin()) + 1;
  if (adapters.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "unknown adapter \"{}\": the model was loaded without adapters",
                      printable(name));
  }
  std::vector<std::string> names;
  for (const AdapterSource& adapter : adapters) names.push_back(printable(adapter.name));
  return make_error(ErrorCode::kInvalidArgument, "unknown adapter \"{}\": expected {}",
                    printable(name), fmt::join(names, ", "));
}

}  // namespace

Result<host::ConversationDefaults> read_session_options(const pumice_session_options* given,
                                                        std::span<const AdapterSource> adapters) {
  PUMICE_TRY(const pumice_session_options options, read_optional_struct(given, "options"));
  host::ConversationDefaults defaults;
  if (options.sampling != nullptr) {
    PUMICE_TRY(defaults.sampling, sampler_of(options.sampling));
  }
  PUMICE_TRY(
      defaults.service_class,
      enumerator_of(options.service_class, "service_class",
                    {ServiceClass::kNormal, ServiceClass::kInteractive, ServiceClass::kBatch}));
  defaults.priority = options.priority;
  PUMICE_TRY(defaults.salt, read_string(options.salt, "salt"));
  defaults.max_tokens_per_s = options.max_tokens_per_second;
  if (!(defaults.max_tokens_per_s >= 0) || std::isinf(defaults.max_tokens_per_s)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "max_tokens_per_second is {}: it must be 0 or more, and finite",
                      defaults.max_tokens_per_s);
  }
  PUMICE_TRY(const bool sentences, read_bool(options.sentences, "sentences"));
  if (sentences) defaults.delivery = GenerationRequest::Delivery::kSentence;
  PUMICE_TRY(defaults.adapter, read_adapter_name(options.adapter, adapters));
  return defaults;
}

Result<RestoreOptions> read_restore_options(const pumice_restore_options* given) {
  PUMICE_TRY(const pumice_restore_options options, read_optional_struct(given, "options"));
  RestoreOptions restore;
  PUMICE_TRY(restore.tokens_only, read_bool(options.tokens_only, "tokens_only"));
  return restore;
}

namespace {

using OrderedJson = nlohmann::ordered_json;

Error wrong_json(std::string_view name, const Error& error) {
  return make_error(ErrorCode::kInvalidArgument, "{}: {}", name, error.message);
}

/// Nothing: the text is empty.
Result<std::optional<OrderedJson>> read_json_text(pumice_string string, std::string_view name) {
  PUMICE_TRY(const std::string_view text, read_text(string, name));
  if (text.empty()) return std::optional<OrderedJson>();
  Result<OrderedJson> json = read_ordered_json(text, kMaxInputBytes);
  if (!json.ok()) return wrong_json(name, json.error());
  return std::optional<OrderedJson>(*std::move(json));
}

Status refuse_without_parts(const pumice_request_options& options) {
  const std::pair<const char*, pumice_string> fields[] = {
      {"messages_json", options.messages_json},
      {"tools_json", options.tools_json},
      {"tool_choice", options.tool_choice},
      {"template_variables_json", options.template_variables_json}};
  for (const auto& [name, field] : fields) {
    PUMICE_TRY(const std::string_view text, read_text(field, name));
    if (text.empty()) continue;
    return make_error(ErrorCode::kInvalidArgument, "{} is for answers in parts: set `parts` to 1",
                      name);
  }
  return {};
}

/// What is told apart, and what is for the template and its tools.
Status read_parts_options(const pumice_request_options& options, host::RequestInput& input) {
  PUMICE_TRY(const bool parts, read_bool(options.parts, "parts"));
  if (!parts) return refuse_without_parts(options);
  host::AnswerInput& answer = input.answer.emplace();
  PUMICE_TRY(const std::optional<OrderedJson> said,
             read_json_text(options.messages_json, "messages_json"));
  if (said) {
    Result<std::vector<ChatMessage>> messages = read_messages(*said);
    if (!messages.ok()) return wrong_json("messages_json", messages.error());
    if (!input.messages.empty()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "give messages or messages_json, only one of them");
    }
    input.messages = *std::move(messages);
  }
  PUMICE_TRY(const std::string_view tools_json, read_text(options.tools_json, "tools_json"));
  if (!tools_json.empty()) {
    Result<Tools> tools = Tools::parse(tools_json);
    if (!tools.ok()) return wrong_json("tools_json", tools.error());
    answer.tools = std::make_shared<const Tools>(*std::move(tools));
  }
  PUMICE_TRY(const std::string_view choice, read_text(options.tool_choice, "tool_choice"));
  const Status chosen = choose_tools(choice, answer.tools, input.wish);
  if (!chosen.ok()) return wrong_json("tool_choice", chosen.error());
  PUMICE_TRY(std::optional<OrderedJson> variables,
             read_json_text(options.template_variables_json, "template_variables_json"));
  if (!variables) return {};
  if (!variables->is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "template_variables_json must be a JSON object");
  }
  answer.variables = *std::move(variables);
  return {};
}

}  // namespace

Result<host::RequestInput> read_request_options(const pumice_request_options* given,
                                                bool has_session,
                                                std::span<const AdapterSource> adapters) {
  PUMICE_TRY(const pumice_request_options options, read_struct(given, "options"));
  host::RequestInput input;
  PUMICE_TRY(input.text, read_text(options.text, "text"));
  PUMICE_TRY(const std::span<const uint32_t> tokens,
             read_array(options.tokens, options.n_tokens, "tokens"));
  input.tokens.assign(tokens.begin(), tokens.end());
  PUMICE_TRY(const std::span<const pumice_message> messages,
             read_array(options.messages, options.n_messages, "messages"));
  for (const pumice_message& message : messages) {
    PUMICE_TRY(const std::string_view role, read_text(message.role, "a message's role"));
    PUMICE_TRY(const std::string_view content, read_text(message.content, "a message's content"));
    input.messages.push_back({std::string(role), std::string(content)});
  }
  PUMICE_TRY(input.special, read_bool(options.special, "special"));
  input.max_new_tokens = options.max_new_tokens;
  if (options.sampling != nullptr) {
    PUMICE_TRY(input.sampling, sampler_of(options.sampling));
  }
  PUMICE_TRY(const std::span<const pumice_string> stops,
             read_array(options.stops, options.n_stops, "stops"));
  for (const pumice_string& stop : stops) {
    PUMICE_TRY(const std::string_view text, read_text(stop, "a stop"));
    input.stops.emplace_back(text);
  }
  if (options.timeout_us != 0) input.timeout_s = static_cast<double>(options.timeout_us) * 1e-6;
  PUMICE_TRY(input.ignore_end, read_bool(options.ignore_end, "ignore_end"));
  PUMICE_TRY(const bool log_probs, read_bool(options.log_probs, "log_probs"));
  if (log_probs) input.log_probs = options.n_top_log_probs;
  input.shares_prompt_with = static_cast<host::RequestId>(options.shares_prompt_with);
  PUMICE_TRY(input.scores, read_bool(options.scores, "scores"));
  if (options.constraint != nullptr) {
    PUMICE_TRY_STATUS(check_handle(options.constraint, "constraint"));
    input.constraint = options.constraint->constraint;
    input.wish = options.constraint->wish;
  }
  PUMICE_TRY_STATUS(read_parts_options(options, input));
  if (!input.text.empty() + !input.tokens.empty() + !input.messages.empty() > 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      "give the prompt as text, tokens or messages, only one of them");
  }
  using enum host::Speculation::Guesses;
  PUMICE_TRY(input.speculation.guesses, enumerator_of(options.speculation, "speculation",
                                                      {kNone, kLookup, kAuto, kModel, kBlock}));
  if (options.alone != nullptr && has_session) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "alone is of a request without a session: this one has its session's options");
  }
  if (options.alone != nullptr) {
    PUMICE_TRY(input.alone, read_session_options(options.alone, adapters));
  }
  if (options.max_draft_tokens != 0) input.speculation.most_tokens = options.max_draft_tokens;
  return input;
}

}  // namespace pumice::api
