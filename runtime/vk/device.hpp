// The logical device: one VkDevice, one compute queue, one timeline. Everything that talks to the
// GPU holds a shared_ptr to it, so it outlives every allocation and command buffer. The VkDevice is
// our own, or a host's (host_device.hpp), on which only what is ours is ever waited for.
//
// Threads: any number may call a device; the queue is used behind one lock, and a host's behind the
// host's as well.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "vk/functions.hpp"
#include "vk/hang_watch.hpp"
#include "vk/host_device.hpp"
#include "vk/instance.hpp"
#include "vk/landing_marks.hpp"
#include "vk/memory.hpp"
#include "vk/plan.hpp"
#include "vk/snapshot.hpp"

namespace pumice::vk {

class Device {
 public:
  /// Replaces entry points before any of them is used, so that tests see what a driver is told and
  /// let it answer otherwise.
  using Intercept = std::function<void(DeviceFunctions&)>;

  /// Create what `plan` (from `plan_device(snapshot)`) describes on physical device `index` of the
  /// instance, which is kept alive. Where buffers may not have the memory types of the plan, which
  /// only a device can say, it is planned anew with those they may have. Errors: kNoDevice when the
  /// driver refuses, or no such type serves.
  static Result<std::shared_ptr<Device>> create(std::shared_ptr<Instance> instance, size_t index,
                                                const DeviceSnapshot& snapshot, DevicePlan plan,
                                                Logger logger, const Intercept& intercept = {});

  /// Use a host's device, of which the snapshot and the plan have only what the host enabled
  /// (requirements.hpp); its instance and device must outlive this. Errors: kInvalidArgument for a
  /// null handle or half a pair of callbacks; those of restrict_to and of plan_device.
  static Result<std::shared_ptr<Device>> adopt(const HostDevice& host, const PlanOptions& limits,
                                               Logger logger, const Intercept& intercept = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceSnapshot& snapshot() const { return snapshot_; }
  const DevicePlan& plan() const { return plan_; }
  const DeviceFunctions& fn() const { return fn_; }
  VkDevice handle() const { return device_; }
  const Logger& logger() const { return logger_; }
  MemoryLedger& ledger() { return ledger_; }
  const std::shared_ptr<Instance>& instance() const { return instance_; }

  /// Submit command buffers in order as one batch; the returned timeline value is reached when they
  /// are done. Waits while the host holds its queue. Errors: kDeviceLost, from then on always;
  /// kDoesNotFit (out of memory); kInternal when the host holds its queue for
  /// the hang timeout.
  Result<uint64_t> submit(std::span<const VkCommandBuffer> command_buffers);

  /// The same without waiting: nothing was submitted if the host holds its queue, or too much is under way.
  Result<std::optional<uint64_t>> try_submit(std::span<const VkCommandBuffer> command_buffers);

  /// What is submitted from now on begins when the host's semaphore, of this VkDevice and of type
  /// timeline, has reached its value. What is to reach it must not be queued behind our work.
  void begin_after(const TimelinePoint& point);

  /// Reached when all that was submitted so far is done: for the host to wait for, which must not
  /// signal or destroy the semaphore. It lives as long as this device.
  TimelinePoint submitted();

  /// Block until the timeline reaches `value`. Errors: kDeviceLost, also when the device has work
  /// and makes no progress for the hang timeout.
  Status wait(uint64_t value);

  /// The same, `most` at most; whether it was reached.
  Result<bool> wait_for(uint64_t value, std::chrono::nanoseconds most);

  /// The highest timeline value known to be reached, without blocking. Errors: as of `wait`.
  Result<uint64_t> completed();

  /// After how long without progress a device that has work counts as lost. What one kernel takes
  /// must be far below.
  static constexpr double kHangTimeout_s = 600;
  void set_hang_timeout(double seconds) { hang_timeout_s_ = seconds; }

  /// A call said so, it hangs, or what it computed cannot be (`faulty`). Everything that this
  /// device had is gone, and another must be opened.
  bool is_lost() const { return loss_ != Loss::kNone; }
  /// It is lost, and may still read and write all it was given: nothing of it is freed any more,
  /// the instance included, whose driver is at work.
  bool hangs() const { return loss_ == Loss::kHangs; }

  /// What came from the device cannot be what was computed: from now on it counts as lost. `what`
  /// follows its name in the message, which is kDeviceLost.
  Error faulty(std::string_view what);

  /// Retire something the GPU may still use: `destroy` runs once everything submitted so far is
  /// done, at once if it already is, else during a later retire or at teardown; never if the device
  /// hangs. It must not throw, call back into this class except free_slab and ledger, nor keep the
  /// device alive; copying it does not fail. Where the host has no memory to remember it by, this
  /// waits for the device.
  template <typename Destroy>
  void retire(const Destroy& destroy) noexcept {
    try {
      add_retired(destroy);
    } catch (const std::bad_alloc&) {
      wait_idle();
      if (!hangs()) destroy();
    }
    destroy_retired();
  }

  /// Block until all that was submitted here so far is done, or the device is found to hang.
  void wait_idle();

  /// Whether the memory budget has room for `bytes` more. Errors: kDoesNotFit, saying what is
  /// needed, what there is and by how much it falls short.
  Status check_fits(uint64_t bytes, std::string_view what) const;

  /// Memory of `size_bytes` (at most `plan().slab_bytes`) with a buffer over it. Any thread.
  /// Errors: kDoesNotFit, also when the device allows no further allocation, however small.
  Result<Slab> allocate_slab(MemoryDomain domain, uint64_t size_bytes, const std::string& purpose);
  /// How often `allocate_slab` has given memory. Any thread.
  uint64_t n_allocated() const { return n_allocated_; }
  /// Free a slab that the GPU is done with. Any thread.
  void free_slab(const Slab& slab);

  /// An Error for a failed Vulkan call: device loss, out of memory, or the driver's own result
  /// code.
  Error error_of(VkResult result, std::string_view what) const;

 private:
  enum class Loss { kNone, kFaulty, kLost, kHangs };  // in order of what is still done with it

  Device() = default;
  /// With device_ made or lent: what every device needs besides.
  Status start(const Intercept& intercept);
  Error lost_error() const;
  void note(Loss loss) const;
  Error hang_error();
  /// How far the timeline is, and what is left of the hang timeout.
  struct Progress {
    uint64_t value = 0;
    std::chrono::duration<double> patience{};
  };
  // These ask the driver even of a device that counts as lost.
  Result<Progress> progress();
  Result<bool> await(uint64_t value, std::chrono::nanoseconds most);
  void add_retired(std::function<void()> destroy);
  void destroy_retired();
  Status choose_memory();
  VkResult allocate_memory(const MemoryChoice& choice, const VkMemoryRequirements& requirements,
                           float priority, HostMemory& memory) const;

  std::shared_ptr<Instance> instance_;
  DeviceSnapshot snapshot_;
  DevicePlan plan_;
  Logger logger_;
  MemoryLedger ledger_;
  std::atomic<uint32_t> n_allocations_ = 0;
  DeviceFunctions fn_{};
  VkDevice device_ = VK_NULL_HANDLE;
  bool is_guest_ = false;  // device_ is a host's, as are the next three
  VkQueue queue_ = VK_NULL_HANDLE;
  HostQueueLock queue_lock_;
  HostAllocator allocator_;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  std::mutex queue_mutex_;
  struct Retired {
    uint64_t value = 0;  // timeline value after which it may go
    std::function<void()> destroy;
  };
  uint64_t last_submitted_ = 0;  // guarded by queue_mutex_, like the next two
  std::vector<TimelinePoint> begin_after_;
  std::deque<Retired> retired_;  // in order of value
  std::atomic<uint64_t> n_allocated_ = 0;
  mutable std::atomic<Loss> loss_ = Loss::kNone;
  std::atomic<double> hang_timeout_s_ = kHangTimeout_s;
  HangWatch hang_watch_;
  LandingMarks landing_marks_;
};

}  // namespace pumice::vk
