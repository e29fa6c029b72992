#include "tools/serve/app.hpp"

#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <exception>
#include <utility>

#include "tools/serve/wires/ollama.hpp"
#include "tools/serve/wires/openai_common.hpp"
#include "tools/serve/wires/tokens.hpp"

namespace pumice::serve {
namespace {

constexpr double kIdleInterval_s = 0.02;
constexpr double kLastMoment_s = 0.3;

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

ApiError waited_too_long() {
  return {.status = 503,
          .type = "unavailable_error",
          .message =
              "the model is not loaded yet, and this request waited as long as it may "
              "(--queue-timeout); send it again later",
          .code = "queue_timeout",
          .retry_after_s = 5};
}

/// What clients call the model that they want; Ollama's say "name".
std::string model_named(const Json& body) {
  for (const char* const field : {"model", "name"}) {
    if (body.is_object() && body.contains(field) && body[field].is_string()) {
      return body[field].get<std::string>();
    }
  }
  return {};
}

}  // namespace

App::App(AppOptions options)
    : options_(std::move(options)),
      cross_origin_(options_.cors_origins),
      warnings_(options_.logger) {
  add_routes();
}

Result<std::unique_ptr<App>> App::create(AppOptions options, AppModels models) {
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
      .headers = [raw](const HttpRequest& request) { return raw->cross_origin_.headers(request); },
      .signalled = [raw](int count) { raw->signalled(count); }};
  PUMICE_TRY(app->http_,
             HttpServer::listen(app->options_.host, app->options_.port, app->options_.limits,
                                std::move(handlers), app->options_.logger));
  app->service_ = app->options_.service;
  if (app->options_.kv_events != nullptr) {
    const std::string& url = app->url();
    const std::string& ip =
        app->options_.pod_ip.empty() ? app->options_.host : app->options_.pod_ip;
    app->options_.kv_events->set_topic(
        fmt::format("kv@{}:{}@{}", ip, url.substr(url.rfind(':') + 1), models.cards.front().id));
  }
  app->keep_ = std::move(models.keep);
  app->models_ = std::make_unique<ModelPool>(
      std::move(models.cards),
      PoolOptions{.most_loaded = app->options_.most_models,
                  .most_waiting = app->options_.service.most_open},
      ModelPool::Calls{
          .open = std::move(models.open),
          .run = [raw](size_t model,
                       OpenedParts parts) { return raw->run_model(model, std::move(parts)); },
          .keep = app->keep_,
          .post = [raw](std::function<void()> task) { raw->http_->post(std::move(task)); }},
      app->options_.logger);
  if (models.first) app->models_->add(0, *std::exchange(models.first, std::nullopt));
  return app;
}

std::unique_ptr<RunningModel> App::run_model(size_t model, OpenedParts parts) {
  Metrics& metrics = models_->metrics(model);
  ServiceOptions service = service_;
  if (options_.kv_events != nullptr && parts.host != nullptr) {
    std::vector<KvAdapter> adapters;
    for (const ServedModel& adapter : parts.adapters) {
      adapters.push_back({adapter.id, parts.host->engine().fingerprint_of(adapter.adapter)});
    }
    service.after_poll = [events =
                              std::make_shared<KvEvents>(options_.kv_events, std::move(adapters))](
                             const KvCache& cache) { events->look(cache); };
  }
  return std::make_unique<RunningModel>(
      std::move(parts), service,
      [this](std::function<void()> task) { http_->post(std::move(task)); }, options_.logger,
      metrics, [this, &metrics](const RequestSummary& summary) { conclude(metrics, summary); });
}

WireContext App::context_of(const RunningModel& model, const Json& body) {
  return {.model = model.served(model_named(body)),
          .always_usage = options_.always_usage,
          .both_reasonings = options_.both_reasonings,
          .warnings = &warnings_};
}

void App::run() {
  models_->start();
  http_->run();
  models_->stop();
  for (const ModelPool::Lease& model : models_->all_loaded()) keep_(*model);
}

// ---- answers

void App::handle(const std::shared_ptr<Exchange>& exchange) {
  const Route& route = *find_route(exchange->request());
  if (route.at_once) return exchange->respond(route.at_once(exchange->request()));
  if (route.wire != nullptr) return generate(exchange, route);
  if (route.vectors != nullptr) return embed(exchange, route);
  answer_apart(exchange, route);
}

void App::conclude(Metrics& metrics, const RequestSummary& summary) {
  metrics.add(summary);
  if (options_.log_request) options_.log_request(summary);
}

/// A request that never ran.
void App::refuse(const std::shared_ptr<Exchange>& exchange, const Route& route,
                 const ApiError& error, const ModelPool::Lease& model) {
  exchange->respond(error_response(error, route.write_error(error, exchange->request().id)));
  conclude(model != nullptr ? model->metrics() : models_->metrics(0),
           {.id = exchange->request().id,
            .path = exchange->request().path,
            .status = error.status,
            .finish = "error"});
}

std::variant<size_t, ApiError> App::model_for(const Route& route, const Json& body) const {
  const std::string name = model_named(body);
  const auto found = models_->find(name);
  const bool may_have_tag = route.write_error == ollama_error && name.ends_with(kOllamaLatest);
  if (!may_have_tag || std::holds_alternative<size_t>(found)) return found;
  return models_->find(std::string_view(name).substr(0, name.size() - kOllamaLatest.size()));
}

/// `use` with what was sent and the model that it names, once that is loaded; on a worker, as
/// templates and tokenizers take their time with long prompts.
void App::with_model(const std::shared_ptr<Exchange>& exchange, const Route& route, Use use) {
  http_->work([this, exchange, &route, use = std::move(use)] {
    const auto body = std::make_shared<JsonOrError>(ApiError{});
    std::variant<size_t, ApiError> model = ApiError{};
    try {
      *body = read_body(exchange->request().body);
      const auto* const json = std::get_if<Json>(body.get());
      model = json == nullptr ? std::get<ApiError>(*body) : model_for(route, *json);
    } catch (const std::exception& exception) {
      model = of_exception(exception);
    }
    if (const auto* const error = std::get_if<ApiError>(&model)) {
      return http_->post(
          [this, exchange, &route, error = *error] { refuse(exchange, route, error); });
    }
    const size_t index = std::get<size_t>(model);
    if (const ModelPool::Lease lease = models_->loaded(index)) {
      return use(std::get<Json>(*body), lease);
    }
    http_->post([this, exchange, &route, use, body, index] {
      await_model(exchange, route, index, [this, use, body](const ModelPool::Lease& lease) {
        http_->work([use, body, lease] { use(std::get<Json>(*body), lease); });
      });
    });
  });
}

/// `use` on the server's thread, unless the client leaves or the time to wait is over before.
void App::await_model(const std::shared_ptr<Exchange>& exchange, const Route& route, size_t model,
                      std::function<void(const ModelPool::Lease&)> use) {
  if (exchange->has_left()) return;
  const auto is_over = std::make_shared<bool>(false);
  exchange->on_left([is_over] { *is_over = true; });
  const double most_s = options_.service.queue_timeout_s;
  if (std::isfinite(most_s)) {
    http_->after(most_s, [this, exchange, &route, is_over] {
      if (!std::exchange(*is_over, true)) refuse(exchange, route, waited_too_long());
    });
  }
  models_->want(model, [this, exchange, &route, is_over,
                        use = std::move(use)](std::variant<ModelPool::Lease, ApiError> got) {
    if (std::exchange(*is_over, true)) return;
    exchange->on_left({});
    const auto* const error = std::get_if<ApiError>(&got);
    if (error != nullptr) return refuse(exchange, route, *error);
    use(std::get<ModelPool::Lease>(got));
  });
}

void App::generate(const std::shared_ptr<Exchange>& exchange, const Route& route) {
  with_model(exchange, route,
             [this, exchange, &route](const Json& body, const ModelPool::Lease& model) {
               auto parsed = std::make_shared<ParsedRequest>(ApiError{});
               try {
                 *parsed = route.wire(body, context_of(*model, body));
               } catch (const std::exception& exception) {
                 *parsed = of_exception(exception);
               }
               http_->post([this, exchange, &route, model, parsed] {
                 if (WireRequest* const request = std::get_if<WireRequest>(parsed.get())) {
                   request->input.client = client_of(exchange->request());
                   return Answering::begin({model, &model->answers()}, exchange,
                                           std::move(*request), route.write_error);
                 }
                 refuse(exchange, route, std::get<ApiError>(*parsed), model);
               });
             });
}

void App::embed(const std::shared_ptr<Exchange>& exchange, const Route& route) {
  with_model(exchange, route,
             [this, exchange, &route](const Json& body, const ModelPool::Lease& model) {
               auto parsed = std::make_shared<std::variant<VectorRequest, ApiError>>(ApiError{});
               try {
                 *parsed = route.vectors(body, context_of(*model, body));
               } catch (const std::exception& exception) {
                 *parsed = of_exception(exception);
               }
               http_->post([this, exchange, &route, model, parsed] {
                 if (auto* const request = std::get_if<VectorRequest>(parsed.get())) {
                   return begin_embedding(exchange, route, model, std::move(*request));
                 }
                 refuse(exchange, route, std::get<ApiError>(*parsed), model);
               });
             });
}

void App::begin_embedding(const std::shared_ptr<Exchange>& exchange, const Route& route,
                          const ModelPool::Lease& model, VectorRequest request) {
  if (exchange->has_left()) return;
  EmbeddingService& service = *model->embeddings();
  const auto began = std::chrono::steady_clock::now();
  auto summary = std::make_shared<RequestSummary>(
      RequestSummary{.id = exchange->request().id,
                     .path = exchange->request().path,
                     .prompt_tokens = request.n_tokens(),
                     .n_choices = static_cast<uint32_t>(request.texts.size())});
  const auto end = [this, model, summary, began](unsigned status, std::string finish) {
    summary->status = status;
    summary->finish = std::move(finish);
    const std::chrono::duration<double> total = std::chrono::steady_clock::now() - began;
    summary->total_s = total.count();
    conclude(model->metrics(), *summary);
  };
  std::vector<std::vector<TokenId>> texts = request.texts;
  auto kept = std::make_shared<const VectorRequest>(std::move(request));
  const auto done = [this, exchange, &route, model, kept,
                     end](Result<EmbeddingService::Vectors> vectors) {
    if (exchange->has_left()) return;
    exchange->on_left({});
    if (!vectors.ok()) {
      const bool ends = vectors.error().code == ErrorCode::kCancelled;
      const ApiError error = ends ? draining() : api_error_of(vectors.error());
      exchange->respond(error_response(error, route.write_error(error, exchange->request().id)));
      return end(error.status, "error");
    }
    model->metrics().add_embedded(kept->texts.size(), kept->n_tokens());
    auto all = std::make_shared<EmbeddingService::Vectors>(std::move(vectors).value());
    // Numbers as text take their time.
    http_->work([this, exchange, kept, all, end] {
      auto body = std::make_shared<std::string>(kept->answer(std::move(*all)));
      http_->post([exchange, body, end] {
        exchange->respond({.body = std::move(*body)});
        end(200, "stop");
      });
    });
  };
  const auto submitted = service.submit(std::move(texts), done);
  if (const auto* const error = std::get_if<ApiError>(&submitted)) {
    return refuse(exchange, route, *error, model);
  }
  exchange->on_left([&service, end, id = std::get<uint64_t>(submitted)] {
    service.cancel(id);
    end(499, "abort");
  });
}

void App::answer_apart(const std::shared_ptr<Exchange>& exchange, const Route& route) {
  with_model(exchange, route,
             [this, exchange, &route](const Json& body, const ModelPool::Lease& model) {
               JsonOrError answer;
               try {
                 answer = route.apart(body, context_of(*model, body));
               } catch (const std::exception& exception) {
                 answer = of_exception(exception);
               }
               const auto* const error = std::get_if<ApiError>(&answer);
               auto response = std::make_shared<HttpResponse>(
                   error != nullptr
                       ? error_response(*error, route.write_error(*error, exchange->request().id))
                       : HttpResponse{.body = dumped(std::get<Json>(answer))});
               http_->post([exchange, response] { exchange->respond(std::move(*response)); });
             });
}

// ---- the end

void App::signalled(int count) {
  if (count > 1) {
    for (const ModelPool::Lease& model : models_->all_loaded()) model->cancel_all();
    return http_->after(kLastMoment_s, [this] { http_->stop(); });
  }
  is_draining_ = true;
  options_.logger.warning("shutting down: {} under way", n_open());
  http_->after(options_.drain_delay_s, [this] {
    refuses_ = true;
    stop_when_idle();
  });
}

size_t App::n_open() const {
  size_t n = models_->n_waiting();
  for (const ModelPool::Lease& model : models_->all_loaded()) n += model->n_open();
  return n;
}

void App::stop_when_idle() {
  if (n_open() == 0 && http_->n_exchanges() == 0) return http_->stop();
  http_->after(kIdleInterval_s, [this] { stop_when_idle(); });
}

}  // namespace pumice::serve
