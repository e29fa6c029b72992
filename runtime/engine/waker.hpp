// Sleep that any thread can end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace pumice {

/// One thread sleeps; any number may wake it.
class Waker {
 public:
  /// End the sleep that is under way, or the next one before it begins.
  void wake() {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    changed_.notify_one();
  }
  /// Until `wake`, or that long at most; whether it was `wake`, also one since the last sleep.
  bool sleep(std::chrono::nanoseconds most) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, most, [&] { return woken_; });
    return std::exchange(woken_, false);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
};

}  // namespace pumice
