#include "vk/device_choice.hpp"

#include <gtest/gtest.h>

#include "tests/vk/snapshots.hpp"

namespace pumice {
namespace {

using test::snapshot;

using Devices = std::vector<DeviceSnapshot>;

std::string chosen(const Devices& devices, std::string_view selector) {
  const auto index = choose_device(devices, selector);
  return index.ok() ? devices[*index].name : "error: " + index.error().message;
}

std::string error_of(const Devices& devices, std::string_view selector) {
  const auto index = choose_device(devices, selector);
  EXPECT_FALSE(index.ok()) << selector;
  if (index.ok()) return "";
  EXPECT_EQ(index.error().code, ErrorCode::kNoDevice);
  return index.error().message;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

const Devices kMixed = {snapshot("lavapipe_22"), snapshot("amd_780m_radv"),
                        snapshot("amd_rx_6700_xt_radv"), snapshot("nvidia_rtx_4090"),
                        snapshot("apple_m4_moltenvk_1_2")};

TEST(DeviceChoice, ADiscreteDeviceIsPreferredOverAnIntegratedOneWithMoreMemory) {
  EXPECT_EQ(chosen({kMixed[0], kMixed[1], kMixed[2]}, ""), kMixed[2].name);
  EXPECT_GT(kMixed[1].heaps[1].size_bytes, kMixed[2].heaps[1].size_bytes);
}

TEST(DeviceChoice, AnIntegratedDeviceIsPreferredOverAVirtualOneAndThatOverACpu) {
  DeviceSnapshot virtual_gpu = snapshot("amd_rx_6700_xt_radv");
  virtual_gpu.type = DeviceType::kVirtual;
  EXPECT_EQ(chosen({kMixed[0], virtual_gpu, kMixed[1]}, ""), kMixed[1].name);
  EXPECT_EQ(chosen({kMixed[0], virtual_gpu}, ""), virtual_gpu.name);
}

TEST(DeviceChoice, OfTwoDiscreteDevicesTheOneWithMoreMemoryWins) {
  EXPECT_EQ(chosen(kMixed, ""), kMixed[3].name);
  EXPECT_EQ(chosen({kMixed[3], kMixed[2]}, ""), kMixed[3].name);
}

TEST(DeviceChoice, ACpuThatWorksIsPreferredOverAGpuThatDoesNot) {
  DeviceSnapshot old_gpu = kMixed[3];
  old_gpu.features.timeline_semaphore = false;
  EXPECT_EQ(chosen({old_gpu, kMixed[0]}, ""), kMixed[0].name);
}

TEST(DeviceChoice, ASelectorMayBeAnIndexANameInAnyCaseOrAUuid) {
  EXPECT_EQ(chosen(kMixed, "0"), kMixed[0].name);
  EXPECT_EQ(chosen(kMixed, "rtx"), kMixed[3].name);
  EXPECT_EQ(chosen(kMixed, "RADEON 780m"), kMixed[1].name);
  EXPECT_EQ(chosen(kMixed, "81da8540-073a-8b30-1f9c-b3754ee0145e"), kMixed[3].name);
  EXPECT_EQ(chosen(kMixed, "81DA8540073A8B301F9CB3754EE0145E"), kMixed[3].name);
}

TEST(DeviceChoice, AnAmbiguousNameTakesTheBestOfItsMatches) {
  EXPECT_EQ(chosen(kMixed, "radeon"), kMixed[2].name);
}

TEST(DeviceChoice, AWholeNameBeatsPartOfAnother) {
  DeviceSnapshot card = kMixed[3], laptop = kMixed[3];
  card.name = "GPU 4090";
  laptop.name = "GPU 4090 Laptop";
  EXPECT_EQ(*choose_device(Devices{laptop, card}, "gpu 4090"), 1u);
}

TEST(DeviceChoice, ANumberThatIsNoIndexIsLookedForInNames) {
  EXPECT_EQ(chosen(kMixed, "4090"), kMixed[3].name);
}

TEST(DeviceChoice, ASelectorThatMatchesNothingListsWhatIsThere) {
  const std::string error = error_of(kMixed, "9");
  EXPECT_FALSE(contains(error, "\n"));
  EXPECT_TRUE(contains(error, "no device matches \"9\""));
  EXPECT_TRUE(contains(error, "3: NVIDIA GeForce RTX 4090 (usable)")) << error;
  EXPECT_TRUE(contains(error, "4: Apple M4 (lacks Vulkan 1.3 (it has 1.2.296)")) << error;
}

TEST(DeviceChoice, AChosenDeviceThatLacksSomethingSaysWhat) {
  EXPECT_TRUE(contains(error_of(kMixed, "4"), "Apple M4 cannot be used: it lacks Vulkan 1.3"));
  EXPECT_TRUE(contains(error_of(kMixed, "apple"), "Apple M4 cannot be used"));
}

TEST(DeviceChoice, WithoutDevicesTheErrorSaysWhatToInstall) {
  EXPECT_TRUE(contains(error_of({}, ""), "install"));
  EXPECT_TRUE(contains(error_of({}, "0"), "no Vulkan device was found"));
}

}  // namespace
}  // namespace pumice
