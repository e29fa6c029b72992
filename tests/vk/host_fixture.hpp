// A host application on the tests' hardware and instance: it makes a VkDevice of its own, with what
// it was told to enable, and lends it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "tests/gpu_fixture.hpp"
#include "vk/device.hpp"
#include "vk/feature_chain.hpp"
#include "vk/host_device.hpp"
#include "vk/requirements.hpp"

namespace pumice::test {

class Host {
 public:
  enum class Enables { kRequired, kEverything };

  /// GpuEnvironment::device() must not be null.
  explicit Host(Enables enables) : instance_(GpuEnvironment::device()->instance()) {
    const auto loader = vk::open_loader();
    PUMICE_CHECK(loader.ok(), "no loader");
    lent_.get_instance_proc_addr = loader->vkGetInstanceProcAddr;
    lent_.instance = instance_->handle();
    find_physical_device();
    for (const vk::Requirement& item : requirements_.items) {
      if (!item.required && enables == Enables::kRequired) continue;
      (item.structure == nullptr ? lent_.extensions : lent_.features).emplace_back(item.name);
    }
    make_device();
  }
  ~Host() {
    fn_.vkDeviceWaitIdle(lent_.device);
    fn_.vkDestroySemaphore(lent_.device, timeline_, nullptr);
    fn_.vkDestroyDevice(lent_.device, nullptr);
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// What to lend; without a lock or an allocator.
  vk::HostDevice lent() const { return lent_; }
  const vk::HostRequirements& requirements() const { return requirements_; }
  const vk::DeviceFunctions& fn() const { return fn_; }
  VkDevice device() const { return lent_.device; }

  /// The host's own timeline, signalled by nobody but the test.
  VkSemaphore timeline() const { return timeline_; }
  void signal(uint64_t value) const {
    VkSemaphoreSignalInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO;
    info.semaphore = timeline_;
    info.value = value;
    PUMICE_CHECK(fn_.vkSignalSemaphore(lent_.device, &info) == VK_SUCCESS, "signalling failed");
  }
  /// Whether the point is reached within 20 ms.
  bool reached_soon(const vk::TimelinePoint& point) const {
    VkSemaphoreWaitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
    info.semaphoreCount = 1;
    info.pSemaphores = &point.semaphore;
    info.pValues = &point.value;
    constexpr uint64_t kSoon_ns = 20'000'000;
    return fn_.vkWaitSemaphores(lent_.device, &info, kSoon_ns) == VK_SUCCESS;
  }

  /// Work of the host's, of no commands: waits for `after`, then signals the host's timeline.
  void submit_after(const vk::TimelinePoint& after, uint64_t signal_value) const {
    VkSemaphoreSubmitInfo wait{};
    wait.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO;
    wait.semaphore = after.semaphore;
    wait.value = after.value;
    wait.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
    VkSemaphoreSubmitInfo signal = wait;
    signal.semaphore = timeline_;
    signal.value = signal_value;
    VkSubmitInfo2 info{};
    info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2;
    info.waitSemaphoreInfoCount = 1;
    info.pWaitSemaphoreInfos = &wait;
    info.signalSemaphoreInfoCount = 1;
    info.pSignalSemaphoreInfos = &signal;
    PUMICE_CHECK(fn_.vkQueueSubmit2(lent_.queue, 1, &info, VK_NULL_HANDLE) == VK_SUCCESS,
                 "the host's work was not submitted");
  }

  /// A guest's device, as the environment's is limited.
  Result<std::shared_ptr<vk::Device>> adopt(const vk::HostDevice& lent,
                                            const vk::Device::Intercept& intercept = {}) const {
    return vk::Device::adopt(lent, GpuEnvironment::device()->plan().limits, {}, intercept);
  }
  std::shared_ptr<vk::Device> adopt() const {
    auto device = adopt(lent_);
    PUMICE_CHECK(device.ok(), device.error().message);
    return *device;
  }

 private:
  void find_physical_device() {
    const vk::Device& own = *GpuEnvironment::device();
    const auto snapshots = instance_->snapshots();
    PUMICE_CHECK(snapshots.ok(), "no snapshots");
    const auto same = [&](const vk::DeviceSnapshot& other) {
      return other.device_uuid == own.snapshot().device_uuid &&
             other.driver_id == own.snapshot().driver_id;
    };
    const auto found = std::ranges::find_if(*snapshots, same);
    lent_.physical_device =
        instance_->physical_devices()[static_cast<size_t>(found - snapshots->begin())];
    snapshot_ = *found;
    auto requirements = vk::host_requirements(snapshot_, own.plan().limits);
    PUMICE_CHECK(requirements.ok(), "no requirements");
    requirements_ = *std::move(requirements);
    lent_.queue_family = requirements_.queue_family;
  }

  void make_device() {
    vk::FeatureChain chain(snapshot_.api_version, [&](std::string_view name) {
      return std::ranges::find(lent_.extensions, name) != lent_.extensions.end();
    });
    vk::DeviceFeatures features;
    for (const vk::FeatureName& feature : vk::feature_names()) {
      features.*feature.member =
          std::ranges::find(lent_.features, feature.name) != lent_.features.end();
    }
    chain.write(features);
    std::vector<const char*> extensions;
    for (const std::string& name : lent_.extensions) extensions.push_back(name.c_str());
    const float priority = 1;
    VkDeviceQueueCreateInfo queue{};
    queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queue.queueFamilyIndex = lent_.queue_family;
    queue.queueCount = 1;
    queue.pQueuePriorities = &priority;
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.pNext = chain.head();
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    PUMICE_CHECK(instance_->functions().vkCreateDevice(lent_.physical_device, &info, nullptr,
                                                       &lent_.device) == VK_SUCCESS,
                 "the host could not create its device");
    fn_ = vk::load_device_functions(instance_->functions(), lent_.device).value();
    fn_.vkGetDeviceQueue(lent_.device, lent_.queue_family, 0, &lent_.queue);
    VkSemaphoreTypeCreateInfo type{};
    type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo semaphore{};
    semaphore.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
    semaphore.pNext = &type;
    PUMICE_CHECK(fn_.vkCreateSemaphore(lent_.device, &semaphore, nullptr, &timeline_) == VK_SUCCESS,
                 "no timeline");
  }

  std::shared_ptr<vk::Instance> instance_;
  vk::DeviceSnapshot snapshot_;
  vk::HostRequirements requirements_;
  vk::HostDevice lent_;
  vk::DeviceFunctions fn_{};
  VkSemaphore timeline_ = VK_NULL_HANDLE;
};

/// A host's lock of its queue.
struct QueueLock {
  std::atomic<bool> held = false;
  std::atomic<uint32_t> n_taken = 0;  ///< by the guest
  std::atomic<uint32_t> n_refused = 0;

  vk::HostQueueLock lent() {
    return {.try_lock =
                [](void* user) {
                  auto& lock = *static_cast<QueueLock*>(user);
                  const bool taken = !lock.held.exchange(true);
                  ++(taken ? lock.n_taken : lock.n_refused);
                  return taken;
                },
            .unlock = [](void* user) { static_cast<QueueLock*>(user)->held = false; },
            .user = this};
  }
};

}  // namespace pumice::test
