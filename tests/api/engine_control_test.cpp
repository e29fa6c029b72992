// How an engine shares: its device's memory and time, and the pace at which sessions are told.
#include <ctime>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/api/api_fixture.hpp"
#include "tests/paths.hpp"

namespace pumice {
namespace {

using test::Answer;
using test::Answers;
using Clock = std::chrono::steady_clock;

class Control : public test::ApiEngineTest {
 protected:
  pumice_stats stats() {
    pumice_stats stats{sizeof stats};
    EXPECT_OK(pumice_get_stats(engine_, &stats));
    return stats;
  }
  Answer ask(uint32_t n_tokens = 24) {
    return test::ask(engine_, 0, test::request_of("Once upon a time", n_tokens));
  }
};

TEST_F(Control, EstimatesAreWhatAModelAndItsEngineTake) {
  pumice_engine_close(engine_);
  engine_ = nullptr;
  pumice_model_close(model_);
  model_ = nullptr;
  const std::string path = test::source_path("models/pumice-stories.gguf").string();
  pumice_engine_options engine{sizeof engine};
  engine.context_tokens = 256;
  engine.n_sequences = 4;
  pumice_model_options options{sizeof options};
  options.path = {path.data(), path.size()};
  options.engine = &engine;
  const auto estimate = [&] {
    pumice_memory_estimate taken{sizeof taken};
    EXPECT_OK(pumice_model_estimate(device_, &options, &taken));
    return taken;
  };
  const pumice_memory_estimate first = estimate();
  EXPECT_TRUE(first.fits);
  EXPECT_EQ(first.context_tokens, 256u);
  EXPECT_EQ(first.most_context_tokens, first.trained_context_tokens);
  EXPECT_GE(first.total_bytes, first.weight_bytes + first.kv_bytes + first.activation_bytes);
  EXPECT_EQ(first.weight_bytes_beside, 0u);

  model_ = test::load_model(device_);
  ASSERT_EQ(pumice_engine_create(model_, &engine, &engine_), PUMICE_OK);
  const uint64_t taken = stats().budgeted_bytes;
  EXPECT_LE(taken, first.total_bytes);  // which has room for what passes
  EXPECT_GE(taken, first.weight_bytes + first.kv_bytes + first.activation_bytes);
  EXPECT_EQ(estimate().free_bytes, first.free_bytes - taken);

  engine.n_sequences = 1;
  EXPECT_EQ(estimate().kv_bytes, first.kv_bytes / 4);
  engine.kv_tokens = uint64_t{1} << 26;
  const pumice_memory_estimate large = estimate();
  EXPECT_FALSE(large.fits);
  EXPECT_GT(large.total_bytes, large.free_bytes);
  options.engine = nullptr;
  EXPECT_EQ(estimate().context_tokens, first.trained_context_tokens);

  const std::string other = test::source_path("README.md").string();
  options.path = {other.data(), other.size()};
  pumice_memory_estimate none = first;
  EXPECT_STATUS(PUMICE_BAD_FILE, pumice_model_estimate(device_, &options, &none));
  EXPECT_EQ(none.total_bytes, 0u);
}

TEST_F(Control, MemoryBudgetsAreMetWithoutARequestAndAnEventSaysSo) {
  pumice_engine_close(engine_);
  pumice_engine_options options{sizeof options};
  options.context_tokens = 256;
  options.kv_tokens = 4096;
  options.cache_host_bytes = uint64_t{4} << 20;
  engine_ = nullptr;
  ASSERT_EQ(pumice_engine_create(model_, &options, &engine_), PUMICE_OK);
  const Answer before = ask();
  const pumice_stats full = stats();
  EXPECT_EQ(full.memory_budget_bytes, 0u);
  EXPECT_EQ(full.memory_budget_met, 1u);

  EXPECT_STATUS(PUMICE_DOES_NOT_FIT, pumice_set_memory_budget(engine_, full.weight_bytes));
  EXPECT_NE(std::string_view(pumice_last_error()).find("MiB"), std::string_view::npos)
      << pumice_last_error();
  EXPECT_OK(pumice_poll(engine_, PUMICE_NO_LIMIT));
  EXPECT_EQ(stats().memory_budget_bytes, 0u);

  const uint64_t budget = full.device_bytes - full.kv_bytes / 2;
  ASSERT_EQ(pumice_set_memory_budget(engine_, budget), PUMICE_OK);
  int n_met = 0;
  for (int i = 0; i < 1000 && n_met == 0; ++i) {
    ASSERT_EQ(pumice_poll(engine_, PUMICE_NO_LIMIT), PUMICE_OK);
    for (pumice_event event{sizeof event}; pumice_next_event(engine_, &event) == PUMICE_OK;) {
      if (event.kind == PUMICE_EVENT_NONE) break;
      EXPECT_EQ(event.kind, PUMICE_EVENT_BUDGET_MET);
      EXPECT_EQ(event.request, 0u);
      ++n_met;
    }
    EXPECT_OK(pumice_wait(engine_, n_met == 0 ? PUMICE_NO_LIMIT : 0));
  }
  EXPECT_EQ(n_met, 1);
  const pumice_stats small = stats();
  EXPECT_EQ(small.memory_budget_bytes, budget);
  EXPECT_EQ(small.memory_budget_met, 1u);
  EXPECT_LE(small.budgeted_bytes, budget);
  EXPECT_GT(small.budgeted_bytes, 0u);
  EXPECT_LE(small.device_bytes, budget);
  EXPECT_EQ(small.budgeted_bytes, small.device_bytes);
  EXPECT_EQ(ask().tokens, before.tokens);
  EXPECT_LE(stats().device_bytes, budget);

  ASSERT_EQ(pumice_set_memory_budget(engine_, PUMICE_NO_LIMIT), PUMICE_OK);
  EXPECT_EQ(ask().tokens, before.tokens);
  EXPECT_EQ(stats().kv_bytes, full.kv_bytes);
  EXPECT_EQ(stats().budgeted_bytes, stats().device_bytes);
}

/// A host's memory, of which there may be none.
struct HostMemory {
  bool gives = true;
  uint64_t held_bytes = 0;
  uint64_t n_given = 0;
  uint64_t n_refused = 0;

  pumice_allocator allocator() {
    pumice_allocator allocator{sizeof allocator};
    allocator.user = this;
    allocator.allocate = [](void* user, size_t n_bytes, size_t alignment) -> void* {
      auto& memory = *static_cast<HostMemory*>(user);
      ++(memory.gives ? memory.n_given : memory.n_refused);
      if (!memory.gives) return nullptr;
      memory.held_bytes += n_bytes;
      return std::aligned_alloc(alignment, (n_bytes + alignment - 1) / alignment * alignment);
    };
    allocator.free = [](void* user, void* bytes, size_t n_bytes) {
      static_cast<HostMemory*>(user)->held_bytes -= n_bytes;
      std::free(bytes);
    };
    return allocator;
  }
};

TEST_F(Control, KeysAndValuesThatLeaveTheDeviceGoToTheHostsMemory) {
  const Answer expected = ask();
  pumice_engine_close(engine_);
  for (const bool gives : {true, false}) {
    HostMemory memory{.gives = gives};
    const pumice_allocator allocator = memory.allocator();
    pumice_engine_options options{sizeof options};
    options.context_tokens = 256;
    options.cache_host_bytes = uint64_t{4} << 20;
    options.allocator = &allocator;
    engine_ = nullptr;
    ASSERT_EQ(pumice_engine_create(model_, &options, &engine_), PUMICE_OK);
    EXPECT_EQ(ask().tokens, expected.tokens);
    // Enough others that the first one's blocks have to leave a pool of one context.
    for (int i = 0; i < 12; ++i) {
      const std::string text = "The " + std::to_string(i) + " dogs went home";
      test::ask(engine_, 0, test::request_of(text.c_str(), 40));
    }
    EXPECT_EQ(memory.n_given > 0, gives);
    EXPECT_EQ(memory.n_refused > 0, !gives);
    EXPECT_EQ(memory.held_bytes > 0, gives);
    EXPECT_EQ(ask().tokens, expected.tokens);
    pumice_engine_close(engine_);
    EXPECT_EQ(memory.held_bytes, 0u);
  }
  engine_ = nullptr;
}

TEST_F(Control, ModesChangeNoToken) {
  const Answer fast = ask();
  for (const pumice_mode mode : {PUMICE_MODE_BACKGROUND, PUMICE_MODE_GRAPHICS, PUMICE_MODE_FAST}) {
    EXPECT_OK(pumice_set_mode(engine_, mode));
    EXPECT_EQ(ask().tokens, fast.tokens) << mode;
  }
}

/// Seconds that this thread has computed.
double thread_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST_F(Control, AFullInboxTakesARequestAsFastAsAnEmptyOne) {
  const uint32_t token = 1;
  pumice_request_options options{sizeof options};
  options.tokens = &token;
  options.n_tokens = 1;
  options.max_new_tokens = 1;
  constexpr int kRounds = 16;
  double seconds[kRounds] = {};
  for (double& round : seconds) {
    const double before = thread_seconds();
    for (int i = 0; i < 1000; ++i) {
      pumice_request request = 0;
      ASSERT_EQ(pumice_submit(engine_, 0, &options, &request), PUMICE_OK);
    }
    round = thread_seconds() - before;
  }
  const double early = *std::min_element(seconds, seconds + 4);
  const double late = *std::min_element(seconds + 12, seconds + kRounds);
  EXPECT_LT(late, 5 * early + 1e-3) << "seconds for a thousand requests";
}

TEST_F(Control, NumbersAreExactAsDoubles) {
  for (int i = 0; i < 8; ++i) {
    pumice_engine* engine = test::create_engine(model_, 1, 64);
    const pumice_session session = test::open_session(engine);
    const auto options = test::request_of("Once", 2);
    pumice_request request = 0;
    EXPECT_OK(pumice_submit(engine, session, &options, &request));
    for (const uint64_t id : {session, request}) EXPECT_LT(id, uint64_t{1} << 53);
    EXPECT_NE(session, request);
    pumice_engine_close(engine);
  }
}

TEST_F(Control, ARequestThatWaitsForKernelsEndsInItsTime) {
  pumice_engine_close(engine_);
  pumice_device* device = test::open_device();  // on which nothing is compiled yet
  pumice_model* model = test::load_model(device);
  pumice_engine_options options{sizeof options};
  options.context_tokens = 64;
  options.prewarm_later = 1;
  engine_ = nullptr;
  ASSERT_EQ(pumice_engine_create(model, &options, &engine_), PUMICE_OK);
  const std::string log = test::log_of(device, PUMICE_LOG_INFO);
  EXPECT_EQ(log.find("kernels ready"), std::string::npos) << log;
  pumice_device_close(device);
  pumice_model_close(model);
  auto request = test::request_of("Once upon a time", 8);
  request.timeout_us = 1;
  pumice_request id = 0;
  ASSERT_EQ(pumice_submit(engine_, 0, &request, &id), PUMICE_OK);
  ASSERT_EQ(pumice_poll(engine_, 1), PUMICE_OK);
  uint32_t done = 0, total = 0;
  ASSERT_EQ(pumice_poll(engine_, 1), PUMICE_OK);
  Answers answers;
  EXPECT_EQ(test::take_events(engine_, answers), 1);
  EXPECT_EQ(answers[id].end_reason, PUMICE_END_TIMEOUT);
  ASSERT_EQ(pumice_prewarm(engine_, 0, &done, &total), PUMICE_OK);
  EXPECT_LT(done, total) << "kernels were still to be compiled";
}

TEST_F(Control, ASessionWithARateIsNeitherTooFastNorPolledForNothing) {
  constexpr int kTokens = 10;
  constexpr double kRate = 25;
  pumice_session_options options{sizeof options};
  options.max_tokens_per_second = kRate;
  const pumice_session session = test::open_session(engine_, &options);
  const auto request = test::request_of("Once upon a time", kTokens);
  pumice_request id = 0;
  ASSERT_EQ(pumice_submit(engine_, session, &request, &id), PUMICE_OK);
  Answers answers;
  int n_polls = 0;
  Clock::time_point first = Clock::now();
  while (answers[id].n_finished == 0) {
    ASSERT_EQ(pumice_poll(engine_, PUMICE_NO_LIMIT), PUMICE_OK);
    ++n_polls;
    test::take_events(engine_, answers);
    if (answers[id].tokens.empty()) first = Clock::now();
    if (answers[id].n_finished == 0) EXPECT_OK(pumice_wait(engine_, PUMICE_NO_LIMIT));
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - first).count();
  EXPECT_EQ(answers[id].tokens, ask(kTokens).tokens);
  EXPECT_GE(seconds, (kTokens - 2) / kRate);
  EXPECT_LT(seconds, 10 * kTokens / kRate) << "waits end when a token is due";
  EXPECT_LE(n_polls, 10 * kTokens) << "waits last until a token is due";
}

TEST_F(Control, SentencesComeWhole) {
  pumice_session_options options{sizeof options};
  options.sentences = 1;
  const pumice_session session = test::open_session(engine_, &options);
  const auto request = test::request_of("Once upon a time", 60);
  pumice_request id = 0;
  ASSERT_EQ(pumice_submit(engine_, session, &request, &id), PUMICE_OK);
  std::vector<std::string> texts;
  for (bool is_done = false; !is_done;) {
    ASSERT_EQ(pumice_poll(engine_, PUMICE_NO_LIMIT), PUMICE_OK);
    while (true) {
      pumice_event event{sizeof event};
      ASSERT_EQ(pumice_next_event(engine_, &event), PUMICE_OK);
      if (event.kind == PUMICE_EVENT_NONE) break;
      if (event.text.length > 0) texts.emplace_back(event.text.data, event.text.length);
      is_done |= event.kind == PUMICE_EVENT_FINISHED;
    }
    if (!is_done) EXPECT_OK(pumice_wait(engine_, PUMICE_NO_LIMIT));
  }
  ASSERT_GE(texts.size(), 3u);
  std::string all;
  for (size_t i = 0; i < texts.size(); ++i) {
    all += texts[i];
    if (i + 1 == texts.size()) break;
    const size_t last = texts[i].find_last_not_of(" \n");
    EXPECT_TRUE(last != std::string::npos &&
                std::string_view(".!?\"").find(texts[i][last]) != std::string_view::npos)
        << texts[i];
  }
  EXPECT_EQ(all, ask(60).text);
}

}  // namespace
}  // namespace pumice
