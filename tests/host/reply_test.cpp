// An answer told apart as its text becomes final, and what a session remembers of it.
#include "host/reply.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "host/conversation_note.hpp"
#include "tests/answers/byte_tokens.hpp"
#include "text/text_stream.hpp"

namespace pumice::host {
namespace {

struct Told {
  std::vector<AnswerEvent> events;
  ChatMessage message;
};

/// As a request would: a token a byte, and the text that its stream lets go.
Told told(std::string_view text, const std::vector<std::string>& stops = {},
          const std::string& begun = {}) {
  const ByteTokens bytes({});
  Reply reply(bytes.tokenizer(), *find_answer_format("hermes"), {}, {.content = begun});
  TextStream stream(bytes.tokenizer(), stops);
  Told told;
  const auto add = [&](std::vector<AnswerEvent> events) {
    for (AnswerEvent& event : events) append_event(std::move(event), told.events);
  };
  for (const char c : text) {
    const std::string piece = stream.feed(ByteTokens::byte(c));
    add(reply.add(ByteTokens::byte(c), piece.size()));
    if (stream.stopped()) break;
  }
  add(reply.finish(stream.flush().size(), stream.stopped()));
  told.message = reply.message();
  return told;
}

std::string text_of(const std::vector<AnswerEvent>& events) {
  std::string text;
  for (const AnswerEvent& event : events) text += event.text;
  return text;
}

constexpr std::string_view kCall =
    "<think>Hm.</think>Let me see.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": "
    "\"é\"}}</tool_call>";

TEST(Reply, BecomesAMessage) {
  const ChatMessage message = told(kCall).message;
  EXPECT_EQ(message.role, "assistant");
  EXPECT_EQ(message.reasoning, "Hm.");
  EXPECT_EQ(message.content, "Let me see.");
  ASSERT_EQ(message.calls.size(), 1u);
  EXPECT_EQ(message.calls[0].name, "f");
  EXPECT_EQ(message.calls[0].arguments, "{\"a\": \"é\"}");
  EXPECT_FALSE(message.calls[0].id.empty());
}

TEST(Reply, StopStringsAndWhatFollowsAreInNoEvent) {
  EXPECT_EQ(text_of(told("one END two", {" END"}).events), "one");
  EXPECT_EQ(text_of(told("one EN", {" END"}).events), "one EN");
  // A stop string within a call: what there was of it is completed, and not remembered.
  const Told cut = told(kCall, {"é"});
  EXPECT_EQ(text_of(cut.events).substr(0, 14), "Hm.Let me see.");
  EXPECT_NE(text_of(cut.events).find("{\"a\": \"\"}"), std::string::npos) << text_of(cut.events);
  EXPECT_TRUE(cut.message.calls.empty());
}

TEST(Reply, GoesOnWithWhatThePromptBegan) {
  const Told text = told(" world", {}, "Hello, ");
  EXPECT_EQ(text_of(text.events), " world");
  EXPECT_EQ(text.message.content, "Hello,  world");
  const Told call = told("x\"}}</tool_call>!", {},
                         "So:<tool_call>{\"name\": \"f\", "
                         "\"arguments\": {\"a\": \"");
  ASSERT_EQ(call.message.calls.size(), 1u);
  EXPECT_EQ(call.message.calls[0].arguments, "{\"a\": \"x\"}");
  EXPECT_EQ(call.message.content, "So:!");
  EXPECT_EQ(call.events.front().kind, AnswerEvent::Kind::kCallBegun);
  const Told reasoning = told("b</think>c", {}, "<think>a");
  EXPECT_EQ(reasoning.message.reasoning, "ab");
  EXPECT_EQ(reasoning.message.content, "c");
  EXPECT_EQ(text_of(reasoning.events), "bc");
}

TEST(Reply, SessionsAreSavedWithCalls) {
  ConversationNote note;
  note.conversation.add({.role = "developer", .content = "Be kind."});
  note.conversation.ask("Why?", true);
  note.conversation.add(told(kCall).message);
  note.conversation.add({.role = "tool", .content = "5", .call_id = "x"});
  note.conversation.answer("Five.");
  const Result<ConversationNote> read = read_conversation_note(write_conversation_note(note));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->conversation.messages(), note.conversation.messages());
}

}  // namespace
}  // namespace pumice::host
