#include "tools/serve/service/model_pool.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/printable.hpp"
#include "host/host.hpp"

namespace pumice::serve {
namespace {

/// Until a model that is in use is looked at again.
constexpr std::chrono::milliseconds kBusyInterval(10);
/// Names in a message.
constexpr size_t kMostNamed = 8;
/// Of a model amid whose loading the device is lost.
constexpr host::RetryPolicy kRetries{.most_tries = 5};

/// Before the next try. The first opens the device again, so there is nothing to wait for.
std::chrono::duration<double> pause_behind(uint32_t n_tries) {
  const double pause_s = n_tries < 2 ? 0 : kRetries.first_pause_s * std::exp2(n_tries - 2);
  return std::chrono::duration<double>(std::min(pause_s, kRetries.longest_pause_s));
}

ApiError not_loaded(const ModelCard& card, const Error& error) {
  return {.status = 503,
          .type = "unavailable_error",
          .message = fmt::format("the model '{}' could not be loaded: {}", card.id, error.message),
          .param = "model",
          .code = "model_not_loaded",
          .retry_after_s = 5};
}

}  // namespace

ModelPool::ModelPool(std::vector<ModelCard> cards, const PoolOptions& options, Calls calls,
                     Logger logger)
    : options_(options), calls_(std::move(calls)), logger_(std::move(logger)) {
  for (ModelCard& card : cards) {
    models_.push_back(std::make_unique<Model>(Model{.card = std::move(card)}));
  }
}

ModelPool::~ModelPool() { stop(); }

void ModelPool::add(size_t model, OpenedParts parts) {
  Model& one = *models_[model];
  one.running = calls_.run(model, std::move(parts));
  one.hold = std::make_shared<char>();
  one.last_use = ++n_uses_;
  one.metrics.add_load();
}

void ModelPool::start() {
  for (const auto& model : models_) {
    if (model->running != nullptr) model->running->start();
  }
  thread_ = std::thread([this] { load_until_stopped(); });
}

void ModelPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (const auto& model : models_) {
    if (model->running != nullptr) model->running->stop();
    for (const Ready& ready : std::exchange(model->waiting, {})) ready(draining());
  }
}

std::variant<size_t, ApiError> ModelPool::find(std::string_view name) const {
  if (name.empty()) return size_t{0};
  // Who has this very name goes before who takes any.
  for (const bool any : {false, true}) {
    for (size_t i = 0; i < models_.size(); ++i) {
      const ModelCard& card = models_[i]->card;
      if (any ? card.is_called(name) : card.has_name(name)) return i;
    }
  }
  std::vector<std::string> ids;
  for (const auto& model : models_) {
    if (ids.size() < kMostNamed) ids.push_back(fmt::format("'{}'", model->card.id));
  }
  return ApiError{.status = 404,
                  .type = "not_found_error",
                  .message = fmt::format("the model '{}' does not exist here; this server has {}{} "
                                         "(--model-alias gives further names)",
                                         printable(name, 100), fmt::join(ids, ", "),
                                         ids.size() < models_.size() ? " and others" : ""),
                  .param = "model",
                  .code = "model_not_found"};
}

// ---- leases

/// With the lock.
ModelPool::Lease ModelPool::lease(Model& model) {
  model.last_use = ++n_uses_;
  return {model.hold, model.running.get()};
}

ModelPool::Lease ModelPool::loaded(size_t model) {
  const std::lock_guard lock(mutex_);
  Model& one = *models_[model];
  if (one.running == nullptr || one.is_leaving) return nullptr;
  return lease(one);
}

ModelPool::Lease ModelPool::look_at(size_t model) const {
  const std::lock_guard lock(mutex_);
  const Model& one = *models_[model];
  return one.running == nullptr ? nullptr : Lease(one.hold, one.running.get());
}

std::vector<ModelPool::Lease> ModelPool::all_loaded() const {
  std::vector<Lease> leases;
  for (size_t i = 0; i < models_.size(); ++i) {
    if (Lease model = look_at(i)) leases.push_back(std::move(model));
  }
  return leases;
}

size_t ModelPool::n_waiting() const {
  const std::lock_guard lock(mutex_);
  return n_waiting_;
}

void ModelPool::want(size_t model, Ready ready) {
  std::unique_lock lock(mutex_);
  Model& one = *models_[model];
  if (one.running != nullptr && !one.is_leaving) {
    Lease its = lease(one);
    lock.unlock();
    return ready(std::move(its));
  }
  if (stops_ || n_waiting_ >= options_.most_waiting) {
    const ApiError error =
        stops_ ? draining()
               : overloaded(fmt::format(
                     "{} requests wait for models already, at most {} may (--max-queue)",
                     n_waiting_, options_.most_waiting));
    lock.unlock();
    return ready(error);
  }
  one.waiting.push_back(std::move(ready));
  ++n_waiting_;
  if (std::find(wanted_.begin(), wanted_.end(), model) == wanted_.end()) wanted_.push_back(model);
  wake_.notify_all();
}

// ---- the pool's thread

size_t ModelPool::n_loaded() const {
  return static_cast<size_t>(std::count_if(
      models_.begin(), models_.end(), [](const auto& model) { return model->running != nullptr; }));
}

void ModelPool::load_until_stopped() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stops_ || !wanted_.empty(); });
    if (stops_) return;
    load_next(lock);
    wanted_.pop_front();
    stay();
  }
}

/// The model that was wanted first, for those who wait for it.
void ModelPool::load_next(std::unique_lock<std::mutex>& lock) {
  const size_t index = wanted_.front();
  Model& model = *models_[index];
  // It was to leave, and has not.
  if (model.running != nullptr) return give(model);
  uint32_t n_lost = 0;
  while (!stops_) {
    if (n_loaded() >= options_.most_loaded) {
      if (!make_room(lock)) wake_.wait_for(lock, kBusyInterval, [this] { return stops_; });
      continue;
    }
    const bool alone = n_loaded() == 0;
    lock.unlock();
    logger_.info("loading {}", model.card.id);
    Result<OpenedParts> parts = calls_.open(index, alone);
    std::unique_ptr<RunningModel> running;
    if (parts.ok()) running = calls_.run(index, std::move(parts).value());
    lock.lock();
    if (running != nullptr) {
      model.running = std::move(running);
      model.hold = std::make_shared<char>();
      model.running->start();
      calls_.post([&model] { model.metrics.add_load(); });
      return give(model);
    }
    if (parts.error().code == ErrorCode::kDeviceLost && ++n_lost < kRetries.most_tries) {
      logger_.warning("{}: {}; it is loaded again", model.card.id, parts.error().message);
      wake_.wait_for(lock, pause_behind(n_lost), [this] { return stops_; });
      continue;
    }
    if (parts.error().code != ErrorCode::kDoesNotFit || alone) {
      logger_.warning("{}: {}", model.card.id, parts.error().message);
      return refuse(model, not_loaded(model.card, parts.error()));
    }
    while (!stops_ && !make_room(lock)) {
      wake_.wait_for(lock, kBusyInterval, [this] { return stops_; });
    }
  }
}

/// Unloads one model, if one is there that nobody uses. If not, that which was used longest ago
/// gets no further requests until the one that is wanted is loaded.
bool ModelPool::make_room(std::unique_lock<std::mutex>& lock) {
  Model* oldest = nullptr;
  for (const auto& model : models_) {
    if (model->running == nullptr) continue;
    const bool goes_first =
        oldest == nullptr || std::pair(!model->is_leaving, model->last_use) <
                                 std::pair(!oldest->is_leaving, oldest->last_use);
    if (goes_first) oldest = model.get();
  }
  if (oldest == nullptr) return true;
  oldest->is_leaving = true;
  if (oldest->hold.use_count() > 1) return false;
  unload(*oldest, lock);
  return true;
}

/// Nobody has a lease of it, and nobody gets one.
void ModelPool::unload(Model& model, std::unique_lock<std::mutex>& lock) {
  std::unique_ptr<RunningModel> running = std::move(model.running);
  model.hold.reset();
  model.is_leaving = false;
  lock.unlock();
  logger_.info("unloading {}", model.card.id);
  running->stop();
  calls_.keep(*running);
  lock.lock();
  // What its threads have posted is behind us then.
  fence(lock);
  lock.unlock();
  running.reset();
  lock.lock();
}

/// Until the server's thread has done what was posted so far, or the pool stops.
void ModelPool::fence(std::unique_lock<std::mutex>& lock) {
  auto is_behind = std::make_shared<bool>(false);
  calls_.post([this, is_behind] {
    const std::lock_guard its(mutex_);
    *is_behind = true;
    wake_.notify_all();
  });
  wake_.wait(lock, [&] { return stops_ || *is_behind; });
}

/// To those who wait, by the server's thread.
void ModelPool::give(Model& model) {
  model.is_leaving = false;
  n_waiting_ -= model.waiting.size();
  for (Ready& ready : std::exchange(model.waiting, {})) {
    calls_.post([ready = std::move(ready), its = lease(model)] { ready(its); });
  }
}

void ModelPool::refuse(Model& model, const ApiError& error) {
  n_waiting_ -= model.waiting.size();
  for (Ready& ready : std::exchange(model.waiting, {})) {
    calls_.post([ready = std::move(ready), error] { ready(error); });
  }
}

/// What was to leave and is still there goes on, with those who waited meanwhile.
void ModelPool::stay() {
  for (const auto& model : models_) {
    if (!std::exchange(model->is_leaving, false)) continue;
    if (model->running != nullptr) give(*model);
  }
}

}  // namespace pumice::serve
