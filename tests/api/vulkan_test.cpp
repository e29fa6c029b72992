// pumice_vulkan.h as a host uses it that has a device of its own (tests/vk/host_fixture.hpp).
#include <gtest/gtest.h>

#include <ctime>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/api/api_fixture.hpp"
#include "tests/vk/host_fixture.hpp"
// After those that include Vulkan's header as this tree does.
#include "tests/api/vulkan_host.hpp"

namespace pumice {
namespace {

using test::Host;

/// What a host does with memory and with its queue, counted.
struct Callbacks {
  const Host& host;
  test::QueueLock lock = {};
  int n_memories = 0;
};

class ApiVulkan : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::GpuEnvironment::device()) GTEST_SKIP() << "no usable Vulkan device";
  }

  static void add_callbacks(Callbacks& callbacks, pumice_vulkan_device& host) {
    host.queue_user = host.memory_user = &callbacks;
    host.try_lock_queue = [](void* user) -> pumice_bool {
      return !static_cast<Callbacks*>(user)->lock.held.exchange(true);
    };
    host.unlock_queue = [](void* user) {
      auto& lock = static_cast<Callbacks*>(user)->lock;
      EXPECT_TRUE(lock.held.exchange(false));
      ++lock.n_taken;
    };
    host.allocate = [](void* user, const pumice_vulkan_memory_request* request,
                       pumice_vulkan_memory* memory) {
      auto& self = *static_cast<Callbacks*>(user);
      ++self.n_memories;
      const VkDevice device = self.host.device();
      VkMemoryAllocateFlagsInfo flags{};
      flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
      flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
      VkMemoryAllocateInfo info{};
      info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
      info.pNext = &flags;
      info.allocationSize = request->size_bytes;
      info.memoryTypeIndex = request->memory_type;
      VkResult result = self.host.fn().vkAllocateMemory(device, &info, nullptr, &memory->memory);
      if (result == VK_SUCCESS && request->mapped) {
        result = self.host.fn().vkMapMemory(device, memory->memory, 0, VK_WHOLE_SIZE, 0,
                                            &memory->mapped);
      }
      return result;
    };
    host.free = [](void* user, const pumice_vulkan_memory* memory) {
      auto& self = *static_cast<Callbacks*>(user);
      --self.n_memories;
      self.host.fn().vkFreeMemory(self.host.device(), memory->memory, nullptr);
    };
  }

  /// The greedy answer to a prompt. The device is closed first: what was made on it keeps it.
  static std::vector<uint32_t> tell_and_close(pumice_device* device) {
    pumice_model* model = test::load_model(device);
    pumice_engine* engine = test::create_engine(model, 1);
    pumice_device_close(device);
    pumice_model_close(model);
    const auto asked = test::request_of("Once upon a time", 24);
    pumice_request request = 0;
    EXPECT_OK(pumice_submit(engine, 0, &asked, &request));
    test::Answers answers;
    test::run_until(engine, answers, 1);
    pumice_engine_close(engine);
    return answers[request].tokens;
  }
};

TEST_F(ApiVulkan, RequirementsAreThoseOfTheRuntime) {
  const Host host(Host::Enables::kRequired);
  const vk::HostDevice lent = host.lent();
  const auto ask = [&](pumice_vulkan_requirement* out, size_t capacity, size_t* n,
                       uint32_t* family) {
    return pumice_vulkan_requirements(lent.get_instance_proc_addr, lent.instance,
                                      lent.physical_device, out, capacity, n, family);
  };
  size_t n = 0;
  uint32_t family = 99;
  EXPECT_OK(ask(nullptr, 0, &n, &family));
  ASSERT_GT(n, vk::required_features().size());
  EXPECT_EQ(family, host.requirements().queue_family);
  std::vector<pumice_vulkan_requirement> items(n);
  items[0].struct_size = sizeof items[0];
  EXPECT_OK(ask(items.data(), n, &n, nullptr));
  const auto is_required = [](const pumice_vulkan_requirement& item) { return item.required != 0; };
  EXPECT_GE(static_cast<size_t>(std::ranges::count_if(items, is_required)),
            vk::required_features().size());
  for (const pumice_vulkan_requirement& item : items) {
    EXPECT_EQ(item.struct_size, sizeof item);
    ASSERT_NE(item.name, nullptr);
    EXPECT_EQ(item.structure == nullptr, std::string_view(item.name).starts_with("VK_"));
    EXPECT_NE(item.brings, nullptr);
  }
  EXPECT_STATUS(PUMICE_TOO_SMALL, ask(items.data(), 2, &n, nullptr));
  EXPECT_EQ(n, items.size());
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, ask(items.data(), n, nullptr, nullptr));
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT,
                pumice_vulkan_requirements(lent.get_instance_proc_addr, lent.instance,
                                           VK_NULL_HANDLE, nullptr, 0, &n, nullptr));
}

TEST_F(ApiVulkan, OnTheHostsDeviceTheSameIsSaid) {
  const std::vector<uint32_t> own = tell_and_close(test::open_device());
  EXPECT_EQ(own.size(), 24u);
  const Host host(Host::Enables::kEverything);
  const vk::HostDevice lent = host.lent();
  Callbacks callbacks{host};
  for (int opened = 0; opened < 2; ++opened) {
    pumice_device* device = nullptr;
    {
      // What the struct points to need not stay.
      pumice_vulkan_device description = test::c_struct(lent);
      add_callbacks(callbacks, description);
      EXPECT_OK(pumice_vulkan_device_open(&description, nullptr, &device));
    }
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(tell_and_close(device), own);
    EXPECT_EQ(callbacks.n_memories, 0) << "all of the host's memory was given back";
    EXPECT_GT(callbacks.lock.n_taken, 0u);
    EXPECT_FALSE(callbacks.lock.held);
  }
}

TEST_F(ApiVulkan, WorkIsHandedOverByTimelines) {
  const Host host(Host::Enables::kRequired);
  const vk::HostDevice lent = host.lent();
  const pumice_vulkan_device description = test::c_struct(lent);
  pumice_device* device = nullptr;
  ASSERT_EQ(pumice_vulkan_device_open(&description, nullptr, &device), PUMICE_OK);
  VkSemaphore semaphore = VK_NULL_HANDLE;
  uint64_t before = 0, after = 0;
  EXPECT_OK(pumice_vulkan_submitted(device, &semaphore, &before));
  EXPECT_NE(semaphore, VK_NULL_HANDLE);
  EXPECT_OK(pumice_vulkan_begin_after(device, host.timeline(), 1));
  host.signal(1);
  tell_and_close(device);  // would hang without the signal
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_vulkan_begin_after(nullptr, host.timeline(), 1));
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_vulkan_submitted(nullptr, &semaphore, &after));
  EXPECT_EQ(semaphore, VK_NULL_HANDLE);
}

using Clock = std::chrono::steady_clock;

/// Milliseconds between `ask`, made by another thread while this one waits for the engine, and the
/// end of that wait.
template <typename Ask>
double woken_after_ms(pumice_engine* engine, const Ask& ask) {
  EXPECT_OK(pumice_wait(engine, 1000));  // what woke it before is over
  std::atomic<Clock::time_point> asked = {};
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    asked = Clock::now();
    ask();
  });
  while (asked.load() == Clock::time_point()) EXPECT_OK(pumice_wait(engine, 5'000'000));
  const Clock::time_point woken = Clock::now();
  other.join();
  return std::chrono::duration<double, std::milli>(woken - asked.load()).count();
}

TEST_F(ApiVulkan, WhoWaitsForABusyDeviceIsWokenByASubmitAndByACancelInEveryMode) {
  constexpr double kSoon_ms = 500;  // of a machine that has other things to do
  const Host host(Host::Enables::kRequired);
  const auto description = test::c_struct(host.lent());
  pumice_device* device = nullptr;
  ASSERT_EQ(pumice_vulkan_device_open(&description, nullptr, &device), PUMICE_OK);
  pumice_model* model = test::load_model(device);
  pumice_engine* engine = test::create_engine(model, 2);
  uint64_t signal = 0;
  for (const pumice_mode mode : {PUMICE_MODE_FAST, PUMICE_MODE_GRAPHICS, PUMICE_MODE_BACKGROUND}) {
    EXPECT_OK(pumice_set_mode(engine, mode));
    // The device waits for the host, and so has something to do until that lets it go on.
    EXPECT_OK(pumice_vulkan_begin_after(device, host.timeline(), ++signal));
    const auto options = test::request_of("Once upon a time", 2);
    std::array<pumice_request, 2> requests = {};
    ASSERT_EQ(pumice_submit(engine, 0, &options, &requests[0]), PUMICE_OK);
    ASSERT_EQ(pumice_poll(engine, PUMICE_NO_LIMIT), PUMICE_OK);
    EXPECT_LT(woken_after_ms(engine,
                             [&] { EXPECT_OK(pumice_submit(engine, 0, &options, &requests[1])); }),
              kSoon_ms)
        << mode;
    ASSERT_EQ(pumice_poll(engine, PUMICE_NO_LIMIT), PUMICE_OK);
    EXPECT_LT(woken_after_ms(engine, [&] { EXPECT_OK(pumice_cancel(engine, requests[0])); }),
              kSoon_ms)
        << mode;
    host.signal(signal);
    test::Answers answers;
    test::run_until(engine, answers, 2);
    EXPECT_EQ(answers[requests[0]].end_reason, PUMICE_END_CANCELLED) << mode;
    EXPECT_EQ(answers[requests[1]].tokens.size(), 2u) << mode;
  }
  pumice_engine_close(engine);
  pumice_model_close(model);
  pumice_device_close(device);
}

TEST_F(ApiVulkan, WaitingForAQueueThatTheHostHoldsComputesNothing) {
  const Host host(Host::Enables::kRequired);
  Callbacks callbacks{host};
  auto description = test::c_struct(host.lent());
  add_callbacks(callbacks, description);
  pumice_device* device = nullptr;
  ASSERT_EQ(pumice_vulkan_device_open(&description, nullptr, &device), PUMICE_OK);
  pumice_model* model = test::load_model(device);
  pumice_engine* engine = test::create_engine(model, 1);
  const auto options = test::request_of("Once upon a time", 4);
  pumice_request request = 0;
  ASSERT_EQ(pumice_submit(engine, 0, &options, &request), PUMICE_OK);
  callbacks.lock.held = true;
  // As hosts without frames do.
  const auto thread_s = [] {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  ASSERT_EQ(pumice_poll(engine, PUMICE_NO_LIMIT), PUMICE_OK);  // which records the step
  const double before_s = thread_s();
  const Clock::time_point start = Clock::now();
  int n_polls = 0;
  for (; Clock::now() - start < std::chrono::milliseconds(300); ++n_polls) {
    ASSERT_EQ(pumice_poll(engine, PUMICE_NO_LIMIT), PUMICE_OK);
    EXPECT_OK(pumice_wait(engine, PUMICE_NO_LIMIT));
  }
  EXPECT_LT(thread_s() - before_s, 0.1) << "of 0.3 s, in " << n_polls << " polls";
  EXPECT_LT(n_polls, 600);
  callbacks.lock.held = false;
  test::Answers answers;
  test::run_until(engine, answers, 1);
  EXPECT_EQ(answers[request].tokens.size(), 4u);
  pumice_engine_close(engine);
  pumice_model_close(model);
  pumice_device_close(device);
}

TEST_F(ApiVulkan, WhatIsWrongIsAStatusThatNamesIt) {
  const Host host(Host::Enables::kRequired);
  pumice_device* device = nullptr;
  const auto refused = [&](const pumice_vulkan_device& description, pumice_status expected,
                           std::string_view says, const pumice_device_options* options = nullptr) {
    EXPECT_STATUS(expected, pumice_vulkan_device_open(&description, options, &device));
    EXPECT_EQ(device, nullptr);
    EXPECT_NE(std::string_view(pumice_last_error()).find(says), std::string_view::npos)
        << pumice_last_error();
  };
  vk::HostDevice lent = host.lent();
  pumice_vulkan_device description = test::c_struct(lent);
  description.struct_size = 3;
  refused(description, PUMICE_INVALID_ARGUMENT, "struct_size");
  description = test::c_struct(lent);
  description.queue = VK_NULL_HANDLE;
  refused(description, PUMICE_INVALID_ARGUMENT, "queue is null");
  description = test::c_struct(lent);
  description.features = nullptr;
  refused(description, PUMICE_INVALID_ARGUMENT, "features is NULL");
  description = test::c_struct(lent);
  description.unlock_queue = [](void*) {};
  refused(description, PUMICE_INVALID_ARGUMENT, "try_lock and unlock");
  description = test::c_struct(lent);
  description.api_version = VK_API_VERSION_1_2;
  refused(description, PUMICE_NO_DEVICE, "Vulkan 1.3");
  pumice_device_options options{sizeof options};
  options.validation = 1;
  refused(test::c_struct(lent), PUMICE_INVALID_ARGUMENT,
          "cannot be set for a device that the host lends", &options);
  std::erase(lent.features, "maintenance4");
  refused(test::c_struct(lent), PUMICE_NO_DEVICE, "required: maintenance4");
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_vulkan_device_open(nullptr, nullptr, &device));
}

}  // namespace
}  // namespace pumice
