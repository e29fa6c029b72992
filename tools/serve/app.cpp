#include "tools/serve/app.hpp"

#include <fmt/core.h>

#include <chrono>
#include <exception>
#include <utility>

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

}  // namespace

App::App(AppOptions options)
    : options_(std::move(options)),
      cross_origin_(options_.cors_origins),
      warnings_(options_.logger) {
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
      .headers = [raw](const HttpRequest& request) { return raw->cross_origin_.headers(request); },
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
        request->input.client = client_of(exchange->request());
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
                         : HttpResponse{.body = dumped(std::get<Json>(answer))});
    http_->post([exchange, response] { exchange->respond(std::move(*response)); });
  });
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
