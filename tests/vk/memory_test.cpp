// Memory a device allocates: of a type the driver allows buffers to have, no more allocations than
// it allows, and with a priority.
#include "vk/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/gpu_fixture.hpp"
#include "vk/arena_layout.hpp"
#include "vk/transfer.hpp"

namespace pumice {
namespace {

/// What the driver is told and how it answers. Entry points carry no state, so it lies here.
struct Driver {
  vk::DeviceFunctions real;
  uint32_t allowed_types = ~0u;
  uint32_t n_types = 32;          // a type beyond them is the same as the one so many before it
  std::vector<uint32_t> types;    // of allocations
  std::vector<float> priorities;  // of those that have one
} driver;

void intercept(vk::DeviceFunctions& fn) {
  driver.real = fn;
  driver.types.clear();
  driver.priorities.clear();
  fn.vkGetDeviceBufferMemoryRequirements = [](VkDevice device,
                                              const VkDeviceBufferMemoryRequirements* info,
                                              VkMemoryRequirements2* requirements) {
    driver.real.vkGetDeviceBufferMemoryRequirements(device, info, requirements);
    requirements->memoryRequirements.memoryTypeBits = driver.allowed_types;
  };
  fn.vkAllocateMemory = [](VkDevice device, const VkMemoryAllocateInfo* info,
                           const VkAllocationCallbacks* callbacks, VkDeviceMemory* memory) {
    driver.types.push_back(info->memoryTypeIndex);
    for (const auto* next = static_cast<const VkBaseInStructure*>(info->pNext); next != nullptr;
         next = next->pNext) {
      if (next->sType == VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT) {
        driver.priorities.push_back(
            reinterpret_cast<const VkMemoryPriorityAllocateInfoEXT*>(next)->priority);
      }
    }
    VkMemoryAllocateInfo real = *info;
    real.memoryTypeIndex %= driver.n_types;
    return driver.real.vkAllocateMemory(device, &real, callbacks, memory);
  };
}

class DeviceMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::GpuEnvironment::device()) GTEST_SKIP() << "no usable Vulkan device";
    driver.allowed_types = ~0u;
    driver.n_types = 32;
  }

  /// The tests' device, as if it had each of its memory types twice and allowed buffers to have
  /// only those in driver.allowed_types.
  static Result<std::shared_ptr<vk::Device>> open_with_types_twice() {
    const vk::Device& real = *test::GpuEnvironment::device();
    vk::DeviceSnapshot snapshot = real.snapshot();
    snapshot.memory_types.insert(snapshot.memory_types.end(), real.snapshot().memory_types.begin(),
                                 real.snapshot().memory_types.end());
    PUMICE_TRY(const std::vector<vk::DeviceSnapshot> all, real.instance()->snapshots());
    const auto same = [&](const vk::DeviceSnapshot& other) {
      return other.device_uuid == snapshot.device_uuid && other.driver_id == snapshot.driver_id;
    };
    const auto index = std::find_if(all.begin(), all.end(), same) - all.begin();
    PUMICE_TRY(vk::DevicePlan plan, vk::plan_device(snapshot));
    return vk::Device::create(real.instance(), static_cast<size_t>(index), snapshot,
                              std::move(plan), {}, intercept);
  }
};

TEST_F(DeviceMemory, IsOfATypeThatBuffersMayHave) {
  const auto n =
      static_cast<uint32_t>(test::GpuEnvironment::device()->snapshot().memory_types.size());
  if (n > 16) GTEST_SKIP() << n << " memory types cannot be had twice";
  driver.n_types = n;
  driver.allowed_types = (1u << n) - 1;
  for (const bool upper_half : {false, true}) {
    if (upper_half) driver.allowed_types <<= n;
    const auto device = open_with_types_twice();
    ASSERT_TRUE(device.ok()) << device.error().message;
    driver.types.clear();  // what it keeps for itself
    for (const vk::MemoryDomain domain :
         {vk::MemoryDomain::kDevice, vk::MemoryDomain::kUpload, vk::MemoryDomain::kReadback}) {
      vk::Arena arena(*device, domain, "test");
      ASSERT_TRUE(arena.allocate(100).ok());
    }
    ASSERT_EQ(driver.types.size(), 3u);
    for (const uint32_t type : driver.types) {
      EXPECT_EQ(type >= n, upper_half);
      EXPECT_TRUE((driver.allowed_types >> type & 1) != 0) << type;
    }
  }
}

TEST_F(DeviceMemory, ADeviceWhoseBuffersMayHaveNoUsableTypeIsRefused) {
  driver.allowed_types = 0;
  const auto device = open_with_types_twice();
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, ErrorCode::kNoDevice);
  EXPECT_NE(device.error().message.find("memory types 0x0 only"), std::string::npos)
      << device.error().message;
}

TEST_F(DeviceMemory, OfALayoutIsAsMuchAsThatSaysWithARangeForEachPlace) {
  const auto device = *test::GpuEnvironment::open([](const vk::DeviceSnapshot& snapshot) {
    Result<vk::DevicePlan> plan = vk::plan_device(snapshot);
    if (plan.ok()) plan->slab_bytes = 1 << 20;
    return plan;
  });
  vk::BufferRange small;
  vk::BufferRange none;
  std::vector<vk::BufferRange> large;
  vk::ArenaLayout layout(vk::MemoryDomain::kUpload, "test");
  layout.add(100, small);
  layout.add(0, none);
  layout.add(3, 700'000, large);
  EXPECT_EQ(layout.bytes(), 256u + 3 * 700'160);
  const Result<vk::Arena> arena = layout.allocate(device);
  ASSERT_TRUE(arena.ok()) << arena.error().message;
  EXPECT_EQ(arena->allocated_bytes(), layout.sizes(1 << 20).allocated_bytes());
  EXPECT_EQ(arena->slabs().size(), 3u) << "two of the large ones do not fit one";
  EXPECT_EQ(small.size_bytes, 100u);
  EXPECT_TRUE(none.empty());
  EXPECT_NE(none.address(), 0u) << "kernels may load from what they do not use";
  for (const vk::BufferRange& range : large) EXPECT_EQ(range.size_bytes, 700'000u);
}

TEST_F(DeviceMemory, HasNoMoreAllocationsThanTheDriverAllows) {
  const auto device = *test::GpuEnvironment::open([](const vk::DeviceSnapshot& snapshot) {
    Result<vk::DevicePlan> plan = vk::plan_device(snapshot);
    if (plan.ok()) plan->max_allocation_count = 3;  // one is its own
    return plan;
  });
  vk::Arena first(device, vk::MemoryDomain::kDevice, "weights");
  ASSERT_TRUE(first.allocate(100).ok());
  {
    vk::Arena second(device, vk::MemoryDomain::kUpload, "arrays");
    ASSERT_TRUE(second.allocate(100).ok());
    vk::Arena third(device, vk::MemoryDomain::kDevice, "kv");
    const auto refused = third.allocate(100);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
    EXPECT_NE(refused.error().message.find("kv needs one more allocation"), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("all 3"), std::string::npos) << refused.error().message;
    EXPECT_EQ(device->ledger().entries()["kv"].current_bytes, 0u);
  }
  vk::Arena again(device, vk::MemoryDomain::kDevice, "kv");
  EXPECT_TRUE(again.allocate(100).ok()) << "what was freed can be had again";
}

TEST_F(DeviceMemory, WeightsAndKvStayOnTheDeviceBeforeStaging) {
  const auto device = *test::GpuEnvironment::open(
      [](const vk::DeviceSnapshot& snapshot) {
        Result<vk::DevicePlan> plan = vk::plan_device(snapshot);
        // A driver without the extension ignores the priority; the layers would object.
        if (plan.ok() && !test::validation_requested()) plan->features.memory_priority = true;
        return plan;
      },
      intercept);
  if (!device->plan().features.memory_priority) GTEST_SKIP() << "no VK_EXT_memory_priority";
  const auto priority = [&](vk::MemoryDomain domain, const char* purpose = "KV cache") {
    driver.priorities.clear();
    vk::Arena arena(device, domain, purpose);
    EXPECT_TRUE(arena.allocate(100).ok());
    return driver.priorities.size() == 1 ? driver.priorities[0] : NAN;
  };
  constexpr float kDefault = 0.5f;  // Vulkan's
  const float weights = priority(vk::MemoryDomain::kDevice, "weights");
  EXPECT_GT(weights, kDefault);
  EXPECT_GT(priority(vk::MemoryDomain::kDevice), weights);
  EXPECT_LT(priority(vk::MemoryDomain::kUpload), kDefault);
  EXPECT_LT(priority(vk::MemoryDomain::kReadback), kDefault);
}

TEST_F(DeviceMemory, HasNoPriorityWhereTheExtensionIsOff) {
  const auto device = *test::GpuEnvironment::open(
      [](const vk::DeviceSnapshot& snapshot) {
        return vk::plan_device(snapshot, {.disable = {"memoryPriority"}});
      },
      intercept);
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "test");
  EXPECT_TRUE(arena.allocate(100).ok());
  EXPECT_TRUE(driver.priorities.empty());
}

// Destructors remove: what does not add up must not end the host.
TEST(DeviceMemoryLedger, TellsOfMoreThatIsFreedThanThereWasAndGoesOn) {
  vk::MemoryLedger ledger;
  ledger.add("weights", 100);
  ledger.remove("weights", 60);
  EXPECT_TRUE(ledger.check_integrity().ok());
  ledger.remove("weights", 60);
  EXPECT_FALSE(ledger.check_integrity().ok());
  EXPECT_EQ(ledger.total_bytes(), 0u);
  EXPECT_EQ(ledger.budgeted_bytes(), 0u);
  ledger.add("weights", 5);
  EXPECT_EQ(ledger.total_bytes(), 5u);
}

}  // namespace
}  // namespace pumice
