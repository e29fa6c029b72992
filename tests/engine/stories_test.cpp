// The trained model's greedy stories, at every chunk size, alone and in a batch.
#include "tests/engine/engine_fixture.hpp"

#include <nlohmann/json.hpp>
#include "tests/vk/host_fixture.hpp"

namespace pumice {
namespace {

class Stories : public test::EngineTest {
 protected:
  struct Story {
    std::vector<TokenId> prompt;
    std::vector<TokenId> continuation;
  };

  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    const auto path = test::shared_path("models/stories260K.gguf");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: " << path;
    model_ = load(path);
    ASSERT_NE(model_, nullptr);
    for (const auto& json :
         test::read_json(test::shared_path("reference/stories260K.greedy.json"))) {
      ASSERT_GT(json.at("min_margin").get<double>(), 0.01);
      stories_.push_back({json.at("prompt_tokens").get<std::vector<TokenId>>(),
                          json.at("tokens").get<std::vector<TokenId>>()});
    }
    ASSERT_FALSE(stories_.empty());
  }
  void TearDown() override { model_.reset(); }

  /// All stories in one engine, as many at once as it has sequences for. The first `n_given` tokens
  /// of a continuation are part of its prompt and come back as they are.
  std::vector<std::vector<TokenId>> tell(Engine& engine, size_t n_given = 0) {
    std::map<RequestId, size_t> story_of;
    std::vector<std::vector<TokenId>> told(stories_.size());
    for (size_t i = 0; i < stories_.size(); ++i) {
      const Story& story = stories_[i];
      const auto given = story.continuation.begin() + static_cast<ptrdiff_t>(n_given);
      told[i].assign(story.continuation.begin(), given);
      std::vector<TokenId> prompt = story.prompt;
      prompt.insert(prompt.end(), told[i].begin(), told[i].end());
      const auto id = engine.submit(
          {.prompt = std::move(prompt),
           .max_new_tokens = static_cast<uint32_t>(story.continuation.size() - n_given)});
      EXPECT_TRUE(id.ok());
      story_of[*id] = i;
    }
    while (!engine.idle()) {
      const std::vector<StepEvent> events = step(engine);
      if (events.empty()) break;
      for (const StepEvent& event : events) {
        if (event.token) told[story_of[event.request]].push_back(*event.token);
      }
    }
    return told;
  }

  std::shared_ptr<const Model> model_;
  std::vector<Story> stories_;
};

// Prompts of 65 to 72 tokens, so that every chunk size cuts them in another way.
TEST_F(Stories, AreTheReferenceAtEveryChunkSize) {
  constexpr size_t kGiven = 60;
  for (const uint32_t chunk : {1u,  2u,  3u,  4u,  5u,  7u,  8u,  9u,  11u, 13u, 15u,
                               16u, 17u, 24u, 31u, 32u, 33u, 48u, 63u, 64u, 65u, 72u}) {
    const auto engine = make_engine(model_, {.context_tokens = 256,
                                             .n_sequences = static_cast<uint32_t>(stories_.size()),
                                             .chunk_tokens = chunk,
                                             .greedy_only = true});
    ASSERT_NE(engine, nullptr);
    const auto told = tell(*engine, kGiven);
    for (size_t i = 0; i < stories_.size(); ++i) {
      ASSERT_EQ(told[i], stories_[i].continuation) << "story " << i << ", chunks of " << chunk;
    }
  }
}

// With the least that a host may enable and with all that helps; the host's own work goes to the
// same queue between the steps, which begin after it.
TEST_F(Stories, AreTheReferenceOnAHostsDevice) {
  for (const auto enables : {test::Host::Enables::kRequired, test::Host::Enables::kEverything}) {
    const test::Host host(enables);
    test::QueueLock lock;
    vk::HostDevice lent = host.lent();
    lent.queue_lock = lock.lent();
    const auto device = host.adopt(lent);
    ASSERT_TRUE(device.ok()) << device.error().message;
    const OnDevice on_device(*device);
    const auto model = load(test::shared_path("models/stories260K.gguf"));
    const auto engine = make_engine(model, {.context_tokens = 256, .greedy_only = true});
    ASSERT_NE(engine, nullptr);
    const Story& story = stories_[0];
    ASSERT_TRUE(engine
                    ->submit({.prompt = story.prompt,
                              .max_new_tokens = static_cast<uint32_t>(story.continuation.size())})
                    .ok());
    std::vector<TokenId> told;
    const auto poll = [&] {
      const auto events = engine->poll(1e-3);
      ASSERT_TRUE(events.ok()) << events.error().message;
      for (const StepEvent& event : *events) {
        if (event.token) told.push_back(*event.token);
      }
    };
    uint64_t frame = 0;
    uint64_t handed_over = 0;  // of our timeline
    while (!engine->idle() && !HasFatalFailure()) {
      if (const vk::TimelinePoint ours = (*device)->submitted(); ours.value > handed_over) {
        handed_over = ours.value;
        lock.held = true;
        host.submit_after(ours, ++frame);
        poll();
        lock.held = false;
        (*device)->begin_after({host.timeline(), frame});
      }
      poll();
    }
    EXPECT_EQ(told, story.continuation);
    EXPECT_GT(lock.n_refused, 0u);
    // Its last work waits for our timeline, which ends with our device.
    host.fn().vkDeviceWaitIdle(host.device());
  }
}

TEST_F(Stories, AreTheReferenceAloneAndWhenTheyWaitForOneAnother) {
  for (const uint32_t n_sequences : {1u, 2u}) {
    const auto engine = make_engine(
        model_, {.context_tokens = 256, .n_sequences = n_sequences, .greedy_only = true});
    ASSERT_NE(engine, nullptr);
    const auto told = tell(*engine);
    for (size_t i = 0; i < stories_.size(); ++i) {
      EXPECT_EQ(told[i], stories_[i].continuation)
          << "story " << i << ", " << n_sequences << " at once";
    }
  }
}

TEST_F(Stories, SameSeedSameTextAndAnotherSeedAnother) {
  const auto tell_with = [&](uint64_t seed) {
    const auto engine = make_engine(model_, {.context_tokens = 256});
    GenerationRequest request{.prompt = stories_[0].prompt,
                              .max_new_tokens = 60,
                              .sampling = {.temperature = 1.0f,
                                           .top_k = 50,
                                           .top_p = 0.95f,
                                           .min_p = 0.01f,
                                           .repeat_penalty = 1.1f,
                                           .frequency_penalty = 0.1f,
                                           .presence_penalty = 0.1f,
                                           .seed = seed}};
    EXPECT_TRUE(engine->submit(request).ok());
    std::vector<TokenId> tokens;
    while (!engine->idle()) {
      for (const StepEvent& event : step(*engine)) {
        if (event.token) tokens.push_back(*event.token);
      }
    }
    return tokens;
  };
  const auto first = tell_with(1);
  EXPECT_EQ(first.size(), 60u);
  EXPECT_EQ(first, tell_with(1));
  EXPECT_NE(first, tell_with(2));
}

TEST_F(Stories, RejectsWhatCannotRunAndChangesNothing) {
  const auto engine = make_engine(model_, {.context_tokens = 64, .greedy_only = true});
  const uint32_t free_before = engine->scheduler().cache().n_free_pages();
  const auto error_of = [&](GenerationRequest request) {
    const auto result = engine->submit(std::move(request));
    EXPECT_FALSE(result.ok());
    return result.ok() ? Error{} : result.error();
  };
  EXPECT_EQ(error_of({.prompt = {}}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of({.prompt = {1, 512}}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of({.prompt = {1}, .sampling = {.temperature = 1}}).code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of({.prompt = {1}, .on_logits = [](uint32_t, std::span<const float>) {}}).code,
            ErrorCode::kInvalidArgument);
  const Error too_long = error_of({.prompt = {1, 2, 3}, .max_new_tokens = 70});
  EXPECT_EQ(too_long.code, ErrorCode::kDoesNotFit);
  EXPECT_NE(too_long.message.find("by 9 tokens"), std::string::npos) << too_long.message;
  EXPECT_TRUE(engine->idle());
  EXPECT_EQ(engine->scheduler().cache().n_free_pages(), free_before);
}

TEST_F(Stories, CancellingFreesEverythingAtAnyMoment) {
  const auto engine = make_engine(
      model_, {.context_tokens = 128, .n_sequences = 2, .chunk_tokens = 4, .greedy_only = true});
  const uint32_t all = engine->scheduler().cache().n_pages();
  for (int steps = 0; steps < 8; ++steps) {
    const auto id = engine->submit({.prompt = stories_[0].prompt, .max_new_tokens = 50});
    const auto waiting = engine->submit({.prompt = stories_[1].prompt, .max_new_tokens = 50});
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(engine->step().ok());
    engine->cancel(*id);
    engine->cancel(*waiting);
    EXPECT_TRUE(engine->idle());
    EXPECT_EQ(engine->scheduler().cache().n_free_pages(), all);
  }
  EXPECT_EQ(greedy(*engine, stories_[0].prompt, 20),
            std::vector<TokenId>(stories_[0].continuation.begin(),
                                 stories_[0].continuation.begin() + 20));
}

}  // namespace
}  // namespace pumice
