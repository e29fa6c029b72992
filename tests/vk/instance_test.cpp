// On whatever devices are present.
#include "vk/instance.hpp"

#include <gtest/gtest.h>

#include "vk/device_choice.hpp"
#include "vk/plan.hpp"

namespace pumice {
namespace {

TEST(Instance, SnapshotsEveryDevicePresent) {
  auto instance = Instance::create();
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  auto snapshots = instance->snapshots();
  ASSERT_TRUE(snapshots.ok()) << snapshots.error().message;
  ASSERT_EQ(snapshots->size(), instance->physical_devices().size());
  for (const DeviceSnapshot& snapshot : *snapshots) {
    EXPECT_FALSE(snapshot.name.empty());
    EXPECT_GE(snapshot.api_version, VK_API_VERSION_1_0);
    EXPECT_FALSE(snapshot.heaps.empty());
    EXPECT_FALSE(snapshot.memory_types.empty());
    EXPECT_FALSE(snapshot.queue_families.empty());
  }
}

TEST(Instance, TheDeviceChosenByDefaultCanBePlanned) {
  auto instance = Instance::create();
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  auto snapshots = instance->snapshots();
  ASSERT_TRUE(snapshots.ok());
  auto index = choose_device(*snapshots, "");
  ASSERT_TRUE(index.ok()) << index.error().message;
  auto plan = plan_device((*snapshots)[*index]);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  log_plan(
      (*snapshots)[*index], *plan,
      Logger([](LogLevel, std::string_view line) { fmt::print("{}\n", line); }, LogLevel::kDebug));
}

TEST(Instance, SeveralInstancesLiveInOneProcessAndDieInAnyOrder) {
  auto first = Instance::create();
  auto second = Instance::create();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->handle(), second->handle());
  { Instance gone = std::move(*first); }
  EXPECT_TRUE(second->snapshots().ok());
}

}  // namespace
}  // namespace pumice
