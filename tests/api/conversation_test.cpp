// What a host gets through the C ABI is what an Engine says.
#include <algorithm>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "tests/api/api_fixture.hpp"

namespace pumice {
namespace {

using test::Answer;
using test::Answers;

class Conversations : public test::ApiEngineTest {
 protected:
  Answer ask(pumice_session session, const pumice_request_options& options) {
    return test::ask(engine_, session, options);
  }
  pumice_session open(const pumice_session_options* options = nullptr) {
    return test::open_session(engine_, options);
  }
  std::vector<uint32_t> tokens_of(pumice_session session) {
    return test::tokens_of(engine_, session);
  }

  static std::vector<uint32_t> tokenize(const char* text, bool special) {
    std::vector<uint32_t> tokens(100);
    size_t n = 0;
    EXPECT_OK(pumice_tokenize(model_, pumice_str(text), special, tokens.data(), 100, &n));
    tokens.resize(n);
    return tokens;
  }

  static std::string detokenize(const std::vector<uint32_t>& tokens) {
    std::string text(2000, '\0');
    size_t n = 0;
    EXPECT_OK(
        pumice_detokenize(model_, tokens.data(), tokens.size(), text.data(), text.size(), &n));
    text.resize(n);
    return text;
  }

  /// What an Engine adds to these tokens, in steps.
  static std::vector<uint32_t> engine_says(std::vector<uint32_t> prompt, uint32_t n,
                                           SamplerOptions sampling = {}) {
    auto engine = model_->owner->opened().make_engine({.context_tokens = 256, .n_sequences = 4});
    EXPECT_TRUE(engine.ok());
    EXPECT_TRUE((*engine)
                    ->submit({.prompt = std::move(prompt),
                              .max_new_tokens = n,
                              .sampling = std::move(sampling),
                              .tokenizer = model_->owner->texts().tokenizer})
                    .ok());
    std::vector<uint32_t> tokens;
    while (!(*engine)->idle()) {
      const auto events = (*engine)->step();
      EXPECT_TRUE(events.ok());
      if (!events.ok()) break;
      for (const StepEvent& event : *events) {
        if (event.token) tokens.push_back(*event.token);
      }
    }
    return tokens;
  }
};

TEST_F(Conversations, GoOnTokenByTokenAsAnEngineDoes) {
  const pumice_session session = open();
  const Answer first = ask(session, test::request_of("Once upon a time", 20));
  std::vector<uint32_t> all = tokenize("Once upon a time", true);
  EXPECT_EQ(first.tokens, engine_says(all, 20));
  EXPECT_EQ(first.end_reason, PUMICE_END_LENGTH);
  EXPECT_EQ(first.prompt_tokens, all.size());
  all.insert(all.end(), first.tokens.begin(), first.tokens.end());
  EXPECT_EQ(tokens_of(session), all);

  const Answer second = ask(session, test::request_of(" Then Tom", 20));
  const std::vector<uint32_t> more = tokenize(" Then Tom", false);
  all.insert(all.end(), more.begin(), more.end());
  EXPECT_EQ(second.tokens, engine_says(all, 20));
  EXPECT_GE(second.cached_tokens, 16u) << "what was said is not computed again";
}

TEST_F(Conversations, TextIsThatOfTheTokens) {
  const Answer answer = ask(0, test::request_of("Once upon a time", 30));
  std::vector<uint32_t> all = tokenize("Once upon a time", true);
  all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
  EXPECT_EQ(detokenize(all), "Once upon a time" + answer.text);
}

TEST_F(Conversations, SeedsAreTheSessionsOrTheRequests) {
  pumice_sampling sampling{sizeof sampling};
  sampling.temperature = 1;
  sampling.seed = 7;
  pumice_session_options options{sizeof options};
  options.sampling = &sampling;
  const SamplerOptions same{.temperature = 1, .seed = 7};
  const std::vector<uint32_t> expected = engine_says(tokenize("Once", true), 20, same);
  EXPECT_EQ(ask(open(&options), test::request_of("Once", 20)).tokens, expected);
  pumice_request_options own = test::request_of("Once", 20);
  own.sampling = &sampling;
  EXPECT_EQ(ask(open(), own).tokens, expected);
  sampling.seed = 8;
  EXPECT_NE(ask(open(&options), test::request_of("Once", 20)).tokens, expected);
}

// A model without a chat template reads messages one after the other.
TEST_F(Conversations, MessagesGoOnFromTheAnswers) {
  const pumice_session session = open();
  pumice_message message = {pumice_str("user"), pumice_str("Once upon a time")};
  pumice_request_options options{sizeof options};
  options.messages = &message;
  options.n_messages = 1;
  options.max_new_tokens = 12;
  const Answer answer = ask(session, options);
  EXPECT_EQ(answer.tokens, engine_says(tokenize("Once upon a time", true), 12));

  message.content = pumice_str("Then Tom came.");
  ask(session, options);
  const std::string text = detokenize(tokens_of(session));
  EXPECT_EQ(text.find("Once upon a time"), 0u) << text;
  EXPECT_NE(text.find(answer.text.substr(1)), std::string::npos) << text;
  EXPECT_NE(text.find("Then Tom came."), std::string::npos) << text;

  pumice_request request = 0;
  const pumice_request_options words = test::request_of("and", 4);
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(engine_, session, &words, &request));
}

TEST_F(Conversations, OnlyMessagesThatAreTrustedHoldControlTokens) {
  const uint32_t eos = tokenize("</s>", true).back();
  const pumice_session session = open();
  pumice_message message = {pumice_str("user"), pumice_str("Once</s> upon")};
  pumice_request_options options{sizeof options};
  options.messages = &message;
  options.n_messages = 1;
  options.max_new_tokens = 4;
  const auto n_eos = [&](pumice_session of) { return std::ranges::count(tokens_of(of), eos); };
  ask(session, options);
  EXPECT_EQ(n_eos(session), 0);
  EXPECT_EQ(detokenize(tokens_of(session)).find("Once</s> upon"), 0u);
  options.special = 1;
  ask(session, options);
  EXPECT_EQ(n_eos(session), 1);
  // The trust stays with the message, in a saved session too.
  const void* bytes = nullptr;
  size_t n_bytes = 0;
  ASSERT_EQ(pumice_session_save(engine_, session, &bytes, &n_bytes), PUMICE_OK);
  pumice_session restored = 0;
  ASSERT_EQ(pumice_session_restore(engine_, bytes, n_bytes, nullptr, &restored), PUMICE_OK);
  options.special = 0;
  for (const pumice_session one : {session, restored}) {
    ask(one, options);
    EXPECT_EQ(n_eos(one), 1);
  }
}

// In the thread that submits, which may be a game's.
TEST_F(Conversations, ALongConversationIsAsQuickToSubmitAsAShortOne) {
  pumice_engine_options engine_options{sizeof engine_options};
  engine_options.context_tokens = 256;
  engine_options.overflow = PUMICE_OVERFLOW_SHIFT;
  pumice_engine_close(engine_);
  engine_ = nullptr;
  ASSERT_EQ(pumice_engine_create(model_, &engine_options, &engine_), PUMICE_OK);
  std::vector<pumice_message> messages;
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({pumice_str("user"), pumice_str("Tom and Lily went to the park to play.")});
    messages.push_back(
        {pumice_str("assistant"), pumice_str("They ran and ran until it was dark.")});
  }
  messages.push_back({pumice_str("user"), pumice_str("Then")});
  const pumice_session session = open();
  pumice_request_options options{sizeof options};
  options.messages = messages.data();
  options.n_messages = messages.size();
  options.max_new_tokens = 2;
  const auto submit = [&] {
    pumice_request request = 0;
    const std::clock_t start = std::clock();
    EXPECT_OK(pumice_submit(engine_, session, &options, &request));
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    Answers answers;
    test::run_until(engine_, answers, 1);
    EXPECT_EQ(answers[request].status, PUMICE_OK) << answers[request].message;
    EXPECT_GT(answers[request].prompt_tokens, 150u);
    return seconds;
  };
  double seconds = submit();
  options.n_messages = 1;
  for (int turn = 0; turn < 5; ++turn) seconds += submit();
  EXPECT_LT(seconds, 1)
      << "of six prompts of 200 tokens; a render of all of it each time takes many";
}

TEST_F(Conversations, StopTextsEndARequestAndAreNotGiven) {
  const Answer whole = ask(0, test::request_of("Once upon a time", 30));
  ASSERT_GT(whole.text.size(), 12u);
  const std::string word = whole.text.substr(8, 4);
  const pumice_string stop = {word.data(), word.size()};
  pumice_request_options options = test::request_of("Once upon a time", 30);
  options.stops = &stop;
  options.n_stops = 1;
  const Answer answer = ask(0, options);
  EXPECT_EQ(answer.end_reason, PUMICE_END_STOP_TEXT);
  EXPECT_EQ(answer.text, whole.text.substr(0, whole.text.find(word)));
}

TEST_F(Conversations, ACancelledRequestEndsWithOneEventAndItsSessionKeepsWhatWasSaid) {
  const pumice_session session = open();
  pumice_request request = 0;
  const pumice_request_options options = test::request_of("Once upon a time", 200);
  ASSERT_EQ(pumice_submit(engine_, session, &options, &request), PUMICE_OK);
  pumice_request second = 0;
  EXPECT_STATUS(PUMICE_BUSY, pumice_submit(engine_, session, &options, &second));
  EXPECT_EQ(second, 0u);
  Answers answers;
  while (answers[request].tokens.size() < 5) {
    ASSERT_EQ(pumice_poll(engine_, 2000), PUMICE_OK);
    test::take_events(engine_, answers);
  }
  EXPECT_OK(pumice_cancel(engine_, request));
  EXPECT_OK(pumice_cancel(engine_, request));
  ASSERT_EQ(pumice_poll(engine_, 0), PUMICE_OK);
  EXPECT_OK(pumice_cancel(engine_, request));  // its last event was not taken
  EXPECT_EQ(test::take_events(engine_, answers), 1);
  EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_cancel(engine_, request));
  const Answer& answer = answers[request];
  EXPECT_EQ(answer.end_reason, PUMICE_END_CANCELLED);
  std::vector<uint32_t> held = tokenize("Once upon a time", true);
  held.insert(held.end(), answer.tokens.begin(), answer.tokens.end());
  EXPECT_EQ(tokens_of(session), held);
  EXPECT_EQ(ask(session, test::request_of(" The", 5)).tokens.size(), 5u);
}

TEST_F(Conversations, ASessionThatIsClosedCancelsItsRequest) {
  const pumice_session session = open();
  pumice_request request = 0;
  const pumice_request_options options = test::request_of("Once upon a time", 200);
  ASSERT_EQ(pumice_submit(engine_, session, &options, &request), PUMICE_OK);
  ASSERT_EQ(pumice_poll(engine_, 0), PUMICE_OK);
  EXPECT_OK(pumice_session_close(engine_, session));
  EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_session_close(engine_, session));
  Answers answers;
  test::run_until(engine_, answers, 1);
  EXPECT_EQ(answers[request].end_reason, PUMICE_END_CANCELLED);
}

TEST_F(Conversations, APromptIsScoredAsTheTokensThatItSays) {
  // What is said greedily is what is the most probable in each place.
  pumice_request_options said = test::request_of("Once upon a time", 12);
  said.log_probs = 1;
  std::vector<float> log_probs;
  pumice_request request = 0;
  const auto next_events = [&](const pumice_request_options& options, const auto& take) {
    EXPECT_OK(pumice_submit(engine_, 0, &options, &request));
    for (bool ended = false; !ended;) {
      EXPECT_OK(pumice_poll(engine_, PUMICE_NO_LIMIT));
      for (pumice_event event{sizeof event}; !ended;) {
        EXPECT_OK(pumice_next_event(engine_, &event));
        if (event.kind == PUMICE_EVENT_NONE) break;
        ended = event.kind == PUMICE_EVENT_FINISHED;
        take(event);
      }
      EXPECT_OK(pumice_wait(engine_, 20000));
    }
  };
  std::vector<uint32_t> text = tokenize("Once upon a time", true);
  const size_t n_prompt = text.size();
  next_events(said, [&](const pumice_event& event) {
    if (!event.has_token) return;
    text.push_back(event.token);
    log_probs.push_back(event.log_prob);
  });
  pumice_request_options scored{sizeof scored};
  scored.tokens = text.data();
  scored.n_tokens = text.size();
  scored.max_new_tokens = 1;
  scored.log_probs = 1;
  scored.n_top_log_probs = 2;
  scored.scores = 1;
  uint32_t next = 1;
  next_events(scored, [&](const pumice_event& event) {
    if (event.kind != PUMICE_EVENT_SCORE) return;
    EXPECT_EQ(event.request, request);
    EXPECT_EQ(event.computed_tokens, next);
    ASSERT_LT(next, text.size());
    EXPECT_EQ(event.token, text[next]);
    ASSERT_EQ(event.n_top_log_probs, 2u);
    if (next >= n_prompt) {
      EXPECT_NEAR(event.log_prob, log_probs[next - n_prompt], 1e-3);
      EXPECT_EQ(event.top_log_probs[0].token, text[next]);
    }
    ++next;
  });
  EXPECT_EQ(next, text.size());

  scored.scores = 2;
  EXPECT_EQ(pumice_submit(engine_, 0, &scored, &request), PUMICE_INVALID_ARGUMENT);
}

TEST_F(Conversations, AreTheSameWithGuesses) {
  // Of two words only, so that it repeats itself.
  constexpr char kStart[] = "Lily had a big red ball";
  std::vector<pumice_logit_bias> two_words;
  for (const uint32_t token : {300u, 400u}) two_words.push_back({token, 100});
  pumice_sampling sampling{sizeof sampling};
  sampling.logit_biases = two_words.data();
  sampling.n_logit_biases = two_words.size();
  const auto last_of = [&](pumice_speculation speculation, std::vector<uint32_t>& tokens) {
    pumice_request_options options = test::request_of(kStart, 30);
    options.sampling = &sampling;
    options.speculation = speculation;
    pumice_request request = 0;
    EXPECT_OK(pumice_submit(engine_, 0, &options, &request));
    pumice_event event{sizeof event};
    while (event.kind != PUMICE_EVENT_FINISHED) {
      EXPECT_OK(pumice_poll(engine_, PUMICE_NO_LIMIT));
      do {
        EXPECT_OK(pumice_next_event(engine_, &event));
        if (event.has_token) tokens.push_back(event.token);
      } while (event.kind != PUMICE_EVENT_NONE && event.kind != PUMICE_EVENT_FINISHED);
      if (event.kind == PUMICE_EVENT_NONE) EXPECT_OK(pumice_wait(engine_, 20000));
    }
    return event;
  };
  std::vector<uint32_t> plain, looked_up, chosen;
  EXPECT_EQ(last_of(PUMICE_SPECULATION_OFF, plain).drafted_tokens, 0u);
  const pumice_event with = last_of(PUMICE_SPECULATION_LOOKUP, looked_up);
  EXPECT_GT(with.accepted_tokens, 0u);
  EXPECT_LE(with.accepted_tokens, with.drafted_tokens);
  (void)last_of(PUMICE_SPECULATION_AUTO, chosen);
  EXPECT_EQ(looked_up, plain);
  EXPECT_EQ(chosen, plain);
  pumice_stats stats{sizeof stats};
  EXPECT_OK(pumice_get_stats(engine_, &stats));
  EXPECT_GE(stats.drafted_tokens, with.drafted_tokens);
  EXPECT_GE(stats.accepted_tokens, with.accepted_tokens);
  pumice_request_options wrong = test::request_of(kStart, 3);
  wrong.speculation = 3;
  pumice_request request = 0;
  EXPECT_EQ(pumice_submit(engine_, 0, &wrong, &request), PUMICE_INVALID_ARGUMENT);
}

TEST_F(Conversations, TimeoutsEndRequests) {
  pumice_request_options options = test::request_of("Once upon a time", 200);
  options.timeout_us = 1;
  EXPECT_EQ(ask(0, options).end_reason, PUMICE_END_TIMEOUT);
}

TEST_F(Conversations, AShiftingSessionNeverFills) {
  pumice_engine_options engine_options{sizeof engine_options};
  engine_options.context_tokens = 48;
  engine_options.overflow = PUMICE_OVERFLOW_SHIFT;
  pumice_engine_close(engine_);
  engine_ = nullptr;
  ASSERT_EQ(pumice_engine_create(model_, &engine_options, &engine_), PUMICE_OK);
  const pumice_session session = open();
  for (int turn = 0; turn < 5; ++turn) {
    const Answer answer = ask(session, test::request_of(" Tom and Lily went to the park.", 20));
    EXPECT_EQ(answer.status, PUMICE_OK) << answer.message;
    EXPECT_EQ(answer.tokens.size(), 20u);
  }
}

TEST_F(Conversations, EnginesOnOneModelSayTheSame) {
  pumice_engine* other = test::create_engine(model_);
  const pumice_request_options options = test::request_of("Once upon a time", 30);
  pumice_request requests[2] = {};
  EXPECT_OK(pumice_submit(engine_, 0, &options, &requests[0]));
  EXPECT_OK(pumice_submit(other, 0, &options, &requests[1]));
  EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_cancel(other, requests[0]));
  Answers answers[2];
  test::run_until(engine_, answers[0], 1);
  test::run_until(other, answers[1], 1);
  EXPECT_EQ(answers[0][requests[0]].tokens, answers[1][requests[1]].tokens);
  pumice_engine_close(other);
}

TEST_F(Conversations, StatsCountWhatWasDone) {
  ask(open(), test::request_of("Once upon a time", 10));
  pumice_stats stats{sizeof stats};
  EXPECT_OK(pumice_get_stats(engine_, &stats));
  EXPECT_EQ(stats.generated_tokens, 10u);
  EXPECT_GE(stats.steps, 10u);
  EXPECT_EQ(stats.open_requests, 0u);
  EXPECT_EQ(stats.open_sessions, 1u);
  EXPECT_GT(stats.weight_bytes, 0u);
  EXPECT_GT(stats.kv_bytes, 0u);
  EXPECT_GE(stats.device_bytes, stats.weight_bytes + stats.kv_bytes);
  EXPECT_GT(stats.kernels, 0u);
  EXPECT_EQ(stats.kernels_compiled_after_prewarm, 0u);
  EXPECT_EQ(stats.allocations_after_prewarm, 0u);
}

// What takes long here was compiled by the engines before; tests of the engine compile in pieces.
TEST_F(Conversations, KernelsMayBeCompiledLater) {
  pumice_engine_options engine_options{sizeof engine_options};
  engine_options.context_tokens = 256;
  engine_options.prewarm_later = 1;
  pumice_engine_close(engine_);
  engine_ = nullptr;
  ASSERT_EQ(pumice_engine_create(model_, &engine_options, &engine_), PUMICE_OK);
  uint32_t done = 0;
  uint32_t total = 1;
  while (done < total) {
    const uint32_t before = done;
    ASSERT_EQ(pumice_prewarm(engine_, 1, &done, &total), PUMICE_OK);
    EXPECT_GE(done, before);
  }
  EXPECT_GT(total, 0u);
  EXPECT_EQ(ask(0, test::request_of("Once upon a time", 5)).tokens.size(), 5u);
  pumice_stats stats{sizeof stats};
  EXPECT_OK(pumice_get_stats(engine_, &stats));
  EXPECT_EQ(stats.kernels_compiled_after_prewarm, 0u);
  EXPECT_EQ(stats.allocations_after_prewarm, 0u);
}

}  // namespace
}  // namespace pumice
