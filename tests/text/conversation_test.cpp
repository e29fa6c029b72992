#include "text/conversation.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tests/text/synthetic_vocabulary.hpp"

namespace pumice {
namespace {

Conversation of_three() {
  Conversation conversation;
  conversation.set_system("Be brief.");
  for (const char* word : {"one", "two", "three"}) {
    conversation.ask(word);
    conversation.answer(std::string(word) + "!");
  }
  return conversation;
}

std::vector<std::string> contents(const Conversation& conversation) {
  std::vector<std::string> contents;
  for (const ChatMessage& message : conversation.messages()) contents.push_back(message.content);
  return contents;
}
using Contents = std::vector<std::string>;

TEST(Conversation, UndoTakesAQuestionWithItsAnswer) {
  Conversation conversation = of_three();
  EXPECT_TRUE(conversation.undo());
  EXPECT_EQ(contents(conversation), (Contents{"Be brief.", "one", "one!", "two", "two!"}));
  conversation.ask("four");
  EXPECT_TRUE(conversation.undo());
  EXPECT_EQ(conversation.n_questions(), 2u);
  EXPECT_TRUE(conversation.undo() && conversation.undo());
  EXPECT_FALSE(conversation.undo());
  EXPECT_EQ(contents(conversation), Contents{"Be brief."});
}

TEST(Conversation, AnAnswerIsTakenBackWithoutItsQuestion) {
  Conversation conversation = of_three();
  EXPECT_TRUE(conversation.take_back_answer());
  EXPECT_EQ(conversation.messages().back(), (ChatMessage{"user", "three"}));
  EXPECT_TRUE(conversation.take_back_answer());
  EXPECT_EQ(conversation.n_questions(), 3u);
}

TEST(Conversation, WhatIsForgottenIsTheOldestAndNeverTheLast) {
  Conversation conversation = of_three();
  EXPECT_TRUE(conversation.forget_oldest());
  EXPECT_EQ(contents(conversation), (Contents{"Be brief.", "two", "two!", "three", "three!"}));
  EXPECT_TRUE(conversation.forget_oldest());
  EXPECT_FALSE(conversation.forget_oldest());
}

TEST(Conversation, TheSystemsMessageIsReplacedAndStaysWhenTheRestIsCleared) {
  Conversation conversation = of_three();
  conversation.set_system("Be long.");
  conversation.clear();
  EXPECT_EQ(contents(conversation), Contents{"Be long."});
  conversation.set_system("");
  EXPECT_TRUE(conversation.messages().empty());
}

TEST(Conversation, ComesBackFromItsJson) {
  Conversation conversation = of_three();
  conversation.ask("\"quoted\"\n\xc3\xa9");
  const Result<Conversation> back = Conversation::parse(conversation.to_json());
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->messages(), conversation.messages());
}

TEST(Conversation, JsonThatIsNoneIsRefused) {
  for (
      const std::string_view json :
      {"", "[]", "{}", R"({"messages": {}})", R"({"messages": [1]})",
       R"({"messages": [{"role": "user"}]})", R"({"messages": [{"role": "user", "content": 1}]})",
       R"({"messages": [{"role": "tool", "content": "x"}]})",
       R"({"messages": [{"role": "assistant", "content": "x"}]})",
       R"({"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "x"}]})",
       R"({"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "x"}]})"}) {
    const Result<Conversation> parsed = Conversation::parse(json);
    ASSERT_FALSE(parsed.ok()) << json;
    EXPECT_EQ(parsed.error().code, ErrorCode::kBadFile);
  }
}

class ChatFormatTest : public testing::Test {
 protected:
  ChatFormat format(std::string_view source) {
    Result<ChatFormat> format = ChatFormat::create(source, tokenizer_.vocabulary());
    EXPECT_TRUE(format.ok()) << format.error().message;
    return *format;
  }
  std::vector<TokenId> encode(std::string_view text) {
    return ChatFormat::encode(tokenizer_, text).value();
  }

  Tokenizer tokenizer_ = test::SyntheticVocabulary().tokenizer();
};

TEST_F(ChatFormatTest, PlainMessagesFollowEachOther) {
  Conversation conversation;
  conversation.ask("Once upon");
  conversation.answer(" a time.");
  conversation.ask("Then");
  EXPECT_EQ(ChatFormat().render(conversation.messages()).value(), "Once upon a time.\nThen");
}

TEST_F(ChatFormatTest, ATemplateThatRefusesTheSystemGetsItFromTheUser) {
  const ChatFormat refusing = format(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
      "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
      "{% if add_generation_prompt %}>{% endif %}");
  Conversation conversation;
  conversation.set_system("Be brief.");
  conversation.ask("Why?");
  EXPECT_EQ(refusing.render(conversation.messages()).value(), "[user:Be brief.\n\nWhy?]>");
  const ChatFormat always = format("{{ raise_exception('never') }}");
  const Result<std::string> refused = always.render(conversation.messages());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("never"), std::string::npos);
}

TEST_F(ChatFormatTest, ThereIsOneBosWhetherOrNotTheTemplateWritesIt) {
  const TokenId bos = tokenizer_.vocabulary().bos().value();
  const std::string text(tokenizer_.vocabulary().text(bos));
  const std::vector<TokenId> without = encode("ab");
  ASSERT_FALSE(without.empty());
  EXPECT_EQ(without.front(), bos);
  EXPECT_EQ(std::ranges::count(encode(text + "ab"), bos), 1);
}

TEST_F(ChatFormatTest, WhatDoesNotFitIsForgottenOrRefused) {
  Conversation conversation;
  for (int i = 0; i < 5; ++i) {
    conversation.ask(std::string(10, 'a'));
    conversation.answer(std::string(10, 'b'));
  }
  conversation.ask(std::string(10, 'a'));
  const ChatFormat plain;
  const size_t all = encode(plain.render(conversation.messages()).value()).size();
  EXPECT_EQ(fit_prompt(conversation, plain, tokenizer_, all, true)->n_forgotten, 0u);
  const Result<FittedPrompt> less = fit_prompt(conversation, plain, tokenizer_, all - 1, true);
  ASSERT_TRUE(less.ok());
  EXPECT_EQ(less->n_forgotten, 1u);
  EXPECT_LT(less->tokens.size(), all);
  EXPECT_EQ(conversation.n_questions(), 6u) << "the conversation itself forgets nothing";
  EXPECT_EQ(fit_prompt(conversation, plain, tokenizer_, all - 1, false).error().code,
            ErrorCode::kDoesNotFit);
  EXPECT_EQ(fit_prompt(conversation, plain, tokenizer_, 3, true).error().code,
            ErrorCode::kDoesNotFit);
}

/// Reasoning in brackets, then the answer; `text` comes in pieces of `n` bytes.
std::string split(std::string_view text, size_t n, bool open = false) {
  ReasoningSplitter splitter(open);
  std::string shown;
  bool was_reasoning = false;
  const auto show = [&](const std::vector<ReasoningSplitter::Piece>& pieces) {
    for (const ReasoningSplitter::Piece& piece : pieces) {
      if (piece.is_reasoning != was_reasoning) shown += piece.is_reasoning ? "[" : "]";
      was_reasoning = piece.is_reasoning;
      shown += piece.text;
    }
  };
  for (size_t at = 0; at < text.size(); at += n) show(splitter.feed(text.substr(at, n)));
  show(splitter.flush());
  return shown;
}

TEST(ReasoningSplitter, TellsReasoningFromTheAnswerHoweverTextComes) {
  for (size_t n = 1; n <= 20; ++n) {
    SCOPED_TRACE(n);
    EXPECT_EQ(split("<think>\nHm, </thin\n</think>\n\nYes.", n), "[\nHm, </thin\n]Yes.");
    EXPECT_EQ(split("\n<think>Hm</think> Yes. <think> is a tag", n), "[Hm]Yes. <think> is a tag");
    EXPECT_EQ(split("Hm</think>Yes.", n, true), "[Hm]Yes.");
    EXPECT_EQ(split("  Yes, <b>.", n), "  Yes, <b>.");
    EXPECT_EQ(split("<thin", n), "<thin");
    EXPECT_EQ(split("<think>Hm </th", n), "[Hm </th");
    EXPECT_EQ(split("<think></think>\n\nYes.", n), "Yes.");
  }
}

TEST(ReasoningSplitter, SeesThatAPromptBeganTheReasoning) {
  EXPECT_TRUE(ReasoningSplitter::is_open("<|assistant|><think>\n"));
  EXPECT_FALSE(ReasoningSplitter::is_open("<think></think>\n"));
  EXPECT_FALSE(ReasoningSplitter::is_open(""));
}

}  // namespace
}  // namespace pumice
