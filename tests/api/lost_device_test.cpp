// Devices that are lost under a host of the C ABI: one of its own, which is opened again, and one
// that it lent, which it replaces.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "models/synthetic_adapter.hpp"
#include "tests/api/api_fixture.hpp"
#include "tests/api/archive.hpp"
#include "tests/paths.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/vk/host_fixture.hpp"
#include "tests/vk_faults.hpp"
#include "vk/plan.hpp"
// After those that include Vulkan's header as this tree does.
#include "tests/api/vulkan_host.hpp"

namespace pumice {
namespace {

using test::Host;
using test::VulkanFaults;
using Tokens = std::array<std::vector<uint32_t>, 2>;

/// What a host saw while two requests ran.
struct Told {
  Tokens tokens;
  int n_lost = 0;     // events
  int n_new = 0;      // likewise
  int n_refused = 0;  // polls that said PUMICE_DEVICE_LOST
};

class ApiLostDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::GpuEnvironment::device()) GTEST_SKIP() << "no usable Vulkan device";
  }
  void TearDown() override { VulkanFaults::disarm(); }

  static Result<std::shared_ptr<vk::Device>> open_faulty() {
    return test::GpuEnvironment::open(
        [](const vk::DeviceSnapshot& snapshot) { return vk::plan_device(snapshot); },
        VulkanFaults::intercept);
  }
  /// A device whose calls can be made to fail.
  static pumice_device* own(host::DeviceOwner::Open reopen) {
    auto device = open_faulty();
    EXPECT_TRUE(device.ok()) << device.error().message;
    const auto log = std::make_shared<host::LogQueue>();
    const host::OpenOptions options{.logger = host::LogQueue::logger(log, LogLevel::kInfo)};
    return api::make_device(
               std::make_shared<host::DeviceOwner>(*device, options, std::move(reopen)), log)
        .release();
  }

  static pumice_engine* make_engine(pumice_model* model) {
    return test::create_invariant_engine(model, 2);
  }

  /// A greedy request and a seeded one. `refused`: what the host does when a poll says that the
  /// device is lost.
  static Told run(pumice_engine* engine, const std::function<void()>& refused = {},
                  const std::function<void(size_t)>& between = {}) {
    pumice_sampling sampling{sizeof sampling};
    sampling.temperature = 1;
    sampling.frequency_penalty = 0.5f;
    sampling.seed = 3;
    std::array<pumice_request, 2> ids = {};
    for (size_t i = 0; i < 2; ++i) {
      auto request = test::request_of("Once upon a time there was a little fox", 16);
      if (i == 1) request.sampling = &sampling;
      EXPECT_OK(pumice_submit(engine, 0, &request, &ids[i]));
    }
    Told told;
    const auto start = std::chrono::steady_clock::now();
    for (int n_finished = 0; n_finished < 2;) {
      if (std::chrono::steady_clock::now() - start > std::chrono::minutes(2)) {
        ADD_FAILURE() << "the engine does not get on";
        return told;
      }
      const pumice_status status = pumice_poll(engine, 2000);
      if (status == PUMICE_DEVICE_LOST) {
        ++told.n_refused;
        if (refused) refused();
      } else {
        EXPECT_EQ(status, PUMICE_OK) << pumice_last_error();
      }
      for (pumice_event event{sizeof event}; pumice_next_event(engine, &event) == PUMICE_OK;) {
        if (event.kind == PUMICE_EVENT_NONE) break;
        told.n_lost += event.kind == PUMICE_EVENT_DEVICE_LOST;
        told.n_new += event.kind == PUMICE_EVENT_DEVICE_NEW;
        EXPECT_TRUE(event.kind != PUMICE_EVENT_DEVICE_LOST || event.message.length > 0);
        if (event.has_token) told.tokens[event.request == ids[1]].push_back(event.token);
        if (event.kind != PUMICE_EVENT_FINISHED) continue;
        EXPECT_EQ(event.status, PUMICE_OK);
        ++n_finished;
      }
      if (between) between(told.tokens[0].size());
      EXPECT_OK(pumice_wait(engine, 100'000));
    }
    return told;
  }

  static pumice_stats stats_of(pumice_engine* engine) {
    pumice_stats stats{sizeof stats};
    EXPECT_OK(pumice_get_stats(engine, &stats));
    return stats;
  }
};

TEST_F(ApiLostDevice, IsOpenedAgainByThePollThatNoticesAndChangesNoToken) {
  int n_opened = 0;
  pumice_device* device = own([&] {
    ++n_opened;
    return open_faulty();
  });
  pumice_model* model = test::load_model(device);
  pumice_engine* engine = make_engine(model);
  const Told expected = run(engine);
  EXPECT_EQ(expected.tokens[0].size(), 16u);
  EXPECT_NE(expected.tokens[0], expected.tokens[1]);
  EXPECT_EQ(run(engine).tokens, expected.tokens);
  const uint64_t device_bytes = stats_of(engine).device_bytes;
  uint32_t n_lost = 0;
  for (const uint64_t nth : {0, 12, 40}) {
    VulkanFaults::arm(VulkanFaults::Kind::kLost, nth);
    const Told told = run(engine);
    EXPECT_EQ(told.tokens, expected.tokens) << nth << " " << VulkanFaults::struck();
    EXPECT_EQ(told.n_lost, 1) << nth;
    EXPECT_EQ(told.n_new, 1);
    EXPECT_EQ(told.n_refused, 0);
    n_lost += static_cast<uint32_t>(told.n_lost);
  }
  EXPECT_EQ(n_opened, static_cast<int>(n_lost));
  const pumice_stats stats = stats_of(engine);
  EXPECT_EQ(stats.n_lost_devices, n_lost);
  EXPECT_EQ(stats.is_lost, 0u);
  EXPECT_EQ(stats.device_bytes, device_bytes);
  pumice_engine_close(engine);
  pumice_model_close(model);
  pumice_device_close(device);
}

TEST_F(ApiLostDevice, IsOpenedAgainWithTheAdaptersOfItsModel) {
  const test::TemporaryFolder folder;
  const auto base = ModelSource::open(test::source_path("models/pumice-stories.gguf"));
  ASSERT_TRUE(base.ok());
  ASSERT_TRUE(write_synthetic_adapter(*base, {.rank = 4}, folder.path() / "fox.gguf").ok());
  test::Archive archive{.files = {{"a.gguf", test::stories()},
                                  {"fox.gguf", test::bytes_of_file(folder.path() / "fox.gguf")}}};
  const pumice_files files = archive.functions();
  pumice_model_options options = test::options_of("a.gguf", files);
  pumice_adapter fox{};
  fox.name = fox.path = pumice_str("fox.gguf");
  options.adapters = &fox;
  options.n_adapters = 1;
  pumice_device* device = own([&] { return open_faulty(); });
  // By a thread of the library's, whose handle is closed before the files are read again.
  pumice_loading* loading = nullptr;
  EXPECT_OK(pumice_model_load_begin(device, &options, &loading));
  pumice_load_progress progress{sizeof progress};
  EXPECT_OK(pumice_loading_wait(loading, PUMICE_NO_LIMIT, &progress));
  pumice_model* model = nullptr;
  EXPECT_OK(pumice_loading_take(loading, &model));
  pumice_loading_close(loading);
  pumice_engine* engine = make_engine(model);
  pumice_session_options alone{sizeof alone};
  alone.adapter = fox.name;
  auto request = test::request_of("Once upon a time", 16);
  request.alone = &alone;
  const std::vector<uint32_t> expected = test::ask(engine, 0, request).tokens;
  VulkanFaults::arm(VulkanFaults::Kind::kLost, 12);
  EXPECT_EQ(test::ask(engine, 0, request).tokens, expected) << VulkanFaults::struck();
  EXPECT_EQ(stats_of(engine).n_lost_devices, 1u);
  pumice_engine_close(engine);
  pumice_model_close(model);
  EXPECT_EQ(archive.n_opened, 3);
  EXPECT_EQ(archive.n_closed, 3);
  pumice_device_close(device);
}

TEST_F(ApiLostDevice, IsOpenedOnceForAllThatWasOnIt) {
  int n_opened = 0;
  pumice_device* device = own([&] {
    ++n_opened;
    return open_faulty();
  });
  std::array<pumice_model*, 2> models = {test::load_model(device), test::load_model(device)};
  std::array<pumice_engine*, 3> engines = {make_engine(models[0]), make_engine(models[0]),
                                           make_engine(models[1])};
  const Told expected = run(engines[0]);
  VulkanFaults::arm(VulkanFaults::Kind::kLost, 0);
  for (pumice_engine* engine : engines) {
    const Told told = run(engine);
    EXPECT_EQ(told.tokens, expected.tokens);
    EXPECT_EQ(told.n_lost, 1);
    EXPECT_EQ(told.n_new, 1);
  }
  EXPECT_EQ(n_opened, 1);
  // What is made of the handles is on the new one.
  pumice_engine* later = make_engine(models[1]);
  EXPECT_EQ(run(later).tokens, expected.tokens);
  EXPECT_EQ(n_opened, 1);
  for (pumice_engine* engine : engines) pumice_engine_close(engine);
  pumice_engine_close(later);
  for (pumice_model* model : models) pumice_model_close(model);
  pumice_device_close(device);
}

TEST_F(ApiLostDevice, ThatIsNotBackYetIsTriedAgain) {
  int n_opened = 0;
  pumice_device* device = own([&]() -> Result<std::shared_ptr<vk::Device>> {
    if (++n_opened == 1) return make_error(ErrorCode::kNoDevice, "it is being reset");
    return open_faulty();
  });
  pumice_model* model = test::load_model(device);
  pumice_engine* engine = make_engine(model);
  const Told expected = run(engine);
  pumice_session session = 0;
  EXPECT_OK(pumice_session_open(engine, nullptr, &session));
  VulkanFaults::arm(VulkanFaults::Kind::kLost, 0);
  const Told told = run(engine, [&] {
    EXPECT_NE(std::string_view(pumice_last_error()).find("it is being reset"),
              std::string_view::npos)
        << pumice_last_error();
    EXPECT_EQ(stats_of(engine).is_lost, 1u);
    const void* bytes = nullptr;
    size_t n = 0;
    EXPECT_STATUS(PUMICE_DEVICE_LOST, pumice_session_save(engine, session, &bytes, &n));
    EXPECT_STATUS(PUMICE_DEVICE_LOST, pumice_set_memory_budget(engine, PUMICE_NO_LIMIT));
  });
  EXPECT_EQ(told.tokens, expected.tokens);
  EXPECT_GT(told.n_refused, 0);
  EXPECT_EQ(told.n_lost, 1);
  EXPECT_EQ(told.n_new, 1);
  EXPECT_EQ(n_opened, 2) << "not at every poll";
  pumice_vulkan_device host{sizeof host};
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_vulkan_replace(device, &host));
  pumice_engine_close(engine);
  pumice_model_close(model);
  pumice_device_close(device);
}

/// The entry points of lent devices, which can be told to be lost.
struct LentCalls {
  static inline PFN_vkGetInstanceProcAddr instance_proc = nullptr;
  static inline PFN_vkGetDeviceProcAddr device_proc = nullptr;
  static inline PFN_vkQueueSubmit2 submit = nullptr;
  static inline PFN_vkWaitSemaphores wait = nullptr;
  static inline PFN_vkGetSemaphoreCounterValue value = nullptr;
  static inline std::atomic<VkDevice> lost_device = VK_NULL_HANDLE;
  static inline std::atomic<VkQueue> lost_queue = VK_NULL_HANDLE;

  static VKAPI_ATTR VkResult VKAPI_CALL submit_or_not(VkQueue queue, uint32_t n,
                                                      const VkSubmitInfo2* infos, VkFence fence) {
    return queue == lost_queue ? VK_ERROR_DEVICE_LOST : submit(queue, n, infos, fence);
  }
  static VKAPI_ATTR VkResult VKAPI_CALL wait_or_not(VkDevice device,
                                                    const VkSemaphoreWaitInfo* info,
                                                    uint64_t timeout) {
    return device == lost_device ? VK_ERROR_DEVICE_LOST : wait(device, info, timeout);
  }
  static VKAPI_ATTR VkResult VKAPI_CALL value_or_not(VkDevice device, VkSemaphore semaphore,
                                                     uint64_t* out) {
    return device == lost_device ? VK_ERROR_DEVICE_LOST : value(device, semaphore, out);
  }
  template <typename Function>
  static PFN_vkVoidFunction keep(PFN_vkVoidFunction real, Function& kept, Function replacement) {
    kept = reinterpret_cast<Function>(real);
    return reinterpret_cast<PFN_vkVoidFunction>(replacement);
  }
  static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device,
                                                                  const char* name) {
    const PFN_vkVoidFunction real = device_proc(device, name);
    const std::string_view called = name;
    if (called == "vkQueueSubmit2") return keep(real, submit, &submit_or_not);
    if (called == "vkWaitSemaphores") return keep(real, wait, &wait_or_not);
    if (called == "vkGetSemaphoreCounterValue") return keep(real, value, &value_or_not);
    return real;
  }
  static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance instance,
                                                                    const char* name) {
    const PFN_vkVoidFunction real = instance_proc(instance, name);
    if (std::string_view(name) != "vkGetDeviceProcAddr") return real;
    return keep(real, device_proc, &device_function);
  }

  static pumice_vulkan_device description(const Host& host) {
    const vk::HostDevice lent = host.lent();
    instance_proc = lent.get_instance_proc_addr;
    pumice_vulkan_device description = test::c_struct(lent);
    description.get_instance_proc_addr = &instance_function;
    return description;
  }
  /// Once it has done what it was given, as what that works on may be freed behind this.
  static void lose(const Host& host) {
    host.fn().vkDeviceWaitIdle(host.device());
    lost_device = host.lent().device;
    lost_queue = host.lent().queue;
  }
};

TEST_F(ApiLostDevice, OfTheHostIsWaitedForAndReplacedByTheHost) {
  auto first = std::make_unique<Host>(Host::Enables::kRequired);
  std::unique_ptr<Host> second, third;
  pumice_device* device = nullptr;
  {
    const auto description = LentCalls::description(*first);
    ASSERT_EQ(pumice_vulkan_device_open(&description, nullptr, &device), PUMICE_OK);
  }
  pumice_model* model = test::load_model(device);
  pumice_engine* engine = make_engine(model);
  const Told expected = run(engine);

  int n_refused = 0;
  const auto replace_it = [&] {
    if (++n_refused < 3) return;
    // Nothing of it is used any more.
    first.reset();
    LentCalls::lost_device = VK_NULL_HANDLE;  // another may lie where it was
    LentCalls::lost_queue = VK_NULL_HANDLE;
    VkSemaphore semaphore = VK_NULL_HANDLE;
    uint64_t value = 0;
    EXPECT_STATUS(PUMICE_DEVICE_LOST, pumice_vulkan_submitted(device, &semaphore, &value));
    pumice_engine* none = nullptr;
    EXPECT_STATUS(PUMICE_DEVICE_LOST, pumice_engine_create(model, nullptr, &none));
    second = std::make_unique<Host>(Host::Enables::kRequired);
    const auto description = LentCalls::description(*second);
    EXPECT_OK(pumice_vulkan_replace(device, &description));
  };
  const auto lose_it = [&](size_t n_tokens) {
    if (n_tokens >= 5 && first != nullptr) LentCalls::lose(*first);
  };
  const Told told = run(engine, replace_it, lose_it);
  EXPECT_EQ(told.tokens, expected.tokens);
  EXPECT_EQ(told.n_refused, 3);
  EXPECT_EQ(told.n_lost, 1);
  EXPECT_EQ(told.n_new, 1);
  ASSERT_NE(second, nullptr);

  // One that works is left likewise, when the host says so.
  const auto leave_it = [&](size_t n_tokens) {
    if (n_tokens < 7 || third != nullptr) return;
    third = std::make_unique<Host>(Host::Enables::kRequired);
    const auto description = LentCalls::description(*third);
    EXPECT_OK(pumice_vulkan_replace(device, &description));
  };
  const Told left = run(engine, {}, leave_it);
  EXPECT_EQ(left.tokens, expected.tokens);
  EXPECT_EQ(left.n_refused + left.n_lost, 0);
  EXPECT_EQ(left.n_new, 1);
  second.reset();
  EXPECT_EQ(run(engine).tokens, expected.tokens);

  pumice_vulkan_device wrong{3};
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_vulkan_replace(device, &wrong));
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_vulkan_replace(device, nullptr));
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_vulkan_replace(nullptr, &wrong));
  EXPECT_EQ(run(engine).tokens, expected.tokens) << "which changed nothing";
  pumice_engine_close(engine);
  pumice_model_close(model);
  pumice_device_close(device);
}

TEST_F(ApiLostDevice, EndsNoTimeLimit) {
  pumice_device* device = own([]() -> Result<std::shared_ptr<vk::Device>> {
    return make_error(ErrorCode::kNoDevice, "it does not come back");
  });
  pumice_model* model = test::load_model(device);
  pumice_engine* engine = make_engine(model);
  std::array<pumice_request, 3> ids = {};
  for (size_t i = 0; i < 2; ++i) {
    auto request = test::request_of("Once upon a time", 100);
    request.timeout_us = 300'000;
    ASSERT_EQ(pumice_submit(engine, 0, &request, &ids[i]), PUMICE_OK);
  }
  ASSERT_EQ(pumice_poll(engine, 2000), PUMICE_OK);
  VulkanFaults::arm(VulkanFaults::Kind::kLost, 0);
  // One more, of which only a lost device ever knew, and which may wait for long.
  auto patient = test::request_of("Once upon a time", 100);
  patient.timeout_us = PUMICE_NO_LIMIT - 1;
  ASSERT_EQ(pumice_submit(engine, 0, &patient, &ids[2]), PUMICE_OK);
  test::Answers answers;
  const auto start = std::chrono::steady_clock::now();
  for (int n = 0; n < 2 && std::chrono::steady_clock::now() - start < std::chrono::seconds(5);) {
    (void)pumice_poll(engine, 2000);
    n += test::take_events(engine, answers);
    EXPECT_OK(pumice_wait(engine, 100'000));
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(answers[ids[i]].n_finished, 1);
    EXPECT_EQ(answers[ids[i]].end_reason, PUMICE_END_TIMEOUT);
  }
  EXPECT_EQ(stats_of(engine).is_lost, 1u);
  EXPECT_EQ(stats_of(engine).open_requests, 1u);
  EXPECT_OK(pumice_cancel(engine, ids[2]));
  EXPECT_STATUS(PUMICE_DEVICE_LOST, pumice_poll(engine, 2000));
  EXPECT_EQ(test::take_events(engine, answers), 1);
  EXPECT_EQ(answers[ids[2]].end_reason, PUMICE_END_CANCELLED);
  pumice_engine_close(engine);
  pumice_model_close(model);
  pumice_device_close(device);
}

/// The program's folder is another while this exists.
class OtherFolder {
 public:
  explicit OtherFolder(const std::filesystem::path& folder)
      : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  ~OtherFolder() { std::filesystem::current_path(before_); }
  OtherFolder(const OtherFolder&) = delete;
  OtherFolder& operator=(const OtherFolder&) = delete;

 private:
  const std::filesystem::path before_;
};

TEST_F(ApiLostDevice, IsHadAgainAlsoWhenTheProgramIsInAnotherFolder) {
  pumice_device* device = own([] { return open_faulty(); });
  pumice_model* model = nullptr;
  {
    const OtherFolder models(test::source_path("models"));
    pumice_model_options options{sizeof options};
    options.path = pumice_str("pumice-stories.gguf");
    ASSERT_EQ(pumice_model_load(device, &options, &model), PUMICE_OK);
  }
  pumice_engine* engine = make_engine(model);
  const Told expected = run(engine);
  const OtherFolder elsewhere(std::filesystem::temp_directory_path());
  VulkanFaults::arm(VulkanFaults::Kind::kLost, 0);
  const Told told = run(engine);
  EXPECT_EQ(told.tokens, expected.tokens);
  EXPECT_EQ(told.n_refused, 0);
  pumice_engine_close(engine);
  pumice_model_close(model);
  pumice_device_close(device);
}

/// Allocates device memory for a host, and once runs something meanwhile.
struct Meanwhile {
  const Host& host;
  std::function<void()> once = {};

  void lend_to(pumice_vulkan_device& description) {
    description.memory_user = this;
    description.allocate = [](void* user, const pumice_vulkan_memory_request* request,
                              pumice_vulkan_memory* memory) {
      auto& self = *static_cast<Meanwhile*>(user);
      if (const auto now = std::exchange(self.once, {})) now();
      VkMemoryAllocateFlagsInfo flags{};
      flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
      flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
      VkMemoryAllocateInfo info{};
      info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
      info.pNext = &flags;
      info.allocationSize = request->size_bytes;
      info.memoryTypeIndex = request->memory_type;
      const auto& fn = self.host.fn();
      const VkDevice device = self.host.device();
      const VkResult result = fn.vkAllocateMemory(device, &info, nullptr, &memory->memory);
      if (result != VK_SUCCESS || !request->mapped) return result;
      return fn.vkMapMemory(device, memory->memory, 0, VK_WHOLE_SIZE, 0, &memory->mapped);
    };
    description.free = [](void* user, const pumice_vulkan_memory* memory) {
      const auto& self = *static_cast<Meanwhile*>(user);
      self.host.fn().vkFreeMemory(self.host.device(), memory->memory, nullptr);
    };
  }
};

TEST_F(ApiLostDevice, OfTheHostIsLeftAlsoIfItIsReplacedWhileAnEngineComesToIt) {
  std::array<std::unique_ptr<Host>, 3> hosts;
  for (auto& host : hosts) host = std::make_unique<Host>(Host::Enables::kRequired);
  Meanwhile meanwhile{*hosts[1]};
  pumice_device* device = nullptr;
  const auto first = test::c_struct(hosts[0]->lent());
  ASSERT_EQ(pumice_vulkan_device_open(&first, nullptr, &device), PUMICE_OK);
  pumice_model* model = test::load_model(device);
  pumice_engine* engine = make_engine(model);
  const Told expected = run(engine);
  auto second = test::c_struct(hosts[1]->lent());
  meanwhile.lend_to(second);
  ASSERT_EQ(pumice_vulkan_replace(device, &second), PUMICE_OK);
  const std::weak_ptr<vk::Device> left = device->owner->device();
  std::jthread replacing;
  meanwhile.once = [&] {  // while the engine is made again on the second
    const uint64_t generation = device->owner->generation();
    replacing = std::jthread([&] {
      const auto third = test::c_struct(hosts[2]->lent());
      EXPECT_OK(pumice_vulkan_replace(device, &third));
    });
    while (device->owner->generation() == generation) std::this_thread::yield();
  };
  EXPECT_OK(pumice_poll(engine, 2000));
  ASSERT_TRUE(replacing.joinable());
  replacing.join();
  EXPECT_OK(pumice_poll(engine, 2000));
  EXPECT_TRUE(left.expired()) << "the engine stays on a device that its host may destroy";
  if (left.expired()) {
    hosts[0].reset();
    hosts[1].reset();
  }
  EXPECT_EQ(run(engine).tokens, expected.tokens);
  pumice_engine_close(engine);
  pumice_model_close(model);
  pumice_device_close(device);
}

TEST_F(ApiLostDevice, IsGoneWhenThePollSaysSoWhoeverAsksForNumbersMeanwhile) {
  auto host = std::make_unique<Host>(Host::Enables::kRequired);
  pumice_device* device = nullptr;
  {
    const auto description = LentCalls::description(*host);
    ASSERT_EQ(pumice_vulkan_device_open(&description, nullptr, &device), PUMICE_OK);
  }
  pumice_model* model = test::load_model(device);
  pumice_engine* engine = make_engine(model);
  std::atomic<bool> ends = false;
  {
    std::vector<std::jthread> asking;
    for (int i = 0; i < 4; ++i) {
      asking.emplace_back([&, i] {
        while (!ends) {
          if (i < 3) {
            (void)stats_of(engine);
            continue;
          }
          VkSemaphore semaphore = VK_NULL_HANDLE;
          uint64_t value = 0;
          (void)pumice_vulkan_submitted(device, &semaphore, &value);
        }
      });
    }
    for (int round = 0; round < 4; ++round) {
      const std::weak_ptr<vk::Device> lost = device->owner->device();
      LentCalls::lose(*host);
      auto request = test::request_of("Once upon a time", 2);
      pumice_request id = 0;
      EXPECT_OK(pumice_submit(engine, 0, &request, &id));
      pumice_status status = PUMICE_OK;
      for (int i = 0; i < 1000 && status == PUMICE_OK; ++i) status = pumice_poll(engine, 2000);
      EXPECT_EQ(status, PUMICE_DEVICE_LOST);
      EXPECT_TRUE(lost.expired()) << "round " << round;
      while (!lost.expired()) std::this_thread::yield();
      host.reset();
      LentCalls::lost_device = VK_NULL_HANDLE;
      LentCalls::lost_queue = VK_NULL_HANDLE;
      host = std::make_unique<Host>(Host::Enables::kRequired);
      const auto description = LentCalls::description(*host);
      EXPECT_OK(pumice_vulkan_replace(device, &description));
      test::Answers answers;
      test::run_until(engine, answers, 1);
    }
    ends = true;
  }
  pumice_engine_close(engine);
  pumice_model_close(model);
  pumice_device_close(device);
}

}  // namespace
}  // namespace pumice
