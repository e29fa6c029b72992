#include "tools/serve/app.hpp"

#include <fmt/core.h>

#include <chrono>
#include <exception>
#include <utility>

#include "base/printable.hpp"
#include "tools/serve/wires/openai_common.hpp"
#include "tools/serve/wires/tokens.hpp"

namespace pumice::serve {
namespace {

constexpr double kIdleInterval_s = 0.02;
constexpr double kLastMoment_s = 0.3;
constexpr std::string_view kModels = "/v1/models/";

/// In a time that says nothing of where they differ.
bool is_same_secret(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < secret.size(); ++i) {
    const char c = i < given.size() ? given[i] : '\0';
    difference |= static_cast<unsigned>(static_cast<unsigned char>(c ^ secret[i]));
  }
  return difference == 0;
}

HttpResponse json_response(const Json& json, unsigned status = 200) {
  return {.status = status, .body = dumped(json)};
}

ApiError not_found(std::string_view path) {
  return {.status = 404,
          .type = "not_found_error",
          .message = fmt::format("there is nothing at {}", printable(path, 100))};
}

/// What an exception of the library says; memory may be used up for a moment.
ApiError of_exception(const std::exception& exception) {
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) {
    return {.status = 503,
            .type = "unavailable_error",
            .message = "this server is out of memory for now",
            .retry_after_s = 5};
  }
  return {.status = 500, .type = "server_error", .message = exception.what()};
}

}  // namespace

App::App(AppOptions options) : options_(std::move(options)), warnings_(options_.logger) {
  add_routes();
}

Result<std::unique_ptr<App>> App::create(AppOptions options, OpenedParts parts) {
  std::unique_ptr<App> app(new App(std::move(options)));
  App* const raw = app.get();
  HttpServer::Handlers handlers{
      .check = [raw](const HttpRequest& request) { return raw->check(request); },
      .handle = [raw](std::shared_ptr<Exchange> exchange) { raw->handle(exchange); },
      .refuse =
          [](unsigned status, std::string_view message) {
            const ApiError error{.status = status, .message = std::string(message)};
            return error_response(error, openai_error(error, ""));
          },
      .signalled = [raw](int count) { raw->signalled(count); }};
  PUMICE_TRY(app->http_,
             HttpServer::listen(app->options_.host, app->options_.port, app->options_.limits,
                                std::move(handlers), app->options_.logger));
  ServiceOptions service = app->options_.service;
  if (app->options_.kv_events != nullptr) {
    const std::string& url = app->url();
    const std::string& ip =
        app->options_.pod_ip.empty() ? app->options_.host : app->options_.pod_ip;
    app->options_.kv_events->set_topic(
        fmt::format("kv@{}:{}@{}", ip, url.substr(url.rfind(':') + 1), parts.model.id));
    service.after_poll = [events = std::make_shared<KvEvents>(app->options_.kv_events)](
                             const KvCache& cache) { events->look(cache); };
  }
  app->running_ = std::make_unique<RunningModel>(
      std::move(parts), service,
      [raw](std::function<void()> task) { raw->http_->post(std::move(task)); },
      app->options_.logger);
  const RunningModel& running = *app->running_;
  app->wires_.emplace(WireContext{.model = running.served(),
                                  .always_usage = app->options_.always_usage,
                                  .both_reasonings = app->options_.both_reasonings,
                                  .warnings = &app->warnings_});
  app->answers_ = {running.service(), running.served().tokenizer, &app->metrics_,
                   [raw](const RequestSummary& summary) { raw->conclude(summary); }};
  return app;
}

void App::run() {
  running_->start();
  http_->run();
  running_->stop();
}

// ---- who answers what

void App::add_at_once(std::string path, std::function<HttpResponse(const HttpRequest&)> answer,
                      bool is_open) {
  routes_[std::move(path)] = {
      .at_once = std::move(answer), .write_error = openai_error, .is_open = is_open};
}

void App::add_apart(std::string path, Route::Apart answer, ErrorWriter write_error) {
  routes_[std::move(path)] = {.apart = answer, .write_error = write_error, .is_post = true};
}

void App::add_wire(std::string path, Wire wire, ErrorWriter write_error) {
  routes_[std::move(path)] = {.wire = wire, .write_error = write_error, .is_post = true};
}

void App::add_routes() {
  add_at_once(
      "/health", [this](const HttpRequest&) { return health(); }, true);
  add_at_once(
      "/health/ready", [this](const HttpRequest&) { return readiness(); }, true);
  add_at_once(
      "/metrics", [this](const HttpRequest&) { return metrics(); }, true);
  add_at_once("/props", [this](const HttpRequest&) { return props(); });
  for (const char* const prefix : {"/v1", ""}) {
    add_at_once(fmt::format("{}/models", prefix), [this](const HttpRequest&) { return models(); });
    add_wire(fmt::format("{}/chat/completions", prefix), read_chat, openai_error);
    add_wire(fmt::format("{}/completions", prefix), read_completion, openai_error);
    add_wire(fmt::format("{}/responses", prefix), read_response, openai_error);
  }
  add_wire("/v1/messages", read_messages, anthropic_error);
  for (const char* const prefix : {"/v1", ""}) {
    routes_[fmt::format("{}/embeddings", prefix)] = {
        .embeds = true, .write_error = openai_error, .is_post = true};
    add_apart(fmt::format("{}/rerank", prefix), rank_texts);
    add_apart(fmt::format("{}/score", prefix), rank_texts);
  }
  add_apart("/tokenize", tokenize);
  add_apart("/detokenize", detokenize_tokens);
  add_apart("/apply-template", apply_template);
  add_apart("/v1/completions/render", render_completion);
  add_apart("/v1/chat/completions/render", render_chat);
  add_apart("/v1/messages/count_tokens", count_message_tokens, anthropic_error);
  add_apart("/v1/responses/input_tokens", count_response_tokens);
  add_at_once(std::string(kModels),
              [this](const HttpRequest& request) { return model_of(request); });
}

const App::Route* App::find_route(const HttpRequest& request) const {
  const std::string_view path = request.path;
  // A model's name may have slashes.
  const bool is_model = path.starts_with(kModels) && path.size() > kModels.size();
  const auto it = routes_.find(is_model ? kModels : path);
  return it == routes_.end() || (path == kModels) ? nullptr : &it->second;
}

// ---- who may ask

bool App::has_key(const HttpRequest& request) const {
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view given = request.header("authorization");
  given = given.starts_with(kBearer) ? given.substr(kBearer.size()) : request.header("x-api-key");
  bool found = false;
  for (const std::string& key : options_.api_keys) found |= is_same_secret(given, key);
  return found;
}

std::optional<ApiError> App::why_not(const HttpRequest& request) const {
  // Browsers say when another site's page asks; this server is not for those.
  const std::string_view site = request.header("sec-fetch-site");
  if (site == "cross-site" || site == "same-site") {
    return ApiError{.status = 403,
                    .type = "permission_error",
                    .message = "this server does not answer pages of other sites"};
  }
  const Route* const route = find_route(request);
  const bool is_open = route != nullptr && route->is_open;
  if (!is_open && !options_.api_keys.empty() && !has_key(request)) {
    return ApiError{.status = 401,
                    .type = "authentication_error",
                    .message = "this server needs an API key: Authorization: Bearer KEY",
                    .code = "invalid_api_key"};
  }
  if (route == nullptr) return not_found(request.path);
  const bool is_right = route->is_post ? request.method == "POST"
                                       : request.method == "GET" || request.method == "HEAD";
  if (!is_right) {
    return ApiError{.status = 405,
                    .message = fmt::format("{} needs {}", printable(request.path, 100),
                                           route->is_post ? "POST" : "GET")};
  }
  if (refuses_ && route->is_post) return draining();
  return std::nullopt;
}

std::optional<HttpResponse> App::check(const HttpRequest& request) const {
  const std::optional<ApiError> error = why_not(request);
  if (!error) return std::nullopt;
  const Route* const route = find_route(request);
  const ErrorWriter write = route != nullptr ? route->write_error : openai_error;
  HttpResponse response = error_response(*error, write(*error, request.id));
  if (error->status == 405) response.headers.emplace_back("Allow", route->is_post ? "POST" : "GET");
  return response;
}

// ---- answers

void App::handle(const std::shared_ptr<Exchange>& exchange) {
  const Route& route = *find_route(exchange->request());
  if (route.at_once) return exchange->respond(route.at_once(exchange->request()));
  if (route.wire != nullptr) return generate(exchange, route);
  if (route.embeds) return embed(exchange, route);
  answer_apart(exchange, route);
}

void App::conclude(const RequestSummary& summary) {
  metrics_.add(summary);
  if (options_.log_request) options_.log_request(summary);
}

/// A request that never ran.
void App::refuse(const std::shared_ptr<Exchange>& exchange, const Route& route,
                 const ApiError& error) {
  exchange->respond(error_response(error, route.write_error(error, exchange->request().id)));
  conclude({.id = exchange->request().id,
            .path = exchange->request().path,
            .status = error.status,
            .finish = "error"});
}

/// Templates and tokenizers take their time with long prompts, so they run on a worker.
void App::generate(const std::shared_ptr<Exchange>& exchange, const Route& route) {
  http_->work([this, exchange, &route] {
    auto parsed = std::make_shared<ParsedRequest>(ApiError{});
    try {
      const auto body = read_body(exchange->request().body);
      const auto* const error = std::get_if<ApiError>(&body);
      *parsed =
          error != nullptr ? ParsedRequest(*error) : route.wire(std::get<Json>(body), *wires_);
    } catch (const std::exception& exception) {
      *parsed = of_exception(exception);
    }
    http_->post([this, exchange, &route, parsed] {
      if (WireRequest* const request = std::get_if<WireRequest>(parsed.get())) {
        return Answering::begin(answers_, exchange, std::move(*request), route.write_error);
      }
      refuse(exchange, route, std::get<ApiError>(*parsed));
    });
  });
}

void App::embed(const std::shared_ptr<Exchange>& exchange, const Route& route) {
  http_->work([this, exchange, &route] {
    auto parsed = std::make_shared<std::variant<EmbeddingInput, ApiError>>(ApiError{});
    try {
      const auto body = read_body(exchange->request().body);
      const auto* const error = std::get_if<ApiError>(&body);
      if (error == nullptr) *parsed = read_embeddings(std::get<Json>(body), *wires_);
      if (error != nullptr) *parsed = *error;
    } catch (const std::exception& exception) {
      *parsed = of_exception(exception);
    }
    http_->post([this, exchange, &route, parsed] {
      if (auto* const input = std::get_if<EmbeddingInput>(parsed.get())) {
        return begin_embedding(exchange, route, std::move(*input));
      }
      refuse(exchange, route, std::get<ApiError>(*parsed));
    });
  });
}

void App::begin_embedding(const std::shared_ptr<Exchange>& exchange, const Route& route,
                          EmbeddingInput input) {
  if (exchange->has_left()) return;
  EmbeddingService& service = *running_->embeddings();
  const auto began = std::chrono::steady_clock::now();
  auto summary = std::make_shared<RequestSummary>(
      RequestSummary{.id = exchange->request().id,
                     .path = exchange->request().path,
                     .prompt_tokens = input.n_tokens(),
                     .n_choices = static_cast<uint32_t>(input.texts.size())});
  const auto end = [this, summary, began](unsigned status, std::string finish) {
    summary->status = status;
    summary->finish = std::move(finish);
    const std::chrono::duration<double> total = std::chrono::steady_clock::now() - began;
    summary->total_s = total.count();
    conclude(*summary);
  };
  std::vector<std::vector<TokenId>> texts = input.texts;
  auto kept = std::make_shared<const EmbeddingInput>(std::move(input));
  const auto done = [this, exchange, &route, kept, end](Result<EmbeddingService::Vectors> vectors) {
    if (exchange->has_left()) return;
    exchange->on_left({});
    if (!vectors.ok()) {
      const bool ends = vectors.error().code == ErrorCode::kCancelled;
      const ApiError error = ends ? draining() : api_error_of(vectors.error());
      exchange->respond(error_response(error, route.write_error(error, exchange->request().id)));
      return end(error.status, "error");
    }
    metrics_.add_embedded(kept->texts.size(), kept->n_tokens());
    auto all = std::make_shared<EmbeddingService::Vectors>(std::move(vectors).value());
    // Numbers as text take their time.
    http_->work([this, exchange, kept, all, end] {
      auto body = std::make_shared<std::string>(
          embeddings_answer(*kept, std::move(*all), running_->served()));
      http_->post([exchange, body, end] {
        exchange->respond({.body = std::move(*body)});
        end(200, "stop");
      });
    });
  };
  const auto submitted = service.submit(std::move(texts), done);
  if (const auto* const error = std::get_if<ApiError>(&submitted)) {
    return refuse(exchange, route, *error);
  }
  exchange->on_left([&service, end, id = std::get<uint64_t>(submitted)] {
    service.cancel(id);
    end(499, "abort");
  });
}

void App::answer_apart(const std::shared_ptr<Exchange>& exchange, const Route& route) {
  http_->work([this, exchange, &route] {
    JsonOrError answer;
    try {
      const auto body = read_body(exchange->request().body);
      const auto* const error = std::get_if<ApiError>(&body);
      answer = error != nullptr ? JsonOrError(*error) : route.apart(std::get<Json>(body), *wires_);
    } catch (const std::exception& exception) {
      answer = of_exception(exception);
    }
    const auto* const error = std::get_if<ApiError>(&answer);
    auto response = std::make_shared<HttpResponse>(
        error != nullptr ? error_response(*error, route.write_error(*error, exchange->request().id))
                         : json_response(std::get<Json>(answer)));
    http_->post([exchange, response] { exchange->respond(std::move(*response)); });
  });
}

HttpResponse App::health() const { return json_response({{"status", "ok"}}); }

HttpResponse App::readiness() const {
  if (!is_draining_ && running_->works()) return json_response({{"status", "ok"}});
  const ApiError error{.status = 503,
                       .type = "unavailable_error",
                       .message = is_draining_ ? "shutting down" : "the device is lost"};
  Json json = openai_error_json(error);
  json["error"]["code"] = 503;
  return json_response(json, 503);
}

HttpResponse App::models() const {
  const ServedModel& model = running_->served();
  return json_response({{"object", "list"},
                        {"data", Json::array({{{"id", model.id},
                                               {"object", "model"},
                                               {"created", model.created},
                                               {"owned_by", "pumice"},
                                               {"root", model.id},
                                               {"parent", nullptr},
                                               {"max_model_len", model.window_tokens}}})}});
}

HttpResponse App::model_of(const HttpRequest& request) const {
  const ServedModel& model = running_->served();
  const std::string_view name = std::string_view(request.path).substr(kModels.size());
  if (model.is_called(name)) {
    return json_response({{"id", name},
                          {"object", "model"},
                          {"created", model.created},
                          {"owned_by", "pumice"},
                          {"root", model.id},
                          {"parent", nullptr},
                          {"max_model_len", model.window_tokens}});
  }
  const ApiError error{
      .status = 404,
      .type = "not_found_error",
      .message = fmt::format("the model '{}' does not exist here", printable(name, 100)),
      .code = "model_not_found"};
  return error_response(error, openai_error(error, request.id));
}

HttpResponse App::metrics() const {
  const ServedModel& model = running_->served();
  const Service* const service = running_->service();
  const PrefixStore* const prefix_store =
      service != nullptr ? service->host().engine().prefix_store() : nullptr;
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics_.text({.model = model.id,
                                 .window_tokens = model.window_tokens,
                                 .kv_type = options_.kv_type,
                                 .vllm_names = options_.vllm_metrics,
                                 .prefix_store = prefix_store},
                                running_->stats())};
}

HttpResponse App::props() const {
  const ServedModel& model = running_->served();
  const Service* const service = running_->service();
  const uint32_t n_slots = service != nullptr ? service->host().engine().options().n_sequences : 1;
  return json_response({{"model_alias", model.id},
                        {"architecture", model.architecture},
                        {"n_ctx", model.window_tokens},
                        {"n_ctx_train", model.trained_tokens},
                        {"default_generation_settings",
                         {{"n_ctx", model.window_tokens},
                          {"params",
                           {{"temperature", model.sampling.temperature},
                            {"top_k", model.sampling.top_k},
                            {"top_p", model.sampling.top_p},
                            {"min_p", model.sampling.min_p}}}}},
                        {"has_chat_template", model.has_template},
                        {"total_slots", n_slots}});
}

// ---- the end

void App::signalled(int count) {
  if (count > 1) {
    running_->cancel_all();
    return http_->after(kLastMoment_s, [this] { http_->stop(); });
  }
  is_draining_ = true;
  options_.logger.warning("shutting down: {} under way", running_->n_open());
  http_->after(options_.drain_delay_s, [this] {
    refuses_ = true;
    stop_when_idle();
  });
}

void App::stop_when_idle() {
  if (running_->n_open() == 0 && http_->n_exchanges() == 0) return http_->stop();
  http_->after(kIdleInterval_s, [this] { stop_when_idle(); });
}

}  // namespace pumice::serve
