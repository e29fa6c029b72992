// Sessions that are saved and restored go on as if they had not been.
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/api/api_fixture.hpp"

namespace pumice {
namespace {

using test::Answer;
using test::Answers;
using Bytes = std::vector<std::byte>;

class SavedSessions : public test::ApiEngineTest {
 protected:
  void SetUp() override {
    ApiEngineTest::SetUp();
    if (IsSkipped()) return;
    there_ = test::create_engine(model_);
    ASSERT_NE(there_, nullptr);
  }
  void TearDown() override {
    pumice_engine_close(there_);
    ApiEngineTest::TearDown();
  }

  static Bytes save(pumice_engine* engine, pumice_session session) {
    const void* bytes = nullptr;
    size_t n = 0;
    EXPECT_OK(pumice_session_save(engine, session, &bytes, &n));
    const auto* first = static_cast<const std::byte*>(bytes);
    return {first, first + n};
  }
  static pumice_session restore(pumice_engine* engine, const Bytes& bytes) {
    pumice_session session = 0;
    EXPECT_OK(pumice_session_restore(engine, bytes.data(), bytes.size(), nullptr, &session));
    return session;
  }
  Answer ask(pumice_session session, const pumice_request_options& options) {
    return test::ask(engine_, session, options);
  }

  /// Greedy, or what depends on the seed, on the number of tokens and on which were an answer's.
  pumice_session open(bool seeded) {
    pumice_sampling sampling{sizeof sampling};
    sampling.temperature = 1.2f;
    sampling.seed = 11;
    sampling.frequency_penalty = 0.7f;
    sampling.presence_penalty = 0.3f;
    sampling.repeat_penalty = 1.1f;
    pumice_session_options options{sizeof options};
    options.salt = pumice_str("fox");
    if (seeded) options.sampling = &sampling;
    return test::open_session(engine_, &options);
  }

  /// Submits, and polls until `n` tokens are there.
  pumice_request begin(pumice_session session, const pumice_request_options& options, size_t n,
                       Answers& answers) {
    pumice_request request = 0;
    EXPECT_OK(pumice_submit(engine_, session, &options, &request));
    while (answers[request].tokens.size() < n && answers[request].n_finished == 0) {
      EXPECT_OK(pumice_poll(engine_, 1));
      test::take_events(engine_, answers);
    }
    EXPECT_EQ(answers[request].n_finished, 0) << "it ended too early for this test";
    return request;
  }

  pumice_engine* there_ = nullptr;
};

/// No prompt.
pumice_request_options more(size_t n_tokens) {
  return test::request_of(nullptr, static_cast<uint32_t>(n_tokens));
}

TEST_F(SavedSessions, GoOnTokenByToken) {
  for (const bool seeded : {false, true}) {
    const pumice_session session = open(seeded);
    ask(session, test::request_of("Once upon a time", 30));
    const Bytes bytes = save(engine_, session);
    const pumice_session restored = restore(there_, bytes);
    EXPECT_EQ(test::tokens_of(there_, restored), test::tokens_of(engine_, session));
    const auto next = test::request_of(" Then Tom", 20);
    const Answer expected = ask(session, next);
    const Answer answer = test::ask(there_, restored, next);
    EXPECT_EQ(answer.tokens, expected.tokens) << seeded;
    EXPECT_EQ(answer.text, expected.text);
    EXPECT_GE(answer.cached_tokens, 30u) << "keys and values were restored";
    EXPECT_EQ(test::ask(there_, restored, more(9)).tokens, ask(session, more(9)).tokens) << seeded;
    // And again from what was restored.
    EXPECT_EQ(test::tokens_of(engine_, restore(engine_, save(there_, restored))),
              test::tokens_of(engine_, session));
  }
}

TEST_F(SavedSessions, OfARequestUnderWayGoOnAsItDoes) {
  constexpr size_t kAll = 40;
  for (const bool seeded : {false, true}) {
    for (const size_t n : {size_t{0}, size_t{21}}) {
      const pumice_session session = open(seeded);
      Answers answers;
      const auto options = test::request_of("Once upon a time there was a little", kAll);
      const pumice_request request = begin(session, options, n, answers);
      const Answer before = answers[request];
      const Bytes bytes = save(engine_, session);
      test::run_until(engine_, answers, 1);
      const Answer& whole = answers[request];
      ASSERT_EQ(whole.tokens.size(), kAll);

      const pumice_session restored = restore(there_, bytes);
      const Answer rest = test::ask(there_, restored, more(kAll - before.tokens.size()));
      std::vector<uint32_t> tokens = before.tokens;
      tokens.insert(tokens.end(), rest.tokens.begin(), rest.tokens.end());
      EXPECT_EQ(tokens, whole.tokens) << seeded << " " << n;
      EXPECT_EQ(before.text + rest.text, whole.text);
      EXPECT_EQ(test::tokens_of(there_, restored), test::tokens_of(engine_, session));
    }
  }
}

TEST_F(SavedSessions, WhatNoEventBroughtComesFirst) {
  const Answer plain = ask(0, test::request_of("Once upon a time", 30));
  // The text is held back where it may be the start of this.
  const std::string stop = plain.text.substr(12, 8) + "\x01";
  const pumice_string stops = {stop.data(), stop.size()};
  auto options = test::request_of("Once upon a time", 30);
  options.stops = &stops;
  options.n_stops = 1;
  bool was_held = false;
  // A poll may bring more tokens than one, so once round may pass by where text is held back.
  for (size_t i = 0; i < 6 || (i < 120 && !was_held); ++i) {
    const size_t n = 3 + i % 6;
    const pumice_session session = test::open_session(engine_);
    Answers answers;
    const pumice_request request = begin(session, options, n, answers);
    const Answer before = answers[request];
    const pumice_session restored = restore(there_, save(engine_, session));
    EXPECT_OK(pumice_session_close(engine_, session));
    auto rest = more(30 - before.tokens.size());
    rest.stops = &stops;
    rest.n_stops = 1;
    EXPECT_EQ(before.text + test::ask(there_, restored, rest).text, plain.text) << n;
    test::run_until(engine_, answers, 1);
    was_held |= answers[request].text != before.text;
  }
  EXPECT_TRUE(was_held) << "text was held back once";
}

TEST_F(SavedSessions, AnAnswerThatWasCancelledGoesOnWithoutAPrompt) {
  const Answer whole = ask(open(true), test::request_of("Once upon a time", 30));
  const pumice_session session = open(true);
  Answers answers;
  const pumice_request request =
      begin(session, test::request_of("Once upon a time", 30), 9, answers);
  EXPECT_OK(pumice_cancel(engine_, request));
  test::run_until(engine_, answers, 1);
  Answer& answer = answers[request];
  const Answer rest = ask(session, more(30 - answer.tokens.size()));
  answer.tokens.insert(answer.tokens.end(), rest.tokens.begin(), rest.tokens.end());
  EXPECT_EQ(answer.tokens, whole.tokens);
  EXPECT_EQ(answer.text + rest.text, whole.text);
}

TEST_F(SavedSessions, RememberTheirMessages) {
  const auto say = [](const pumice_message& message) {
    pumice_request_options options{sizeof options};
    options.messages = &message;
    options.n_messages = 1;
    options.max_new_tokens = 16;
    return options;
  };
  const pumice_message once = {pumice_str("user"), pumice_str("Once upon a time")};
  const pumice_message then = {pumice_str("user"), pumice_str("Then Tom came.")};
  const pumice_session session = open(true);
  Answers answers;
  begin(session, say(once), 6, answers);
  const pumice_session restored = restore(there_, save(engine_, session));
  const size_t n_here = answers.begin()->second.tokens.size();
  test::run_until(engine_, answers, 1);
  // The first answer is ended, then the second message reads the same.
  test::ask(there_, restored, more(16 - n_here));
  EXPECT_EQ(test::tokens_of(there_, restored), test::tokens_of(engine_, session));
  const Answer expected = ask(session, say(then));
  EXPECT_EQ(test::ask(there_, restored, say(then)).tokens, expected.tokens);
  EXPECT_EQ(test::tokens_of(there_, restored), test::tokens_of(engine_, session));
}

TEST_F(SavedSessions, ThatHoldNothingComeBackToo) {
  const pumice_session restored = restore(there_, save(engine_, open(true)));
  EXPECT_TRUE(test::tokens_of(there_, restored).empty());
  EXPECT_EQ(test::ask(there_, restored, test::request_of("Once", 9)).tokens,
            ask(open(true), test::request_of("Once", 9)).tokens);
}

TEST_F(SavedSessions, ForeignAndDamagedBytesAreRefusedAndNothingChanges) {
  const pumice_session session = open(false);
  ask(session, test::request_of("Once upon a time", 20));
  const Bytes whole = save(engine_, session);
  struct Row {
    const char* name;
    std::function<void(Bytes&)> change;
  };
  const Row rows[] = {
      {"nothing", [](Bytes& b) { b.clear(); }},
      {"zeros", [](Bytes& b) { b.assign(b.size(), std::byte{0}); }},
      {"cut off", [](Bytes& b) { b.pop_back(); }},
      {"too long", [](Bytes& b) { b.push_back(std::byte{0}); }},
      {"another beginning", [](Bytes& b) { b[0] ^= std::byte{1}; }},
      {"damaged at the start", [](Bytes& b) { b[60] ^= std::byte{1}; }},
      {"damaged amid", [](Bytes& b) { b[b.size() / 2] ^= std::byte{16}; }},
      {"damaged at the end", [](Bytes& b) { b.back() ^= std::byte{128}; }},
  };
  for (const Row& row : rows) {
    Bytes bytes = whole;
    row.change(bytes);
    bytes.reserve(1);
    pumice_session restored = 99;
    EXPECT_EQ(pumice_session_restore(there_, bytes.data(), bytes.size(), nullptr, &restored),
              PUMICE_BAD_FILE)
        << row.name;
    EXPECT_EQ(restored, 0u);
  }
  pumice_stats stats{sizeof stats};
  EXPECT_OK(pumice_get_stats(there_, &stats));
  EXPECT_EQ(stats.open_sessions, 0u);
  EXPECT_EQ(test::tokens_of(there_, restore(there_, whole)), test::tokens_of(engine_, session));
}

TEST_F(SavedSessions, OfAnotherKvTypeAreTokensForWhoAsks) {
  const pumice_session session = open(true);
  ask(session, test::request_of("Once upon a time", 20));
  const Bytes bytes = save(engine_, session);
  pumice_engine_options engine_options{sizeof engine_options};
  engine_options.context_tokens = 256;
  engine_options.kv_type = pumice_str("f32");
  pumice_engine* other = nullptr;
  ASSERT_EQ(pumice_engine_create(model_, &engine_options, &other), PUMICE_OK);
  pumice_session restored = 0;
  EXPECT_STATUS(PUMICE_BAD_FILE,
                pumice_session_restore(other, bytes.data(), bytes.size(), nullptr, &restored));
  pumice_restore_options options{sizeof options};
  options.tokens_only = 2;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT,
                pumice_session_restore(other, bytes.data(), bytes.size(), &options, &restored));
  options.tokens_only = 1;
  EXPECT_OK(pumice_session_restore(other, bytes.data(), bytes.size(), &options, &restored));
  EXPECT_EQ(test::tokens_of(other, restored), test::tokens_of(engine_, session));
  EXPECT_EQ(test::ask(other, restored, more(5)).tokens.size(), 5u);
  pumice_engine_close(other);
}

}  // namespace
}  // namespace pumice
