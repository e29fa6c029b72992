// Whether a device that has work still gets on with it, for hosts that look and never wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace pumice::vk {

/// Thread-safe.
class HangWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// Work was submitted; the timeline reaches `value` when it is done.
  void submitted(uint64_t value, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (reached_ == submitted_) since_ = now;  // it had nothing to do
    submitted_ = value;
  }
  /// The timeline was seen at `value`. For how long the device had work and got no further.
  std::chrono::duration<double> reached(uint64_t value, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (value > reached_) {
      reached_ = value;
      since_ = now;
    }
    if (reached_ >= submitted_) since_ = now;
    return now - since_;
  }

 private:
  std::mutex mutex_;
  uint64_t submitted_ = 0;
  uint64_t reached_ = 0;
  Clock::time_point since_ = {};  // of the last progress, or of the first work after none
};

}  // namespace pumice::vk
