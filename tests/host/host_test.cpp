// A host as programs in C++ use it: conversations that are changed by hand, requests that end when
// their device does not come back.
#include "host/host.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/synthetic_adapter.hpp"
#include "tests/gpu_fixture.hpp"
#include "tests/shared_data.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice::host {
namespace {

/// What came of a request.
struct Answer {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<AnswerEvent> events;
  Status status;
  Ending ending;
};

class HostTest : public ::testing::Test {
 protected:
  void SetUp() override { load({}); }
  /// With that template, and these adapters.
  void load(const std::optional<std::string>& chat_template,
            const std::vector<AdapterSource>& adapters = {}) {
    PUMICE_REQUIRE_DEVICE(device);
    const auto path = test::shared_path("models/stories260K.gguf");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
    const Result<GgufFile> file = GgufFile::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    Result<ModelTexts> texts = ModelTexts::read(*file, chat_template);
    ASSERT_TRUE(texts.ok()) << texts.error().message;
    auto owner = std::make_shared<DeviceOwner>(
        device, OpenOptions(),
        [device]() -> Result<std::shared_ptr<vk::Device>> { return device; });
    auto model = ModelOwner::load(std::move(owner), {.path = path},
                                  ModelSource(*file).with_adapters(adapters), *std::move(texts));
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
  }
  void TearDown() override {
    host_.reset();
    model_.reset();
  }

  void make_host(const HostOptions& options = {}, const EngineOptions& engine_options = {
                                                      .context_tokens = 128, .greedy_only = true}) {
    auto engine = model_->opened().make_engine(engine_options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = engine->get();
    host_ = std::make_unique<Host>(model_, *std::move(engine), options);
  }

  /// Polls until a request has ended; other polls than of a lost device succeed.
  Answer answer_of(const Result<Submitted>& request) {
    Answer answer;
    EXPECT_TRUE(request.ok()) << request.error().message;
    if (!request.ok()) return answer;
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::minutes(1)) {
      const Status polled = host_->poll(Submitter::kNoBudget);
      EXPECT_TRUE(polled.ok() || polled.error().code == ErrorCode::kDeviceLost)
          << polled.error().message;
      for (Event* event = next(); event != nullptr; event = next()) {
        if (event->request != request->id) continue;
        answer.text += event->text;
        if (event->token) answer.tokens.push_back(*event->token);
        for (AnswerEvent& one : event->answer) append_event(std::move(one), answer.events);
        if (event->kind != Event::Kind::kFinished) continue;
        answer.status = event->status;
        answer.ending = std::move(*event->ending);
        return answer;
      }
      EXPECT_TRUE(host_->wait(std::chrono::milliseconds(20)).ok());
    }
    ADD_FAILURE() << "the request does not end";
    return answer;
  }
  Event* next() {
    const Result<Event*> event = host_->next_event();
    EXPECT_TRUE(event.ok());
    return event.ok() ? *event : nullptr;
  }
  ConversationId open() {
    const Result<ConversationId> id = host_->open_conversation();
    EXPECT_TRUE(id.ok()) << id.error().message;
    return id.value();
  }
  static RequestInput asking(std::string question) {
    return {.messages = {{.role = "user", .content = std::move(question)}}, .max_new_tokens = 8};
  }

  /// The first stages of the next requests fail as those of a lost device.
  void lose_device(int times) {
    faults_ = times;
    engine_->set_hooks({.at_stage = [this](StepStage) -> Status {
      if (faults_-- <= 0) return {};
      return make_error(ErrorCode::kDeviceLost, "lost for the test");
    }});
  }

  std::shared_ptr<ModelOwner> model_;
  std::unique_ptr<Host> host_;
  Engine* engine_ = nullptr;
  int faults_ = 0;
};

TEST_F(HostTest, AConversationIsWhatWasSaidAndCanBeSetBack) {
  make_host();
  const ConversationId id = open();
  const Answer first = answer_of(host_->submit(id, asking("Once upon a time")));
  const Result<Conversation> said = host_->conversation(id);
  ASSERT_TRUE(said.ok());
  ASSERT_EQ(said->messages().size(), 2u);
  EXPECT_EQ(said->messages()[0].content, "Once upon a time");
  EXPECT_EQ(said->messages()[1].content, first.text);

  // A question without its answer is answered by a request that says nothing.
  Conversation asked = *said;
  ASSERT_TRUE(asked.take_back_answer());
  ASSERT_TRUE(host_->set_conversation(id, asked).ok());
  const Answer again = answer_of(host_->submit(id, {.max_new_tokens = 8}));
  EXPECT_EQ(again.text, first.text);
  EXPECT_EQ(again.ending.report.prompt_tokens, first.ending.report.prompt_tokens);
  EXPECT_GT(again.ending.report.cache.cached_tokens, 0u) << "it was computed before";
  EXPECT_EQ(host_->conversation(id)->messages(), said->messages());

  ASSERT_TRUE(host_->set_conversation(id, {}).ok());
  EXPECT_TRUE(host_->conversation_tokens(id)->empty());
  const Result<Submitted> nothing = host_->submit(id, {});
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().code, ErrorCode::kInvalidArgument);
}

constexpr std::string_view kWithTools =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: "
    "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}"
    "</tool_call>{% endfor %}\n{% endfor %}assistant: {% if enable_thinking %}<think>\n{% endif %}";

TEST_F(HostTest, AnswersAreToldApartAndRememberedSo) {
  load(std::string(kWithTools));
  make_host({}, {.context_tokens = 512, .greedy_only = true});
  const ConversationId id = open();
  const AnswerInput tools{
      .tools = std::make_shared<const Tools>(Tools::parse(R"([{"name": "weather"}])").value())};
  // The model goes on with a call that the prompt began, until its text ends.
  const std::string begun = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"";
  const Answer call = answer_of(host_->submit(
      id,
      {.messages = {{.role = "user", .content = "Rome?"}, {.role = "assistant", .content = begun}},
       .answer = tools,
       .max_new_tokens = 1}));
  ASSERT_TRUE(call.status.ok()) << call.status.error().message;
  ASSERT_GE(call.events.size(), 3u);
  EXPECT_EQ(call.events[0].kind, AnswerEvent::Kind::kCallBegun);
  EXPECT_EQ(call.events[0].text, "weather");
  EXPECT_TRUE(call.events[1].text.starts_with("{\"city\": \"")) << call.events[1].text;
  EXPECT_FALSE(call.events[2].complete);
  EXPECT_EQ(host_->conversation(id)->messages().back().calls.size(), 0u) << "it broke off";

  Conversation said;
  said.ask("Rome?");
  said.add({.role = "assistant", .calls = {{"1", "weather", "{}"}}});
  ASSERT_TRUE(host_->set_conversation(id, said).ok());
  EXPECT_FALSE(host_->submit(id, {.answer = tools}).ok()) << "the call has no result";
  const Answer answer = answer_of(host_->submit(
      id,
      {.messages = {{.role = "tool", .content = "Rain"}}, .answer = tools, .max_new_tokens = 8}));
  EXPECT_EQ(host_->conversation(id)->messages().back().content, answer.text);
  EXPECT_EQ(host_->conversation(id)->messages().size(), 4u);
  EXPECT_FALSE(host_->submit(id, asking("And?")).ok()) << "ChatFormat knows no calls";

  AnswerInput thinking;
  thinking.variables["enable_thinking"] = true;
  RequestInput input = asking("Why?");
  input.answer = thinking;
  const Answer thought = answer_of(host_->submit(open(), input));
  ASSERT_FALSE(thought.events.empty());
  EXPECT_EQ(thought.events[0].kind, AnswerEvent::Kind::kReasoning);
  EXPECT_EQ(host_->submit(open(), {.text = "Once", .answer = thinking}).error().code,
            ErrorCode::kInvalidArgument);
}

/// What was said already is held to the same when it goes on: reasoning first.
TEST_F(HostTest, AnAnswerIsHeldToItsWishBehindItsReasoning) {
  load(
      "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is not defined %}"
      "<think>\n{% endif %}");
  make_host({}, {.context_tokens = 128});
  const AnswerWish wish{.kind = ConstraintKind::kRegex, .text = "yes|no"};
  const ConversationId id = open();
  RequestInput input = asking("Once");
  input.wish = wish;
  const Answer begun = answer_of(host_->submit(id, std::move(input)));
  EXPECT_TRUE(begun.status.ok()) << begun.status.error().message;
  EXPECT_EQ(begun.ending.report.end_reason, EndReason::kLength);
  EXPECT_EQ(begun.tokens.size(), 8u);
  const Answer more = answer_of(host_->submit(id, {.max_new_tokens = 4, .wish = wish}));
  EXPECT_TRUE(more.status.ok()) << more.status.error().message;
  EXPECT_EQ(more.tokens.size(), 4u);

  input = asking("Once");
  input.wish = wish;
  input.answer.emplace();
  const Answer told = answer_of(host_->submit(ConversationId::kNone, input));
  ASSERT_EQ(told.events.size(), 2u);
  EXPECT_EQ(told.events[0].kind, AnswerEvent::Kind::kReasoning);
  input.answer->variables["enable_thinking"] = false;
  const Answer held = answer_of(host_->submit(ConversationId::kNone, std::move(input)));
  EXPECT_TRUE(held.text == "yes" || held.text == "no") << held.text;
  EXPECT_EQ(held.ending.report.end_reason, EndReason::kComplete);
  // A text is no answer that could have reasoning.
  const Answer text = answer_of(
      host_->submit(ConversationId::kNone, {.text = "Once", .max_new_tokens = 8, .wish = wish}));
  EXPECT_TRUE(text.text == "yes" || text.text == "no") << text.text;
}

TEST_F(HostTest, AConversationIsNotChangedUnderItsRequest) {
  make_host();
  const ConversationId id = open();
  const Result<Submitted> request = host_->submit(id, asking("Once"));
  const Status refused = host_->set_conversation(id, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  const Result<Submitted> second = host_->submit(id, asking("Then"));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  answer_of(request);
  EXPECT_TRUE(host_->set_conversation(id, {}).ok());
  ASSERT_TRUE(host_->close_conversation(id).ok());
  EXPECT_EQ(host_->conversation(id).error().code, ErrorCode::kNotFound);
}

TEST_F(HostTest, FewerTokensThanWantedAreNoErrorWhereThatIsSaid) {
  make_host({}, {.context_tokens = 64, .greedy_only = true});
  RequestInput input{.text = "Once upon a time", .max_new_tokens = 1000, .ignore_end = true};
  const Result<Submitted> refused = host_->submit(ConversationId::kNone, input);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
  input.within_window = true;
  const Result<Submitted> request = host_->submit(ConversationId::kNone, input);
  EXPECT_EQ(answer_of(request).tokens.size(), 64 - request->prompt_tokens);

  make_host({}, {.context_tokens = 64, .overflow = OverflowPolicy::kShift, .greedy_only = true});
  const Result<Submitted> shifting = host_->submit(ConversationId::kNone, input);
  EXPECT_EQ(answer_of(shifting).tokens.size(), 64 - shifting->prompt_tokens);
}

TEST_F(HostTest, WhetherMessagesAreForgottenNeedNotFollowFromTheWindow) {
  make_host({.forgets_messages = true}, {.context_tokens = 64, .greedy_only = true});
  const ConversationId id = open();
  uint32_t n_forgotten = 0;
  for (int i = 0; i < 6; ++i) {
    const Answer answer = answer_of(host_->submit(id, asking("The little dog ran home again.")));
    EXPECT_TRUE(answer.status.ok());
    n_forgotten = answer.ending.n_forgotten;
  }
  EXPECT_GT(n_forgotten, 0u);
  EXPECT_EQ(host_->conversation(id)->messages().size(), 12u) << "the conversation keeps them";
}

TEST_F(HostTest, AfterALossItGoesOnAndSaysSo) {
  make_host({.retry = {.first_pause_s = 0.01, .most_tries = 3}});
  const auto ask = [&] {
    return answer_of(
        host_->submit(ConversationId::kNone, {.text = "Once upon a time", .max_new_tokens = 8}));
  };
  const Answer undisturbed = ask();
  for (const int n_losses : {1, 2, 3}) {
    const uint32_t before = host_->stats().n_lost_devices;
    lose_device(n_losses);
    const Answer answer = ask();
    EXPECT_TRUE(answer.status.ok()) << n_losses << ": " << answer.status.error().message;
    EXPECT_EQ(answer.text, undisturbed.text);
    EXPECT_EQ(host_->stats().n_lost_devices - before, static_cast<uint32_t>(n_losses));
  }
}

TEST_F(HostTest, AnAdapterStaysWithItsModelAfterALoss) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "tales.gguf";
  const GgufFile base = GgufFile::open(test::shared_path("models/stories260K.gguf")).value();
  ASSERT_TRUE(write_synthetic_adapter(base, {.rank = 4}, path).ok());
  load({}, {AdapterSource::open("tales", path).value()});
  make_host();
  const auto ask = [&](uint32_t adapter) {
    RequestInput input{.text = "Once upon a time", .max_new_tokens = 8};
    input.alone.adapter = adapter;
    return answer_of(host_->submit(ConversationId::kNone, std::move(input))).tokens;
  };
  const std::vector<TokenId> plain = ask(0);
  const std::vector<TokenId> tales = ask(1);
  EXPECT_EQ(plain.size(), 8u);
  EXPECT_NE(tales, plain);
  lose_device(1);
  EXPECT_EQ(ask(1), tales);
  EXPECT_EQ(host_->stats().n_lost_devices, 1u);
  EXPECT_EQ(ask(0), plain);
}

TEST_F(HostTest, ADeviceThatIsLostAgainAndAgainEndsRequestsAfterSoManyTries) {
  make_host({.retry = {.first_pause_s = 0.01, .most_tries = 3}});
  const ConversationId id = open();
  answer_of(host_->submit(id, asking("Once")));
  const auto said = host_->conversation(id)->messages();
  const uint32_t before = host_->stats().n_lost_devices;
  lose_device(1000);
  const Answer lost = answer_of(host_->submit(id, asking("Then")));
  ASSERT_FALSE(lost.status.ok());
  EXPECT_EQ(lost.status.error().code, ErrorCode::kDeviceLost);
  EXPECT_EQ(lost.ending.report.end_reason, EndReason::kError);
  EXPECT_EQ(host_->stats().n_lost_devices - before, 4u) << "three tries";
  EXPECT_EQ(host_->conversation(id)->messages(), said) << "as it was";
  EXPECT_TRUE(engine_->idle()) << "a request outlives its last event";

  lose_device(0);
  EXPECT_TRUE(answer_of(host_->submit(id, asking("Then"))).status.ok()) << "it is tried again";
}

TEST_F(HostTest, AnEventMayBeTaken) {
  make_host();
  ASSERT_TRUE(
      host_->submit(ConversationId::kNone, {.text = "Once upon", .max_new_tokens = 4}).ok());
  std::vector<Event> kept;
  while (kept.empty() || kept.back().kind != Event::Kind::kFinished) {
    ASSERT_TRUE(host_->poll(Submitter::kNoBudget).ok());
    for (Event* event = next(); event != nullptr; event = next()) kept.push_back(std::move(*event));
    ASSERT_TRUE(host_->wait(std::chrono::milliseconds(20)).ok());
  }
  std::string text;
  for (const Event& event : kept) text += event.text;
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(host_->stats().open_requests, 0u);
}

TEST_F(HostTest, ChoicesOfAPromptComputeItOnce) {
  constexpr uint32_t kChoices = 3;
  const EngineOptions options{
      .context_tokens = 128, .n_sequences = kChoices, .chunk_tokens = 16, .invariant = true};
  const auto choice = [](uint32_t i, RequestId first) {
    RequestInput input{.max_new_tokens = 8, .shares_prompt_with = first};
    for (uint32_t t = 0; t < 70; ++t) input.tokens.push_back(300 + t % 90);
    input.sampling = SamplerOptions{.temperature = 1, .seed = 40 + i};
    input.log_probs = 2;
    return input;
  };
  std::vector<std::vector<TokenId>> alone;
  for (uint32_t i = 0; i < kChoices; ++i) {
    make_host({}, options);
    const Answer answer =
        answer_of(host_->submit(ConversationId::kNone, choice(i, RequestId::kNone)));
    EXPECT_TRUE(answer.status.ok());
    alone.push_back(answer.tokens);
  }
  make_host({}, options);
  std::vector<Submitted> requests;
  for (uint32_t i = 0; i < kChoices + 1; ++i) {
    const auto request =
        host_->submit(ConversationId::kNone, choice(i, i == 0 ? RequestId::kNone : requests[0].id));
    ASSERT_TRUE(request.ok()) << request.error().message;
    requests.push_back(*request);
  }
  ASSERT_TRUE(host_->poll(0).ok());
  ASSERT_TRUE(host_->cancel(requests.back().id).ok());  // while it waits
  std::map<RequestId, Answer> answers;
  size_t n_finished = 0;
  while (n_finished < requests.size()) {
    ASSERT_TRUE(host_->poll(Submitter::kNoBudget).ok());
    for (Event* event = next(); event != nullptr; event = next()) {
      Answer& answer = answers[event->request];
      EXPECT_EQ(event->log_probs.has_value(), event->token.has_value());
      if (event->log_probs) {
        EXPECT_LE(event->log_probs->log_prob, 0);
        EXPECT_EQ(event->log_probs->best.size(), 2u);
      }
      if (event->token) answer.tokens.push_back(*event->token);
      if (event->kind != Event::Kind::kFinished) continue;
      answer.ending = *event->ending;
      ++n_finished;
    }
    ASSERT_TRUE(host_->wait(std::chrono::milliseconds(20)).ok());
  }
  for (uint32_t i = 0; i < kChoices; ++i) {
    const Answer& answer = answers.at(requests[i].id);
    EXPECT_EQ(answer.tokens, alone[i]);
    EXPECT_EQ(answer.ending.report.cache.cached_tokens, i == 0 ? 0u : 70u) << i;
  }
  EXPECT_EQ(engine_->scheduler().telemetry().computed_tokens, 70 + kChoices * 7);
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_EQ(answers.at(requests.back().id).ending.report.end_reason, EndReason::kCancelled);
}

TEST_F(HostTest, ASavedConversationIsRestoredWithWhatWasComputed) {
  make_host();
  const ConversationId id = open();
  answer_of(host_->submit(id, asking("Once upon a time there was a little dog")));
  const auto said = host_->conversation(id)->messages();
  const Result<std::span<const std::byte>> bytes = host_->save(id);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  const std::vector<std::byte> saved(bytes->begin(), bytes->end());
  make_host();
  const Result<Restored> restored = host_->restore(saved);
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  EXPECT_GT(restored->state_tokens, 0u);
  EXPECT_EQ(host_->conversation(restored->id)->messages(), said);
  const Answer next = answer_of(host_->submit(restored->id, asking("Then")));
  EXPECT_GE(next.ending.report.cache.cached_tokens, restored->state_tokens);
}

}  // namespace
}  // namespace pumice::host
