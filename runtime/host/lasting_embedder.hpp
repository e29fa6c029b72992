// An embedder that outlives the device it is on.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "engine/embedder.hpp"
#include "host/model_owner.hpp"

namespace pumice::host {

/// One thread at a time may call `embed`.
class LastingEmbedder {
 public:
  /// `model` was loaded for it, and its request has the plan (ModelRequest::plan). Errors:
  /// OpenedModel::make_embedder's.
  static Result<std::unique_ptr<LastingEmbedder>> create(
      std::shared_ptr<ModelOwner> model, const EmbedderOptions& options,
      const vk::PipelineLibrary::Progress& compiling = {});

  // Any thread.
  const ModelOwner& model() const { return *model_; }
  uint32_t width() const { return width_; }
  uint32_t text_tokens() const { return text_tokens_; }
  /// Its device was lost, and no other was had yet.
  bool is_lost() const { return is_lost_; }

  /// Embedder::embed. If the device is lost meanwhile, it is opened again and these texts begin
  /// anew, once. Errors: Embedder::embed's; those of ModelOwner::current: the next call tries again.
  Result<std::vector<std::vector<float>>> embed(std::span<const std::vector<TokenId>> texts,
                                                const Embedder::Progress& progress = {});

 private:
  LastingEmbedder(std::shared_ptr<ModelOwner> model, const EmbedderOptions& options)
      : model_(std::move(model)), options_(options) {}
  Status open(const vk::PipelineLibrary::Progress& compiling);

  const std::shared_ptr<ModelOwner> model_;
  const EmbedderOptions options_;
  uint32_t width_ = 0;
  uint32_t text_tokens_ = 0;
  std::unique_ptr<Embedder> embedder_;  // null: its device was lost
  std::atomic<bool> is_lost_ = false;
};

}  // namespace pumice::host
