#include "host/recovery.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace pumice::host {
namespace {

/// Whether another try may do better: a driver that resets its GPU has no device, or no memory yet.
bool may_pass(ErrorCode code) {
  return code == ErrorCode::kDeviceLost || code == ErrorCode::kNoDevice ||
         code == ErrorCode::kDoesNotFit || code == ErrorCode::kInternal;
}

}  // namespace

Recovery::Recovery(OpenedModel opened, Open open, const RecoveryOptions& options)
    : open_(std::move(open)), options_(options), opened_(std::move(opened)) {}

Recovery::Recovery(OpenedModel opened, ModelSource source, const RecoveryOptions& options)
    : open_([session_options = opened.options, source = std::move(source)] {
        return OpenedModel::open(session_options, source);
      }),
      options_(options),
      opened_(std::move(opened)) {}

OpenedModel Recovery::opened() const {
  const std::lock_guard lock(mutex_);
  return opened_;
}

Status Recovery::recover(std::span<Engine* const> engines) {
  const std::lock_guard lock(mutex_);
  // A device that is lost at every step is not opened again for ever.
  for (Engine* engine : engines) PUMICE_TRY_STATUS(engine->count_loss(options_.losses_in_a_row));
  const bool is_present = std::ranges::any_of(
      engines, [&](const Engine* engine) { return engine->device() == opened_.device; });
  if (opened_.device != nullptr && !opened_.device->is_lost() && !is_present) {
    const Status rebuilt = rebuild(engines);  // on what another recovery has opened
    if (rebuilt.ok()) return {};
  }
  double pause_s = options_.first_pause_s;
  std::string first;
  for (uint32_t attempt = 1;; ++attempt) {
    const Status status = reopen(open_, engines);
    if (status.ok()) return {};
    const Error& error = status.error();
    if (attempt == 1) first = error.message;
    if (attempt >= options_.attempts || !may_pass(error.code)) {
      return make_error(ErrorCode::kDeviceLost,
                        "the device was lost and could not be opened again in {} attempts: {}{}",
                        attempt, first,
                        error.message == first ? "" : "; at last: " + error.message);
    }
    opened_.options.logger.warning("the lost device is not back: {}", error.message);
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
    pause_s *= 2;
  }
}

Status Recovery::replace(const Open& open, std::span<Engine* const> engines) {
  const std::lock_guard lock(mutex_);
  return reopen(open, engines);
}

/// What holds memory goes before the same is asked for again.
void Recovery::drop(std::span<Engine* const> engines) {
  for (Engine* engine : engines) engine->drop_device();
  opened_ = OpenedModel{.options = opened_.options};
}

Status Recovery::reopen(const Open& open, std::span<Engine* const> engines) {
  drop(engines);
  PUMICE_TRY(opened_, open());
  const Status rebuilt = rebuild(engines);
  if (!rebuilt.ok()) drop(engines);
  return rebuilt;
}

Status Recovery::rebuild(std::span<Engine* const> engines) {
  for (Engine* engine : engines) {
    PUMICE_TRY_STATUS(engine->rebuild(opened_.pipelines, opened_.model));
  }
  return {};
}

}  // namespace pumice::host
