// Going on after the loss of a device: the one owner of what a model has on it, which drops all of
// that and opens it anew, so that engines go on with their requests.
#pragma once

#include <functional>
#include <mutex>
#include <span>
#include <utility>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "host/opened_model.hpp"

namespace pumice::host {

/// Any thread; those that recover at once go one after another. The engines that are given are
/// called, so their owners wait meanwhile.
class Recovery {
 public:
  /// How a device is reopened and the model loaded on it.
  using Open = std::function<Result<OpenedModel>()>;

  /// An opened model, and how another is opened in its place. Copies of it keep its device alive,
  /// which may then leave no room for another.
  Recovery(OpenedModel opened, Open open) : open_(std::move(open)), opened_(std::move(opened)) {}

  /// As it is now; without a device and a model after a recovery that failed.
  OpenedModel opened() const;

  /// These engines, which made steps on the model's device, failed with kDeviceLost. They let go
  /// of it, it is opened again as the model was, unless another engine's recovery has done that,
  /// and they are rebuilt on it: their requests go on. Engines that share a device may be recovered
  /// together or one after another, where there is room for the model twice. Errors: kDeviceLost,
  /// saying what was tried; the engines then have no device, and this may be tried again.
  Status recover(std::span<Engine* const> engines);

  /// It is opened again in place of the model's device, lost or not: where an embedder owns the
  /// device and has made a new one. Errors: those of `open`; there is no device then.
  Status replace();

 private:
  Status reopen(std::span<Engine* const> engines);
  void drop(std::span<Engine* const> engines);
  Status rebuild(std::span<Engine* const> engines);

  const Open open_;
  mutable std::mutex mutex_;
  OpenedModel opened_;  // guarded
};

}  // namespace pumice::host
