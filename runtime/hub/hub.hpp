// Getting models from Hugging Face, or from a server that answers as it does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "hub/model_cache.hpp"
#include "hub/model_name.hpp"

namespace pumice {

struct DownloadSource;

struct HubOptions {
  std::string endpoint = "https://huggingface.co";
  std::string token;                ///< for private and gated models; empty: none
  std::filesystem::path directory;  ///< of the cache
  bool offline = false;             ///< what is not in the cache is an error
  double timeout_s = 30;            ///< without bytes for so long a connection is given up
};

/// What a pull tells while it runs, from the thread that called it.
struct PullEvents {
  std::function<void(const ModelName& chosen, uint64_t total_bytes)> begun;
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
  std::function<void()> waiting;  ///< for another process that pulls from the same repository
  /// The server named no checksum of this file: its size is right, its content was not compared.
  std::function<void(const std::string& file)> unchecked = {};
};

/// One thread at a time; any number of processes may share a cache.
class Hub {
 public:
  /// Errors (kInvalidArgument): an endpoint that is no plain http address, a token that cannot be
  /// one (which is not repeated) or that plain http would show to others, a cache without a place.
  static Result<Hub> create(HubOptions options);

  /// The model that was pulled by this name, without asking the server whether it has a newer one;
  /// if there is none, pulls it. Errors: `pull`'s.
  Result<CachedModel> get(const ModelName& name, const PullEvents& events) const;

  /// Downloads what the cache lacks of the model, as the server has it now, and continues where an
  /// earlier call ended. Offline: what the cache has. A token is sent to https addresses and to
  /// this machine only; kInvalidArgument where it would go elsewhere. Errors: kBadFile (no such
  /// model, no permission, no network, wrong checksum: each says what to do), kDoesNotFit (disk),
  /// kInternal (no libcurl).
  Result<CachedModel> pull(const ModelName& name, const PullEvents& events) const;

  /// ModelCache::remove, when no other process changes the repository. Errors: its.
  Result<std::vector<CachedModel>> remove(const ModelName& name,
                                          const std::function<void()>& waiting) const;

  const ModelCache& cache() const { return cache_; }

 private:
  explicit Hub(HubOptions options) : options_(std::move(options)), cache_(options_.directory) {}
  Result<CachedModel> find_offline(const ModelName& name) const;
  Status download(const DownloadSource& source, const ModelName& name, const std::string& commit,
                  const ModelFiles& model, const PullEvents& events) const;
  Status check_space(const ModelName& name, const ModelFiles& model) const;

  HubOptions options_;
  ModelCache cache_;
};

}  // namespace pumice
