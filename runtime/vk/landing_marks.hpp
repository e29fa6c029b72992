// Whether submissions that count as done were carried out. A driver's watchdog may cancel one and signal its end all
// the same (Linux's i915 does): then what the host reads is old memory. So each submission ends with a command that
// writes a word of its own, which is looked at once the timeline says that it is done.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "vk/memory.hpp"

namespace pumice::vk {

class Device;

/// Thread-safe, but for `create` and `destroy`.
class LandingMarks {
 public:
  /// Errors: as of Device::allocate_slab, and what the driver refuses.
  Status create(Device& device);
  /// The device is idle, or lost.
  void destroy(Device& device);

  /// The commands that end the submission after which the timeline is `value`, one more than the last time; null while
  /// too many are under way. May be called again with the same value. Errors: out of memory.
  Result<VkCommandBuffer> commands(Device& device, uint64_t value);

  /// The timeline was seen at `reached`. Whether all that was submitted up to there has left its mark; what has not is
  /// told once.
  bool all_written(uint64_t reached);

 private:
  static constexpr uint32_t kMost = 1024;  // submissions under way
  struct Submission {
    uint64_t value = 0;
    uint32_t place = 0;  // its word's
  };

  Status record(Device& device, VkCommandBuffer commands, uint32_t place) const;

  std::mutex mutex_;
  Slab words_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  std::vector<VkCommandBuffer> commands_;  // by place, as many as were under way at once
  std::vector<uint32_t> free_;             // places
  std::deque<Submission> under_way_;
};

}  // namespace pumice::vk
