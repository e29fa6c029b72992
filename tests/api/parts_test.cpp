// Answers told apart into reasoning, text and calls, through the C ABI.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/api/api_fixture.hpp"
#include "tests/paths.hpp"

namespace pumice {
namespace {

constexpr const char* kPartsTemplate =
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor "
    "%}\n"
    "{% endfor %}{% if enable_thinking %}<think>\n{% endif %}";
constexpr const char* kPartsTools = R"([
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object",
      "properties": {"where": {"enum": ["up", "down"]}, "n": {"type": "integer", "minimum": 1, "maximum": 3}},
      "required": ["where", "n"], "additionalProperties": false}}},
    {"type": "function", "function": {"name": "rest"}}])";
constexpr const char* kHello = R"([{"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "Once upon"}])";

/// A part with all its pieces.
struct Part {
  pumice_part_kind kind = 0;
  uint32_t call = 0;
  std::string text, id;
  bool complete = false;
};
struct Parts {
  std::vector<Part> parts;
  std::string text;
  pumice_end_reason end_reason = PUMICE_END_NONE;
};

class AnswerParts : public test::ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    if (IsSkipped()) return;
    load("");
  }
  void TearDown() override {
    pumice_engine_close(engine_);
    pumice_model_close(chat_model_);
  }
  void load(const char* format) {
    const std::string path = test::source_path("models/pumice-stories.gguf").string();
    pumice_model_options options{sizeof options};
    options.path = {path.data(), path.size()};
    options.chat_template = pumice_str(kPartsTemplate);
    options.answer_format = pumice_str(format);
    ASSERT_EQ(pumice_model_load(device_, &options, &chat_model_), PUMICE_OK);
    engine_ = test::create_engine(chat_model_, 2, 512);
  }

  static pumice_request_options asking(const char* messages) {
    pumice_request_options options{sizeof options};
    options.parts = 1;
    options.messages_json = pumice_str(messages);
    options.max_new_tokens = 120;
    return options;
  }
  Parts ask(pumice_session session, const pumice_request_options& options) {
    Parts all;
    pumice_request request = 0;
    EXPECT_OK(pumice_submit(engine_, session, &options, &request));
    while (request != 0 && all.end_reason == PUMICE_END_NONE) {
      EXPECT_OK(pumice_poll(engine_, PUMICE_NO_LIMIT));
      pumice_event event{sizeof event};
      do {
        EXPECT_OK(pumice_next_event(engine_, &event));
        add(event, all);
      } while (event.kind != PUMICE_EVENT_NONE);
      EXPECT_OK(pumice_wait(engine_, 1000));
    }
    return all;
  }
  static void add(const pumice_event& event, Parts& all) {
    if (event.text.data != nullptr) all.text.append(event.text.data, event.text.length);
    for (size_t i = 0; i < event.n_parts; ++i) {
      const pumice_answer_part& part = event.parts[i];
      const bool continues = !all.parts.empty() && all.parts.back().kind == part.kind &&
                             all.parts.back().call == part.call;
      if (!continues) {
        all.parts.push_back({.kind = part.kind, .call = part.call, .complete = part.complete != 0});
      }
      all.parts.back().text.append(part.text.data, part.text.length);
      all.parts.back().id.append(part.id.data, part.id.length);
    }
    if (event.kind == PUMICE_EVENT_FINISHED) all.end_reason = event.end_reason;
  }
  void expect_invalid(const pumice_request_options& options, const std::string& says) {
    pumice_request request = 0;
    EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(engine_, 0, &options, &request));
    EXPECT_NE(std::string(pumice_last_error()).find(says), std::string::npos)
        << pumice_last_error();
  }

  pumice_model* chat_model_ = nullptr;
  pumice_engine* engine_ = nullptr;
};

TEST_F(AnswerParts, ACallThatIsAskedForComesWithItsArgumentsAndIsRemembered) {
  const pumice_session session = test::open_session(engine_);
  pumice_request_options options = asking(kHello);
  options.tools_json = pumice_str(kPartsTools);
  options.tool_choice = pumice_str("look");
  const Parts called = ask(session, options);
  ASSERT_EQ(called.parts.size(), 3u) << called.text;
  EXPECT_EQ(called.parts[0].kind, PUMICE_PART_CALL_BEGUN);
  EXPECT_EQ(called.parts[0].text, "look");
  EXPECT_EQ(called.parts[0].id.size(), 9u);
  EXPECT_EQ(called.parts[1].kind, PUMICE_PART_ARGUMENTS);
  const auto arguments = nlohmann::json::parse(called.parts[1].text, nullptr, false);
  ASSERT_TRUE(arguments.is_object()) << called.parts[1].text;
  EXPECT_TRUE(arguments["where"] == "up" || arguments["where"] == "down");
  EXPECT_EQ(called.parts[2].kind, PUMICE_PART_CALL_ENDED);
  EXPECT_TRUE(called.parts[2].complete);
  EXPECT_EQ(called.end_reason, PUMICE_END_STOP);

  const std::string result =
      R"([{"role": "tool", "tool_call_id": ")" + called.parts[0].id + R"(", "content": "A cat"}])";
  options = asking(result.c_str());
  options.tools_json = pumice_str(kPartsTools);
  options.max_new_tokens = 8;
  const Parts told = ask(session, options);
  ASSERT_FALSE(told.parts.empty());
  EXPECT_EQ(told.parts[0].kind, PUMICE_PART_TEXT);
  options.messages_json = pumice_str(R"([{"role": "tool", "tool_call_id": "x", "content": "A"}])");
  pumice_request request = 0;
  EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_submit(engine_, session, &options, &request));
  EXPECT_NE(std::string(pumice_last_error()).find("for the call 'x'"), std::string::npos);
}

TEST_F(AnswerParts, ReasoningIsApartAndAConstraintBeginsBehindIt) {
  pumice_constraint_options given{sizeof given};
  given.kind = PUMICE_CONSTRAINT_REGEX;
  given.text = pumice_str("yes|no");
  pumice_constraint* constraint = nullptr;
  ASSERT_EQ(pumice_constraint_compile(chat_model_, &given, &constraint), PUMICE_OK);
  pumice_request_options options = asking(kHello);
  options.constraint = constraint;
  options.max_new_tokens = 8;
  options.template_variables_json = pumice_str(R"({"enable_thinking": true})");
  const Parts thought = ask(0, options);
  ASSERT_EQ(thought.parts.size(), 1u);
  EXPECT_EQ(thought.parts[0].kind, PUMICE_PART_REASONING);
  EXPECT_EQ(thought.end_reason, PUMICE_END_LENGTH);
  options.template_variables_json = pumice_str(R"({"enable_thinking": false})");
  const Parts held = ask(0, options);
  EXPECT_TRUE(held.text == "yes" || held.text == "no") << held.text;
  EXPECT_EQ(held.end_reason, PUMICE_END_STOP);
  pumice_constraint_close(constraint);
}

TEST_F(AnswerParts, TheFormatMayBeNamed) {
  TearDown();
  load("glm");
  pumice_request_options options = asking(kHello);
  options.tools_json = pumice_str(kPartsTools);
  options.tool_choice = pumice_str("look");
  const Parts called = ask(0, options);
  EXPECT_EQ(called.text.find("<tool_call>look"), 0u) << called.text;
  ASSERT_EQ(called.parts.size(), 3u) << called.text;
  EXPECT_TRUE(nlohmann::json::accept(called.parts[1].text)) << called.parts[1].text;
}

TEST_F(AnswerParts, WhatIsWrongIsRefused) {
  pumice_request_options options = asking("[{");
  expect_invalid(options, "messages_json: ");
  options = asking(R"([{"role": "wizard", "content": "x"}, {"role": "user", "content": "x"}])");
  expect_invalid(options, "role is \"wizard\"");
  options = asking(kHello);
  options.tools_json = pumice_str("{}");
  expect_invalid(options, "tools_json: tools are a JSON array");
  options.tools_json = pumice_str(kPartsTools);
  options.tool_choice = pumice_str("fly");
  expect_invalid(options, "there is no tool \"fly\"");
  options.tool_choice = {};
  options.template_variables_json = pumice_str("[]");
  expect_invalid(options, "must be a JSON object");
  options = asking(kHello);
  options.text = pumice_str("Once");
  expect_invalid(options, "only one of them");
  options = asking(kHello);
  options.parts = 0;
  expect_invalid(options, "set `parts` to 1");
  options = asking("");
  options.text = pumice_str("Once");
  expect_invalid(options, "only the answer to messages");
  options = asking(kHello);
  options.parts = 2;
  expect_invalid(options, "parts is 2");
}

}  // namespace
}  // namespace pumice
