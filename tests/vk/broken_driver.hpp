// A driver that breaks when it is told to: its device hangs, or chooses tokens that there are not.
// It knows what was made of it and not destroyed, which a device that hangs leaves behind.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <typeindex>
#include <utility>
#include <vector>

#include "vk/functions.hpp"

namespace pumice::test {

/// Of the device that was opened last with `intercept`. Entry points are plain functions.
class BrokenDriver {
 public:
  static void intercept(vk::DeviceFunctions& fn) {
    real() = fn;
    state().reset();
    fn.vkQueueSubmit2 = submit;
    fn.vkWaitSemaphores = wait;
    fn.vkDeviceWaitIdle = wait_idle;
    fn.vkDestroyDevice = destroy_device;
    fn.vkCmdCopyBuffer = copy;
    fn.vkCreateComputePipelines = create_pipelines;
    fn.vkDestroyPipeline = destroy<&F::vkDestroyPipeline, VkPipeline>;
#define PUMICE_TEST_TRACK(create_name, destroy_name, info, handle)          \
  fn.create_name = create<&F::create_name, &F::destroy_name, info, handle>; \
  fn.destroy_name = destroy<&F::destroy_name, handle>;
    PUMICE_TEST_TRACK(vkCreateSemaphore, vkDestroySemaphore, VkSemaphoreCreateInfo, VkSemaphore)
    PUMICE_TEST_TRACK(vkCreateBuffer, vkDestroyBuffer, VkBufferCreateInfo, VkBuffer)
    PUMICE_TEST_TRACK(vkAllocateMemory, vkFreeMemory, VkMemoryAllocateInfo, VkDeviceMemory)
    PUMICE_TEST_TRACK(vkCreateCommandPool, vkDestroyCommandPool, VkCommandPoolCreateInfo,
                      VkCommandPool)
    PUMICE_TEST_TRACK(vkCreateQueryPool, vkDestroyQueryPool, VkQueryPoolCreateInfo, VkQueryPool)
    PUMICE_TEST_TRACK(vkCreatePipelineLayout, vkDestroyPipelineLayout, VkPipelineLayoutCreateInfo,
                      VkPipelineLayout)
    PUMICE_TEST_TRACK(vkCreatePipelineCache, vkDestroyPipelineCache, VkPipelineCacheCreateInfo,
                      VkPipelineCache)
#undef PUMICE_TEST_TRACK
  }

  /// Nothing that is submitted from now on ever ends.
  static void hang() {
    state().n_destroyed = 0;
    state().n_endless_waits = 0;
    state().hangs = true;
  }
  /// Objects destroyed since then.
  static int n_destroyed() { return state().n_destroyed; }
  /// Waits since then that a driver would never return from, or not within a minute.
  static int n_endless_waits() { return state().n_endless_waits; }
  /// Destroy what is left, and the device.
  static void clean_up(VkDevice device) {
    State& all = state();
    std::ranges::for_each(all.left.rbegin(), all.left.rend(),
                          [](const Left& left) { left.destroy(); });
    all.left.clear();
    real().vkDestroyDevice(device, nullptr);
  }

  /// From now on copies of so many bytes bring this word instead.
  static void spoil_copies(uint64_t size_bytes, uint32_t word) {
    state().spoilt_word = word;
    state().spoilt_bytes = size_bytes;
  }

 private:
  using F = vk::DeviceFunctions;
  struct Left {
    std::type_index type;
    uint64_t handle = 0;
    std::function<void()> destroy;
  };
  struct State {
    std::atomic<bool> hangs = false;
    std::atomic<int> n_destroyed = 0;
    std::atomic<int> n_endless_waits = 0;
    std::atomic<uint64_t> spoilt_bytes = 0;
    std::atomic<uint32_t> spoilt_word = 0;
    std::mutex mutex;
    std::vector<Left> left;

    void reset() {
      hangs = false;
      spoilt_bytes = 0;
      left.clear();
    }
  };
  static State& state() {
    static State state;
    return state;
  }
  static F& real() {
    static F functions;
    return functions;
  }

  template <typename Handle>
  static void made(Handle handle, std::function<void()> destroy) {
    const std::lock_guard lock(state().mutex);
    state().left.push_back(
        {typeid(Handle), reinterpret_cast<uint64_t>(handle), std::move(destroy)});
  }
  template <auto Create, auto Destroy, typename Info, typename Handle>
  static VkResult VKAPI_CALL create(VkDevice device, const Info* info,
                                    const VkAllocationCallbacks* callbacks, Handle* handle) {
    const VkResult result = (real().*Create)(device, info, callbacks, handle);
    if (result == VK_SUCCESS) {
      made(*handle, [device, it = *handle] { (real().*Destroy)(device, it, nullptr); });
    }
    return result;
  }
  static VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache cache, uint32_t n,
                                              const VkComputePipelineCreateInfo* infos,
                                              const VkAllocationCallbacks* callbacks,
                                              VkPipeline* pipelines) {
    const VkResult result =
        real().vkCreateComputePipelines(device, cache, n, infos, callbacks, pipelines);
    for (uint32_t i = 0; result == VK_SUCCESS && i < n; ++i) {
      made(pipelines[i],
           [device, it = pipelines[i]] { real().vkDestroyPipeline(device, it, nullptr); });
    }
    return result;
  }
  template <auto Destroy, typename Handle>
  static void VKAPI_CALL destroy(VkDevice device, Handle handle,
                                 const VkAllocationCallbacks* callbacks) {
    if (handle == VK_NULL_HANDLE) return;
    ++state().n_destroyed;
    {
      const std::lock_guard lock(state().mutex);
      std::erase_if(state().left, [&](const Left& left) {
        return left.type == typeid(Handle) && left.handle == reinterpret_cast<uint64_t>(handle);
      });
    }
    (real().*Destroy)(device, handle, callbacks);
  }
  static void VKAPI_CALL destroy_device(VkDevice device, const VkAllocationCallbacks* callbacks) {
    ++state().n_destroyed;
    real().vkDestroyDevice(device, callbacks);
  }

  static VkResult VKAPI_CALL submit(VkQueue queue, uint32_t n, const VkSubmitInfo2* infos,
                                    VkFence fence) {
    return state().hangs ? VK_SUCCESS : real().vkQueueSubmit2(queue, n, infos, fence);
  }
  static VkResult VKAPI_CALL wait(VkDevice device, const VkSemaphoreWaitInfo* info,
                                  uint64_t timeout_ns) {
    if (!state().hangs) return real().vkWaitSemaphores(device, info, timeout_ns);
    constexpr uint64_t kMinute_ns = 60'000'000'000;
    if (timeout_ns > kMinute_ns) ++state().n_endless_waits;
    constexpr uint64_t kLongest_ns = 50'000'000;  // of a test's time
    return real().vkWaitSemaphores(device, info, std::min(timeout_ns, kLongest_ns));
  }
  static VkResult VKAPI_CALL wait_idle(VkDevice device) {
    if (state().hangs) ++state().n_endless_waits;
    return real().vkDeviceWaitIdle(device);
  }
  static void VKAPI_CALL copy(VkCommandBuffer commands, VkBuffer source, VkBuffer target,
                              uint32_t n_regions, const VkBufferCopy* regions) {
    if (n_regions == 1 && regions[0].size == state().spoilt_bytes) {
      real().vkCmdFillBuffer(commands, target, regions[0].dstOffset, regions[0].size,
                             state().spoilt_word);
    } else {
      real().vkCmdCopyBuffer(commands, source, target, n_regions, regions);
    }
  }
};

}  // namespace pumice::test
