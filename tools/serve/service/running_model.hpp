// A model that is loaded, with what runs its requests: one of the two services.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "host/host.hpp"
#include "host/lasting_embedder.hpp"
#include "tools/serve/service/answering.hpp"
#include "tools/serve/service/embedding_service.hpp"
#include "tools/serve/service/served_model.hpp"
#include "tools/serve/service/service.hpp"

namespace pumice::serve {

/// What is opened of a model's file: a host if it writes text, else an embedder.
struct OpenedParts {
  ServedModel model;
  std::vector<ServedModel> adapters = {};  ///< of it, by Program::adapters
  std::unique_ptr<host::Host> host = {};
  std::unique_ptr<host::LastingEmbedder> embedder = {};
};

/// On the server's thread.
class RunningModel {
 public:
  /// `metrics` outlives it; `ended`: AnswerContext's.
  RunningModel(OpenedParts parts, const ServiceOptions& options, const Service::Post& post,
               const Logger& logger, Metrics& metrics,
               std::function<void(const RequestSummary&)> ended);

  void start();
  /// Until its thread has ended.
  void stop();

  const ServedModel& served() const { return model_; }
  /// The adapter of that name, or the model.
  const ServedModel& served(std::string_view name) const;
  /// Null: it embeds.
  Service* service() const { return service_.get(); }
  /// Null: it writes text.
  EmbeddingService* embeddings() const { return embeddings_.get(); }

  /// What requests for text are answered with.
  const AnswerContext& answers() const { return answers_; }
  Metrics& metrics() const { return *answers_.metrics; }

  /// Requests that run or wait.
  size_t n_open() const;
  void cancel_all();
  /// Of an embedder only what it has in common with a host.
  host::Stats stats() const;
  /// Whether its device is there and steps end well.
  bool works() const;

 private:
  const ServedModel model_;
  const std::vector<ServedModel> adapters_;
  std::unique_ptr<host::LastingEmbedder> embedder_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<EmbeddingService> embeddings_;
  AnswerContext answers_;
};

}  // namespace pumice::serve
