// pumice serve: OpenAI's and other protocols over HTTP.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/folders.hpp"
#include "base/path.hpp"
#include "base/process.hpp"
#include "models/embedding.hpp"
#include "tools/command.hpp"
#include "tools/flag_values.hpp"
#include "tools/flags.hpp"
#include "tools/model_options.hpp"
#include "tools/sampling_options.hpp"
#include "tools/serve/app.hpp"
#include "tools/serving_options.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr double kMostSeconds = 1e9;

struct ServeOptions {
  ModelOptions model;
  SamplingOptions generation;
  ServingOptions serving;
  serve::AppOptions app;
  std::string key_file;
  std::vector<std::string> aliases;
  std::string metrics_compat;
  std::string log = "text";
  uint32_t parallel = 16;
  double queue_timeout_s = 0, request_timeout_s = 0;
  double aging_s = EngineOptions().aging_s;
  std::vector<std::string> reserved;  // "CLASS=N"
  std::string pooling;
  std::array<CLI::Option*, 2> kv_flags = {};
  serve::KvPublisherOptions kv_events;
  std::string kv_events_format = "array";
};

/// Empty: it is one as browsers name them, which have no path, not even "/".
std::string wrong_origin(const std::string& origin) {
  const size_t mark = origin.find("://");
  const bool is_origin = mark != std::string::npos && mark > 0 && mark + 3 < origin.size() &&
                         origin.find_first_of("/?#, ", mark + 3) == std::string::npos;
  if (is_origin || origin == "*") return {};
  return fmt::format("must be * or an origin without a path, as in https://app.example, not {}",
                     origin);
}

void add_network(CLI::App& command, ServeOptions& options) {
  command.option_defaults()->group("Network");
  serve::AppOptions& app = options.app;
  command
      .add_option("--host", app.host,
                  "Address to listen on; 0.0.0.0 lets other machines in (then use --api-key)")
      ->envname("PUMICE_HOST")
      ->capture_default_str();
  command.add_option("--port", app.port, "Port to listen on (0: a free one, which is printed)")
      ->envname("PUMICE_PORT")
      ->capture_default_str();
  command
      .add_option(
          "--api-key", app.api_keys,
          "Key that clients must send (may be given several times); better in the variable, "
          "which others on the machine cannot see")
      ->envname("PUMICE_API_KEY")
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("KEY");
  command.add_option("--api-key-file", options.key_file, "File with keys, one a line")
      ->envname("PUMICE_API_KEY_FILE");
  add_number(command, "--drain-delay", app.drain_delay_s, 0, 3600,
             "Seconds after SIGTERM until new requests are refused; /health/ready says no at once, "
             "and what runs always ends")
      ->envname("PUMICE_DRAIN_DELAY");
  add_number(command, "--max-queue", app.service.most_open, 1u, 1u << 20,
             "Requests that may run or wait at once; further ones get status 429")
      ->envname("PUMICE_MAX_QUEUE");
  add_number(command, "--max-connections", app.limits.connections, size_t{1}, size_t{1} << 20,
             "Connections at once; further ones wait to be accepted");
  add_number(command, "--sse-ping-interval", app.limits.ping_s, 0, 3600,
             "Seconds of silence in a stream until a comment keeps it alive (0: never)");
  add_number(command, "--send-timeout", app.limits.send_s, 0.01, 3600,
             "Seconds that a client may take to read what was sent until it is cut off");
  add_number(command, "--queue-timeout", options.queue_timeout_s, 0, kMostSeconds,
             "Seconds that a request may wait until it begins; then it gets status 503 (0: as long "
             "as its client does)")
      ->envname("PUMICE_QUEUE_TIMEOUT");
  add_number(command, "--request-timeout", options.request_timeout_s, 0, kMostSeconds,
             "Seconds that a request may take in all; then it gets status 408 (0: no limit). Its "
             "own timeout_s may be shorter")
      ->envname("PUMICE_REQUEST_TIMEOUT");
  command
      .add_option("--cors-origin", app.cors_origins,
                  "Origin whose pages browsers let ask this server, as in https://app.example (may "
                  "be given several times; '*': any; default: none)")
      ->envname("PUMICE_CORS_ORIGIN")
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("ORIGIN")
      ->check(wrong_origin);
  command.add_flag("--ollama", app.ollama,
                   "Answer what clients of Ollama ask first: /api/version, /api/tags, /api/show");
  command.option_defaults()->group("Endpoints");
  for (const serve::EndpointFlag& flag : serve::endpoint_flags()) {
    command.add_flag_callback(
        std::string(flag.name), [&app, name = flag.name] { app.left_out.emplace_back(name); },
        fmt::format("Leave out {}", fmt::join(flag.paths, " ")));
  }
  command.option_defaults()->group("Fleet");
  command
      .add_option("--kv-events", options.kv_events.endpoint,
                  "ZeroMQ address to publish what is cached at, for routers: tcp://*:5557")
      ->envname("PUMICE_KV_EVENTS");
  command
      .add_option("--kv-events-replay", options.kv_events.replay_endpoint,
                  "Address at which the last batches of --kv-events are sent again")
      ->envname("PUMICE_KV_EVENTS_REPLAY");
  add_choice(command, "--kv-events-format", options.kv_events_format, {"array", "map"},
             "How events are written: as arrays, or as maps with \"type\"");
  command
      .add_option("--pod-ip", app.pod_ip,
                  "Address under which routers know this server, in the topic of --kv-events "
                  "(that of --host)")
      ->envname("POD_IP");
  command.option_defaults()->group(kDefaultGroup);
}

void add_answers(CLI::App& command, ServeOptions& options) {
  command
      .add_option("-a,--model-alias,--alias", options.aliases,
                  "Name to serve the model under (may be given several times; the first one is "
                  "listed; '*': any name is taken)")
      ->envname("PUMICE_MODEL_ALIAS")
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("NAME");
  add_number(command, "--np,--parallel", options.parallel, 1u, 1024u,
             "Requests that run at once; others wait")
      ->envname("PUMICE_PARALLEL");
  add_number(command, "--aging", options.aging_s, 0, 3600,
             "Seconds after which a service class that is not served gets a turn (0: never)")
      ->envname("PUMICE_AGING");
  command
      .add_option("--reserve-decode", options.reserved,
                  "CLASS=N: so many tokens of a step are left to that service class (interactive, "
                  "normal, batch) while it has anything to do; may be given several times")
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("CLASS=N");
  command.add_flag("--always-usage", options.app.always_usage,
                   "Streams end with their usage even where stream_options does not ask for it");
  command.add_flag(
      "--reasoning-twice", options.app.both_reasonings,
      "Reasoning as \"reasoning\" beside \"reasoning_content\", for clients of either");
  command
      .add_option("--metrics-compat", options.metrics_compat,
                  "Metrics also by the names of another server: vllm")
      ->envname("PUMICE_METRICS_COMPAT")
      ->check(CLI::IsMember({"vllm"}));
  command
      .add_option(
          "--pooling", options.pooling,
          "Give vectors of texts (/v1/embeddings) instead of text, and how those of a text's "
          "tokens become one: mean, cls (the first) or last; models made for it do so by "
          "themselves, as their file says")
      ->envname("PUMICE_POOLING")
      ->check(CLI::IsMember({"mean", "cls", "last"}));
  add_choice(command, "--log", options.log, {"text", "json", "none"},
             "A line on stderr for each request that is over");
}

Result<std::vector<std::string>> read_keys(const std::string& file) {
  PUMICE_TRY(const std::string text, read_text_file(from_utf8(file)));
  std::vector<std::string> keys;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) keys.push_back(std::move(line));
    at = end + 1;
  }
  if (!keys.empty()) return keys;
  return make_error(ErrorCode::kInvalidArgument, "--api-key-file {}: the file has no key", file);
}

void log_text(const serve::RequestSummary& request) {
  print_message("{} {} {}{}: prompt {} ({} cached), generated {}, TTFT {:.0f} ms, {:.0f} ms{}{}\n",
                request.id, request.path, request.status, request.stream ? " stream" : "",
                request.prompt_tokens, request.cached_tokens, request.generated_tokens,
                1e3 * request.ttft_s, 1e3 * request.total_s, request.finish.empty() ? "" : ", ",
                request.finish);
}

void log_json(const serve::RequestSummary& request) {
  const double now_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const nlohmann::ordered_json line = {{"time", now_s},
                                       {"request_id", request.id},
                                       {"path", request.path},
                                       {"status", request.status},
                                       {"stream", request.stream},
                                       {"finish_reason", request.finish},
                                       {"choices", request.n_choices},
                                       {"prompt_tokens", request.prompt_tokens},
                                       {"cached_tokens", request.cached_tokens},
                                       {"generated_tokens", request.generated_tokens},
                                       {"preemptions", request.preemptions},
                                       {"queue_s", request.queue_s},
                                       {"prefill_s", request.prefill_s},
                                       {"decode_s", request.decode_s},
                                       {"ttft_s", request.ttft_s},
                                       {"total_s", request.total_s}};
  print_message("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// As clients call it, without a better name: the file's.
std::string name_of(const std::filesystem::path& file) { return to_utf8(file.stem()); }

/// Of a text without -c, where the model was trained for more.
constexpr uint32_t kLongestEmbedded = 8192;

/// Null: the model writes text.
Result<std::shared_ptr<const ModelPlan>> embedding_plan(const GgufFile& file,
                                                        const std::string& pooling) {
  std::optional<Pooling> wanted;
  if (!pooling.empty()) {
    PUMICE_TRY(wanted, parse_pooling(pooling));
  }
  Result<Program> program = build_embedding_program(file, wanted);
  // What is wrong with the file the other way says too.
  if (!program.ok() && !wanted) return std::shared_ptr<const ModelPlan>();
  if (!program.ok()) return program.error();
  if (*program->pooling == Pooling::kNone) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the file does not say how a text's vectors become one: give --pooling mean, "
                      "cls or last, as the model was trained");
  }
  return ModelPlan::of_program(file, std::move(program).value());
}

Result<std::unique_ptr<host::LastingEmbedder>> open_embedder_of(
    const ServeOptions& options, const GgufFile& file, const host::ModelTexts& texts,
    std::shared_ptr<const ModelPlan> plan, const Logger& logger) {
  // As pumice embed does, unless told otherwise.
  const KvTypes kv_type = options.kv_flags[0]->count() + options.kv_flags[1]->count() > 0
                              ? options.model.kv_type()
                              : KvTypes(KvType::kF32);
  return open_embedder(options.model, file, texts, logger, std::move(plan),
                       {.kv_type = kv_type,
                        .math = options.model.math_kind(),
                        .step_tokens = options.model.token_budget,
                        .invariant = options.serving.invariant},
                       kLongestEmbedded);
}

Status read_reserved(const std::vector<std::string>& given, EngineOptions& engine) {
  for (const std::string& one : given) {
    const size_t sign = one.find('=');
    bool is_known = false;
    for (size_t i = 0; i < kServiceClasses && sign != std::string::npos; ++i) {
      if (service_class_name(static_cast<ServiceClass>(i)) != one.substr(0, sign)) continue;
      PUMICE_TRY(const std::vector<uint32_t> numbers,
                 parse_numbers("--reserve-decode", one.substr(sign + 1)));
      is_known = numbers.size() == 1;
      if (is_known) engine.reserved_decode_tokens.at(i) = numbers[0];
    }
    if (is_known) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "--reserve-decode {}: must be interactive=N, normal=N or batch=N", one);
  }
  return {};
}

Result<std::unique_ptr<host::Host>> open_writer(const ServeOptions& options, const GgufFile& file,
                                                const host::ModelTexts& texts,
                                                const Logger& logger) {
  EngineOptions engine{.kv_type = options.model.kv_type(),
                       .math = options.model.math_kind(),
                       .n_sequences = options.parallel,
                       .token_budget = options.model.token_budget,
                       .chunk_tokens = options.model.chunk_tokens,
                       .aging_s = options.aging_s};
  PUMICE_TRY_STATUS(read_reserved(options.reserved, engine));
  options.serving.apply_to(engine);
  // A prompt or an answer that loses its beginning unseen is nothing for clients.
  engine.overflow = OverflowPolicy::kStop;
  return open_host(options.model, file, texts, logger,
                   {.engine = engine,
                    .prompts = Prompts::kSeveral,
                    .draft_model = options.serving.draft_model,
                    .predicts = options.serving.predicts()});
}

Result<serve::OpenedParts> open_model_of(ServeOptions& options, const Logger& logger) {
  const std::filesystem::path path = from_utf8(options.model.model);
  PUMICE_TRY(const GgufFile file, GgufFile::open(path));
  PUMICE_TRY(const host::ModelTexts texts, host::ModelTexts::read(file));
  serve::OpenedParts parts{.model = serve::ServedModel::read(file, texts)};
  serve::ServedModel& model = parts.model;
  model.names = options.aliases;
  model.id = name_of(path);
  for (const std::string& alias : options.aliases) {
    if (alias == "*") continue;
    model.id = alias;
    break;
  }
  PUMICE_TRY(const std::shared_ptr<const ModelPlan> plan, embedding_plan(file, options.pooling));
  if (plan != nullptr) {
    PUMICE_TRY(parts.embedder, open_embedder_of(options, file, texts, plan, logger));
    model.window_tokens = parts.embedder->text_tokens();
    model.trained_tokens = plan->program().context_length;
    model.vector_width = parts.embedder->width();
    return parts;
  }
  PUMICE_TRY_STATUS(options.generation.complete(texts));
  PUMICE_TRY(parts.host, open_writer(options, file, texts, logger));
  model.window_tokens = parts.host->window_tokens();
  model.trained_tokens = parts.host->model().opened().model->program.context_length;
  model.sampling = options.generation.sampler;
  model.draws_seeds = !options.generation.has_seed();
  return parts;
}

Status serve_model(ServeOptions options) {
  const Logger logger = stderr_logger(options.model.verbose);
  if (options.model.device.list) return print_devices(logger);
  PUMICE_TRY_STATUS(options.model.validate());
  PUMICE_TRY_STATUS(options.serving.validate());
  PUMICE_TRY_STATUS(options.generation.validate());
  serve::AppOptions app_options = std::move(options.app);
  if (!options.key_file.empty()) {
    PUMICE_TRY(const std::vector<std::string> keys, read_keys(options.key_file));
    app_options.api_keys.insert(app_options.api_keys.end(), keys.begin(), keys.end());
  }
  PUMICE_TRY_STATUS(options.model.resolve());
  PUMICE_TRY(serve::OpenedParts parts, open_model_of(options, logger));
  if (parts.embedder != nullptr && !options.kv_events.endpoint.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--kv-events: a model that embeds keeps nothing in a cache");
  }

  if (options.queue_timeout_s > 0) app_options.service.queue_timeout_s = options.queue_timeout_s;
  if (options.request_timeout_s > 0) {
    app_options.service.request_timeout_s = options.request_timeout_s;
  }
  app_options.service.speculation = options.serving.speculation();
  app_options.kv_type = options.model.kv_type_k;
  app_options.vllm_metrics = !options.metrics_compat.empty();
  app_options.logger = logger;
  if (options.log != "none") app_options.log_request = options.log == "json" ? log_json : log_text;
  if (!options.kv_events.endpoint.empty()) {
    options.kv_events.maps = options.kv_events_format == "map";
    PUMICE_TRY(app_options.kv_events, serve::KvPublisher::open(options.kv_events));
  } else if (!options.kv_events.replay_endpoint.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "--kv-events-replay goes with --kv-events");
  }
  raise_open_file_limit();
  PUMICE_TRY(const std::unique_ptr<serve::App> app,
             serve::App::create(std::move(app_options), std::move(parts)));
  if (app->kv_events() != nullptr) {
    const serve::KvPublisher& events = *app->kv_events();
    print_message("KV events at {}{}{}\n", events.endpoint(),
                  events.replay_endpoint().empty() ? "" : ", again at ", events.replay_endpoint());
  }
  print_message("listening on {}\n", app->url());
  app->run();
  if (const serve::Service* const service = app->model().service()) {
    print_stats(options.serving.stats, service->host().engine());
    service->host().keep_for_next_run();
  }
  return {};
}

}  // namespace

Command add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve a model over HTTP, as OpenAI's API has it");
  options->model.add_to(*command, "auto", "f16");
  command->remove_option(command->get_option("--profile"));
  options->model.remember_costs = true;
  options->model.add_batch_sizes(*command);
  options->kv_flags = {command->get_option("--cache-type-k"),
                       command->get_option("--cache-type-v")};
  add_answers(*command, *options);
  add_network(*command, *options);
  options->generation.add_to(*command);
  options->serving.add_to(*command);
  for (const char* const name : {"--overflow", "--keep", "--ignore-eos", "--stop", "--json-schema",
                                 "--json-schema-file", "--grammar", "--grammar-file", "--regex"}) {
    command->remove_option(command->get_option(name));
  }
  command->footer(
      "Sampling flags are what requests use that do not say.\n"
      "Paths: /v1/chat/completions /v1/completions /v1/responses /v1/messages /v1/embeddings\n"
      "  /v1/models /health /health/ready /metrics /props. Plain HTTP: a proxy adds TLS.\n"
      "Examples:\n"
      "  pumice serve -m model.gguf\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"stream\": true}'\n"
      "  PUMICE_API_KEY=secret pumice serve -m model.gguf --host 0.0.0.0 --port 80");
  return {command, [options] { return serve_model(*options); }};
}

}  // namespace pumice::tools
