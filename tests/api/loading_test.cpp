// Models that are loaded while the host goes on: how far they are, and what becomes of those that
// nobody wants any more.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tests/api/api_fixture.hpp"
#include "tests/api/archive.hpp"

namespace pumice {
namespace {

using test::Archive;
using test::stories;

/// Threads that come wait until it is opened.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++n_came_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_for_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_came_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int n_came_ = 0;
  bool open_ = false;
};

class ApiLoading : public test::ApiEngineTest {
 protected:
  pumice_loading* begin(const pumice_files& files) {
    const pumice_model_options options = test::options_of("a.gguf", files);
    pumice_loading* loading = nullptr;
    EXPECT_OK(pumice_model_load_begin(device_, &options, &loading));
    return loading;
  }
  static pumice_load_progress wait(pumice_loading* loading, uint64_t microseconds) {
    pumice_load_progress progress{sizeof progress};
    EXPECT_OK(pumice_loading_wait(loading, microseconds, &progress));
    return progress;
  }
  uint64_t device_bytes() {
    pumice_stats stats{sizeof stats};
    EXPECT_OK(pumice_get_stats(engine_, &stats));
    return stats.device_bytes;
  }
  static std::string answer_of(pumice_model* model) {
    pumice_engine* engine = test::create_engine(model);
    const std::string text = test::ask(engine, 0, test::request_of("Once upon a time", 12)).text;
    pumice_engine_close(engine);
    return text;
  }

  Archive archive_{.files = {{"a.gguf", stories()}}};
};

TEST_F(ApiLoading, AModelComesWhileItsThreadGoesOn) {
  Gate gate;
  archive_.before_read = [&] { gate.pass(); };
  pumice_loading* loading = nullptr;
  {
    // Nothing of these is needed once the call has returned.
    const pumice_files files = archive_.functions();
    loading = begin(files);
  }
  ASSERT_NE(loading, nullptr);
  gate.wait_for_one();
  pumice_load_progress progress = wait(loading, 0);
  EXPECT_EQ(progress.phase, PUMICE_LOAD_READING);
  EXPECT_EQ(wait(loading, 2000).phase, PUMICE_LOAD_READING);
  pumice_model* model = nullptr;
  EXPECT_STATUS(PUMICE_BUSY, pumice_loading_take(loading, &model));
  gate.open();
  uint64_t done = 0;
  while ((progress = wait(loading, 500)).phase != PUMICE_LOAD_ENDED) {
    EXPECT_GE(progress.done_bytes, done);
    EXPECT_LE(progress.done_bytes, progress.total_bytes);
    done = progress.done_bytes;
  }
  EXPECT_GT(progress.total_bytes, 0u);
  EXPECT_EQ(progress.done_bytes, progress.total_bytes);
  EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_loading_cancel(loading));
  EXPECT_OK(pumice_loading_take(loading, &model));
  pumice_model* again = nullptr;
  EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_loading_take(loading, &again));
  EXPECT_EQ(again, nullptr);
  pumice_loading_close(loading);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(answer_of(model), answer_of(model_));
  pumice_model_close(model);
  EXPECT_EQ(archive_.n_opened, archive_.n_closed);
}

TEST_F(ApiLoading, WhatIsCancelledEndsAndKeepsNothing) {
  const uint64_t before = device_bytes();
  for (const int n_before : {0, 2, 20}) {
    Gate gate;
    std::atomic<int> n = 0;
    archive_.before_read = [&] {
      if (n++ >= n_before) gate.pass();
    };
    const pumice_files files = archive_.functions();
    pumice_loading* loading = begin(files);
    gate.wait_for_one();
    EXPECT_OK(pumice_loading_cancel(loading));
    EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_loading_cancel(loading));
    const int n_reads = archive_.n_reads;
    gate.open();
    EXPECT_EQ(wait(loading, PUMICE_NO_LIMIT).phase, PUMICE_LOAD_ENDED);
    // Each of several threads may have been on its way to one.
    EXPECT_LE(archive_.n_reads - n_reads, 64);
    pumice_model* model = nullptr;
    EXPECT_STATUS(PUMICE_CANCELLED, pumice_loading_take(loading, &model));
    EXPECT_STATUS(PUMICE_CANCELLED, pumice_loading_take(loading, &model));
    EXPECT_EQ(model, nullptr);
    EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_loading_cancel(loading));
    pumice_loading_close(loading);
    EXPECT_EQ(archive_.n_opened, archive_.n_closed);
    EXPECT_EQ(device_bytes(), before) << n_before;
  }
}

TEST_F(ApiLoading, WhatIsClosedEarlyIsCancelled) {
  const uint64_t before = device_bytes();
  const pumice_files files = archive_.functions();
  pumice_loading_close(begin(files));
  EXPECT_EQ(archive_.n_opened, archive_.n_closed);
  // Nobody takes this one.
  pumice_loading* loading = begin(files);
  EXPECT_EQ(wait(loading, PUMICE_NO_LIMIT).phase, PUMICE_LOAD_ENDED);
  pumice_loading_close(loading);
  EXPECT_EQ(device_bytes(), before);
}

TEST_F(ApiLoading, RequestsGoOnMeanwhile) {
  Gate gate;
  archive_.before_read = [&] { gate.pass(); };
  const pumice_files files = archive_.functions();
  pumice_loading* loading = begin(files);
  gate.wait_for_one();
  const test::Answer answer = test::ask(engine_, 0, test::request_of("Once upon a time", 8));
  EXPECT_EQ(answer.tokens.size(), 8u);
  gate.open();
  pumice_loading_close(loading);
}

TEST_F(ApiLoading, AFileThatIsWrongIsAnErrorOfTheResult) {
  archive_.files["a.gguf"] = stories().substr(0, stories().size() / 2);
  const pumice_files files = archive_.functions();
  pumice_loading* loading = begin(files);
  EXPECT_EQ(wait(loading, PUMICE_NO_LIMIT).phase, PUMICE_LOAD_ENDED);
  pumice_model* model = nullptr;
  EXPECT_STATUS(PUMICE_BAD_FILE, pumice_loading_take(loading, &model));
  EXPECT_NE(std::string(pumice_last_error()).find("a.gguf: "), std::string::npos);
  EXPECT_STATUS(PUMICE_BAD_FILE, pumice_loading_take(loading, &model));
  pumice_loading_close(loading);
  pumice_model_options options{sizeof options};
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_model_load_begin(device_, &options, &loading));
  EXPECT_EQ(loading, nullptr);
}

}  // namespace
}  // namespace pumice
