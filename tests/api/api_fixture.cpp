#include "tests/api/api_fixture.hpp"

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "tests/paths.hpp"

namespace pumice::test {

pumice_device* ApiTest::device_ = nullptr;
pumice_model* ApiTest::model_ = nullptr;

int take_events(pumice_engine* engine, Answers& answers) {
  int n_finished = 0;
  while (true) {
    pumice_event event{sizeof event};
    const pumice_status status = pumice_next_event(engine, &event);
    EXPECT_EQ(status, PUMICE_OK) << pumice_last_error();
    if (status != PUMICE_OK || event.kind == PUMICE_EVENT_NONE) return n_finished;
    if (event.request == 0) continue;  // of the engine
    Answer& answer = answers[event.request];
    EXPECT_EQ(answer.n_finished, 0) << "an event after the last";
    if (event.has_token) answer.tokens.push_back(event.token);
    answer.text.append(event.text.data, event.text.length);
    EXPECT_EQ(event.text.data[event.text.length], '\0');
    if (event.kind != PUMICE_EVENT_FINISHED) continue;
    ++n_finished;
    ++answer.n_finished;
    answer.status = event.status;
    answer.message.assign(event.message.data, event.message.length);
    answer.end_reason = event.end_reason;
    answer.prompt_tokens = event.prompt_tokens;
    answer.cached_tokens = event.cached_tokens;
  }
}

void run_until(pumice_engine* engine, Answers& answers, int n) {
  while (n > 0) {
    const pumice_status status = pumice_poll(engine, PUMICE_NO_LIMIT);
    ASSERT_EQ(status, PUMICE_OK) << pumice_last_error();
    n -= take_events(engine, answers);
    if (n > 0) EXPECT_OK(pumice_wait(engine, 1'000'000));
  }
}

Answer ask(pumice_engine* engine, pumice_session session, const pumice_request_options& options) {
  pumice_request request = 0;
  EXPECT_OK(pumice_submit(engine, session, &options, &request));
  if (request == 0) return {};
  Answers answers;
  run_until(engine, answers, 1);
  EXPECT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[request].n_finished, 1);
  return answers[request];
}

pumice_session open_session(pumice_engine* engine, const pumice_session_options* options) {
  pumice_session session = 0;
  EXPECT_OK(pumice_session_open(engine, options, &session));
  return session;
}

std::vector<uint32_t> tokens_of(pumice_engine* engine, pumice_session session) {
  size_t n = 0;
  EXPECT_OK(pumice_session_tokens(engine, session, nullptr, 0, &n));
  std::vector<uint32_t> tokens(n);
  EXPECT_OK(pumice_session_tokens(engine, session, tokens.data(), n, &n));
  return tokens;
}

pumice_device* open_device() {
  pumice_device_options options{sizeof options};
  const char* selector = std::getenv("PUMICE_DEVICE");
  options.selector = pumice_str(selector != nullptr ? selector : "");
  const char* validation = std::getenv("PUMICE_VALIDATION");
  options.validation = validation != nullptr && std::string_view(validation) == "1";
  pumice_device* device = nullptr;
  const pumice_status status = pumice_device_open(&options, &device);
  EXPECT_TRUE(status == PUMICE_OK || status == PUMICE_NO_DEVICE) << pumice_last_error();
  if (device == nullptr) std::cerr << "no usable Vulkan device: " << pumice_last_error() << '\n';
  return device;
}

std::string log_of(pumice_device* device, pumice_log_level level) {
  std::string all;
  while (true) {
    pumice_log log{sizeof log};
    EXPECT_OK(pumice_next_log(device, &log));
    if (log.level == PUMICE_LOG_NONE) return all;
    if (log.level >= level) all += std::string(log.line.data, log.line.length) + '\n';
  }
}

pumice_model* load_model(pumice_device* device) {
  const std::string path = source_path("models/pumice-stories.gguf").string();
  pumice_model_options options{sizeof options};
  options.path = {path.data(), path.size()};
  pumice_model* model = nullptr;
  EXPECT_OK(pumice_model_load(device, &options, &model));
  return model;
}

pumice_engine* create_engine(pumice_model* model, const pumice_engine_options& options) {
  pumice_engine* engine = nullptr;
  EXPECT_OK(pumice_engine_create(model, &options, &engine));
  return engine;
}

pumice_engine* create_engine(pumice_model* model, uint32_t n_sequences, uint32_t context_tokens) {
  pumice_engine_options options{sizeof options};
  options.n_sequences = n_sequences;
  options.context_tokens = context_tokens;
  return create_engine(model, options);
}

pumice_engine* create_invariant_engine(pumice_model* model, uint32_t n_sequences) {
  pumice_engine_options options{sizeof options};
  options.n_sequences = n_sequences;
  options.context_tokens = 128;
  options.invariant = 1;
  return create_engine(model, options);
}

pumice_request_options request_of(const char* text, uint32_t max_new_tokens) {
  pumice_request_options options{sizeof options};
  options.text = pumice_str(text);
  options.max_new_tokens = max_new_tokens;
  return options;
}

void ApiTest::SetUpTestSuite() {
  device_ = open_device();
  if (device_ != nullptr) model_ = load_model(device_);
}

void ApiTest::TearDownTestSuite() {
  if (device_ == nullptr) return;
  pumice_model_close(model_);
  EXPECT_EQ(log_of(device_, PUMICE_LOG_ERROR), "");
  pumice_device_close(device_);
  device_ = nullptr;
}

}  // namespace pumice::test
