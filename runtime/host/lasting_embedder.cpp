#include "host/lasting_embedder.hpp"

#include <utility>

namespace pumice::host {

Result<std::unique_ptr<LastingEmbedder>> LastingEmbedder::create(
    std::shared_ptr<ModelOwner> model, const EmbedderOptions& options,
    const vk::PipelineLibrary::Progress& compiling) {
  std::unique_ptr<LastingEmbedder> embedder(new LastingEmbedder(std::move(model), options));
  PUMICE_TRY_STATUS(embedder->open(compiling));
  embedder->width_ = embedder->embedder_->width();
  embedder->text_tokens_ = embedder->embedder_->text_tokens();
  return embedder;
}

Status LastingEmbedder::open(const vk::PipelineLibrary::Progress& compiling) {
  PUMICE_TRY(const OpenedModel opened, model_->current());
  PUMICE_TRY(embedder_, opened.make_embedder(options_, compiling));
  return {};
}

Result<std::vector<std::vector<float>>> LastingEmbedder::embed(
    std::span<const std::vector<TokenId>> texts, const Embedder::Progress& progress) {
  for (bool again = false;; again = true) {
    if (embedder_ == nullptr) PUMICE_TRY_STATUS(open({}));
    is_lost_ = false;
    Result<std::vector<std::vector<float>>> vectors = embedder_->embed(texts, progress);
    if (vectors.ok() || vectors.error().code != ErrorCode::kDeviceLost) return vectors;
    // What holds memory goes before the same is asked for again.
    embedder_.reset();
    is_lost_ = true;
    if (again) return vectors;
  }
}

}  // namespace pumice::host
