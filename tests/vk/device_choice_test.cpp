#include "vk/device_choice.hpp"

#include <gtest/gtest.h>

#include "tests/vk/snapshots.hpp"

namespace pumice {
namespace {

using test::snapshot;

using Devices = std::vector<vk::DeviceSnapshot>;

std::string chosen(const Devices& devices, std::string_view selector) {
  const auto index = vk::choose_device(devices, selector);
  return index.ok() ? devices[*index].name : "error: " + index.error().message;
}

std::string error_of(const Devices& devices, std::string_view selector) {
  const auto index = vk::choose_device(devices, selector);
  EXPECT_FALSE(index.ok()) << selector;
  if (index.ok()) return "";
  EXPECT_EQ(index.error().code, ErrorCode::kNoDevice);
  return index.error().message;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

class DeviceChoice : public testing::Test {
 protected:
  const Devices mixed_ = {snapshot("lavapipe_22"), snapshot("amd_780m_radv"),
                          snapshot("amd_rx_6700_xt_radv"), snapshot("nvidia_rtx_4090"),
                          snapshot("apple_m4_moltenvk_1_2")};
};

TEST_F(DeviceChoice, ADiscreteDeviceIsPreferredOverAnIntegratedOneWithMoreMemory) {
  EXPECT_EQ(chosen({mixed_[0], mixed_[1], mixed_[2]}, ""), mixed_[2].name);
  EXPECT_GT(mixed_[1].heaps[1].size_bytes, mixed_[2].heaps[1].size_bytes);
}

TEST_F(DeviceChoice, AnIntegratedDeviceIsPreferredOverAVirtualOneAndThatOverACpu) {
  vk::DeviceSnapshot virtual_gpu = snapshot("amd_rx_6700_xt_radv");
  virtual_gpu.type = vk::DeviceType::kVirtual;
  EXPECT_EQ(chosen({mixed_[0], virtual_gpu, mixed_[1]}, ""), mixed_[1].name);
  EXPECT_EQ(chosen({mixed_[0], virtual_gpu}, ""), virtual_gpu.name);
}

TEST_F(DeviceChoice, OfTwoDiscreteDevicesTheOneWithMoreMemoryWins) {
  EXPECT_EQ(chosen(mixed_, ""), mixed_[3].name);
  EXPECT_EQ(chosen({mixed_[3], mixed_[2]}, ""), mixed_[3].name);
}

TEST_F(DeviceChoice, ACpuThatWorksIsPreferredOverAGpuThatDoesNot) {
  vk::DeviceSnapshot old_gpu = mixed_[3];
  old_gpu.features.timeline_semaphore = false;
  EXPECT_EQ(chosen({old_gpu, mixed_[0]}, ""), mixed_[0].name);
}

TEST_F(DeviceChoice, ASelectorMayBeAnIndexANameInAnyCaseOrAUuid) {
  EXPECT_EQ(chosen(mixed_, "0"), mixed_[0].name);
  EXPECT_EQ(chosen(mixed_, "rtx"), mixed_[3].name);
  EXPECT_EQ(chosen(mixed_, "RADEON 780m"), mixed_[1].name);
  EXPECT_EQ(chosen(mixed_, "81da8540-073a-8b30-1f9c-b3754ee0145e"), mixed_[3].name);
  EXPECT_EQ(chosen(mixed_, "81DA8540073A8B301F9CB3754EE0145E"), mixed_[3].name);
}

TEST_F(DeviceChoice, AnAmbiguousNameTakesTheBestOfItsMatches) {
  EXPECT_EQ(chosen(mixed_, "radeon"), mixed_[2].name);
}

TEST_F(DeviceChoice, AWholeNameBeatsPartOfAnother) {
  vk::DeviceSnapshot card = mixed_[3], laptop = mixed_[3];
  card.name = "GPU 4090";
  laptop.name = "GPU 4090 Laptop";
  EXPECT_EQ(*vk::choose_device(Devices{laptop, card}, "gpu 4090"), 1u);
}

TEST_F(DeviceChoice, ANumberThatIsNoIndexIsLookedForInNames) {
  EXPECT_EQ(chosen(mixed_, "4090"), mixed_[3].name);
}

TEST_F(DeviceChoice, ASelectorThatMatchesNothingListsWhatIsThere) {
  const std::string error = error_of(mixed_, "9");
  EXPECT_FALSE(contains(error, "\n"));
  EXPECT_TRUE(contains(error, "no device matches \"9\""));
  EXPECT_TRUE(contains(error, "3: NVIDIA GeForce RTX 4090 (usable)")) << error;
  EXPECT_TRUE(contains(error, "4: Apple M4 (lacks Vulkan 1.3 (it has 1.2.296)")) << error;
}

TEST_F(DeviceChoice, ASelectorIsShownInALineHoweverLongAndWhateverIsInIt) {
  const std::string error = error_of(mixed_, "\x1b[2J\n" + std::string(5000, 'x'));
  EXPECT_TRUE(contains(error, "\\x1b[2J\\x0a")) << error;
  EXPECT_FALSE(contains(error, "\n"));
  EXPECT_LT(error.size(), 1000u);
}

TEST_F(DeviceChoice, AChosenDeviceThatLacksSomethingSaysWhat) {
  EXPECT_TRUE(contains(error_of(mixed_, "4"), "Apple M4 cannot be used: it lacks Vulkan 1.3"));
  EXPECT_TRUE(contains(error_of(mixed_, "apple"), "Apple M4 cannot be used"));
}

TEST_F(DeviceChoice, WithoutDevicesTheErrorSaysWhatToInstall) {
  EXPECT_TRUE(contains(error_of({}, ""), "install"));
  EXPECT_TRUE(contains(error_of({}, "0"), "no Vulkan device was found"));
}

}  // namespace
}  // namespace pumice
