#include "host/recovery.hpp"

#include <algorithm>

namespace pumice::host {
OpenedModel Recovery::opened() const {
  const std::lock_guard lock(mutex_);
  return opened_;
}

Status Recovery::recover(std::span<Engine* const> engines) {
  const std::lock_guard lock(mutex_);
  const bool is_present = std::ranges::any_of(
      engines, [&](const Engine* engine) { return engine->device() == opened_.device; });
  if (opened_.device != nullptr && !opened_.device->is_lost() && !is_present) {
    const Status rebuilt = rebuild(engines);  // on what another recovery has opened
    if (rebuilt.ok()) return {};
  }
  const Status status = reopen(engines);
  if (status.ok()) return {};
  return make_error(ErrorCode::kDeviceLost, "the device was lost and could not be opened again: {}",
                    status.error().message);
}

Status Recovery::replace() {
  const std::lock_guard lock(mutex_);
  return reopen({});
}

/// What holds memory goes before the same is asked for again.
void Recovery::drop(std::span<Engine* const> engines) {
  for (Engine* engine : engines) engine->drop_device();
  opened_ = OpenedModel{.options = opened_.options};
}

Status Recovery::reopen(std::span<Engine* const> engines) {
  drop(engines);
  PUMICE_TRY(opened_, open_());
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
