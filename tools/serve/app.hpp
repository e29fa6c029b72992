// The server put together: which path is answered by whom, who may ask, how it ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "tools/serve/cross_origin.hpp"
#include "tools/serve/fleet/kv_events.hpp"
#include "tools/serve/http/http_server.hpp"
#include "tools/serve/service/answering.hpp"
#include "tools/serve/service/metrics.hpp"
#include "tools/serve/service/model_pool.hpp"
#include "tools/serve/service/running_model.hpp"
#include "tools/serve/wires/embeddings.hpp"
#include "tools/serve/wires/openai_common.hpp"
#include "tools/serve/wires/wires.hpp"

namespace pumice::serve {

struct AppOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::vector<std::string> api_keys = {};      ///< empty: everybody may ask
  std::vector<std::string> cors_origins = {};  ///< CrossOrigin's
  std::vector<std::string> left_out = {};      ///< names of endpoint_flags()
  bool ollama = false;                         ///< what clients of Ollama ask is answered too
  HttpLimits limits = {};
  ServiceOptions service = {};
  uint32_t most_models = 4;  ///< loaded at once
  double drain_delay_s = 0;  ///< after SIGTERM, until new requests are refused
  bool vllm_metrics = false;
  bool always_usage = false;
  bool both_reasonings = false;
  std::string kv_type = {};                     ///< for metrics
  std::shared_ptr<KvPublisher> kv_events = {};  ///< null: nobody is told of them
  std::string pod_ip = {};                      ///< as routers know this server; empty: `host`
  Logger logger = {};
  std::function<void(const RequestSummary&)> log_request = {};  ///< of each that is over
};

/// The models of a server, and how each is loaded.
struct AppModels {
  std::vector<ModelCard> cards;  ///< at least one; see ModelPool
  ModelPool::Open open;
  ModelPool::Keep keep;                   ///< also of those that are loaded at the end
  std::optional<OpenedParts> first = {};  ///< of the first, if it is loaded
};

/// A flag that leaves paths out, and which; some of them are also behind /v1, or only there.
struct EndpointFlag {
  std::string_view name;
  std::vector<std::string_view> paths;
};
const std::vector<EndpointFlag>& endpoint_flags();

class App {
 public:
  /// Listens; nothing is answered until `run`. Errors: HttpServer::listen's.
  static Result<std::unique_ptr<App>> create(AppOptions options, AppModels models);

  const std::string& url() const { return http_->url(); }
  const KvPublisher* kv_events() const { return options_.kv_events.get(); }
  /// Serves until SIGINT or SIGTERM and until what runs then has ended; a second signal ends that
  /// too.
  void run();

 private:
  /// One way to answer: on the server's thread, on a worker, by generating, or by embedding.
  struct Route {
    using Apart = std::variant<Json, ApiError> (*)(const Json&, const WireContext&);
    using Vectors = std::variant<VectorRequest, ApiError> (*)(const Json&, const WireContext&);

    std::function<HttpResponse(const HttpRequest&)> at_once = {};
    Apart apart = nullptr;
    Wire wire = nullptr;
    Vectors vectors = nullptr;
    ErrorWriter write_error = nullptr;
    bool is_post = false;
    bool is_open = false;  ///< without a key
  };

  explicit App(AppOptions options);
  void add_routes();
  void add_at_once(std::string path, std::function<HttpResponse(const HttpRequest&)> answer,
                   bool is_open = false);
  void add_apart(std::string path, Route::Apart answer, ErrorWriter write_error = openai_error);
  void add_vectors(std::string path, Route::Vectors read);
  void add_wire(std::string path, Wire wire, ErrorWriter write_error);
  void leave_out(std::string_view flag);
  const Route* find_route(const HttpRequest& request) const;

  std::optional<HttpResponse> check(const HttpRequest& request) const;
  std::optional<ApiError> why_not(const HttpRequest& request) const;
  bool has_key(const HttpRequest& request) const;
  uint64_t client_of(const HttpRequest& request) const;
  /// As a body wants it that names the model, or an adapter of it.
  WireContext context_of(const RunningModel& model, const Json& body);
  ModelMetrics metrics_of(size_t model) const;
  void handle(const std::shared_ptr<Exchange>& exchange);
  std::unique_ptr<RunningModel> run_model(size_t model, OpenedParts parts);
  size_t n_open() const;
  void conclude(Metrics& metrics, const RequestSummary& summary);

  using Use = std::function<void(const Json& body, const ModelPool::Lease& model)>;
  void with_model(const std::shared_ptr<Exchange>& exchange, const Route& route, Use use);
  void await_model(const std::shared_ptr<Exchange>& exchange, const Route& route, size_t model,
                   std::function<void(const ModelPool::Lease&)> use);
  /// `model`: whose metrics count it; null: the first model's.
  void refuse(const std::shared_ptr<Exchange>& exchange, const Route& route, const ApiError& error,
              const ModelPool::Lease& model = {});
  std::variant<size_t, ApiError> model_for(const Route& route, const Json& body) const;
  void generate(const std::shared_ptr<Exchange>& exchange, const Route& route);
  void embed(const std::shared_ptr<Exchange>& exchange, const Route& route);
  void begin_embedding(const std::shared_ptr<Exchange>& exchange, const Route& route,
                       const ModelPool::Lease& model, VectorRequest request);
  void answer_apart(const std::shared_ptr<Exchange>& exchange, const Route& route);
  void signalled(int count);
  void stop_when_idle();

  HttpResponse health() const;
  HttpResponse readiness() const;
  Json listed(size_t model, std::string_view id) const;
  HttpResponse models() const;
  HttpResponse model_of(const HttpRequest& request) const;
  HttpResponse metrics() const;
  HttpResponse props() const;

  const AppOptions options_;
  const CrossOrigin cross_origin_;
  FieldWarnings warnings_;
  std::unique_ptr<HttpServer> http_;
  ServiceOptions service_;
  ModelPool::Keep keep_;
  std::unique_ptr<ModelPool> models_;
  std::map<std::string, Route, std::less<>> routes_;
  bool is_draining_ = false;  // not ready any more
  bool refuses_ = false;      // new requests
};

}  // namespace pumice::serve
