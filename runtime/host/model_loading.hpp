// A model that is loaded while its program goes on.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/result.hpp"
#include "host/load_model.hpp"

namespace pumice::host {

/// Any thread. The thread that loads ends with it.
class ModelLoading {
 public:
  /// Errors: kInternal where the system starts no thread.
  static Result<std::unique_ptr<ModelLoading>> begin(std::shared_ptr<DeviceOwner> device,
                                                     LoadOptions options);
  /// Cancels it if it has not ended, and waits for that.
  ~ModelLoading();
  ModelLoading(const ModelLoading&) = delete;
  ModelLoading& operator=(const ModelLoading&) = delete;

  /// How far it is, once it has ended or after `most`, whichever comes first.
  LoadProgress wait(std::chrono::microseconds most);
  /// It ends at its next read, a few MiB later at most, with kCancelled and nothing kept. Errors:
  /// kNotFound: it has ended, or was cancelled before.
  Status cancel();
  /// What it came to: `use` has the model, and unless that fails nobody else will. Errors: those of
  /// `use`, load_model and kCancelled, each time; kBusy: it has not ended; kNotFound: the model was
  /// taken.
  Status take(const std::function<Status(std::shared_ptr<ModelOwner>)>& use);

 private:
  ModelLoading() = default;
  Result<std::shared_ptr<ModelOwner>> load(std::shared_ptr<DeviceOwner> device,
                                           LoadOptions options);
  void end(Result<std::shared_ptr<ModelOwner>> result);

  std::mutex mutex_;
  std::condition_variable ended_;
  LoadProgress progress_;  // guarded, as the next
  std::optional<Result<std::shared_ptr<ModelOwner>>> result_;
  // Shared with the files, and never set once it has ended.
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::thread thread_;
};

}  // namespace pumice::host
