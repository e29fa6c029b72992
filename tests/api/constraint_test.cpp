// Answers that are held to a constraint, through the C ABI.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/api/api_fixture.hpp"

namespace pumice {
namespace {

using test::Answer;
using test::Answers;

constexpr const char* kDog = R"({"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 30}},
    "required": ["name", "age"], "additionalProperties": false})";

class Constraints : public test::ApiEngineTest {
 protected:
  static pumice_constraint* compile(pumice_constraint_kind kind, const char* text) {
    pumice_constraint_options options{sizeof options};
    options.kind = kind;
    options.text = pumice_str(text);
    pumice_constraint* constraint = nullptr;
    EXPECT_OK(pumice_constraint_compile(model_, &options, &constraint));
    return constraint;
  }
  static void expect_refused(pumice_constraint_kind kind, const char* text, const char* says) {
    pumice_constraint_options options{sizeof options};
    options.kind = kind;
    options.text = pumice_str(text);
    pumice_constraint* constraint = nullptr;
    EXPECT_STATUS(PUMICE_INVALID_ARGUMENT,
                  pumice_constraint_compile(model_, &options, &constraint));
    EXPECT_EQ(constraint, nullptr);
    EXPECT_NE(std::string(pumice_last_error()).find(says), std::string::npos)
        << pumice_last_error();
  }
  static pumice_request_options held_to(const pumice_constraint* constraint, const char* text) {
    pumice_request_options options = test::request_of(text, 150);
    options.constraint = constraint;
    return options;
  }
};

TEST_F(Constraints, AreSharedByRequestsThatOutliveThem) {
  pumice_sampling sampling{sizeof sampling};
  sampling.temperature = 1;
  pumice_constraint* const dog = compile(PUMICE_CONSTRAINT_JSON_SCHEMA, kDog);
  pumice_constraint* const yes = compile(PUMICE_CONSTRAINT_REGEX, "yes|no");
  pumice_constraint* const moves =
      compile(PUMICE_CONSTRAINT_GRAMMAR, "root ::= [a-h] [1-8] \"-\" [a-h] [1-8]");
  std::vector<pumice_request> dogs;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    sampling.seed = seed;
    pumice_request_options options = held_to(dog, "Once upon a time");
    options.sampling = &sampling;
    EXPECT_OK(pumice_submit(engine_, 0, &options, &dogs.emplace_back()));
  }
  pumice_request answer = 0, move = 0, plain = 0;
  pumice_request_options options = held_to(yes, "The little dog");
  EXPECT_OK(pumice_submit(engine_, 0, &options, &answer));
  options = held_to(moves, "The little dog");
  EXPECT_OK(pumice_submit(engine_, 0, &options, &move));
  options = test::request_of("The little dog", 20);
  EXPECT_OK(pumice_submit(engine_, 0, &options, &plain));
  for (pumice_constraint* const one : {dog, yes, moves}) pumice_constraint_close(one);
  Answers answers;
  test::run_until(engine_, answers, 7);
  for (const pumice_request one : dogs) {
    EXPECT_EQ(answers[one].end_reason, PUMICE_END_STOP);
    const auto json = nlohmann::json::parse(answers[one].text, nullptr, false);
    ASSERT_TRUE(json.is_object()) << answers[one].text;
    EXPECT_TRUE(json["name"].is_string());
    EXPECT_TRUE(json["age"].is_number_integer());
  }
  EXPECT_TRUE(answers[answer].text == "yes" || answers[answer].text == "no");
  EXPECT_EQ(answers[move].text.size(), 5u) << answers[move].text;
  EXPECT_EQ(answers[plain].text,
            test::ask(engine_, 0, test::request_of("The little dog", 20)).text);
}

TEST_F(Constraints, ThatCannotBeAreRefusedWithThePlace) {
  expect_refused(PUMICE_CONSTRAINT_JSON_SCHEMA,
                 R"({"properties": {"a": {"format": "no-such-format"}}})", "/properties/a/format");
  expect_refused(PUMICE_CONSTRAINT_JSON_SCHEMA, "{", "JSON");
  expect_refused(PUMICE_CONSTRAINT_GRAMMAR, "root ::= nosuch", "nosuch");
  expect_refused(PUMICE_CONSTRAINT_REGEX, "(?=a)", "look");
  expect_refused(7, "a", "constraint_kind");
  pumice_constraint* constraint = nullptr;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_constraint_compile(model_, nullptr, &constraint));
  pumice_constraint_options options{sizeof options};
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_constraint_compile(nullptr, &options, &constraint));
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_constraint_compile(model_, &options, nullptr));
  // Another kind of handle.
  pumice_request_options request = test::request_of("Once", 3);
  request.constraint = reinterpret_cast<const pumice_constraint*>(model_);
  pumice_request id = 0;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(engine_, 0, &request, &id));
  pumice_constraint_close(nullptr);
}

TEST_F(Constraints, AreCompiledByAnyThreadWhileAnEngineWorks) {
  Answers answers;
  pumice_request_options options = test::request_of("Once upon a time", 60);
  pumice_request plain = 0;
  EXPECT_OK(pumice_submit(engine_, 0, &options, &plain));
  std::vector<pumice_constraint*> compiled(3);
  std::vector<std::thread> threads;
  for (pumice_constraint*& one : compiled) {
    threads.emplace_back([&one] { one = compile(PUMICE_CONSTRAINT_JSON_SCHEMA, kDog); });
  }
  test::run_until(engine_, answers, 1);
  for (std::thread& thread : threads) thread.join();
  const Answer first = test::ask(engine_, 0, held_to(compiled[0], "Once"));
  const Answer second = test::ask(engine_, 0, held_to(compiled[1], "Once"));
  EXPECT_EQ(first.text, second.text);
  EXPECT_EQ(first.end_reason, PUMICE_END_STOP);
  for (pumice_constraint* const one : compiled) pumice_constraint_close(one);
}

TEST_F(Constraints, AnInterruptedAnswerIsFinishedUnderItsConstraint) {
  pumice_constraint* const dog = compile(PUMICE_CONSTRAINT_JSON_SCHEMA, kDog);
  const std::string whole = test::ask(engine_, 0, held_to(dog, "Once upon a time")).text;
  const pumice_session session = test::open_session(engine_);
  pumice_request_options options = held_to(dog, "Once upon a time");
  options.max_new_tokens = 5;
  const Answer begun = test::ask(engine_, session, options);
  EXPECT_EQ(begun.end_reason, PUMICE_END_LENGTH);
  options = held_to(dog, "");
  const Answer rest = test::ask(engine_, session, options);
  EXPECT_EQ(begun.text + rest.text, whole);
  EXPECT_EQ(rest.end_reason, PUMICE_END_STOP);
  pumice_constraint_close(dog);
}

}  // namespace
}  // namespace pumice
