// Sessions that go back to a turn: what is left is what was said until then, and is not computed
// again.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/api/api_fixture.hpp"

namespace pumice {
namespace {

using test::Answer;
using test::ask;
using test::request_of;
using test::tokens_of;

class ApiRollback : public test::ApiEngineTest {
 protected:
  uint32_t turns_of(pumice_session session) {
    uint32_t n = 99;
    EXPECT_OK(pumice_session_turns(engine_, session, &n));
    return n;
  }
  pumice_status roll_back(pumice_session session, uint32_t n_turns, bool keep_question = false) {
    return pumice_session_rollback(engine_, session, n_turns, keep_question);
  }
  Answer say(pumice_session session, const char* question) {
    const pumice_message message{pumice_str("user"), pumice_str(question)};
    pumice_request_options options{sizeof options};
    options.messages = &message;
    options.n_messages = 1;
    options.max_new_tokens = 6;
    return ask(engine_, session, options);
  }
  /// A request without a prompt.
  Answer go_on(pumice_session session, uint32_t max_new_tokens) {
    pumice_request_options options{sizeof options};
    options.max_new_tokens = max_new_tokens;
    return ask(engine_, session, options);
  }
};

TEST_F(ApiRollback, ATextGoesBackToTheEndOfATurn) {
  const pumice_session session = test::open_session(engine_);
  EXPECT_EQ(turns_of(session), 0u);
  ask(engine_, session,
      request_of("Once upon a time there was a little dog who lived in a house", 8));
  const std::vector<uint32_t> first = tokens_of(engine_, session);
  const Answer second = ask(engine_, session, request_of(" The cat", 8));
  const std::vector<uint32_t> whole = tokens_of(engine_, session);
  ask(engine_, session, request_of(" And then", 8));
  EXPECT_EQ(turns_of(session), 3u);
  EXPECT_OK(roll_back(session, 2));
  EXPECT_EQ(turns_of(session), 2u);
  EXPECT_EQ(tokens_of(engine_, session), whole);
  EXPECT_OK(roll_back(session, 1));
  EXPECT_EQ(tokens_of(engine_, session), first);
  // The same again, of which only what the last block lacks is computed.
  const Answer again = ask(engine_, session, request_of(" The cat", 8));
  EXPECT_EQ(again.text, second.text);
  EXPECT_GE(again.cached_tokens + 16, again.prompt_tokens);
  EXPECT_EQ(tokens_of(engine_, session), whole);
  EXPECT_OK(roll_back(session, 0));
  EXPECT_TRUE(tokens_of(engine_, session).empty());
  EXPECT_EQ(turns_of(session), 0u);
}

TEST_F(ApiRollback, AReplyIsGivenAnew) {
  const pumice_session session = test::open_session(engine_);
  ask(engine_, session, request_of("Once upon a time", 4));
  const Answer reply = ask(engine_, session, request_of(" there was a dog", 12));
  EXPECT_OK(roll_back(session, 1, true));
  EXPECT_EQ(turns_of(session), 2u);
  EXPECT_EQ(go_on(session, 12).tokens, reply.tokens);
  EXPECT_EQ(turns_of(session), 2u);
  // What goes on is part of its turn, and the turn before can be continued too.
  go_on(session, 3);
  EXPECT_EQ(turns_of(session), 2u);
  EXPECT_OK(roll_back(session, 1));
  const std::vector<uint32_t> before = tokens_of(engine_, session);
  EXPECT_EQ(go_on(session, 5).tokens.size(), 5u);
  EXPECT_EQ(tokens_of(engine_, session).size(), before.size() + 5);
  EXPECT_EQ(turns_of(session), 1u);
}

TEST_F(ApiRollback, AConversationGoesBackToAQuestion) {
  const pumice_session session = test::open_session(engine_);
  say(session, "Tell me of a dog.");
  const Answer reply = say(session, "And of a cat?");
  say(session, "And then?");
  EXPECT_EQ(turns_of(session), 3u);
  EXPECT_OK(roll_back(session, 1, true));
  EXPECT_EQ(turns_of(session), 2u);
  const Answer anew = go_on(session, 6);
  EXPECT_EQ(anew.text, reply.text);
  EXPECT_GT(anew.cached_tokens, 0u);
  EXPECT_EQ(turns_of(session), 2u);
  EXPECT_OK(roll_back(session, 1));
  EXPECT_EQ(say(session, "And of a cat?").text, reply.text);
  EXPECT_OK(roll_back(session, 0));
  EXPECT_EQ(turns_of(session), 0u);
}

TEST_F(ApiRollback, WhatCannotBeGoneBackToChangesNothing) {
  const pumice_session session = test::open_session(engine_);
  ask(engine_, session, request_of("Once upon a time", 4));
  const std::vector<uint32_t> held = tokens_of(engine_, session);
  EXPECT_STATUS(PUMICE_NOT_FOUND, roll_back(session, 2));
  EXPECT_STATUS(PUMICE_NOT_FOUND, roll_back(session, 1, true));
  EXPECT_OK(roll_back(session, 1));
  EXPECT_STATUS(PUMICE_NOT_FOUND, roll_back(session + 2, 0));
  pumice_request request = 0;
  const pumice_request_options more = request_of(" more", 50);
  EXPECT_OK(pumice_submit(engine_, session, &more, &request));
  EXPECT_STATUS(PUMICE_BUSY, roll_back(session, 0));
  EXPECT_OK(pumice_cancel(engine_, request));
  test::Answers answers;
  test::run_until(engine_, answers, 1);
  EXPECT_OK(roll_back(session, 1));
  EXPECT_EQ(tokens_of(engine_, session), held);
}

TEST_F(ApiRollback, TurnsThatMadeRoomAreGone) {
  pumice_engine_options options{sizeof options};
  options.context_tokens = 64;
  options.overflow = PUMICE_OVERFLOW_SHIFT;
  pumice_engine* engine = nullptr;
  ASSERT_EQ(pumice_engine_create(model_, &options, &engine), PUMICE_OK) << pumice_last_error();
  const pumice_session session = test::open_session(engine);
  for (int i = 0; i < 4; ++i) ask(engine, session, request_of(" Then the little dog ran", 16));
  uint32_t n_turns = 0;
  EXPECT_OK(pumice_session_turns(engine, session, &n_turns));
  EXPECT_EQ(n_turns, 4u);
  EXPECT_STATUS(PUMICE_NOT_FOUND, pumice_session_rollback(engine, session, 0, 0));
  const std::vector<uint32_t> held = tokens_of(engine, session);
  EXPECT_OK(pumice_session_rollback(engine, session, 3, 0));
  EXPECT_LT(tokens_of(engine, session).size(), held.size());
  pumice_engine_close(engine);
}

TEST_F(ApiRollback, ARestoredTextIsOneTurn) {
  const pumice_session session = test::open_session(engine_);
  ask(engine_, session, request_of("Once upon a time", 4));
  const Answer reply = ask(engine_, session, request_of(" there was", 4));
  const void* bytes = nullptr;
  size_t n_bytes = 0;
  ASSERT_EQ(pumice_session_save(engine_, session, &bytes, &n_bytes), PUMICE_OK);
  pumice_session restored = 0;
  ASSERT_EQ(pumice_session_restore(engine_, bytes, n_bytes, nullptr, &restored), PUMICE_OK);
  EXPECT_EQ(turns_of(restored), 1u);
  EXPECT_OK(roll_back(restored, 0, true));
  EXPECT_EQ(go_on(restored, 4).tokens, reply.tokens);
}

}  // namespace
}  // namespace pumice
