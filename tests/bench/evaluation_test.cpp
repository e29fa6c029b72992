// Suites of questions: what a line says, and how answers are judged.
#include "bench/evaluation.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace pumice::bench {
namespace {

std::vector<EvalItem> suite_of(std::string_view text) {
  Result<std::vector<EvalItem>> items = read_suite(text, "suite.jsonl");
  EXPECT_TRUE(items.ok()) << items.error().message;
  return items.ok() ? std::move(items).value() : std::vector<EvalItem>();
}

TEST(EvalSuite, KindsFollowFromTheKeys) {
  const std::vector<EvalItem> items = suite_of(
      R"({"prompt": "2 + 2 =", "choices": [" 3", " 4"], "answer": 1, "task": "sums"})"
      "\r\n\n"
      R"({"id": "capital", "prompt": "France:", "answer": "Paris", "stop": "."})"
      "\n"
      R"({"messages": [{"role": "user", "content": "Hi"}], "schema": {"type": "object"}, "max_tokens": 9})");
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].kind, EvalItem::Kind::kChoice);
  EXPECT_EQ(items[0].id, "1");
  EXPECT_EQ(items[0].task, "sums");
  EXPECT_EQ(items[0].answer, 1u);
  EXPECT_EQ(items[0].max_tokens, 0u);
  EXPECT_EQ(items[1].kind, EvalItem::Kind::kExact);
  EXPECT_EQ(items[1].id, "capital");
  EXPECT_EQ(items[1].line, 3u);
  EXPECT_EQ(items[1].answers, std::vector<std::string>{"Paris"});
  EXPECT_EQ(items[1].stops, std::vector<std::string>{"."});
  EXPECT_EQ(items[2].kind, EvalItem::Kind::kSchema);
  EXPECT_EQ(items[2].messages, (std::vector<ChatMessage>{{"user", "Hi"}}));
  EXPECT_EQ(items[2].max_tokens, 9u);
}

TEST(EvalSuite, WhatIsNoQuestionNamesItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "suite.jsonl is empty"},
      {"[1]", "suite.jsonl, line 1: not a JSON object"},
      {R"({"prompt": "a", "answer": "b")", "line 1: "},
      {R"({"prompt": "a", "anwser": "b"})", "unknown key \"anwser\""},
      {R"({"prompt": "a"})", "\"answer\" or \"schema\" is missing"},
      {R"({"answer": "b"})", "exactly one of \"prompt\" and \"messages\""},
      {R"({"prompt": "a", "messages": [], "answer": "b"})",
       "exactly one of \"prompt\" and \"messages\""},
      {R"({"messages": [], "answer": "b"})", "must be an array of messages"},
      {R"({"messages": [{"content": "b"}], "answer": "b"})", "no \"role\""},
      {R"({"prompt": "a", "choices": ["b"], "answer": 0})", "at least two"},
      {R"({"prompt": "a", "choices": ["b", ""], "answer": 0})", "an empty string"},
      {R"({"prompt": "a", "choices": ["b", "c"], "answer": 2})", "index of a choice"},
      {R"({"prompt": "a", "choices": ["b", "c"], "answer": "c"})", "index of a choice"},
      {R"({"prompt": "a", "choices": ["b", 3], "answer": 0})", "strings only"},
      {R"({"prompt": "a", "choices": ["b", "c"], "answer": 0, "stop": "d"})", "cannot be combined"},
      {R"({"prompt": "a", "answer": [], "max_tokens": 4})", "an array of strings"},
      {R"({"prompt": "a", "answer": "b", "max_tokens": 0})", "\"max_tokens\" must be"},
      {R"({"prompt": "a", "answer": "b", "stop": ""})", "line 1: "},
      {R"({"prompt": "a", "answer": "b", "schema": {}})", "only one of"},
      {R"({"prompt": "a", "schema": {"prefixItems": [{}]}})", "prefixItems"},
      {R"({"prompt": "a", "schema": {"type": "no type"}})", "not a valid JSON Schema"},
      {R"({"prompt": "a", "schema": {"$ref": "http://example.com/a.json"}})",
       "not a valid JSON Schema"},
      {"{\"prompt\": \"a\", \"answer\": \"b\"}\n{\"id\": \"1\", \"prompt\": \"a\", \"answer\": "
       "\"b\"}",
       "line 2: the id \"1\" is used twice"},
  };
  for (const auto& [text, says] : cases) {
    const Result<std::vector<EvalItem>> items = read_suite(text, "suite.jsonl");
    ASSERT_FALSE(items.ok()) << text;
    EXPECT_NE(items.error().message.find(says), std::string::npos) << items.error().message;
  }
}

TEST(EvalJudgement, ChoicesBySumAndByByte) {
  const std::vector<EvalItem> items =
      suite_of(R"({"prompt": "a", "choices": ["yes", "certainly"], "answer": 1})");
  const EvalResult result = judge_choices(items[0], std::vector{-3.0, -4.5});
  EXPECT_FALSE(result.correct);            // -3 is more than -4.5
  EXPECT_TRUE(result.correct_normalized);  // -4.5 / 9 is more than -3 / 3
  EXPECT_EQ(result.detail["chosen"], 0);
  EXPECT_EQ(result.detail["chosen_normalized"], 1);
}

TEST(EvalJudgement, TextIsOneOfTheAnswers) {
  const std::vector<EvalItem> items =
      suite_of(R"({"prompt": "a", "answer": ["Paris", " Paris, France"]})");
  EXPECT_TRUE(judge_text(items[0], "\n Paris ").correct);
  EXPECT_TRUE(judge_text(items[0], "Paris, France").correct);
  EXPECT_FALSE(judge_text(items[0], "paris").correct);
  EXPECT_FALSE(judge_text(items[0], "Paris is").correct);
}

TEST(EvalJudgement, TextIsValidUnderTheSchema) {
  const std::vector<EvalItem> items = suite_of(
      R"({"prompt": "a", "schema": {"type": "object", "required": ["a"], "additionalProperties": false, )"
      R"("properties": {"a": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"type": "integer"}}}})");
  EXPECT_TRUE(judge_text(items[0], " {\"a\": 7}\n").correct);
  for (const char* const text :
       {"{}", "{\"a\": 1.5}", "{\"a\": 1, \"b\": 2}", "{\"a\": 1} so", ""}) {
    const EvalResult result = judge_text(items[0], text);
    EXPECT_FALSE(result.correct) << text;
    EXPECT_FALSE(result.detail["problem"].get<std::string>().empty()) << text;
  }
  EXPECT_FALSE(judge_text(items[0], "{\"a\": \"" + std::string(100'000, 'x') + "\"}").correct);
}

TEST(EvalScores, AreByTaskAndKind) {
  std::vector<EvalResult> results;
  const auto add = [&](const char* task, EvalItem::Kind kind, bool correct) {
    results.push_back({.task = task, .kind = kind, .correct = correct});
  };
  for (int i = 0; i < 4; ++i) add("b", EvalItem::Kind::kExact, i == 0);
  add("a", EvalItem::Kind::kExact, true);
  add("b", EvalItem::Kind::kSchema, false);
  const std::vector<EvalScore> scores = scores_of(results);
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_EQ(scores[0].task, "b");
  EXPECT_EQ(scores[0].n, 4u);
  EXPECT_DOUBLE_EQ(scores[0].accuracy, 0.25);
  EXPECT_DOUBLE_EQ(scores[0].error, 0.25);  // sqrt(1/4 · 3/4 / 3)
  EXPECT_DOUBLE_EQ(scores[1].accuracy, 1);
  EXPECT_DOUBLE_EQ(scores[1].error, 0);
  EXPECT_EQ(scores[2].kind, EvalItem::Kind::kSchema);
}

TEST(EvalResults, ComeBackFromTheirLine) {
  const EvalResult result{.id = "x",
                          .task = "t",
                          .kind = EvalItem::Kind::kChoice,
                          .correct_normalized = true,
                          .detail = {{"chosen", 2}}};
  EXPECT_EQ(result.to_json()["chosen"], 2);
  const Result<EvalResult> again = EvalResult::from_json(result.to_json());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->id, "x");
  EXPECT_EQ(again->task, "t");
  EXPECT_EQ(again->kind, EvalItem::Kind::kChoice);
  EXPECT_FALSE(again->correct);
  EXPECT_TRUE(again->correct_normalized);
  EXPECT_FALSE(EvalResult::from_json({{"id", "x"}}).ok());
}

}  // namespace
}  // namespace pumice::bench
