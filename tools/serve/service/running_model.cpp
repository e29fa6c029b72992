#include "tools/serve/service/running_model.hpp"

#include <utility>

namespace pumice::serve {

RunningModel::RunningModel(OpenedParts parts, const ServiceOptions& options,
                           const Service::Post& post, const Logger& logger, Metrics& metrics,
                           std::function<void(const RequestSummary&)> ended)
    : model_(std::move(parts.model)),
      adapters_(std::move(parts.adapters)),
      embedder_(std::move(parts.embedder)) {
  if (embedder_ == nullptr) {
    service_ = std::make_unique<Service>(std::move(parts.host), options, post, logger);
  }
  answers_ = {service_.get(), model_.tokenizer, &metrics, std::move(ended)};
  if (service_ != nullptr) return;
  embeddings_ = std::make_unique<EmbeddingService>(
      [embedder = embedder_.get()](auto texts, const Embedder::Progress& progress) {
        return embedder->embed(texts, progress);
      },
      options.most_open, post);
}

const ServedModel& RunningModel::served(std::string_view name) const {
  for (const ServedModel& adapter : adapters_) {
    if (adapter.id == name) return adapter;
  }
  return model_;
}

void RunningModel::start() {
  if (service_ != nullptr) service_->start();
  if (embeddings_ != nullptr) embeddings_->start();
}

void RunningModel::stop() {
  if (service_ != nullptr) service_->stop();
  if (embeddings_ != nullptr) embeddings_->stop();
}

size_t RunningModel::n_open() const {
  return service_ != nullptr ? service_->n_open() : embeddings_->n_open();
}

void RunningModel::cancel_all() {
  if (service_ != nullptr) service_->cancel_all();
  if (embeddings_ != nullptr) embeddings_->cancel_all();
}

host::Stats RunningModel::stats() const {
  if (service_ != nullptr) return service_->stats();
  host::Stats stats{.is_lost = embedder_->is_lost()};
  stats.running_requests = static_cast<uint32_t>(embeddings_->n_open());
  return stats;
}

bool RunningModel::works() const {
  if (service_ != nullptr) return service_->works() && !service_->stats().is_lost;
  return embeddings_->works();
}

}  // namespace pumice::serve
