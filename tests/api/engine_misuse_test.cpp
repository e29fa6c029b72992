// Misuse of an engine, and many threads at one.
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/api/api_fixture.hpp"

namespace pumice {
namespace {

using test::Answers;

class Engines : public test::ApiEngineTest {};

TEST_F(Engines, RefuseRequestsThatAreNone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const uint32_t no_token = 1 << 30;
  const pumice_message stranger = {pumice_str("wizard"), pumice_str("hello")};
  const pumice_message unanswered[] = {{pumice_str("user"), pumice_str("hello")},
                                       {pumice_str("assistant"), pumice_str("hello")}};
  const pumice_string empty_stop = {"", 0};
  const pumice_string bad_stop = pumice_str("\xff");
  const pumice_message bad_message = {pumice_str("user"), bad_stop};
  const pumice_logit_bias bias = {no_token, 1};
  struct Row {
    const char* name;
    std::function<void(pumice_request_options&, pumice_sampling&)> change;
    pumice_status expected = PUMICE_INVALID_ARGUMENT;
  };
  const Row rows[] = {
      {"no prompt", [](auto& o, auto&) { o.text = {}; }},
      {"two prompts",
       [&](auto& o, auto&) {
         o.messages = &stranger;
         o.n_messages = 1;
       }},
      {"text without data",
       [](auto& o, auto&) {
         o.text = {nullptr, 5};
       }},
      {"text that is not UTF-8",
       [](auto& o, auto&) {
         o.text = {"ab\xff\xfe", 4};
       }},
      {"a stop that is not UTF-8",
       [&](auto& o, auto&) {
         o.stops = &bad_stop;
         o.n_stops = 1;
       }},
      {"a message that is not UTF-8",
       [&](auto& o, auto&) {
         o.text = {};
         o.messages = &bad_message;
         o.n_messages = 1;
       }},
      {"endless text",
       [](auto& o, auto&) {
         o.text = {"abc", SIZE_MAX - 1};
       }},
      {"tokens without data", [](auto& o, auto&) { o.n_tokens = 3; }},
      {"endless tokens",
       [&](auto& o, auto&) {
         o.tokens = &no_token;
         o.n_tokens = SIZE_MAX / 4;
       }},
      {"a token outside the vocabulary",
       [&](auto& o, auto&) {
         o.text = {};
         o.tokens = &no_token;
         o.n_tokens = 1;
       }},
      {"an unknown role",
       [&](auto& o, auto&) {
         o.text = {};
         o.messages = &stranger;
         o.n_messages = 1;
       }},
      {"nothing to answer",
       [&](auto& o, auto&) {
         o.text = {};
         o.messages = unanswered;
         o.n_messages = 2;
       }},
      {"messages without data", [](auto& o, auto&) { o.n_messages = 1; }},
      {"a boolean of 2", [](auto& o, auto&) { o.ignore_end = 2; }},
      {"stops without data", [](auto& o, auto&) { o.n_stops = 1; }},
      {"an empty stop",
       [&](auto& o, auto&) {
         o.stops = &empty_stop;
         o.n_stops = 1;
       }},
      {"more than the context", [](auto& o, auto&) { o.max_new_tokens = 300; },
       PUMICE_DOES_NOT_FIT},
      {"most of all", [](auto& o, auto&) { o.max_new_tokens = UINT32_MAX; }, PUMICE_DOES_NOT_FIT},
      {"sampling of no size", [](auto&, auto& s) { s.struct_size = 3; }},
      {"a temperature that is not a number", [&](auto&, auto& s) { s.temperature = nan; }},
      {"a negative temperature", [](auto&, auto& s) { s.temperature = -1; }},
      {"top_p of 2", [](auto&, auto& s) { s.top_p = 2; }},
      {"biases without data", [](auto&, auto& s) { s.n_logit_biases = 1; }},
      {"a bias for no token",
       [&](auto&, auto& s) {
         s.logit_biases = &bias;
         s.n_logit_biases = 1;
       }},
  };
  for (const Row& row : rows) {
    pumice_sampling sampling{sizeof sampling};
    pumice_request_options options = test::request_of("Once", 5);
    options.sampling = &sampling;
    row.change(options, sampling);
    pumice_request request = 99;
    EXPECT_EQ(pumice_submit(engine_, 0, &options, &request), row.expected)
        << row.name << ": " << pumice_last_error();
    EXPECT_EQ(request, 0u) << row.name;
  }
  EXPECT_OK(pumice_poll(engine_, PUMICE_NO_LIMIT));
  Answers answers;
  test::take_events(engine_, answers);
  EXPECT_TRUE(answers.empty());
}

TEST_F(Engines, SayWhereATextIsNotUtf8) {
  size_t n = 0;
  const auto tokenize = [&](std::string_view text) {
    return pumice_tokenize(model_, {text.data(), text.size()}, 0, nullptr, 0, &n);
  };
  // Lone and overlong bytes, a surrogate, beyond the last character, a character cut off.
  for (const char* end :
       {"\xff\xfe", "\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, tokenize(std::string("é: ") + end));
    EXPECT_NE(std::string_view(pumice_last_error()).find("text is not valid UTF-8 at byte 4 of "),
              std::string_view::npos)
        << pumice_last_error();
  }
  EXPECT_OK(tokenize("é: \xe2\x82\xac, and a NUL"));
}

TEST_F(Engines, KnowTheirOwnNumbersOnly) {
  pumice_engine* other = test::create_engine(model_);
  pumice_session session = 0;
  ASSERT_EQ(pumice_session_open(engine_, nullptr, &session), PUMICE_OK);
  const pumice_request_options options = test::request_of("Once", 3);
  pumice_request request = 0;
  ASSERT_EQ(pumice_submit(engine_, session, &options, &request), PUMICE_OK);
  pumice_request none = 0;
  const void* bytes = nullptr;
  size_t n = 0;
  for (const uint64_t id : {uint64_t{0}, uint64_t{1}, UINT64_MAX, session, session + 2}) {
    EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_cancel(engine_, id));
  }
  for (const uint64_t id : {uint64_t{1}, UINT64_MAX, request, request + 2}) {
    EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_session_close(engine_, id));
    EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_submit(engine_, id, &options, &none));
    EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_session_tokens(engine_, id, nullptr, 0, &n));
    EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_session_save(engine_, id, &bytes, &n));
    EXPECT_EQ(bytes, nullptr);
  }
  EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_session_close(other, session));
  EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_cancel(other, request));
  Answers answers;
  test::run_until(engine_, answers, 1);
  EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_cancel(engine_, request));
  EXPECT_OK(pumice_session_close(engine_, session));
  EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_submit(engine_, session, &options, &none));
  pumice_engine_close(other);
}

TEST_F(Engines, ArraysThatAreTooSmallSaySo) {
  uint32_t tokens[2] = {};
  size_t n = 0;
  EXPECT_STATUS(PUMICE_TOO_SMALL,
                pumice_tokenize(model_, pumice_str("Once upon a time"), 1, tokens, 2, &n));
  EXPECT_GT(n, 2u);
  EXPECT_NE(tokens[1], 0u);
  char text[3] = {};
  EXPECT_STATUS(PUMICE_TOO_SMALL, pumice_detokenize(model_, tokens, 2, text, 0 + 1, &n));
  const uint32_t no_token = UINT32_MAX;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_detokenize(model_, &no_token, 1, text, 3, &n));
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT,
                pumice_tokenize(model_, pumice_str("a"), 7, nullptr, 0, &n));
}

TEST_F(Engines, OptionsThatAreNoneAreRefused) {
  const std::function<void(pumice_engine_options&)> changes[] = {
      [](auto& o) { o.overflow = 3; },
      [](auto& o) { o.kv_type = pumice_str("f12"); },
      [](auto& o) { o.arithmetic = pumice_str("exact"); },
      [](auto& o) { o.invariant = 2; },
      [](auto& o) { o.kv_tokens = UINT64_MAX; },
      [](auto& o) {
        static const pumice_allocator kNoFunctions{sizeof kNoFunctions};
        o.allocator = &kNoFunctions;
      },
      [](auto& o) {
        static const pumice_allocator kNoSize{};
        o.allocator = &kNoSize;
      },
      [](auto& o) { o.struct_size = 1; },
  };
  for (const auto& change : changes) {
    pumice_engine_options options{sizeof options};
    options.context_tokens = 64;
    change(options);
    pumice_engine* engine = nullptr;
    EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_engine_create(model_, &options, &engine));
    EXPECT_EQ(engine, nullptr);
  }
  const std::function<void(pumice_session_options&)> session_changes[] = {
      [](auto& o) { o.service_class = 3; },
      [](auto& o) { o.sentences = 2; },
      [](auto& o) { o.max_tokens_per_second = -1; },
      [](auto& o) { o.max_tokens_per_second = std::numeric_limits<float>::quiet_NaN(); },
      [](auto& o) { o.max_tokens_per_second = std::numeric_limits<float>::infinity(); },
  };
  for (const auto& change : session_changes) {
    pumice_session_options options{sizeof options};
    change(options);
    pumice_session session = 99;
    EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_session_open(engine_, &options, &session));
    EXPECT_EQ(session, 0u);
  }
  for (const pumice_mode mode : {-1, 3}) {
    EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_set_mode(engine_, mode));
  }
  pumice_model_options model_options{sizeof model_options};
  pumice_model* model = nullptr;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_model_load(device_, &model_options, &model));
  model_options.path = pumice_str("no/such/model.gguf");
  EXPECT_STATUS(PUMICE_BAD_FILE, pumice_model_load(device_, &model_options, &model));
  pumice_device_options device_options{sizeof device_options};
  device_options.selector = pumice_str("no such device");
  pumice_device* device = nullptr;
  EXPECT_STATUS(PUMICE_NO_DEVICE, pumice_device_open(&device_options, &device));
  device_options.low_priority = 2;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_device_open(&device_options, &device));
}

TEST_F(Engines, OutliveTheHandlesTheyWereMadeOf) {
  pumice_device* device = test::open_device();
  ASSERT_NE(device, nullptr);
  pumice_model* model = test::load_model(device);
  pumice_engine* engine = test::create_engine(model);
  pumice_device_close(device);
  pumice_model_close(model);
  const pumice_request_options options = test::request_of("Once upon a time", 5);
  pumice_request request = 0;
  EXPECT_OK(pumice_submit(engine, 0, &options, &request));
  Answers answers;
  test::run_until(engine, answers, 1);
  EXPECT_EQ(answers[request].tokens.size(), 5u);
  pumice_engine_close(engine);
}

TEST_F(Engines, ASecondPollerIsToldSo) {
  std::atomic<bool> waiting = false;
  std::thread waiter([&] {
    waiting = true;
    pumice_status status = PUMICE_BUSY;  // as long as it is this thread that is the second
    while (status == PUMICE_BUSY) status = pumice_wait(engine_, PUMICE_NO_LIMIT);
    EXPECT_EQ(status, PUMICE_OK);
  });
  while (!waiting) std::this_thread::yield();
  pumice_status status = PUMICE_OK;
  for (int i = 0; i < 5000 && status == PUMICE_OK; ++i) {
    status = pumice_poll(engine_, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(status, PUMICE_BUSY);
  pumice_event event{sizeof event};
  EXPECT_STATUS(PUMICE_BUSY, pumice_next_event(engine_, &event));
  uint32_t done = 0;
  EXPECT_STATUS(PUMICE_BUSY, pumice_prewarm(engine_, 0, &done, &done));
  pumice_session session = 0;
  EXPECT_OK(pumice_session_open(engine_, nullptr, &session));
  const void* bytes = nullptr;
  size_t n_bytes = 0;
  EXPECT_STATUS(PUMICE_BUSY, pumice_session_save(engine_, session, &bytes, &n_bytes));
  EXPECT_STATUS(PUMICE_BUSY, pumice_session_restore(engine_, "", 0, nullptr, &session));
  EXPECT_EQ(session, 0u);
  EXPECT_STATUS(PUMICE_BUSY, pumice_set_memory_budget(engine_, PUMICE_NO_LIMIT));
  // What any thread may do it may do meanwhile, and it wakes the waiter.
  EXPECT_OK(pumice_set_mode(engine_, PUMICE_MODE_GRAPHICS));
  const pumice_request_options options = test::request_of("Once", 3);
  pumice_request request = 0;
  EXPECT_OK(pumice_submit(engine_, 0, &options, &request));
  waiter.join();
  Answers answers;
  test::run_until(engine_, answers, 1);
  EXPECT_EQ(answers[request].tokens.size(), 3u);
}

// ThreadSanitizer looks on here (docs/TESTING.md).
void four_threads_submit_and_cancel_while_one_polls(pumice_engine* engine) {
  constexpr int kThreads = 4;
  constexpr int kEach = 6;
  const pumice_request_options options = test::request_of("Once upon a time", 12);
  pumice_request alone = 0;
  EXPECT_OK(pumice_submit(engine, 0, &options, &alone));
  Answers answers;
  test::run_until(engine, answers, 1);
  std::vector<pumice_request> requests[kThreads];
  std::vector<std::thread> threads;
  std::atomic<int> n_ready = 0;  // all begin at once
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (++n_ready; n_ready < kThreads;) std::this_thread::yield();
      for (int i = 0; i < kEach; ++i) {
        pumice_session session = 0;
        EXPECT_OK(pumice_session_open(engine, nullptr, &session));
        pumice_request request = 0;
        EXPECT_OK(pumice_submit(engine, session, &options, &request));
        requests[thread].push_back(request);
        // Again and again, so that others are at it meanwhile.
        for (int again = 0; again < 100 && i % 3 == 1; ++again) {
          const pumice_status status = pumice_cancel(engine, request);
          EXPECT_TRUE(status == PUMICE_OK || status == PUMICE_NOT_FOUND) << status;
        }
        if (i % 3 == 2) EXPECT_OK(pumice_session_close(engine, session));
        pumice_stats stats{sizeof stats};
        EXPECT_OK(pumice_get_stats(engine, &stats));
      }
    });
  }
  // This one also saves what is being said, and has it said to the end by another session.
  const pumice_session told = test::open_session(engine);
  pumice_request telling = 0;
  EXPECT_OK(pumice_submit(engine, told, &options, &telling));
  pumice_request_options no_prompt{sizeof no_prompt};
  no_prompt.max_new_tokens = 2;
  int n_restored = 0;
  for (int n_left = kThreads * kEach + 1; n_left > 0;) {
    ASSERT_EQ(pumice_poll(engine, 2000), PUMICE_OK) << pumice_last_error();
    n_left -= test::take_events(engine, answers);
    if (n_restored < 4 && !answers[telling].tokens.empty()) {
      const void* bytes = nullptr;
      size_t n_bytes = 0;
      ASSERT_EQ(pumice_session_save(engine, told, &bytes, &n_bytes), PUMICE_OK);
      pumice_session restored = 0;
      ASSERT_EQ(pumice_session_restore(engine, bytes, n_bytes, nullptr, &restored), PUMICE_OK)
          << pumice_last_error();
      pumice_request going_on = 0;
      EXPECT_OK(pumice_submit(engine, restored, &no_prompt, &going_on));
      ++n_restored;
      ++n_left;
    }
    if (n_left > 0) EXPECT_OK(pumice_wait(engine, 1'000'000));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(n_restored, 0);
  EXPECT_EQ(answers[telling].tokens, answers[alone].tokens);
  EXPECT_EQ(answers.size(), 2u + kThreads * kEach + static_cast<size_t>(n_restored));
  for (const auto& of_thread : requests) {
    for (int i = 0; i < kEach; ++i) {
      const test::Answer& answer = answers[of_thread[static_cast<size_t>(i)]];
      EXPECT_EQ(answer.n_finished, 1);
      if (i % 3 == 0) {
        EXPECT_EQ(answer.tokens, answers[alone].tokens);
        EXPECT_EQ(answer.end_reason, PUMICE_END_LENGTH);
      }
    }
  }
  pumice_stats stats{sizeof stats};
  EXPECT_OK(pumice_get_stats(engine, &stats));
  EXPECT_EQ(stats.open_requests, 0u);
}

TEST_F(Engines, FourThreadsSubmitAndCancelWhileOnePollsSavesAndRestoresInEveryMode) {
  for (const pumice_mode mode : {PUMICE_MODE_FAST, PUMICE_MODE_GRAPHICS, PUMICE_MODE_BACKGROUND}) {
    EXPECT_OK(pumice_set_mode(engine_, mode));
    four_threads_submit_and_cancel_while_one_polls(engine_);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace pumice
