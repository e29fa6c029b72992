// vk::take_snapshot on a device made of functions that answer, so that calls can be counted.
#include <gtest/gtest.h>

#include <cstring>

#include "vk/snapshot.hpp"

namespace pumice {
namespace {

struct FakeDevice {
  VkDriverId driver = VK_DRIVER_ID_MESA_RADV;
  VkPhysicalDeviceType type = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
  int matrix_queries = 0;
};
FakeDevice fake;

template <typename Structure>
Structure* in_chain(void* chain, VkStructureType type) {
  for (auto* next = static_cast<VkBaseOutStructure*>(chain); next != nullptr; next = next->pNext) {
    if (next->sType == type) return reinterpret_cast<Structure*>(next);
  }
  return nullptr;
}

void VKAPI_CALL get_properties(VkPhysicalDevice, VkPhysicalDeviceProperties* properties) {
  properties->apiVersion = VK_API_VERSION_1_3;
  properties->deviceType = fake.type;
  std::strcpy(properties->deviceName, "AMD Radeon 860M Graphics");
}

void VKAPI_CALL get_properties2(VkPhysicalDevice device, VkPhysicalDeviceProperties2* properties) {
  get_properties(device, &properties->properties);
  auto* more = in_chain<VkPhysicalDeviceVulkan12Properties>(
      properties, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES);
  if (more != nullptr) more->driverID = fake.driver;
}

VkResult VKAPI_CALL list_extensions(VkPhysicalDevice, const char*, uint32_t* count,
                                    VkExtensionProperties* extensions) {
  *count = 1;
  if (extensions != nullptr) {
    std::strcpy(extensions->extensionName, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
  }
  return VK_SUCCESS;
}

void VKAPI_CALL get_features2(VkPhysicalDevice, VkPhysicalDeviceFeatures2* features) {
  auto* matrix = in_chain<VkPhysicalDeviceCooperativeMatrixFeaturesKHR>(
      features, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR);
  if (matrix != nullptr) matrix->cooperativeMatrix = VK_TRUE;
}

void VKAPI_CALL get_memory(VkPhysicalDevice, VkPhysicalDeviceMemoryProperties2*) {}

void VKAPI_CALL get_queues(VkPhysicalDevice, uint32_t* count, VkQueueFamilyProperties2*) {
  *count = 0;
}

VkResult VKAPI_CALL list_matrices(VkPhysicalDevice, uint32_t* count,
                                  VkCooperativeMatrixPropertiesKHR*) {
  ++fake.matrix_queries;
  *count = 0;
  return VK_SUCCESS;
}

Result<vk::DeviceSnapshot> snapshot_of(const FakeDevice& device) {
  fake = device;
  vk::InstanceFunctions fn{};
  fn.vkGetPhysicalDeviceProperties = get_properties;
  fn.vkGetPhysicalDeviceProperties2 = get_properties2;
  fn.vkEnumerateDeviceExtensionProperties = list_extensions;
  fn.vkGetPhysicalDeviceFeatures2 = get_features2;
  fn.vkGetPhysicalDeviceMemoryProperties2 = get_memory;
  fn.vkGetPhysicalDeviceQueueFamilyProperties2 = get_queues;
  fn.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR = list_matrices;
  return vk::take_snapshot(fn, VK_NULL_HANDLE);
}

TEST(TakeSnapshot, MatricesAreListedWhereTheDeviceHasThem) {
  const auto snapshot = snapshot_of({});
  ASSERT_TRUE(snapshot.ok());
  EXPECT_TRUE(snapshot->features.cooperative_matrix);
  EXPECT_GT(fake.matrix_queries, 0);
}

TEST(TakeSnapshot, AmdsDriverIsNotAskedForTheMatricesOfIntegratedGpus) {
  const auto snapshot = snapshot_of({.driver = VK_DRIVER_ID_AMD_PROPRIETARY});
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(fake.matrix_queries, 0);
}

TEST(TakeSnapshot, AmdsDriverIsAskedForTheMatricesOfDiscreteGpus) {
  const auto snapshot = snapshot_of(
      {.driver = VK_DRIVER_ID_AMD_PROPRIETARY, .type = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU});
  ASSERT_TRUE(snapshot.ok());
  EXPECT_GT(fake.matrix_queries, 0);
}

}  // namespace
}  // namespace pumice
