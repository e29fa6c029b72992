#include "vk/queue_priority.hpp"

#include <algorithm>

#include "vk/functions.hpp"

namespace pumice::vk {
namespace {

// Both names, the newer one first. They are among a plan's extensions for a low priority only.
constexpr const char* kGlobalPriority[] = {VK_KHR_GLOBAL_PRIORITY_EXTENSION_NAME,
                                           VK_EXT_GLOBAL_PRIORITY_EXTENSION_NAME};

}  // namespace

bool ask_for_low_priority(const DeviceSnapshot& snapshot, DevicePlan& plan) {
  for (const char* const name : kGlobalPriority) {
    if (std::ranges::find(snapshot.extensions, name) == snapshot.extensions.end()) continue;
    plan.extensions.emplace_back(name);
    return true;
  }
  return false;
}

bool has_low_priority(const DevicePlan& plan) {
  return std::ranges::any_of(kGlobalPriority, [&](const char* name) {
    return std::ranges::find(plan.extensions, name) != plan.extensions.end();
  });
}

}  // namespace pumice::vk
