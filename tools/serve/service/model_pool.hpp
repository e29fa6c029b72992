// The models of a server: loaded when a request wants one, and unloaded when another needs the
// room, the one that was used longest ago first.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "tools/serve/service/api_error.hpp"
#include "tools/serve/service/metrics.hpp"
#include "tools/serve/service/running_model.hpp"

namespace pumice::serve {

struct PoolOptions {
  uint32_t most_loaded = 4;      ///< models at once
  uint32_t most_waiting = 1024;  ///< requests that wait for a model; further ones are refused
};

/// Any thread, unless said otherwise. Models are loaded and unloaded on a thread of the pool's own.
class ModelPool {
 public:
  /// A model while somebody has to do with it: it is not unloaded meanwhile.
  using Lease = std::shared_ptr<RunningModel>;
  using Ready = std::function<void(std::variant<Lease, ApiError>)>;
  /// Loads the model of that number. `alone`: no other one is loaded, so that it may take all that
  /// there is. Errors with kDoesNotFit are tried again when there is more room, and those with
  /// kDeviceLost a few times.
  using Open = std::function<Result<OpenedParts>(size_t model, bool alone)>;
  /// Makes what runs it, which is not started.
  using Run = std::function<std::unique_ptr<RunningModel>(size_t model, OpenedParts parts)>;
  /// Called before a model is unloaded, by the pool's thread.
  using Keep = std::function<void(RunningModel&)>;
  struct Calls {
    Open open;
    Run run;
    Keep keep;
    Service::Post post;  ///< a task for the server's thread
  };

  /// `cards`: of at least one model; a request that names none is for the first.
  ModelPool(std::vector<ModelCard> cards, const PoolOptions& options, Calls calls, Logger logger);
  /// Behind `stop`.
  ~ModelPool();
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  /// One that has been loaded. Before `start`.
  void add(size_t model, OpenedParts parts);
  void start();
  /// Until the threads of all models have ended. Requests that wait are told that the server ends.
  /// On the server's thread, once that does nothing else any more.
  void stop();

  size_t size() const { return models_.size(); }
  const ModelCard& card(size_t model) const { return models_[model]->card; }
  /// Its number, or what a client is told: there is none of that name.
  std::variant<size_t, ApiError> find(std::string_view name) const;
  /// Null: it is not loaded, or is about to be unloaded.
  Lease loaded(size_t model);
  /// `ready` is called with it once it is loaded, on the server's thread. Errors: 429 at the bound;
  /// 503 where it cannot be loaded.
  void want(size_t model, Ready ready);

  /// To look at, which is no use of it; null: it is not loaded.
  Lease look_at(size_t model) const;
  std::vector<Lease> all_loaded() const;
  size_t n_waiting() const;
  /// On the server's thread.
  Metrics& metrics(size_t model) { return models_[model]->metrics; }
  const Metrics& metrics(size_t model) const { return models_[model]->metrics; }

 private:
  struct Model {
    ModelCard card;
    Metrics metrics = {};                        // of the server's thread
    std::unique_ptr<RunningModel> running = {};  // null: it is not loaded
    std::shared_ptr<void> hold = {};             // of which every lease is a copy
    uint64_t last_use = 0;
    bool is_leaving = false;  // given to nobody any more, as another waits for its room
    std::deque<Ready> waiting = {};
  };

  void load_until_stopped();
  void load_next(std::unique_lock<std::mutex>& lock);
  bool make_room(std::unique_lock<std::mutex>& lock);
  void unload(Model& model, std::unique_lock<std::mutex>& lock);
  void give(Model& model);
  void refuse(Model& model, const ApiError& error);
  void stay();
  Lease lease(Model& model);
  size_t n_loaded() const;
  void fence(std::unique_lock<std::mutex>& lock);

  const PoolOptions options_;
  const Calls calls_;
  const Logger logger_;
  std::vector<std::unique_ptr<Model>> models_;  // their cards never change
  mutable std::mutex mutex_;                    // of all below, and of the models
  std::condition_variable wake_;
  std::deque<size_t> wanted_;  // that requests wait for, each once
  uint64_t n_uses_ = 0;
  size_t n_waiting_ = 0;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace pumice::serve
