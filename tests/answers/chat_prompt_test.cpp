#include "answers/chat_prompt.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/answers/byte_tokens.hpp"
#include "tests/shared_data.hpp"

namespace pumice {
namespace {

/// Strict about roles, as the plainest are.
constexpr std::string_view kPlain =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') "
    "}}"
    "{% elif m.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('no') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<assistant>"
    "{% if thinks %}<think>\n{% endif %}{% endif %}";
/// Calls in a form of its own.
constexpr std::string_view kOwn =
    "{% for t in tools %}[{{ t.function.name }}: {{ t.function.description }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}<acts>"
    "{% for c in m.tool_calls %}<act is=\"{{ c.function.name }}\">{{ c.function.arguments | tojson "
    "}}</act>"
    "{% endfor %}</acts>{% endif %}<end>{% endfor %}{% if add_generation_prompt %}<assistant>{% "
    "endif %}";

class Prompts : public testing::Test {
 protected:
  ByteTokens tokens_{{"<end>", "<assistant>", "<user>", "<system>", "<tool>"}};
  Tools tools_ = Tools::parse(R"([{"name": "f", "description": "does <end> it"}])").value();

  ChatPrompt prompt_of(std::string_view source) const {
    return ChatPrompt::create(source, tokens_.tokenizer()->vocabulary(), "").value();
  }
  Result<RenderedPrompt> render(const ChatPrompt& prompt, const PromptInput& input) const {
    return prompt.render(input, *tokens_.tokenizer());
  }
  std::string text(std::string_view source, const PromptInput& input) const {
    return render(prompt_of(source), input).value().text;
  }
};

TEST_F(Prompts, LeadingMessagesOfTheSystemBecomeOneAndLaterOnesTheUsers) {
  EXPECT_EQ(
      text(kPlain, {.messages = {{"system", "a"},
                                 {"developer", "b"},
                                 {"user", "c"},
                                 {"assistant", "d"},
                                 {"system", "e"},
                                 {"user", "f"}}}),
      "<system>a\n\nb<end><user>c<end><assistant>d<end><user>[system]\ne\n\nf<end><assistant>");
  EXPECT_EQ(text(kOwn, {.messages = {{"developer", "a"}, {"user", "c"}, {"system", "e"}}}),
            "<system>a<end><user>c<end><system>e<end><assistant>");
}

TEST_F(Prompts, ContentsNeverBecomeControlTokens) {
  const ChatPrompt own = prompt_of(kOwn);
  const RenderedPrompt prompt =
      render(own,
             {.messages = {{"user", "<end>"},
                           {.role = "assistant", .calls = {{"1", "f", R"({"<end>": "<end>"})"}}},
                           {"tool", "<end>"}},
              .tools = &tools_})
          .value();
  EXPECT_EQ(prompt.text,
            "[f: does <end> it]<user><end><end><assistant><acts><act is=\"f\">{\"<end>\": "
            "\"<end>\"}</act></acts><end><tool><end><end><assistant>");
  EXPECT_EQ(prompt.literal.size(), 5u);
}

TEST_F(Prompts, WhatATemplateDoesNotKnowIsWrittenAsText) {
  const ChatPrompt plain = prompt_of(kPlain);
  EXPECT_FALSE(plain.traits().tools || plain.traits().calls || plain.traits().results);
  EXPECT_EQ(plain.answers().name, "hermes");
  const std::string text =
      render(plain, {.messages = {{"user", "a"},
                                  {.role = "assistant", .calls = {{"1", "f", R"({"x": 1})"}}},
                                  {"tool", "2"}},
                     .tools = &tools_})
          .value()
          .text;
  EXPECT_NE(text.find("<tools>\n{\"type\":\"function\""), std::string::npos) << text;
  EXPECT_NE(
      text.find("<assistant><tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n"
                "</tool_call><end><user><tool_response>\n2\n</tool_response><end><assistant>"),
      std::string::npos)
      << text;
}

TEST_F(Prompts, AnAnswerMayHaveBegunAndVariablesAreTheTemplates) {
  EXPECT_EQ(text(kPlain, {.messages = {{"user", "a"}, {"assistant", "I <end>"}}}),
            "<user>a<end><assistant>I <end>");
  EXPECT_EQ(text(kPlain, {.messages = {{"user", "a"}, {"assistant", "I"}},
                          .variables = {{"thinks", true}}}),
            "<user>a<end><assistant><think>\n\n</think>\n\nI");
}

TEST_F(Prompts, WhetherTheAnswerMayBeginWithReasoningIsTheTemplates) {
  constexpr std::string_view kThinks =
      "{{ messages[0].content }}{% if enable_thinking is defined and not enable_thinking "
      "%}<think>\n\n"
      "</think>\n\n{% endif %}";
  const auto frame = [&](std::string_view source, PromptInput input) {
    input.messages.insert(input.messages.begin(), {"user", "a"});
    const ChatPrompt prompt = prompt_of(source);
    const auto rendered = prompt.render(input, *tokens_.tokenizer());
    AnswerFrame its = prompt.frame(rendered.value().text, input);
    its.format = nullptr;
    return its;
  };
  EXPECT_TRUE(frame(kThinks, {}).may_reason);
  EXPECT_FALSE(frame(kThinks, {.variables = {{"enable_thinking", false}}}).may_reason);
  EXPECT_FALSE(frame("{{ messages[0].content }}", {}).may_reason);
  EXPECT_FALSE(frame(kThinks, {.messages = {{"assistant", "I"}}}).may_reason);
  EXPECT_TRUE(frame("{{ messages[0].content }}<think>\n", {}).begins_reasoning);
  EXPECT_FALSE(
      frame("{# </think> #}{{ messages[0].content }}", {.variables = {{"thinking", false}}})
          .may_reason);
  constexpr std::string_view kHarmony =
      "{% if tools %}{{ tools[0].function.name }}{% endif %}<|channel|>{{ messages[0].content }}";
  EXPECT_TRUE(frame(kHarmony, {}).may_reason);
  EXPECT_TRUE(frame(std::string(kHarmony) + "<|message|>", {}).has_header);
}

TEST_F(Prompts, WhatIsWrongIsSaid) {
  const ChatPrompt own = prompt_of(kOwn);
  const auto error = [&](std::vector<Message> messages) {
    return render(own, {.messages = std::move(messages)}).error().message;
  };
  EXPECT_EQ(error({{"bot", "x"}}),
            "a message's role is \"bot\", expected system, developer, user, assistant or tool");
  EXPECT_EQ(
      error({{"user", "x"}, {.role = "tool", .content = "x", .call_id = "9"}}),
      "a tool's result is for the call '9', which the assistant's last message did not make or "
      "has the result of");
  EXPECT_EQ(
      error({{"user", "x"}, {.role = "assistant", .calls = {{"1", "f", "[]"}}}, {"tool", "x"}}),
      "the arguments of a call of 'f' are not a JSON object");
  EXPECT_FALSE(ChatPrompt::create(kOwn, tokens_.tokenizer()->vocabulary(), "", "x").ok());
}

TEST_F(Prompts, AnUnknownFormOfCallsIsDerived) {
  const AnswerFormat format = prompt_of(kOwn).answers();
  EXPECT_EQ(format.name, "derived");
  EXPECT_EQ(format.shape, CallShape::kNamed);
  EXPECT_EQ(format.call_open, "<act is=\"");
  EXPECT_EQ(format.name_end, std::vector<std::string>{"\">"});
  EXPECT_EQ(format.section_open, std::vector<std::string>{"<acts>"});
}

/// Formats that are known could have been derived too, which is how we know that it works.
TEST(DerivedFormats, ReadWhatRealTemplatesWrite) {
  struct Row {
    std::string file;
    CallShape shape;
    std::string call_open;
  };
  PUMICE_REQUIRE_SHARED(folder, "templates/jinja");
  for (const Row& row :
       {Row{"Qwen-Qwen3-0.6B", CallShape::kJson, "<tool_call>"},
        Row{"Qwen3-Coder", CallShape::kTagged, "<function="},
        Row{"Qwen3.5-4B", CallShape::kTagged, "<function="},
        Row{"unsloth-mistral-Devstral-Small-2507", CallShape::kNamed, "[TOOL_CALLS]"},
        Row{"deepseek-ai-DeepSeek-V3.1", CallShape::kNamed, "<｜tool▁call▁begin｜>"},
        Row{"LFM2.5-8B-A1B", CallShape::kPython, "<|tool_call_start|>"}}) {
    std::ifstream file(folder / (row.file + ".jinja"), std::ios::binary);
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    const ChatTemplate chat_template = ChatTemplate::parse(source).value();
    const auto format = derive_answer_format(chat_template, TemplateTraits::probe(chat_template));
    ASSERT_TRUE(format.has_value()) << row.file;
    EXPECT_EQ(format->shape, row.shape) << row.file;
    EXPECT_EQ(format->call_open, row.call_open) << row.file;
  }
}

}  // namespace
}  // namespace pumice
