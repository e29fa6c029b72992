// Host: going on after the loss of a device.
#include <algorithm>

#include "host/host.hpp"

namespace pumice::host {

/// Its device was lost or replaced: the model's is another, or there is none yet. The devices
/// themselves are compared: a replacement may come at any moment, also while this engine is being
/// made again on the one before.
bool Host::is_elsewhere() const {
  return is_lost_ || !model_->device().is_latest(engine_->device());
}

/// Others may have met it, or a call that is not `poll`.
bool Host::has_lost_device() const {
  const std::shared_ptr<vk::Device> device = engine_->device();
  return device != nullptr && device->is_lost();
}

void Host::note_loss(const Error& error) {
  is_lost_ = true;
  why_lost_ = error.message;
  model_->device().options().logger.warning("{}", error.message);
  events_.push_back({.kind = Event::Kind::kDeviceLost,
                     .status = make_error(ErrorCode::kDeviceLost, "{}", error.message)});
  const std::lock_guard lock(mutex_);
  ++stats_.n_lost_devices;
  stats_.is_lost = true;
}

/// Once at a time: a device that is being reset is not there for seconds, nor one that an embedder
/// makes, and the polling thread is to go on with other things meanwhile. A device that is
/// reopened and lost again before a step has ended counts as not reopened.
Status Host::recover() {
  const Clock::time_point now = Clock::now();
  const uint64_t steps = engine_->scheduler().telemetry().steps;
  const DeviceOwner& owner = model_->device();
  const uint64_t generation = owner.generation();
  if (steps != retry_.steps || generation != retry_.generation) {
    retry_ = {.pause_s = retry_policy_.first_pause_s};
  }
  if (now < retry_.next) return make_error(ErrorCode::kDeviceLost, "{}", why_lost_);
  const auto pause = std::chrono::duration<double>(retry_.pause_s);
  retry_.next = now + std::chrono::duration_cast<Clock::duration>(pause);
  retry_.pause_s = std::min(2 * retry_.pause_s, retry_policy_.longest_pause_s);
  retry_.steps = steps;
  Status recovered = make_error(ErrorCode::kDeviceLost, "{}", why_lost_);
  if (retry_.tries < retry_policy_.most_tries) recovered = model_->recover(*engine_);
  ++retry_.tries;
  // Another that the embedder brought meanwhile is a reason to try again at once, one's own is not.
  retry_.generation = owner.is_lent() ? generation : owner.generation();
  is_lost_ = !recovered.ok();
  see_device();
  if (recovered.ok()) {
    events_.push_back({.kind = Event::Kind::kDeviceNew});
    return {};
  }
  why_lost_ = recovered.error().message;
  if (retry_.tries >= retry_policy_.most_tries) give_up_waiting();
  return recovered;
}

/// Requests end; the tries of those that come now begin anew.
void Host::give_up_waiting() {
  const Error error = make_error(ErrorCode::kDeviceLost, "{}, in {} tries", why_lost_,
                                 std::min(retry_.tries, retry_policy_.most_tries));
  retry_ = {};
  const std::map<pumice::RequestId, RequestId> running = running_;
  for (const auto& [engines, id] : running) stop(id, EndReason::kError, error);
}

void Host::see_device() {
  const OpenedModel opened = model_->opened();
  const std::shared_ptr<vk::Device> device = engine_->device();
  const std::lock_guard lock(mutex_);
  stats_.is_lost = is_lost_;
  device_ = device;
  // Another engine may have taken the model elsewhere meanwhile; this one follows.
  pipelines_ = opened.device == device ? opened.pipelines : nullptr;
}

}  // namespace pumice::host
