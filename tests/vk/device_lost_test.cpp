// What becomes of a device that its driver loses, or that hangs; what a driver says of it.
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu_fixture.hpp"
#include "vk/hang_watch.hpp"

namespace pumice {
namespace {

// What the driver under test is told, and answers. Entry points are plain functions, so one for
// all.
struct Driver {
  vk::DeviceFunctions real;
  VkResult submit_result = VK_SUCCESS;
  int n_submits = 0;
  int n_waits_idle = 0;
  VkSemaphore timeline = VK_NULL_HANDLE;
  VkBuffer buffer = VK_NULL_HANDLE;  // of the marks that submissions leave, as the next two
  VkDeviceMemory memory = VK_NULL_HANDLE;
  VkCommandPool pool = VK_NULL_HANDLE;
  uint32_t n_addresses = 0;
  uint32_t n_vendor_infos = 0;
} driver;

VkResult VKAPI_CALL submit(VkQueue, uint32_t, const VkSubmitInfo2*, VkFence) {
  ++driver.n_submits;
  return driver.submit_result;
}

VkResult VKAPI_CALL wait_idle(VkDevice device) {
  ++driver.n_waits_idle;
  return driver.real.vkDeviceWaitIdle(device);
}

VkResult VKAPI_CALL create_semaphore(VkDevice device, const VkSemaphoreCreateInfo* info,
                                     const VkAllocationCallbacks* callbacks,
                                     VkSemaphore* semaphore) {
  const VkResult result = driver.real.vkCreateSemaphore(device, info, callbacks, semaphore);
  driver.timeline = *semaphore;
  return result;
}

VkResult VKAPI_CALL create_buffer(VkDevice device, const VkBufferCreateInfo* info,
                                  const VkAllocationCallbacks* callbacks, VkBuffer* buffer) {
  const VkResult result = driver.real.vkCreateBuffer(device, info, callbacks, buffer);
  driver.buffer = *buffer;
  return result;
}

VkResult VKAPI_CALL allocate_memory(VkDevice device, const VkMemoryAllocateInfo* info,
                                    const VkAllocationCallbacks* callbacks,
                                    VkDeviceMemory* memory) {
  const VkResult result = driver.real.vkAllocateMemory(device, info, callbacks, memory);
  driver.memory = *memory;
  return result;
}

VkResult VKAPI_CALL create_command_pool(VkDevice device, const VkCommandPoolCreateInfo* info,
                                        const VkAllocationCallbacks* callbacks,
                                        VkCommandPool* pool) {
  const VkResult result = driver.real.vkCreateCommandPool(device, info, callbacks, pool);
  driver.pool = *pool;
  return result;
}

/// A device that hung, of which nothing was destroyed since it may still be at work.
void destroy_all_of(VkDevice device) {
  driver.real.vkDestroySemaphore(device, driver.timeline, nullptr);
  driver.real.vkDestroyCommandPool(device, driver.pool, nullptr);
  driver.real.vkDestroyBuffer(device, driver.buffer, nullptr);
  driver.real.vkFreeMemory(device, driver.memory, nullptr);
  driver.real.vkDestroyDevice(device, nullptr);
}

VkResult VKAPI_CALL fault_info(VkDevice, VkDeviceFaultCountsEXT* counts,
                               VkDeviceFaultInfoEXT* info) {
  if (info == nullptr) {
    counts->addressInfoCount = driver.n_addresses;
    counts->vendorInfoCount = driver.n_vendor_infos;
    counts->vendorBinarySize = uint64_t{1} << 40;
    return VK_SUCCESS;
  }
  if (counts->vendorBinarySize != 0) return VK_ERROR_UNKNOWN;
  std::memset(info->description, 'x', sizeof info->description);  // no zero at its end
  std::memcpy(info->description, "ring\n0", 6);
  for (uint32_t i = 0; i < counts->addressInfoCount; ++i) {
    info->pAddressInfos[i] = {VK_DEVICE_FAULT_ADDRESS_TYPE_READ_INVALID_EXT, 0xdead000 + i, 4096};
  }
  for (uint32_t i = 0; i < counts->vendorInfoCount; ++i) {
    std::strcpy(info->pVendorInfos[i].description, "page fault");
    info->pVendorInfos[i].vendorFaultCode = 7;
    info->pVendorInfos[i].vendorFaultData = i;
  }
  return VK_INCOMPLETE;
}

class LostDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::GpuEnvironment::device()) GTEST_SKIP() << "no usable Vulkan device";
    driver = {};
  }

  static std::shared_ptr<vk::Device> open(double hang_timeout_s = vk::Device::kHangTimeout_s) {
    const auto device = *test::GpuEnvironment::open(
        [](const vk::DeviceSnapshot& snapshot) {
          Result<vk::DevicePlan> plan = vk::plan_device(snapshot);
          if (!plan.ok()) return plan;
          // Without the extension nothing tells the driver, whose functions are ours.
          plan->features.device_fault = true;
          return plan;
        },
        [](vk::DeviceFunctions& fn) {
          driver.real = fn;
          fn.vkQueueSubmit2 = submit;
          fn.vkDeviceWaitIdle = wait_idle;
          fn.vkCreateSemaphore = create_semaphore;
          fn.vkCreateBuffer = create_buffer;
          fn.vkAllocateMemory = allocate_memory;
          fn.vkCreateCommandPool = create_command_pool;
          fn.vkGetDeviceFaultInfoEXT = fault_info;
        });
    device->set_hang_timeout(hang_timeout_s);
    return device;
  }

  static std::string loss(vk::Device& device) {
    driver.submit_result = VK_ERROR_DEVICE_LOST;
    const Result<uint64_t> submitted = device.submit({});
    EXPECT_FALSE(submitted.ok());
    if (submitted.ok()) return "";
    EXPECT_EQ(submitted.error().code, ErrorCode::kDeviceLost);
    return submitted.error().message;
  }
};

TEST_F(LostDevice, IsLostFromThenOnAndTheDriverIsNotAskedAgain) {
  const auto device = open(0.1);
  EXPECT_FALSE(device->is_lost());
  loss(*device);
  EXPECT_TRUE(device->is_lost());
  driver.submit_result = VK_SUCCESS;
  const Result<uint64_t> again = device->submit({});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kDeviceLost);
  EXPECT_EQ(driver.n_submits, 1);
  EXPECT_FALSE(device->completed().ok());
  EXPECT_FALSE(device->wait(1).ok());
}

TEST_F(LostDevice, ItsErrorSaysWhatTheDriverKnows) {
  driver.n_addresses = 1;
  driver.n_vendor_infos = 1;
  const std::string message = loss(*open());
  EXPECT_NE(message.find("lost while submitting work (what the driver says: ring\\x0a0xxx"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("; invalid read at 0xdead000 (to 4096 bytes); page fault (code 0x7, data "
                         "0x0))"),
            std::string::npos)
      << message;
}

TEST_F(LostDevice, ItsErrorIsShortHoweverMuchTheDriverKnows) {
  driver.n_addresses = driver.n_vendor_infos = 1'000'000;
  const std::string message = loss(*open());
  EXPECT_NE(message.find("0xdead003"), std::string::npos) << message;
  EXPECT_LT(message.size(), 1000u) << message;
}

/// Nothing that is submitted ever ends.
TEST_F(LostDevice, ThatHangsIsNoticedByWhoWaitsAndByWhoLooks) {
  for (const bool waits : {true, false}) {
    auto device = open(0.02);
    const VkDevice handle = device->handle();
    const Result<uint64_t> value = device->submit({});
    ASSERT_TRUE(value.ok()) << value.error().message;
    Status status;
    if (waits) {
      status = device->wait(*value);
    } else {
      const auto start = std::chrono::steady_clock::now();
      while (status.ok() && std::chrono::steady_clock::now() - start < std::chrono::minutes(1)) {
        const Result<uint64_t> reached = device->completed();
        if (!reached.ok()) status = reached.error();
      }
    }
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kDeviceLost);
    EXPECT_NE(status.error().message.find("no progress for 0.02 seconds"), std::string::npos)
        << status.error().message;
    EXPECT_TRUE(device->is_lost());
    device->wait_idle();
    device.reset();
    EXPECT_EQ(driver.n_waits_idle, 0) << "that would be for ever";
    destroy_all_of(handle);
  }
}

TEST_F(LostDevice, ThatHangsIsNoticedByWhoWaitsUntilItIsIdle) {
  auto device = open(0.02);
  const VkDevice handle = device->handle();
  const Result<uint64_t> value = device->submit({});
  ASSERT_TRUE(value.ok()) << value.error().message;
  const Result<bool> reached = device->wait_for(*value, std::chrono::microseconds(10));
  EXPECT_TRUE(reached.ok() && !*reached) << "it does not hang yet";
  bool retired = false;
  device->retire([&] { retired = true; });
  device->wait_idle();
  EXPECT_TRUE(device->hangs());
  device->retire([] {});
  device.reset();
  EXPECT_FALSE(retired);
  EXPECT_EQ(driver.n_waits_idle, 0) << "that would be for ever";
  destroy_all_of(handle);
}

TEST_F(LostDevice, ThatIsFaultyCountsAsLostAndIsWaitedFor) {
  const auto device = open(0.1);
  const Error error = device->faulty("said 7");
  EXPECT_EQ(error.code, ErrorCode::kDeviceLost);
  EXPECT_NE(error.message.find("said 7"), std::string::npos) << error.message;
  EXPECT_TRUE(device->is_lost());
  EXPECT_FALSE(device->hangs());
  EXPECT_FALSE(device->submit({}).ok());
  EXPECT_EQ(driver.n_submits, 0);
}

TEST(HangWatch, CountsTimeWithoutProgressOnlyWhileThereIsWork) {
  using std::chrono::seconds;
  vk::HangWatch watch;
  vk::HangWatch::Clock::time_point now{seconds(1000)};
  const auto stuck = [&](uint64_t value) { return watch.reached(value, now).count(); };
  EXPECT_EQ(stuck(0), 0);
  now += seconds(50);
  watch.submitted(1, now);
  EXPECT_EQ(stuck(0), 0) << "it had nothing to do before";
  now += seconds(3);
  watch.submitted(2, now);
  EXPECT_EQ(stuck(0), 3) << "more work is no progress";
  now += seconds(2);
  EXPECT_EQ(stuck(0), 5);
  EXPECT_EQ(stuck(1), 0);
  now += seconds(4);
  EXPECT_EQ(stuck(1), 4);
  EXPECT_EQ(stuck(2), 0);
  now += seconds(9);
  EXPECT_EQ(stuck(2), 0) << "all is done";
}

}  // namespace
}  // namespace pumice
