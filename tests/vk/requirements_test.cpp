// What a host is told to enable, and what a guest makes of what it enabled, on recorded devices.
#include "vk/requirements.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/vk/snapshots.hpp"
#include "vk/plan.hpp"

namespace pumice {
namespace {

using test::snapshot;

/// A host that enables what it is told to.
struct Host {
  explicit Host(vk::DeviceSnapshot of, bool optional = true) : device(std::move(of)) {
    const auto wanted = vk::host_requirements(device);
    if (!wanted.ok()) return;
    for (const vk::Requirement& item : wanted->items) {
      if (!item.required && !optional) continue;
      (item.structure == nullptr ? extensions : features).emplace_back(item.name);
    }
    queue_family = wanted->queue_family;
  }
  Result<vk::DeviceSnapshot> left() const {
    return vk::restrict_to(device, {.api_version = api_version,
                                    .queue_family = queue_family,
                                    .extensions = extensions,
                                    .features = features});
  }
  Error refused() const {
    const auto restricted = left();
    EXPECT_FALSE(restricted.ok());
    return restricted.ok() ? Error{} : restricted.error();
  }

  vk::DeviceSnapshot device;
  uint32_t api_version = VK_API_VERSION_1_3;
  uint32_t queue_family = 0;
  std::vector<std::string> extensions, features;
};

TEST(Requirements, AHostThatEnablesAllOfThemGetsThePlanOfADeviceOfOurOwn) {
  size_t n_usable = 0;
  for (const std::string& name : test::snapshot_names()) {
    const vk::DeviceSnapshot device = snapshot(name);
    const auto own = vk::plan_device(device);
    if (!own.ok()) continue;
    ++n_usable;
    const auto left = Host(device).left();
    ASSERT_TRUE(left.ok()) << name << ": " << left.error().message;
    const auto plan = vk::plan_device(*left);
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.error().message;
    EXPECT_EQ(plan->features, own->features) << name;
    EXPECT_EQ(plan->extensions, own->extensions) << name;
    EXPECT_EQ(plan->queue_family, own->queue_family) << name;
    EXPECT_EQ(plan->subgroup_size, own->subgroup_size) << name;
    EXPECT_EQ(plan->matrix_shapes, own->matrix_shapes) << name;
    EXPECT_EQ(plan->device_budget_bytes, own->device_budget_bytes) << name;
  }
  EXPECT_GT(n_usable, 10u);
}

TEST(Requirements, WhatTheHostDidNotEnableIsNotUsed) {
  const vk::DeviceSnapshot device = snapshot("nvidia_rtx_4090");
  Host host(device, false);
  auto plan = vk::plan_device(host.left().value());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->extensions.empty());
  for (const vk::OptionalFeature& optional : vk::optional_features()) {
    EXPECT_FALSE(plan->features.*optional.member);
  }
  // A feature counts without its extension no more than the extension without the feature.
  host.features.emplace_back("memoryPriority");
  EXPECT_FALSE(vk::plan_device(host.left().value())->features.memory_priority);
  host.extensions.emplace_back(VK_EXT_MEMORY_PRIORITY_EXTENSION_NAME);
  EXPECT_TRUE(vk::plan_device(host.left().value())->features.memory_priority);
  host.features.emplace_back("pageableDeviceLocalMemory");
  host.extensions.emplace_back(VK_EXT_PAGEABLE_DEVICE_LOCAL_MEMORY_EXTENSION_NAME);
  EXPECT_TRUE(vk::plan_device(host.left().value())->features.pageable_memory);
  std::erase(host.features, "memoryPriority");
  EXPECT_FALSE(vk::plan_device(host.left().value())->features.pageable_memory);
  EXPECT_FALSE(vk::plan_device(host.left().value())->features.memory_priority);
}

TEST(Requirements, EachThatIsLeftOutIsNamed) {
  const vk::DeviceSnapshot device = snapshot("amd_rx_6700_xt_radv");
  const auto wanted = vk::host_requirements(device);
  ASSERT_TRUE(wanted.ok());
  size_t n_required = 0;
  for (const vk::Requirement& item : wanted->items) {
    EXPECT_FALSE(std::string_view(item.brings).empty()) << item.name;
    if (!item.required) continue;
    ++n_required;
    Host host(device);
    std::erase(host.features, item.name);
    const Error error = host.refused();
    EXPECT_EQ(error.code, ErrorCode::kNoDevice);
    EXPECT_TRUE(error.message.ends_with(std::string("required: ") + item.name)) << error.message;
  }
  EXPECT_EQ(n_required, vk::required_features().size());
}

TEST(Requirements, AnOlderInstanceIsRefused) {
  Host host(snapshot("amd_rx_6700_xt_radv"));
  host.api_version = VK_API_VERSION_1_2;
  EXPECT_NE(host.refused().message.find("Vulkan 1.3 (it has 1.2.0)"), std::string::npos);
}

TEST(Requirements, TheQueueIsTheHosts) {
  const vk::DeviceSnapshot device = snapshot("amd_rx_6700_xt_radv");
  const uint32_t preferred = vk::plan_device(device)->queue_family;
  size_t n_others = 0;
  for (uint32_t family = 0; family < device.queue_families.size(); ++family) {
    Host host(device);
    host.queue_family = family;
    if ((device.queue_families[family].queue_bits & VK_QUEUE_COMPUTE_BIT) == 0) {
      EXPECT_NE(host.refused().message.find("cannot compute"), std::string::npos);
      continue;
    }
    if (family != preferred) ++n_others;
    EXPECT_EQ(vk::plan_device(host.left().value())->queue_family, family);
  }
  EXPECT_GT(n_others, 0u);
  Host host(device);
  host.queue_family = static_cast<uint32_t>(device.queue_families.size());
  EXPECT_EQ(host.refused().code, ErrorCode::kInvalidArgument);
}

TEST(Requirements, AMemoryModelWithoutDeviceScopeIsRefused) {
  Host host(snapshot("nvidia_rtx_4090"));
  std::erase(host.features, "vulkanMemoryModelDeviceScope");
  EXPECT_NE(host.refused().message.find("vulkanMemoryModelDeviceScope"), std::string::npos);
  std::erase(host.features, "vulkanMemoryModel");
  const auto left = host.left();
  ASSERT_TRUE(left.ok()) << left.error().message;
  EXPECT_FALSE(vk::plan_device(*left)->features.cooperative_matrix);
}

TEST(Requirements, ADeviceBelowTheFloorHasNone) {
  vk::DeviceSnapshot device = snapshot("amd_rx_6700_xt_radv");
  device.features.synchronization2 = false;
  const auto wanted = vk::host_requirements(device);
  ASSERT_FALSE(wanted.ok());
  EXPECT_NE(wanted.error().message.find("synchronization2"), std::string::npos);
}

}  // namespace
}  // namespace pumice
