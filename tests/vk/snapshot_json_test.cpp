#include "vk/snapshot_json.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/vk/snapshots.hpp"

namespace pumice {
namespace {

using nlohmann::json;
using test::snapshot;

std::string error_of(const json& value) {
  const auto read = test::snapshot_from_json(value);
  EXPECT_FALSE(read.ok()) << value.dump();
  if (read.ok()) return "";
  EXPECT_EQ(read.error().code, ErrorCode::kBadFile);
  return read.error().message;
}

TEST(SnapshotJson, EveryRecordedDeviceSurvivesWritingAndReading) {
  for (const std::string& name : test::snapshot_names()) {
    const vk::DeviceSnapshot original = snapshot(name);
    const auto read = test::snapshot_from_json(json::parse(snapshot_to_json(original).dump()));
    ASSERT_TRUE(read.ok()) << name << ": " << read.error().message;
    EXPECT_EQ(*read, original) << name;
  }
}

TEST(SnapshotJson, EveryFieldSurvivesEvenWhereNoRecordedDeviceSetsIt) {
  vk::DeviceSnapshot s;
  s.name = "x";
  s.type = vk::DeviceType::kVirtual;
  s.device_uuid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255};
  s.driver_uuid = {255, 1};
  s.api_version = VK_MAKE_API_VERSION(0, 1, 4, 4095);
  s.conformance = {1, 2, 3, 255};
  s.limits.timestamp_period_ns = 52.0833321f;
  s.limits.max_buffer_bytes = UINT64_MAX;
  for (const vk::FeatureName& feature : vk::feature_names()) s.features.*feature.member = true;
  s.matrix_shapes = {{16, 8, 32, vk::ComponentType::kBf16, vk::ComponentType::kU8,
                      vk::ComponentType::kS64, static_cast<vk::ComponentType>(1000491002), true,
                      true}};
  s.matrix2 = {1024, 2048, 4096};
  s.flexible_matrix_shapes = {{32, 16, 8, vk::ComponentType::kF16, vk::ComponentType::kBf16,
                               vk::ComponentType::kF32, vk::ComponentType::kU32, true, true, 256}};
  s.heaps = {{5, true, 4, 3}};
  s.memory_types = {{0, UINT32_MAX}};
  s.queue_families = {{3, 2, 36}};
  s.extensions = {"VK_A", "VK_B"};
  const auto read = test::snapshot_from_json(snapshot_to_json(s));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, s);
}

TEST(SnapshotJson, EveryRecordedDeviceNamesItsSource) {
  for (const std::string& name : test::snapshot_names()) {
    const json fixture = test::snapshot_json(name);
    EXPECT_GT(fixture.value("source", "").size(), 20u) << name;
    EXPECT_TRUE(fixture.contains("absent")) << name;
  }
}

TEST(SnapshotJson, AnAbsentFieldIsTheLeastVulkanGuarantees) {
  const auto read = test::snapshot_from_json(json::object());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, vk::DeviceSnapshot{});
  EXPECT_EQ(read->limits.max_shared_bytes, 16384u);
  EXPECT_EQ(read->subgroup.default_size, 0u);
  EXPECT_FALSE(read->features.buffer_device_address);
}

TEST(SnapshotJson, AWrongFieldIsNamed) {
  EXPECT_NE(error_of(json::array()).find("must be an object"), std::string::npos);
  EXPECT_NE(error_of({{"deviceNam", "x"}}).find("deviceNam is not a field"), std::string::npos);
  EXPECT_NE(error_of({{"features", {{"shaderFloat61", true}}}}).find("features.shaderFloat61"),
            std::string::npos);
  EXPECT_NE(error_of({{"features", {{"shaderInt8", 1}}}}).find("features.shaderInt8 must be true"),
            std::string::npos);
  EXPECT_NE(error_of({{"memoryTypes", {{{"heapIndex", -1}}}}}).find("memoryTypes[0].heapIndex"),
            std::string::npos);
  EXPECT_NE(error_of({{"vendorID", 4294967296}}).find("vendorID must be an integer"),
            std::string::npos);
  EXPECT_NE(error_of({{"limits", {{"maxComputeWorkGroupSize", {1, 2}}}}}).find("three numbers"),
            std::string::npos);
  EXPECT_NE(error_of({{"deviceType", "quantum"}}).find("deviceType"), std::string::npos);
  EXPECT_NE(error_of({{"deviceUUID", "zz"}}).find("deviceUUID"), std::string::npos);
  EXPECT_NE(error_of({{"extensions", {1}}}).find("extensions"), std::string::npos);
  for (const char* version : {"1", "1.3", "1.3.0.1", "1.3.4096", "128.0.0", "1..3", "a.b.c", ""}) {
    EXPECT_NE(error_of({{"apiVersion", version}}).find("apiVersion"), std::string::npos) << version;
  }
}

}  // namespace
}  // namespace pumice
