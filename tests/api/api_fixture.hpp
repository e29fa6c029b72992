// The C ABI as a host uses it, with the bundled model.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pumice/pumice.h"

namespace pumice::test {

/// What came of one request.
struct Answer {
  std::vector<uint32_t> tokens;
  std::string text;
  pumice_status status = PUMICE_OK;
  std::string message;
  pumice_end_reason end_reason = PUMICE_END_NONE;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  int n_finished = 0;  ///< last events
};
using Answers = std::map<pumice_request, Answer>;

/// Takes all events there are; how many of them were a request's last.
int take_events(pumice_engine* engine, Answers& answers);

/// Poll, and wait, until `n` more requests have ended. Errors fail the test.
void run_until(pumice_engine* engine, Answers& answers, int n);

/// Submits and runs alone.
Answer ask(pumice_engine* engine, pumice_session session, const pumice_request_options& options);

pumice_session open_session(pumice_engine* engine, const pumice_session_options* options = nullptr);
std::vector<uint32_t> tokens_of(pumice_engine* engine, pumice_session session);

/// The device that PUMICE_DEVICE names, with the validation layers that PUMICE_VALIDATION=1 asks
/// for. Null where there is none.
pumice_device* open_device();
/// What the device had to say at levels from `level` on.
std::string log_of(pumice_device* device, pumice_log_level level);

pumice_model* load_model(pumice_device* device);
pumice_engine* create_engine(pumice_model* model, const pumice_engine_options& options);
pumice_engine* create_engine(pumice_model* model, uint32_t n_sequences = 4,
                             uint32_t context_tokens = 256);
/// Contexts of 128 tokens, and bit-equal results whatever is batched or computed again.
pumice_engine* create_invariant_engine(pumice_model* model, uint32_t n_sequences);

/// A greedy request of a text.
pumice_request_options request_of(const char* text, uint32_t max_new_tokens);

/// One device and model for all tests of a suite; an error that the device logs fails them.
class ApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override {
    if (device_ == nullptr) GTEST_SKIP() << "no usable Vulkan device";
  }

  static pumice_device* device_;
  static pumice_model* model_;
};

/// With an engine of that model for each test.
class ApiEngineTest : public ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    if (IsSkipped()) return;
    engine_ = create_engine(model_);
    ASSERT_NE(engine_, nullptr);
  }
  void TearDown() override { pumice_engine_close(engine_); }

  pumice_engine* engine_ = nullptr;
};

}  // namespace pumice::test

#define EXPECT_STATUS(expected, call)                                                    \
  do {                                                                                   \
    const pumice_status status_ = (call);                                                \
    EXPECT_EQ(status_, expected) << #call << ": " << pumice_status_name(status_) << ", " \
                                 << (status_ == PUMICE_OK ? "" : pumice_last_error());   \
  } while (false)
#define EXPECT_OK(call) EXPECT_STATUS(PUMICE_OK, call)
