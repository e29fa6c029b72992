// A guest on a device that a host made (tests/vk/host_fixture.hpp): it uses what the host enabled
// and no more, and nothing of the host's is waited for, destroyed or used without its lock.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/vk/host_fixture.hpp"
#include "vk/memory.hpp"
#include "vk/recorder.hpp"
#include "vk/transfer.hpp"

namespace pumice {
namespace {

using test::Host;

class HostDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::GpuEnvironment::device()) GTEST_SKIP() << "no usable Vulkan device";
  }

  /// Through upload, fill, copy and download: whether words come back as they were written.
  static void expect_works(const std::shared_ptr<vk::Device>& device) {
    vk::Arena arena(device, vk::MemoryDomain::kDevice, "test");
    const vk::BufferRange written = *arena.allocate(1024);
    const vk::BufferRange copied = *arena.allocate(1024);
    std::vector<uint32_t> words(256);
    for (uint32_t i = 0; i < words.size(); ++i) words[i] = 7 * i + 1;
    vk::Uploader uploader(device, true);
    ASSERT_TRUE(uploader.write<uint32_t>(written, words).ok());
    vk::Recorder recorder(device);
    recorder.copy(written, copied);
    recorder.fill(copied.subrange(0, 4), 99);
    ASSERT_TRUE(vk::run(*device, *recorder.finish()).ok());
    const auto bytes = vk::download(device, copied);
    ASSERT_TRUE(bytes.ok());
    words[0] = 99;
    EXPECT_EQ(std::memcmp(bytes->data(), words.data(), bytes->size()), 0);
  }

  static vk::RecordedWork some_work(const std::shared_ptr<vk::Device>& device,
                                    const vk::BufferRange& range) {
    vk::Recorder recorder(device);
    recorder.fill(range, 1);
    return *recorder.finish();
  }

  static ErrorCode refusal(const vk::HostDevice& lent, std::string_view says) {
    const auto device = vk::Device::adopt(lent, {}, {});
    EXPECT_FALSE(device.ok()) << says;
    if (device.ok()) return ErrorCode::kInternal;
    EXPECT_NE(device.error().message.find(says), std::string::npos) << device.error().message;
    return device.error().code;
  }
};

TEST_F(HostDevice, WorksWithWhatIsRequiredAndUsesNothingElse) {
  const Host host(Host::Enables::kRequired);
  const auto device = host.adopt();
  for (const vk::OptionalFeature& optional : vk::optional_features()) {
    EXPECT_FALSE(device->plan().features.*optional.member);
  }
  expect_works(device);
}

TEST_F(HostDevice, WithEverythingOptionalIsUsedAsAnyDevice) {
  const Host host(Host::Enables::kEverything);
  const auto device = host.adopt();
  const vk::DevicePlan& own = test::GpuEnvironment::device()->plan();
  EXPECT_EQ(device->plan().features, own.features);
  EXPECT_EQ(device->plan().extensions, own.extensions);
  EXPECT_EQ(device->plan().queue_family, own.queue_family);
  EXPECT_EQ(device->plan().matrix_shapes, own.matrix_shapes);
  EXPECT_EQ(device->plan().subgroup, own.subgroup);
  expect_works(device);
}

/// Calls that a guest must never make. Entry points carry no state, so it lies here.
struct Forbidden {
  uint32_t n_calls = 0;
} forbidden;

TEST_F(HostDevice, OfTheHostsNothingIsDestroyedOrWaitedFor) {
  const Host host(Host::Enables::kRequired);
  forbidden = {};
  const auto intercept = [](vk::DeviceFunctions& fn) {
    fn.vkDestroyDevice = [](VkDevice, const VkAllocationCallbacks*) { ++forbidden.n_calls; };
    fn.vkDeviceWaitIdle = [](VkDevice) { return ++forbidden.n_calls, VK_SUCCESS; };
    fn.vkQueueWaitIdle = [](VkQueue) { return ++forbidden.n_calls, VK_SUCCESS; };
  };
  // Not done until the test ends, so waiting for it would hang.
  host.submit_after({host.timeline(), 1}, 2);
  for (int opened = 0; opened < 2; ++opened) {
    auto device = host.adopt(host.lent(), intercept);
    ASSERT_TRUE(device.ok()) << device.error().message;
    device->reset();
  }
  host.signal(1);
  EXPECT_EQ(forbidden.n_calls, 0u);
  auto again = host.adopt(host.lent(), intercept);
  ASSERT_TRUE(again.ok()) << again.error().message;
  expect_works(*again);
}

TEST_F(HostDevice, WhatWasSubmittedEndsBeforeTheGuestGoes) {
  if (test::validation_requested()) {
    GTEST_SKIP() << "layers of 1.3.239 sometimes miss a signal while another thread waits";
  }
  const Host host(Host::Enables::kRequired);
  auto device = host.adopt();
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "test");
  const vk::RecordedWork work = some_work(device, *arena.allocate(64));
  device->begin_after({host.timeline(), 1});
  ASSERT_TRUE(device->submit(std::vector{work.segments()[0].commands}).ok());
  bool signalled = false;
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    signalled = true;
    host.signal(1);
  });
  device->wait_idle();
  EXPECT_TRUE(signalled);
}

TEST_F(HostDevice, TheQueueIsUsedUnderTheHostsLockOnly) {
  const Host host(Host::Enables::kRequired);
  test::QueueLock lock;
  vk::HostDevice lent = host.lent();
  lent.queue_lock = lock.lent();
  auto device = *host.adopt(lent);
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "test");
  const vk::RecordedWork work = some_work(device, *arena.allocate(64));
  const std::vector commands = {work.segments()[0].commands};

  lock.held = true;
  const auto refused = device->try_submit(commands);
  ASSERT_TRUE(refused.ok());
  EXPECT_FALSE(refused->has_value());
  EXPECT_EQ(device->submitted().value, 0u);
  EXPECT_TRUE(lock.held) << "it is the host that holds it";
  std::jthread later([&] {
    while (lock.n_refused < 2) std::this_thread::yield();
    lock.held = false;
  });
  const auto value = device->submit(commands);
  ASSERT_TRUE(value.ok()) << value.error().message;
  EXPECT_FALSE(lock.held);
  EXPECT_EQ(lock.n_taken, 1u);
  EXPECT_TRUE(device->wait(*value).ok());
  expect_works(device);
  EXPECT_GT(lock.n_taken, 1u);
}

TEST_F(HostDevice, WorkBeginsAfterTheHostsAndTheHostsAfterOurs) {
  const Host host(Host::Enables::kRequired);
  const auto device = host.adopt();
  vk::Arena arena(device, vk::MemoryDomain::kDevice, "test");
  const vk::BufferRange range = *arena.allocate(64);
  const vk::RecordedWork first = some_work(device, range);
  const vk::RecordedWork second = some_work(device, range);

  device->begin_after({host.timeline(), 3});
  ASSERT_TRUE(device->submit(std::vector{first.segments()[0].commands}).ok());
  ASSERT_TRUE(device->submit(std::vector{second.segments()[0].commands}).ok());
  const vk::TimelinePoint ours = device->submitted();
  EXPECT_EQ(ours.value, 2u);
  host.submit_after(ours, 4);
  EXPECT_FALSE(host.reached_soon({ours.semaphore, 1}));
  host.signal(3);
  EXPECT_TRUE(device->wait(2).ok());
  EXPECT_TRUE(host.reached_soon({host.timeline(), 4}));

  // Waited for once: what comes later begins at once.
  ASSERT_TRUE(device->submit(std::vector{first.segments()[0].commands}).ok());
  EXPECT_TRUE(device->wait(3).ok());
}

/// One VkDeviceMemory per memory type, of which slabs are parts: the host's own allocator.
struct HostMemories {
  static constexpr uint64_t kBytes = 1 << 20;
  const Host& host;
  struct Pool {
    VkDeviceMemory memory = VK_NULL_HANDLE;
    uint64_t used = 256;  // so that no slab begins at 0
    std::byte* mapped = nullptr;
  };
  std::map<uint32_t, Pool> pools = {};
  uint32_t n_live = 0;
  bool fails = false;
  bool maps = true;

  ~HostMemories() {
    for (const auto& [type, pool] : pools) {
      host.fn().vkFreeMemory(host.device(), pool.memory, nullptr);
    }
  }

  VkResult allocate(const vk::HostMemoryRequest& request, vk::HostMemory& out) {
    if (fails) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    Pool& pool = pools[request.memory_type];
    if (pool.memory == VK_NULL_HANDLE) {
      VkMemoryAllocateFlagsInfo flags{};
      flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
      flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
      VkMemoryAllocateInfo info{};
      info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
      info.pNext = &flags;
      info.allocationSize = kBytes;
      info.memoryTypeIndex = request.memory_type;
      void* mapped = nullptr;
      VkResult result = host.fn().vkAllocateMemory(host.device(), &info, nullptr, &pool.memory);
      if (result == VK_SUCCESS && request.mapped) {
        result = host.fn().vkMapMemory(host.device(), pool.memory, 0, VK_WHOLE_SIZE, 0, &mapped);
      }
      if (result != VK_SUCCESS) return result;
      pool.mapped = static_cast<std::byte*>(mapped);
    }
    out.offset = (pool.used + request.alignment - 1) / request.alignment * request.alignment;
    if (out.offset + request.size_bytes > kBytes) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    pool.used = out.offset + request.size_bytes;
    out.memory = pool.memory;
    out.mapped = maps && pool.mapped != nullptr ? pool.mapped + out.offset : nullptr;
    out.host_data = this;
    ++n_live;
    return VK_SUCCESS;
  }

  vk::HostAllocator lent() {
    return {.allocate =
                [](void* user, const vk::HostMemoryRequest& request, vk::HostMemory& out) {
                  return static_cast<HostMemories*>(user)->allocate(request, out);
                },
            .free =
                [](void* user, const vk::HostMemory& memory) {
                  EXPECT_EQ(memory.host_data, user);
                  --static_cast<HostMemories*>(user)->n_live;
                },
            .user = this};
  }
};

TEST_F(HostDevice, MemoryComesFromTheHostsAllocatorIfItHasOne) {
  const Host host(Host::Enables::kRequired);
  HostMemories memories{host};
  vk::HostDevice lent = host.lent();
  lent.allocator = memories.lent();
  auto device = *host.adopt(lent, [](vk::DeviceFunctions& fn) {
    fn.vkAllocateMemory = nullptr;  // a call would end the test
    fn.vkFreeMemory = nullptr;
  });
  expect_works(device);
  {
    vk::Arena arena(device, vk::MemoryDomain::kDevice, "test");
    ASSERT_TRUE(arena.allocate(100).ok());
    EXPECT_GT(memories.n_live, 0u);
    memories.fails = true;
    vk::Arena more(device, vk::MemoryDomain::kDevice, "test");
    const auto refused = more.allocate(100);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
    memories.fails = false;
    memories.maps = false;
    vk::Arena unmapped(device, vk::MemoryDomain::kUpload, "staging");
    const auto useless = unmapped.allocate(100);
    ASSERT_FALSE(useless.ok());
    EXPECT_NE(useless.error().message.find("did not map"), std::string::npos);
  }
  device.reset();
  EXPECT_EQ(memories.n_live, 0u);
}

TEST_F(HostDevice, WhatIsMissingIsRefusedByName) {
  const Host host(Host::Enables::kRequired);
  vk::HostDevice lent = host.lent();
  std::erase(lent.features, "timelineSemaphore");
  EXPECT_EQ(refusal(lent, "timelineSemaphore"), ErrorCode::kNoDevice);
  lent = host.lent();
  lent.device = VK_NULL_HANDLE;
  EXPECT_EQ(refusal(lent, "device is null"), ErrorCode::kInvalidArgument);
  lent = host.lent();
  lent.queue = VK_NULL_HANDLE;
  EXPECT_EQ(refusal(lent, "queue is null"), ErrorCode::kInvalidArgument);
  lent = host.lent();
  lent.instance = VK_NULL_HANDLE;
  EXPECT_EQ(refusal(lent, "instance is null"), ErrorCode::kInvalidArgument);
  lent = host.lent();
  lent.physical_device = VK_NULL_HANDLE;
  EXPECT_EQ(refusal(lent, "physical device is null"), ErrorCode::kInvalidArgument);
  lent = host.lent();
  lent.get_instance_proc_addr = nullptr;
  EXPECT_EQ(refusal(lent, "vkGetInstanceProcAddr is null"), ErrorCode::kInvalidArgument);
  lent = host.lent();
  lent.queue_lock.unlock = [](void*) {};
  EXPECT_EQ(refusal(lent, "try_lock and unlock"), ErrorCode::kInvalidArgument);
  lent = host.lent();
  lent.allocator.free = [](void*, const vk::HostMemory&) {};
  EXPECT_EQ(refusal(lent, "allocate and free"), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pumice
