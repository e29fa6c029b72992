#include "tests/vk_faults.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pumice::test {
namespace {

struct State {
  vk::DeviceFunctions real;
  std::atomic<VulkanFaults::Kind> kind = VulkanFaults::Kind::kNone;
  std::atomic<uint64_t> nth = 0;
  std::atomic<uint64_t> n_calls = 0;
  std::atomic<const char*> struck = nullptr;
  std::atomic<bool> is_lost = false;  // the device opened last
};
State state;
thread_local int driver_depth = 0;

/// Those that the specification lets say so, of what this project calls.
constexpr std::array<std::string_view, 7> kMayBeLost = {
    "vkQueueSubmit2",   "vkWaitSemaphores", "vkGetSemaphoreCounterValue",
    "vkDeviceWaitIdle", "vkQueueWaitIdle",  "vkGetQueryPoolResults",
    "vkGetFenceStatus"};

/// What this call is to answer instead of doing its work; VK_SUCCESS: nothing.
VkResult fault(const char* name) {
  using Kind = VulkanFaults::Kind;
  const Kind kind = state.kind;
  if (kind == Kind::kNone || kind == Kind::kCancelled) return VK_SUCCESS;
  const uint64_t call = state.n_calls++;
  if (kind == Kind::kLost) {
    const bool may_be_lost =
        std::ranges::find(kMayBeLost, std::string_view(name)) != kMayBeLost.end();
    if (call >= state.nth && may_be_lost && state.struck == nullptr) {
      state.struck = name;
      state.is_lost = true;
    }
    return state.is_lost && may_be_lost ? VK_ERROR_DEVICE_LOST : VK_SUCCESS;
  }
  if (call != state.nth) return VK_SUCCESS;
  state.struck = name;
  return kind == Kind::kHostMemory ? VK_ERROR_OUT_OF_HOST_MEMORY : VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

/// What a watchdog that cancels this submission leaves of it: its signals.
bool cancels(const char* name) {
  if (state.kind != VulkanFaults::Kind::kCancelled || state.n_calls++ != state.nth) return false;
  state.struck = name;
  return true;
}

struct InDriver {
  InDriver() { ++driver_depth; }
  ~InDriver() { --driver_depth; }
  InDriver(const InDriver&) = delete;
  InDriver& operator=(const InDriver&) = delete;
};

VkResult submit_nothing(PFN_vkQueueSubmit2 submit, VkQueue queue, uint32_t n,
                        const VkSubmitInfo2* infos, VkFence fence) {
  std::vector<VkSubmitInfo2> empty(infos, infos + n);
  for (VkSubmitInfo2& info : empty) info.commandBufferInfoCount = 0;
  return submit(queue, n, empty.data(), fence);
}

/// `Call` names the entry point.
template <typename Call, typename R, typename... A>
R VKAPI_CALL entry(A... arguments) {
  const InDriver in_driver;
  if constexpr (std::is_same_v<R, VkResult>) {
    if (const VkResult failed = fault(Call::kName); failed != VK_SUCCESS) {
      // The device is at work all the same, and what it works on may be freed behind this.
      if constexpr (Call::kWaits) Call::real()(arguments...);
      return failed;
    }
  } else if (state.kind == VulkanFaults::Kind::kLost) {
    ++state.n_calls;
  }
  if constexpr (Call::kSubmits) {
    if (cancels(Call::kName)) return submit_nothing(Call::real(), arguments...);
  }
  return Call::real()(arguments...);
}

template <typename Call, typename R, typename... A>
auto wrapped(R(VKAPI_PTR* function)(A...)) {
  return function != nullptr ? &entry<Call, R, A...> : nullptr;
}

#define PUMICE_TEST_CALL(name)                                           \
  struct Call_##name {                                                   \
    static constexpr const char* kName = #name;                          \
    static constexpr bool kWaits =                                       \
        std::string_view(#name) == std::string_view("vkDeviceWaitIdle"); \
    static constexpr bool kSubmits =                                     \
        std::string_view(#name) == std::string_view("vkQueueSubmit2");   \
    static auto real() { return state.real.name; }                       \
  };
PUMICE_VK_DEVICE_FUNCTIONS(PUMICE_TEST_CALL)
PUMICE_VK_OPTIONAL_DEVICE_FUNCTIONS(PUMICE_TEST_CALL)
#undef PUMICE_TEST_CALL

}  // namespace

void VulkanFaults::intercept(vk::DeviceFunctions& fn) {
  state.real = fn;
  state.is_lost = false;
#define PUMICE_TEST_WRAP(name) fn.name = wrapped<Call_##name>(fn.name);
  PUMICE_VK_DEVICE_FUNCTIONS(PUMICE_TEST_WRAP)
  PUMICE_VK_OPTIONAL_DEVICE_FUNCTIONS(PUMICE_TEST_WRAP)
#undef PUMICE_TEST_WRAP
}

void VulkanFaults::arm(Kind kind, uint64_t nth) {
  state.kind = Kind::kNone;
  state.nth = nth;
  state.n_calls = 0;
  state.struck = nullptr;
  state.is_lost = false;
  state.kind = kind;
}

void VulkanFaults::disarm() { state.kind = Kind::kNone; }

std::string VulkanFaults::struck() {
  const char* name = state.struck;
  return name != nullptr ? name : "";
}

uint64_t VulkanFaults::n_calls() { return state.n_calls; }

bool VulkanFaults::in_driver() { return driver_depth > 0; }

}  // namespace pumice::test
