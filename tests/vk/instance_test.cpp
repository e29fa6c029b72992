// On whatever devices are present.
#include "vk/instance.hpp"

#include <gtest/gtest.h>

#include <mutex>

#include "vk/device_choice.hpp"
#include "vk/plan.hpp"

namespace pumice {
namespace {

TEST(Instance, SnapshotsEveryDevicePresent) {
  auto instance = vk::Instance::create();
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  auto snapshots = instance->snapshots();
  ASSERT_TRUE(snapshots.ok()) << snapshots.error().message;
  ASSERT_EQ(snapshots->size(), instance->physical_devices().size());
  for (const vk::DeviceSnapshot& snapshot : *snapshots) {
    EXPECT_FALSE(snapshot.name.empty());
    EXPECT_GE(snapshot.api_version, VK_API_VERSION_1_0);
    EXPECT_FALSE(snapshot.heaps.empty());
    EXPECT_FALSE(snapshot.memory_types.empty());
    EXPECT_FALSE(snapshot.queue_families.empty());
  }
}

TEST(Instance, TheDeviceChosenByDefaultCanBePlanned) {
  auto instance = vk::Instance::create();
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  auto snapshots = instance->snapshots();
  ASSERT_TRUE(snapshots.ok());
  auto index = vk::choose_device(*snapshots, "");
  ASSERT_TRUE(index.ok()) << index.error().message;
  auto plan = vk::plan_device((*snapshots)[*index]);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_GT(plan->slab_bytes, 0u);
}

// A logger that keeps its lines, and an instance that validates; the layer may be missing.
struct Validating {
  std::mutex mutex;
  std::vector<std::string> lines;
  Logger logger{[this](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  }};
  Result<vk::Instance> instance = vk::Instance::create({.validation = true, .logger = logger});
};

// Asks for properties with a structure that does not say what it is.
void provoke_validation_error(const vk::Instance& instance) {
  VkPhysicalDeviceProperties2 properties{};
  instance.functions().vkGetPhysicalDeviceProperties2(instance.physical_devices().at(0),
                                                      &properties);
}

TEST(Instance, AValidationErrorIsCountedAndLoggedByTheInstanceThatSawIt) {
  Validating first, second;
  if (!first.instance.ok()) GTEST_SKIP() << first.instance.error().message;
  ASSERT_TRUE(second.instance.ok());
  if (first.instance->physical_devices().empty()) GTEST_SKIP() << "no Vulkan device";
  ASSERT_TRUE(first.instance->snapshots().ok());
  EXPECT_EQ(first.instance->validation_error_count(), 0u) << "taking snapshots is valid";
  EXPECT_TRUE(first.instance->has_debug_utils());

  provoke_validation_error(*first.instance);
  EXPECT_EQ(first.instance->validation_error_count(), 1u);
  ASSERT_FALSE(first.lines.empty());
  EXPECT_NE(first.lines.back().find("sType"), std::string::npos) << first.lines.back();
  EXPECT_EQ(second.instance->validation_error_count(), 0u);
}

TEST(Instance, SynchronisationValidationCanBeEnabled) {
  const auto instance = vk::Instance::create({.sync_validation = true});
  if (!instance.ok()) GTEST_SKIP() << instance.error().message;
  EXPECT_EQ(instance->validation_error_count(), 0u);
}

TEST(Instance, WithoutValidationNothingIsCounted) {
  const auto instance = vk::Instance::create();
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  EXPECT_FALSE(instance->has_debug_utils());
  EXPECT_EQ(instance->validation_error_count(), 0u);
}

TEST(Instance, SeveralInstancesLiveInOneProcessAndDieInAnyOrder) {
  auto first = vk::Instance::create();
  auto second = vk::Instance::create();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->handle(), second->handle());
  { vk::Instance gone = std::move(*first); }
  EXPECT_TRUE(second->snapshots().ok());
}

}  // namespace
}  // namespace pumice
