// The server's paths: which there are, who may ask, and what is answered at once.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/printable.hpp"
#include "tools/serve/app.hpp"
#include "tools/serve/status/status_page.hpp"
#include "tools/serve/wires/ollama.hpp"
#include "tools/serve/wires/openai_common.hpp"
#include "tools/serve/wires/ranking.hpp"
#include "tools/serve/wires/tokens.hpp"

namespace pumice::serve {
namespace {

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

std::string_view given_key(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = request.header("authorization");
  return given.starts_with(kBearer) ? given.substr(kBearer.size()) : request.header("x-api-key");
}

HttpResponse json_response(const Json& json, unsigned status = 200) {
  return {.status = status, .body = dumped(json)};
}

ApiError not_found(std::string_view path) {
  return {.status = 404,
          .type = "not_found_error",
          .message = fmt::format("there is nothing at {}", printable(path, 100))};
}

HttpResponse page() {
  const StatusPage& page = status_page();
  return {.content_type = "text/html; charset=utf-8",
          .body = std::string(page.html),
          .headers = {{"Content-Security-Policy", std::string(page.policy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Cache-Control", "no-cache"}}};
}

}  // namespace

const std::vector<EndpointFlag>& endpoint_flags() {
  static const std::vector<EndpointFlag> kAll = {
      {"--no-chat", {"/chat/completions"}},
      {"--no-completions", {"/completions"}},
      {"--no-responses", {"/responses", "/responses/input_tokens"}},
      {"--no-messages", {"/messages", "/messages/count_tokens"}},
      {"--no-embeddings", {"/embeddings"}},
      {"--no-tokenize", {"/tokenize", "/detokenize", "/apply-template"}},
      {"--no-render", {"/completions/render", "/chat/completions/render"}},
      {"--no-metrics", {"/metrics"}},
      {"--no-props", {"/props"}},
      {"--no-status-page", {"/"}}};
  return kAll;
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

void App::add_vectors(std::string path, Route::Vectors read) {
  routes_[std::move(path)] = {.vectors = read, .write_error = openai_error, .is_post = true};
}

void App::add_wire(std::string path, Wire wire, ErrorWriter write_error) {
  routes_[std::move(path)] = {.wire = wire, .write_error = write_error, .is_post = true};
}

void App::add_routes() {
  add_at_once(
      "/", [](const HttpRequest&) { return page(); }, true);
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
    add_vectors(fmt::format("{}/embeddings", prefix), read_embeddings);
    add_vectors(fmt::format("{}/rerank", prefix), read_rerank);
    add_vectors(fmt::format("{}/score", prefix), read_score);
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
  if (options_.ollama) {
    add_at_once("/api/version", [](const HttpRequest&) { return json_response(ollama_version()); });
    add_at_once("/api/tags", [this](const HttpRequest&) {
      Json all = Json::array();
      for (size_t i = 0; i < models_->size(); ++i) all.push_back(ollama_tag(models_->card(i)));
      return json_response({{"models", std::move(all)}});
    });
    add_apart("/api/show", ollama_show, ollama_error);
  }
  for (const std::string& flag : options_.left_out) leave_out(flag);
}

void App::leave_out(std::string_view flag) {
  for (const EndpointFlag& one : endpoint_flags()) {
    if (one.name != flag) continue;
    for (const std::string_view path : one.paths) {
      routes_.erase(std::string(path));
      routes_.erase(fmt::format("/v1{}", path));
    }
  }
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
  const std::string_view given = given_key(request);
  bool found = false;
  for (const std::string& key : options_.api_keys) found |= is_same_secret(given, key);
  return found;
}

/// Who takes turns with others (RequestSpec::client): by key, else by address.
uint64_t App::client_of(const HttpRequest& request) const {
  const bool has_keys = !options_.api_keys.empty();
  const std::string who = has_keys ? "key " + std::string(given_key(request)) : request.peer;
  return std::max<uint64_t>(std::hash<std::string>()(who), 1);
}

std::optional<ApiError> App::why_not(const HttpRequest& request) const {
  if (cross_origin_.refuses(request)) {
    return ApiError{.status = 403,
                    .type = "permission_error",
                    .message =
                        "this server does not answer pages of other sites (--cors-origin "
                        "names those it does)"};
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
  // Browsers send no key with that question.
  if (auto answer = cross_origin_.preflight(request)) return answer;
  const std::optional<ApiError> error = why_not(request);
  if (!error) return std::nullopt;
  const Route* const route = find_route(request);
  const ErrorWriter write = route != nullptr ? route->write_error : openai_error;
  HttpResponse response = error_response(*error, write(*error, request.id));
  if (error->status == 405) response.headers.emplace_back("Allow", route->is_post ? "POST" : "GET");
  return response;
}

// ---- what is answered at once

HttpResponse App::health() const { return json_response({{"status", "ok"}}); }

HttpResponse App::readiness() const {
  const std::vector<ModelPool::Lease> loaded = models_->all_loaded();
  const bool works = std::all_of(loaded.begin(), loaded.end(),
                                 [](const ModelPool::Lease& model) { return model->works(); });
  if (!is_draining_ && works) return json_response({{"status", "ok"}});
  const ApiError error{.status = 503,
                       .type = "unavailable_error",
                       .message = is_draining_ ? "shutting down" : "the device is lost"};
  Json json = openai_error_json(error);
  json["error"]["code"] = 503;
  return json_response(json, 503);
}

/// `id`: under which it was asked for.
Json App::listed(size_t index, std::string_view id) const {
  const ModelCard& card = models_->card(index);
  const ModelPool::Lease model = models_->look_at(index);
  const bool is_adapter =
      std::find(card.adapters.begin(), card.adapters.end(), id) != card.adapters.end();
  Json json = {{"id", id},
               {"object", "model"},
               {"created", card.created},
               {"owned_by", "pumice"},
               {"root", is_adapter ? id : std::string_view(card.id)},
               {"parent", is_adapter ? Json(card.id) : Json()},
               {"status", {{"value", model != nullptr ? "loaded" : "unloaded"}}}};
  if (model != nullptr) json["max_model_len"] = model->served().window_tokens;
  return json;
}

HttpResponse App::models() const {
  Json all = Json::array();
  for (size_t i = 0; i < models_->size(); ++i) {
    all.push_back(listed(i, models_->card(i).id));
    for (const std::string& adapter : models_->card(i).adapters) {
      all.push_back(listed(i, adapter));
    }
  }
  return json_response({{"object", "list"}, {"data", std::move(all)}});
}

HttpResponse App::model_of(const HttpRequest& request) const {
  const std::string_view name = std::string_view(request.path).substr(kModels.size());
  const auto model = models_->find(name);
  if (const auto* const index = std::get_if<size_t>(&model)) {
    return json_response(listed(*index, name));
  }
  const ApiError& error = std::get<ApiError>(model);
  return error_response(error, openai_error(error, request.id));
}

ModelMetrics App::metrics_of(size_t index) const {
  ModelMetrics metrics{.model = models_->card(index).id,
                       .adapters = models_->card(index).adapters,
                       .kv_type = options_.kv_type,
                       .counts = &models_->metrics(index),
                       .is_loaded = false};
  const ModelPool::Lease model = models_->look_at(index);
  if (model == nullptr) return metrics;
  metrics.is_loaded = true;
  metrics.window_tokens = model->served().window_tokens;
  metrics.stats = model->stats();
  const Service* const service = model->service();
  const PrefixStore* const store =
      service != nullptr ? service->host().engine().prefix_store() : nullptr;
  if (store != nullptr) metrics.prefix_store = store->stats();
  return metrics;
}

HttpResponse App::metrics() const {
  std::vector<ModelMetrics> all;
  for (size_t i = 0; i < models_->size(); ++i) all.push_back(metrics_of(i));
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics_text(all, options_.vllm_metrics)};
}

/// Of the first model, or of the first that is loaded.
HttpResponse App::props() const {
  const std::vector<ModelPool::Lease> loaded = models_->all_loaded();
  if (loaded.empty()) {
    const ModelCard& card = models_->card(0);
    return json_response({{"model_alias", card.id}, {"architecture", card.architecture}});
  }
  const RunningModel& running = *loaded.front();
  const ServedModel& model = running.served();
  const Service* const service = running.service();
  const uint32_t n_slots = service != nullptr ? service->host().engine().options().n_sequences : 1;
  return json_response({{"model_alias", model.id},
                        {"architecture", model.architecture},
                        {"device", model.device},
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

}  // namespace pumice::serve
