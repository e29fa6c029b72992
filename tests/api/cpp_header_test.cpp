// pumice.hpp as a program uses it that knows nothing else of the library.
#include "pumice/pumice.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/api/api_fixture.hpp"
#include "tests/paths.hpp"

namespace {

class CppHeader : public ::testing::Test {
 protected:
  void SetUp() override {
    pumice_device* const opened = pumice::test::open_device();
    if (opened == nullptr) GTEST_SKIP() << "no usable Vulkan device";
    device_.emplace(pumice::Device::own(opened));
  }

  std::optional<pumice::Device> device_;
};

/// The tokens of the only request.
std::vector<uint32_t> told(pumice::Engine& engine) {
  std::vector<uint32_t> tokens;
  while (true) {
    EXPECT_TRUE(engine.poll().ok());
    while (true) {
      const auto event = engine.next_event();
      if (!event.ok() || event->kind == PUMICE_EVENT_NONE) break;
      if (event->token) tokens.push_back(*event->token);
      if ((*event).kind == PUMICE_EVENT_FINISHED) return tokens;
    }
    EXPECT_TRUE(engine.wait().ok());
  }
}

TEST_F(CppHeader, ListsDevicesAndReadsTheLog) {
  const auto devices = pumice::Device::list();
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  ASSERT_FALSE(devices->empty());
  for (const pumice_device_info& info : *devices) {
    EXPECT_EQ(info.struct_size, sizeof info);
    EXPECT_NE(info.name[0], '\0');
  }
  const auto none = device_->load("no/such/model.gguf");
  EXPECT_EQ(none.status().code(), PUMICE_BAD_FILE);
  int n_lines = 0;
  while (const auto line = device_->next_log()) {
    EXPECT_NE(line->level, PUMICE_LOG_NONE);
    EXPECT_EQ(line->n_dropped, 0u);
    EXPECT_FALSE(line->text.empty());
    ++n_lines;
  }
  EXPECT_GT(n_lines, 0);
}

TEST_F(CppHeader, LoadsBesideOtherWorkAndFromMemory) {
  const std::string path = pumice::test::source_path("models/pumice-stories.gguf").string();
  auto options = pumice::options<pumice_model_options>();
  options.path = pumice::view(path);
  auto loading = device_->begin_load(options);
  ASSERT_TRUE(loading.ok()) << loading.status().message();
  const auto progress = loading->wait();
  ASSERT_TRUE(progress.ok()) << progress.status().message();
  EXPECT_EQ(progress->phase, PUMICE_LOAD_ENDED);
  EXPECT_EQ(loading->cancel().code(), PUMICE_NOT_FOUND);
  auto model = loading->take();
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_GT(model->info()->n_vocabulary, 100u);
  EXPECT_FALSE(loading->take().ok());
  EXPECT_FALSE(device_->load_memory("GGUF", 4).ok());
  auto embeds = options;
  embeds.embeds = 1;
  embeds.pooling = pumice::view("mean");
  auto embedding = device_->load(embeds);
  ASSERT_TRUE(embedding.ok()) << embedding.status().message();
  auto embedder = embedding->make_embedder();
  ASSERT_TRUE(embedder.ok()) << embedder.status().message();
  EXPECT_EQ(embedder->embed({"A dog.", "A cat."})->size(), 2 * embedder->info()->width);
}

TEST_F(CppHeader, GoesBackAndTellsLatencies) {
  auto model = device_->load(pumice::test::source_path("models/pumice-stories.gguf").string());
  ASSERT_TRUE(model.ok()) << model.status().message();
  auto engine = model->make_engine();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const pumice_session session = *engine->open_session();
  ASSERT_TRUE(engine->submit(session, "Once upon a time", 4).ok());
  EXPECT_EQ(told(*engine).size(), 4u);
  EXPECT_EQ(*engine->session_turns(session), 1u);
  EXPECT_TRUE(engine->roll_back_session(session, 0).ok());
  EXPECT_EQ(*engine->session_turns(session), 0u);
  EXPECT_EQ(engine->latency(PUMICE_LATENCY_FIRST_TOKEN)->count, 1u);
  auto options = pumice::options<pumice_self_test_options>();
  options.operations = pumice::view("rms_norm");
  pumice_self_test_result result;
  EXPECT_TRUE(device_->self_test(result, &options).ok());
  EXPECT_GT(result.n_passed, 0u);
}

TEST_F(CppHeader, HoldsAnswersToConstraints) {
  auto model = device_->load(pumice::test::source_path("models/pumice-stories.gguf").string());
  ASSERT_TRUE(model.ok()) << model.status().message();
  auto engine = model->make_engine();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  auto request = pumice::options<pumice_request_options>();
  request.text = pumice::view("Once upon a time");
  {
    const auto digits = model->compile_constraint(PUMICE_CONSTRAINT_REGEX, "[0-9]{3}");
    ASSERT_TRUE(digits.ok()) << digits.status().message();
    request.constraint = digits->get();
    ASSERT_TRUE(engine->submit(0, request).ok());
  }
  const auto text = model->detokenize(told(*engine));
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->find_first_not_of(" 0123456789"), std::string::npos) << *text;
  EXPECT_EQ(model->compile_constraint(PUMICE_CONSTRAINT_REGEX, "(").status().code(),
            PUMICE_INVALID_ARGUMENT);
}

TEST_F(CppHeader, TellsAnswersInParts) {
  const std::string path = pumice::test::source_path("models/pumice-stories.gguf").string();
  auto load = pumice::options<pumice_model_options>();
  load.path = pumice::view(path);
  load.chat_template = pumice::view("{{ messages[0].content }}<think>\n");
  auto model = device_->load(load);
  ASSERT_TRUE(model.ok()) << model.status().message();
  auto engine = model->make_engine();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  auto request = pumice::options<pumice_request_options>();
  request.parts = 1;
  request.messages_json = pumice::view(R"([{"role": "user", "content": "Once upon"}])");
  request.max_new_tokens = 8;
  ASSERT_TRUE(engine->submit(0, request).ok());
  std::string text, reasoning;
  for (bool ended = false; !ended;) {
    ASSERT_TRUE(engine->poll().ok());
    auto event = engine->next_event();
    for (; event.ok() && event->kind != PUMICE_EVENT_NONE; event = engine->next_event()) {
      text += event->text;
      for (const pumice::AnswerPart& part : event->parts) {
        EXPECT_EQ(part.kind, PUMICE_PART_REASONING);
        reasoning += part.text;
      }
      EXPECT_EQ(event->details.parts, nullptr);
      ended = ended || event->kind == PUMICE_EVENT_FINISHED;
    }
    ASSERT_TRUE(event.ok());
    ASSERT_TRUE(engine->wait(1000).ok());
  }
  EXPECT_GT(reasoning.size(), 5u);
  EXPECT_NE(text.find(reasoning), std::string::npos);
}

TEST_F(CppHeader, SubmitsMessagesWhichAModelWithoutATemplateReadsLineByLine) {
  auto model = device_->load(pumice::test::source_path("models/pumice-stories.gguf").string());
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_FALSE(model->info()->has_chat_template);
  auto engine = model->make_engine();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ASSERT_TRUE(engine->submit(0, "Tom was sad.\nOnce upon a time", 8).ok());
  const std::vector<uint32_t> of_text = told(*engine);
  EXPECT_EQ(of_text.size(), 8u);
  ASSERT_TRUE(
      engine->submit_messages(0, {{"system", "Tom was sad."}, {"user", "Once upon a time"}}, 8)
          .ok());
  EXPECT_EQ(told(*engine), of_text);
  EXPECT_EQ(engine->submit_messages(0, {{"wizard", "Once"}}).status().code(),
            PUMICE_INVALID_ARGUMENT);
}

}  // namespace
