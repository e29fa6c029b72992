// Hosts that run for days: what was closed leaves nothing behind, engines beside each other do not
// disturb each other, and waiting costs no processor's time.
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "api/handles.hpp"
#include "tests/api/api_fixture.hpp"

namespace pumice {
namespace {

using test::Answers;

/// What this process holds of the system.
struct Holdings {
  uint64_t heap_bytes = 0;  ///< of malloc, in use
  uint64_t resident_bytes = 0;
  size_t n_threads = 0;
  size_t n_handles = 0;
};

size_t n_entries(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

Holdings holdings() {
  malloc_trim(0);
  const struct mallinfo2 heap = mallinfo2();
  uint64_t mapped_pages = 0;
  uint64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> mapped_pages >> resident_pages;
  return {.heap_bytes = heap.uordblks + heap.hblkhd,
          .resident_bytes = resident_pages * 4096,
          .n_threads = n_entries("/proc/self/task"),
          .n_handles = n_entries("/proc/self/fd")};
}

std::ostream& operator<<(std::ostream& out, const Holdings& held) {
  return out << held.heap_bytes << " bytes of heap, " << held.resident_bytes << " resident, "
             << held.n_threads << " threads, " << held.n_handles << " handles";
}

/// A few answers, one of them cut off, and events that nobody takes.
void generate(pumice_engine* engine) {
  pumice_session session = 0;
  EXPECT_OK(pumice_session_open(engine, nullptr, &session));
  const pumice_request_options options = test::request_of("Once upon a time", 4);
  pumice_request requests[3] = {};
  EXPECT_OK(pumice_submit(engine, session, &options, &requests[0]));
  EXPECT_OK(pumice_submit(engine, 0, &options, &requests[1]));
  Answers answers;
  test::run_until(engine, answers, 1);
  EXPECT_OK(pumice_submit(engine, 0, &options, &requests[2]));
  EXPECT_OK(pumice_cancel(engine, requests[2]));
  EXPECT_OK(pumice_poll(engine, 0));
  EXPECT_EQ(answers.begin()->second.tokens.size(), 4u);
}

/// PUMICE_SOAK: how many times (docs/TESTING.md).
int n_cycles() {
  const char* asked = std::getenv("PUMICE_SOAK");
  return asked != nullptr ? std::atoi(asked) : 8;
}

/// Does it again and again; what the process holds after the tenth time, or after one of the few
/// before, for what was dropped is freed once the device has finished it, it holds after the last.
void expect_no_growth(const std::function<void()>& cycle) {
  // Caches fill and drivers start their threads first. Few cycles begin to count earlier.
  const int n = n_cycles();
  const int n_first = std::min(10, n / 2);
  Holdings first;
  // Of the last cycles the least: a driver's compilers hold up to 12 MB more for a while.
  constexpr int kLast = 3;
  uint64_t last_resident_bytes = UINT64_MAX;
  for (int i = 1; i <= n; ++i) {
    cycle();
    if (::testing::Test::HasFailure()) return;
    if (std::getenv("PUMICE_SOAK") != nullptr) std::cerr << i << ": " << holdings() << '\n';
    if (i > n_first / 2 && i <= n_first) {
      const Holdings now = holdings();
      first = {.heap_bytes = std::max(first.heap_bytes, now.heap_bytes),
               .resident_bytes = std::max(first.resident_bytes, now.resident_bytes),
               .n_threads = std::max(first.n_threads, now.n_threads),
               .n_handles = std::max(first.n_handles, now.n_handles)};
    }
    if (i > n - kLast) {
      last_resident_bytes = std::min(last_resident_bytes, holdings().resident_bytes);
    }
  }
  Holdings last = holdings();
  last.resident_bytes = last_resident_bytes;
  // Drivers have caches that fill slowly, and pages of which the heap uses a part. Validation
  // layers keep tables of all that they have seen, in this process's heap.
  const bool layers = std::getenv("PUMICE_VALIDATION") != nullptr;
  const uint64_t slack_bytes = layers ? 1 << 20 : 64 * 1024;
  EXPECT_LE(last.heap_bytes, first.heap_bytes + slack_bytes) << first << ", then " << last;
  EXPECT_LE(last.resident_bytes, first.resident_bytes + (8 << 20)) << first << ", then " << last;
  EXPECT_LE(last.n_threads, first.n_threads);
  EXPECT_LE(last.n_handles, first.n_handles);
}

TEST(Soak, DevicesThatAreClosedLeaveNothing) {
  if (std::getenv("PUMICE_VALIDATION") != nullptr) {
    GTEST_SKIP() << "validation layers keep what they learned of a device";
  }
  pumice_device* probe = test::open_device();
  if (probe == nullptr) GTEST_SKIP() << "no usable Vulkan device";
  pumice_device_close(probe);
  expect_no_growth([] {
    pumice_device* device = test::open_device();
    pumice_model* model = test::load_model(device);
    pumice_engine* engine = test::create_engine(model, 2, 64);
    generate(engine);
    pumice_engine_close(engine);
    pumice_model_close(model);
    EXPECT_EQ(test::log_of(device, PUMICE_LOG_ERROR), "");
    pumice_device_close(device);
  });
}

class SoakEngines : public test::ApiTest {};

TEST_F(SoakEngines, ThatAreClosedLeaveNothing) {
  const vk::MemoryLedger& ledger = device_->owner->device()->ledger();
  const uint64_t before_bytes = ledger.total_bytes();
  expect_no_growth([&] {
    pumice_engine* engine = test::create_engine(model_, 2, 64);
    generate(engine);
    pumice_engine_close(engine);
    EXPECT_EQ(ledger.total_bytes(), before_bytes);
    EXPECT_EQ(test::log_of(device_, PUMICE_LOG_ERROR), "");
  });
}

TEST_F(SoakEngines, ThatGoOnForLongDoNotGrow) {
  pumice_engine* engine = test::create_engine(model_, 2, 64);
  Answers answers;
  const pumice_request_options options = test::request_of("Once upon a time", 4);
  expect_no_growth([&] {
    pumice_session session = 0;
    EXPECT_OK(pumice_session_open(engine, nullptr, &session));
    for (const uint64_t of : {session, pumice_session{0}}) {
      pumice_request request = 0;
      EXPECT_OK(pumice_submit(engine, of, &options, &request));
    }
    test::run_until(engine, answers, 2);
    EXPECT_OK(pumice_session_close(engine, session));
    answers.clear();
  });
  pumice_engine_close(engine);
}

/// Seconds that all threads of this process have computed.
double processor_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class Idle : public test::ApiEngineTest {
 protected:
  void SetUp() override {
    ApiEngineTest::SetUp();
    if (IsSkipped()) return;
    // So that nothing happens for the first time.
    const pumice_request_options options = test::request_of("Once upon a time", 4);
    pumice_request request = 0;
    ASSERT_EQ(pumice_submit(engine_, 0, &options, &request), PUMICE_OK);
    Answers answers;
    test::run_until(engine_, answers, 1);
  }
};

TEST_F(Idle, WaitingForNothingComputesNothing) {
  const auto start = std::chrono::steady_clock::now();
  const double before_s = processor_seconds();
  EXPECT_OK(pumice_wait(engine_, 1'000'000));
  EXPECT_LT(processor_seconds() - before_s, 0.010);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(990));
}

TEST_F(Idle, PollingForNothingIsNearlyFree) {
  constexpr int kPolls = 1000;
  const double before_s = processor_seconds();
  for (int i = 0; i < kPolls; ++i) EXPECT_OK(pumice_poll(engine_, 2000));
  const double each_s = (processor_seconds() - before_s) / kPolls;
  std::cerr << "a poll with nothing to do: " << each_s * 1e6 << " us\n";
  EXPECT_LT(each_s, 50e-6);
}

using Tokens = std::vector<uint32_t>;

/// What an engine answers to each of a few prompts, a request at a time.
std::vector<Tokens> say(pumice_engine* engine) {
  std::vector<Tokens> said;
  for (const char* prompt : {"Once upon a time", "Tom and Lily", "The dog"}) {
    const pumice_request_options options = test::request_of(prompt, 16);
    pumice_request request = 0;
    EXPECT_OK(pumice_submit(engine, 0, &options, &request));
    Answers answers;
    test::run_until(engine, answers, 1);
    said.push_back(answers[request].tokens);
    EXPECT_EQ(said.back().size(), 16u) << answers[request].message;
  }
  return said;
}

/// Each says on a thread of its own what it says alone.
void expect_undisturbed(const std::array<pumice_engine*, 2>& engines) {
  std::array<std::vector<Tokens>, 2> alone;
  std::array<std::vector<Tokens>, 2> together;
  for (size_t i = 0; i < 2; ++i) alone[i] = say(engines[i]);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        for (int round = 0; round < 4; ++round) together[i] = say(engines[i]);
      });
    }
  }
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(together[i], alone[i]) << "engine " << i;
}

class TwoEngines : public test::ApiTest {};

TEST_F(TwoEngines, OnOneDeviceDoNotDisturbEachOther) {
  const std::array<pumice_engine*, 2> engines = {test::create_engine(model_),
                                                 test::create_engine(model_)};
  expect_undisturbed(engines);
  for (pumice_engine* engine : engines) pumice_engine_close(engine);
}

pumice_device_info info_of(const pumice_device* device) {
  pumice_device_info info{sizeof info};
  EXPECT_OK(pumice_device_get_info(device, &info));
  return info;
}

/// A device with another driver where this machine has one, otherwise the same again.
pumice_device* open_other(const pumice_device* device) {
  size_t n = 0;
  EXPECT_OK(pumice_device_list(nullptr, 0, &n));
  std::vector<pumice_device_info> infos(n, {sizeof(pumice_device_info)});
  EXPECT_OK(pumice_device_list(infos.data(), n, &n));
  const std::string driver = info_of(device).driver;
  for (size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].driver == driver) continue;
    const std::string index = std::to_string(i);
    pumice_device_options options{sizeof options};
    options.selector = pumice_str(index.c_str());
    pumice_device* other = nullptr;
    if (pumice_device_open(&options, &other) == PUMICE_OK) return other;
  }
  return test::open_device();
}

TEST_F(TwoEngines, OnTwoDevicesDoNotDisturbEachOther) {
  pumice_device* device = open_other(device_);
  ASSERT_NE(device, nullptr);
  std::cerr << "devices: " << info_of(device_).driver << "; " << info_of(device).driver << '\n';
  pumice_model* model = test::load_model(device);
  ASSERT_NE(model, nullptr);
  const std::array<pumice_engine*, 2> engines = {test::create_engine(model_),
                                                 test::create_engine(model)};
  expect_undisturbed(engines);
  for (pumice_engine* engine : engines) pumice_engine_close(engine);
  pumice_model_close(model);
  EXPECT_EQ(test::log_of(device, PUMICE_LOG_ERROR), "");
  pumice_device_close(device);
}

}  // namespace
}  // namespace pumice
