// Going on after the loss of a device: the one owner of what a model has on it, which drops all of
// that and opens it anew, so that engines go on with their requests.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "host/opened_model.hpp"
#include "models/model_source.hpp"

namespace pumice::host {

struct RecoveryOptions {
  /// Most tries to open the device and to load the model, a pause between them: a GPU that is being
  /// reset is not there for seconds.
  uint32_t attempts = 4;
  double first_pause_s = 0.5;  ///< doubled after each
  /// Losses of an engine's device without a step between them, after which it is given up.
  uint32_t losses_in_a_row = 4;
};

/// Any thread; those that recover at once go one after another. The engines that are given are
/// called, so their owners wait meanwhile.
class Recovery {
 public:
  /// How a device is had again and the model loaded on it.
  using Open = std::function<Result<OpenedModel>()>;

  /// An opened model, and how another is opened in its place. Whoever copied it keeps its device alive,
  /// which may then leave no room for another.
  Recovery(OpenedModel opened, Open open, const RecoveryOptions& options = {});
  /// By OpenedModel::open with its options.
  Recovery(OpenedModel opened, ModelSource source, const RecoveryOptions& options = {});

  /// As it is now; without a device and a model after a recovery that failed.
  OpenedModel opened() const;

  /// These engines, which made steps on the model's device, failed with kDeviceLost. They let go
  /// of it, it is opened again as the model was, unless another engine's recovery has done that,
  /// and they are rebuilt on it: their requests go on. Engines that share a device may be recovered
  /// together or one after another, where there is room for the model twice. Errors: kDeviceLost,
  /// saying what was tried; the engines then have no device, and this may be tried again.
  Status recover(std::span<Engine* const> engines);

  /// Let these engines go on with what `open` opens, in place of the model's device, lost or not:
  /// where that is another's, who has made a new one. Errors: those of `open` and of
  /// Engine::rebuild; the engines then have no device.
  Status replace(const Open& open, std::span<Engine* const> engines);

 private:
  Status reopen(const Open& open, std::span<Engine* const> engines);
  void drop(std::span<Engine* const> engines);
  Status rebuild(std::span<Engine* const> engines);

  const Open open_;
  const RecoveryOptions options_;
  mutable std::mutex mutex_;
  OpenedModel opened_;  // guarded
};

}  // namespace pumice::host
