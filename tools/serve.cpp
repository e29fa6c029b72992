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
#include "tools/serve_models.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr double kMostSeconds = 1e9;

struct ServeOptions {
  ServedModelOptions models;
  serve::AppOptions app;
  std::string key_file;
  std::string metrics_compat;
  std::string log = "text";
  double queue_timeout_s = 0, request_timeout_s = 0;
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

void add_models(CLI::App& command, ServedModelOptions& options) {
  command
      .add_option("-m,--model", options.files,
                  "GGUF model file (may be given several times: requests name the model, the first "
                  "one is loaded at once, others when they are asked for)")
      ->envname("PUMICE_MODEL")
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("FILE");
  command
      .add_option("--models-dir", options.folder,
                  "Serve every model of this folder too, each loaded when it is asked for")
      ->envname("PUMICE_MODELS_DIR")
      ->type_name("DIR");
  add_number(command, "--models-max", options.most_models, 1u, 1024u,
             "Models that are loaded at once; the one used longest ago makes room, as it does when "
             "memory is short")
      ->envname("PUMICE_MODELS_MAX");
}

void add_answers(CLI::App& command, ServeOptions& options) {
  command
      .add_option("-a,--model-alias,--alias", options.models.aliases,
                  "Name to serve the model under (may be given several times; the first one is "
                  "listed; '*': any name is taken); of several models NAME=ID, where ID is as "
                  "the file is called, and NAME the first one's")
      ->envname("PUMICE_MODEL_ALIAS")
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("NAME");
  add_number(command, "--np,--parallel", options.models.parallel, 1u, 1024u,
             "Requests that run at once; others wait")
      ->envname("PUMICE_PARALLEL");
  add_number(command, "--aging", options.models.aging_s, 0, 3600,
             "Seconds after which a service class that is not served gets a turn (0: never)")
      ->envname("PUMICE_AGING");
  command
      .add_option("--reserve-decode", options.models.reserved,
                  "CLASS=N: so many tokens of a step are left to that service class (interactive, "
                  "normal, batch) while it has anything to do; may be given several times")
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("CLASS=N");
  command
      .add_flag("--yield-memory", options.models.yields_memory,
                "While the driver grants less device memory than this process uses, as when a "
                "game runs beside it, give memory back: the cache first, then requests wait")
      ->envname("PUMICE_YIELD_MEMORY");
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
          "--pooling", options.models.pooling,
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

Status serve_models(ServeOptions options) {
  ServedModelOptions& models = options.models;
  const Logger logger = stderr_logger(models.model.verbose);
  if (models.model.device.list) return print_devices(logger);
  models.has_kv_type = options.kv_flags[0]->count() + options.kv_flags[1]->count() > 0;
  PUMICE_TRY_STATUS(models.validate());
  serve::AppOptions app_options = std::move(options.app);
  if (!options.key_file.empty()) {
    PUMICE_TRY(const std::vector<std::string> keys, read_keys(options.key_file));
    app_options.api_keys.insert(app_options.api_keys.end(), keys.begin(), keys.end());
  }
  PUMICE_TRY(std::vector<ServedFile> files, find_served(models, logger));
  if (files.size() > 1 && !options.kv_events.endpoint.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--kv-events goes with one model, and this server has several");
  }
  if (options.queue_timeout_s > 0) app_options.service.queue_timeout_s = options.queue_timeout_s;
  if (options.request_timeout_s > 0) {
    app_options.service.request_timeout_s = options.request_timeout_s;
  }
  app_options.service.speculation = models.serving.speculation();
  app_options.most_models = models.most_models;
  app_options.kv_type = models.model.kv_type_k;
  app_options.vllm_metrics = !options.metrics_compat.empty();
  app_options.logger = logger;
  if (options.log != "none") app_options.log_request = options.log == "json" ? log_json : log_text;

  serve::AppModels served;
  for (const ServedFile& file : files) served.cards.push_back(file.card);
  const bool loads_now = !models.files.empty();
  const std::string stats = models.serving.stats;
  const auto opener =
      std::make_shared<ServedModelOpener>(std::move(models), std::move(files), logger);
  PUMICE_TRY_STATUS(opener->open_device());
  served.open = [opener](size_t model, bool alone) { return opener->open(model, alone); };
  served.keep = [stats](serve::RunningModel& model) {
    const serve::Service* const service = model.service();
    if (service == nullptr) return;
    print_stats(stats, service->host().engine());
    service->host().keep_for_next_run();
  };
  // Of a folder each when it is asked for.
  if (loads_now) {
    PUMICE_TRY(served.first, opener->open(0, true));
  }
  if (served.first && served.first->embedder != nullptr && !options.kv_events.endpoint.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--kv-events: a model that embeds keeps nothing in a cache");
  }
  if (!options.kv_events.endpoint.empty()) {
    options.kv_events.maps = options.kv_events_format == "map";
    PUMICE_TRY(app_options.kv_events, serve::KvPublisher::open(options.kv_events));
  } else if (!options.kv_events.replay_endpoint.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "--kv-events-replay goes with --kv-events");
  }
  raise_open_file_limit();
  PUMICE_TRY(const std::unique_ptr<serve::App> app,
             serve::App::create(std::move(app_options), std::move(served)));
  if (app->kv_events() != nullptr) {
    const serve::KvPublisher& events = *app->kv_events();
    print_message("KV events at {}{}{}\n", events.endpoint(),
                  events.replay_endpoint().empty() ? "" : ", again at ", events.replay_endpoint());
  }
  print_message("listening on {}\n", app->url());
  app->run();
  return {};
}

}  // namespace

Command add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve a model over HTTP, as OpenAI's API has it");
  ServedModelOptions& models = options->models;
  add_models(*command, models);
  models.model.add_rest_to(*command, "auto", "f16");
  command->remove_option(command->get_option("--profile"));
  models.model.remember_costs = true;
  models.model.add_batch_sizes(*command);
  options->kv_flags = {command->get_option("--cache-type-k"),
                       command->get_option("--cache-type-v")};
  models.adapters.add_to(*command, true);
  models.texts.add_template_to(*command);
  models.texts.add_format_to(*command);
  add_answers(*command, *options);
  add_network(*command, *options);
  models.generation.add_to(*command);
  models.serving.add_to(*command);
  for (const char* const name : {"--overflow", "--keep", "--ignore-eos", "--stop", "--json-schema",
                                 "--json-schema-file", "--grammar", "--grammar-file", "--regex"}) {
    command->remove_option(command->get_option(name));
  }
  command->footer(
      "Sampling flags are what requests use that do not say.\n"
      "Paths: /v1/chat/completions /v1/completions /v1/responses /v1/messages /v1/embeddings\n"
      "  /v1/rerank /v1/models /health /health/ready /metrics /props. Plain HTTP: a proxy adds "
      "TLS.\n"
      "Examples:\n"
      "  pumice serve -m model.gguf\n"
      "  pumice serve --models-dir models --models-max 2\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"stream\": true}'\n"
      "  PUMICE_API_KEY=secret pumice serve -m model.gguf --host 0.0.0.0 --port 80");
  return {command, [options] { return serve_models(*options); }};
}

}  // namespace pumice::tools
