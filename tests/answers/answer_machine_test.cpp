#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "answers/answer_machine.hpp"
#include "answers/answer_stream.hpp"
#include "base/json.hpp"
#include "tests/answers/byte_tokens.hpp"

namespace pumice {
namespace {

constexpr std::string_view kTools = R"([
  {"type": "function", "function": {"name": "weather", "description": "", "parameters": {
    "type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "hourly": {"type": "boolean"},
      "where": {"type": "object"}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
      "tags": {"type": "array"}}}}},
  {"type": "function", "function": {"name": "write_file", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}}}])";

std::shared_ptr<const Tools> test_tools() {
  return std::make_shared<const Tools>(Tools::parse(kTools).value());
}

/// "~" reasoning, text as it is, "name{…}" calls with "." behind what is complete and "!" behind
/// what is not; all between bars.
std::string shown(const std::vector<AnswerEvent>& events) {
  std::string out;
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case AnswerEvent::Kind::kReasoning:
        out += "|~" + event.text;
        break;
      case AnswerEvent::Kind::kText:
        out += "|" + event.text;
        break;
      case AnswerEvent::Kind::kCallBegun:
        out += "|" + event.text;
        break;
      case AnswerEvent::Kind::kArguments:
        out += event.text;
        break;
      case AnswerEvent::Kind::kCallEnded:
        out += event.complete ? "." : "!";
        break;
      case AnswerEvent::Kind::kFinish:
        out += "|" + std::to_string(event.call);
        break;
    }
  }
  return out;
}

struct Read {
  std::vector<AnswerEvent> events;
  uint32_t n_unparsed = 0;
};

Read read(std::string_view format, std::string_view text, size_t n_bytes,
          AnswerOptions options = {.tools = test_tools()}) {
  AnswerMachine machine(AnswerGrammar::create(*find_answer_format(format), nullptr),
                        std::move(options));
  Read read;
  const auto merge = [&](std::vector<AnswerEvent> events) {
    for (AnswerEvent& event : events) append_event(std::move(event), read.events);
  };
  for (size_t at = 0; at < text.size(); at += n_bytes) {
    std::vector<AnswerEvent> events;
    machine.feed(text.substr(at, n_bytes), events);
    merge(std::move(events));
  }
  std::vector<AnswerEvent> events;
  machine.finish(events);
  merge(std::move(events));
  read.n_unparsed = machine.n_unparsed();
  return read;
}

/// What must hold of any answer; as it is shown.
std::string golden(std::string_view format, std::string_view text, uint32_t n_unparsed = 0,
                   const AnswerOptions& options = {.tools = test_tools()}) {
  const Read whole = read(format, text, text.size() + 1, options);
  for (const size_t n_bytes : {1, 2, 7}) {
    const Read pieces = read(format, text, n_bytes, options);
    EXPECT_EQ(shown(pieces.events), shown(whole.events)) << format << ", by " << n_bytes;
    EXPECT_EQ(pieces.events, whole.events);
  }
  EXPECT_EQ(whole.n_unparsed, n_unparsed) << format << ": " << shown(whole.events);
  for (const AnswerEvent& event : whole.events) {
    if (event.kind != AnswerEvent::Kind::kArguments) continue;
    const auto json = read_ordered_json(event.text, event.text.size());
    EXPECT_TRUE(json.ok() && json->is_object()) << format << ": " << event.text;
  }
  return shown(whole.events);
}

TEST(Answers, HermesCallsAreObjectsBetweenTags) {
  EXPECT_EQ(
      golden(
          "hermes",
          "<think>\nIt asks for Paris.\n</think>\n\nI look.\n<tool_call>\n{\"name\": "
          "\"weather\", \"arguments\": {\"city\": \"Paris\", \"where\": {\"a\": [1, {\"b\": "
          "null}]}}}\n</tool_call>\n<tool_call>\n{\"name\": \"write_file\", \"arguments\": "
          "{\"path\": \"a\\\"b\\n</tool_call>\", \"text\": \"é\u2028\U0001F600\"}}\n</tool_call>"),
      "|~It asks for Paris.|I look.|weather{\"city\": \"Paris\", \"where\": {\"a\": [1, {\"b\": "
      "null}]}}.|write_file{\"path\": \"a\\\"b\\n</tool_call>\", \"text\": "
      "\"é\u2028\U0001F600\"}.|2");
}

TEST(Answers, MembersOfACallComeInAnyOrder) {
  EXPECT_EQ(golden("hermes",
                   "<tool_call>{\"arguments\": {\"city\": \"Rome\"}, \"id\": \"x\", \"name\": "
                   "\"weather\"}</tool_call>"),
            "|weather{\"city\": \"Rome\"}.|1");
  EXPECT_EQ(golden("hermes",
                   "<tool_call>{\"name\": \"weather\", \"arguments\": \"{\\\"city\\\": "
                   "\\\"Rome\\\"}\"}</tool_call>"),
            "|weather{\"city\": \"Rome\"}.|1");
  EXPECT_EQ(golden("hermes", "<tool_call>{\"name\": \"weather\"}</tool_call> Done."),
            "|weather{}.|Done.|1");
}

TEST(Answers, WhatIsNoCallIsTextAsItWasWritten) {
  EXPECT_EQ(golden("hermes", "So <tool_call>\nnothing</tool_call> here", 1),
            "|So <tool_call>\nnothing</tool_call> here|0");
  EXPECT_EQ(golden("hermes", "<tool_call>{\"name\": 5}", 1), "|<tool_call>{\"name\": 5}|0");
  EXPECT_EQ(golden("hermes", "<tool_call>{\"name\": \"weather\", \"argum", 1),
            "|<tool_call>{\"name\": \"weather\", \"argum|0");
  EXPECT_EQ(golden("hermes", "a <b> <tool <tool_cal"), "|a <b> <tool <tool_cal|0");
  EXPECT_EQ(golden("hermes", "  \n Hello \n"), "|  \n Hello \n|0");
}

TEST(Answers, ACallThatBreaksOffKeepsWhatThereWas) {
  EXPECT_EQ(
      golden("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Par", 1),
      "|weather{\"city\": \"Par\"}!|1");
  EXPECT_EQ(
      golden("hermes",
             "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": oh no}}</tool_call>", 1),
      "|weather{\"city\": null}!| no}}</tool_call>|1");
}

/// The byte that breaks the arguments is also what ends the name, or the number, before it.
TEST(Answers, WhatTheBreakEndsIsNotLost) {
  const std::string long_key(300, 'k');
  EXPECT_EQ(golden("mistral", "[TOOL_CALLS]weather[ARGS]{city[", 1),
            "|weather{\"city\": null}!|[|1");
  EXPECT_EQ(golden("mistral", "[TOOL_CALLS]weather[ARGS]{\"days\": 5 x", 1),
            "|weather{\"days\": 5 }!|x|1");
  EXPECT_EQ(golden("mistral", "[TOOL_CALLS]weather[ARGS]{" + long_key, 1),
            "|weather{\"" + long_key.substr(0, 256) + "\": null}!|" + long_key.substr(256) + "|1");
  EXPECT_EQ(golden("hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": {\"days\": 5]", 1),
            "|weather{\"days\": 5}!|]|1");
}

TEST(Answers, ReasoningMayHaveBegunInThePrompt) {
  AnswerOptions options{.tools = test_tools(), .begins_reasoning = true};
  EXPECT_EQ(golden("hermes", "Hm <tool_call>?\n</think>\n\nYes", 0, options),
            "|~Hm <tool_call>?|Yes|0");
  EXPECT_EQ(golden("hermes", "</think>Yes </think> no"), "|Yes </think> no|0");
}

TEST(Answers, TaggedValuesAreStringsAsTheSchemaSays) {
  EXPECT_EQ(
      golden(
          "qwen-xml",
          "Look:\n\n<tool_call>\n<function=weather>\n<parameter=city>\nNew \"York\"\n5\n"
          "</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=hourly>\nTrue\n"
          "</parameter>\n<parameter=where>\n{\"a\": [1, \"x\"]}\n</parameter>\n"
          "<parameter=note>\n12\n</parameter>\n<parameter=other>\n12\n</parameter>\n"
          "</function>\n</tool_call>\n<tool_call>\n<function=weather>\n</function>\n</tool_call>"),
      "|Look:|weather{\"city\": \"New \\\"York\\\"\\n5\", \"days\": 3, \"hourly\": true, "
      "\"where\": "
      "{\"a\": [1, \"x\"]}, \"note\": \"12\", \"other\": 12}.|weather{}.|2");
  EXPECT_EQ(golden("qwen-xml",
                   "<tool_call><function=weather><parameter=note>null</parameter>"
                   "<parameter=tags>['a', None]</parameter></function></tool_call>"),
            "|weather{\"note\": null, \"tags\": [\"a\", null]}.|1");
}

TEST(Answers, ValuesWithoutATypeAreTextUnlessTheyAreJson) {
  const auto call = [](const std::string& value) {
    return golden("qwen-xml", "<tool_call><function=weather><parameter=other>" + value +
                                  "</parameter></function></tool_call>");
  };
  EXPECT_EQ(call("5"), "|weather{\"other\": 5}.|1");
  EXPECT_EQ(call("5 6"), "|weather{\"other\": \"5 6\"}.|1");
  EXPECT_EQ(call(std::string("5\0", 2)), "|weather{\"other\": \"5\\u0000\"}.|1");
  EXPECT_EQ(call("\uFEFF5"), "|weather{\"other\": \"\uFEFF5\"}.|1");
}

TEST(Answers, AClosingTagWithinAValueDoesNotEndIt) {
  EXPECT_EQ(
      golden("qwen-xml",
             "<tool_call>\n<function=write_file>\n<parameter=text>\n<x>\n</parameter>\n</x> "
             "</parameter> </tool_call></function>\n\n</parameter>\n\n</function>\n</tool_call>"),
      "|write_file{\"text\": \"<x>\\n</parameter>\\n</x> </parameter> </tool_call></function>"
      "\\n\"}.|1");
  EXPECT_EQ(golden("qwen-xml",
                   "<tool_call>\n<function=write_file>\n<parameter=text>\n<x>\n</parameter>\n</x>\n"
                   "</parameter>\n</parameter>\n<parameter=path>\na\n\n</parameter>\n</function>\n"
                   "</tool_call>"),
            "|write_file{\"text\": \"<x>\\n</parameter>\\n</x>\", \"path\": \"a\\n\"}.|1");
}

TEST(Answers, TaggedCallsThatBreakOff) {
  EXPECT_EQ(golden("qwen-xml", "<tool_call>\n<function=weather>\n<parameter=city>\nPar", 1),
            "|weather{\"city\": \"Par\"}!|1");
  EXPECT_EQ(
      golden("qwen-xml", "<tool_call>\n<function=weather>\n<parameter=days>\n3\n</parameter>", 0),
      "|weather{\"days\": 3}.|1");
  EXPECT_EQ(golden("qwen-xml", "<tool_call>\n<function=weather>\nwhat", 1),
            "|<tool_call>\n<function=weather>\nwhat|0");
  EXPECT_EQ(golden("qwen-xml",
                   "<tool_call>\n<function=a>\n<parameter=k>\n1\n</parameter>\n</function>oh"),
            "|a{\"k\": 1}.|oh|1");
}

TEST(Answers, LlamaCallsStandAlone) {
  EXPECT_EQ(golden("llama3", "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}"),
            "|weather{\"city\": \"Rome\"}.|1");
  EXPECT_EQ(golden("llama3", "{\"type\": \"function\", \"name\": \"weather\", \"parameters\": {}}"),
            "|weather{}.|1");
  EXPECT_EQ(golden("llama3", "{\"name\": \"Bob\", \"parameters\": {}}"),
            "|{\"name\": \"Bob\", \"parameters\": {}}|0");
  EXPECT_EQ(golden("llama3", "{\"answer\": 42} is it"), "|{\"answer\": 42} is it|0");
  EXPECT_EQ(golden("llama3", "<|python_tag|>brave_search.call(query=\"a \\\"b\\\"\", n=2)"),
            "|brave_search{\"query\": \"a \\\"b\\\"\", \"n\": 2}.|1");
  EXPECT_EQ(
      golden("llama3", "<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"days\": 2}}"),
      "|weather{\"days\": 2}.|1");
  EXPECT_EQ(golden("llama3", "<|python_tag|>print(5)", 1), "|<|python_tag|>print(5)|0");
}

TEST(Answers, PythonListsBecomeJson) {
  EXPECT_EQ(golden("llama4", "[weather(city='it\\'s \"x\"', days=+1_000), weather()]"),
            "|weather{\"city\": \"it's \\\"x\\\"\", \"days\": 1000}.|weather{}.|2");
  EXPECT_EQ(golden("llama4", "[1] says so"), "|[1] says so|0");
  EXPECT_EQ(golden("lfm2",
                   "<|tool_call_start|>[weather(where={'a': (1, None,), 'b': True}, city=\"é\")]"
                   "<|tool_call_end|>Checking."),
            "|weather{\"where\": {\"a\": [1, null], \"b\": true}, \"city\": \"é\"}.|Checking.|1");
  EXPECT_EQ(golden("lfm2", "<think>a</think>[weather(city='x')]"),
            "|~a|weather{\"city\": \"x\"}.|1");
  EXPECT_EQ(golden("lfm2", "<|tool_call_start|>[weather(city='x", 1),
            "|weather{\"city\": \"x\"}!|1");
}

TEST(Answers, Mistral) {
  EXPECT_EQ(golden("mistral-old",
                   "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"days\": 1}, "
                   "\"id\": \"abcdefghi\"}, {\"name\": \"weather\", \"arguments\": {}}]"),
            "|weather{\"days\": 1}.|weather{}.|2");
  EXPECT_EQ(golden("mistral",
                   "[THINK]so[/THINK]I look[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{\"days\": "
                   "1}[TOOL_CALLS]weather[ARGS]{\"city\": \"[ARGS]\"}"),
            "|~so|I look|weather{\"days\": 1}.|weather{\"city\": \"[ARGS]\"}.|2");
  const Read once = read("mistral", "[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{}", 100);
  EXPECT_EQ(once.events[0].id, "abcdefghi");
  const Read given = read("mistral", "[TOOL_CALLS]a[ARGS]{}[TOOL_CALLS]a[ARGS]{}", 100);
  EXPECT_EQ(given.events[0].id.size(), 9u);
  EXPECT_NE(given.events[0].id, given.events[3].id);
}

TEST(Answers, DeepSeek) {
  EXPECT_EQ(
      golden("deepseek-v3",
             "<think>hm</"
             "think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n"
             "```json\n{\"city\": \"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
             "<｜tool▁sep｜>weather\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      "|~hm|weather{\"city\": \"```\"}.|weather{}.|2");
  EXPECT_EQ(
      golden("deepseek-v3.1",
             "Ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"days\":1}<"
             "｜tool▁call▁end｜>"
             "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      "|Ok|weather{\"days\":1}.|weather{}.|2");
  EXPECT_EQ(golden("deepseek-v3.2",
                   "<｜DSML｜function_calls>\n<｜DSML｜invoke "
                   "name=\"weather\">\n<｜DSML｜parameter name=\"city\" "
                   "string=\"true\">5 </p</｜DSML｜parameter>\n<｜DSML｜parameter name=\"where\" "
                   "string=\"false\">"
                   "{\"a\": 1}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"),
            "|weather{\"city\": \"5 </p\", \"where\": {\"a\": 1}}.|1");
}

TEST(Answers, Harmony) {
  EXPECT_EQ(
      golden("harmony",
             "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary "
             "to=functions.weather <|constrain|>json<|message|>{\"days\": 1}<|call|>"),
      "|~Think.|weather{\"days\": 1}.|1");
  EXPECT_EQ(
      golden("harmony",
             "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant to=functions.weather"
             "<|channel|>analysis code<|message|>{\"days\": 1}"),
      "|~Think.|weather{\"days\": 1}.|1");
  EXPECT_EQ(
      golden("harmony", " to=functions.weather<|channel|>commentary json<|message|>{}<|call|>"),
      "|weather{}.|1");
  EXPECT_EQ(
      golden("harmony",
             "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>final"
             "<|message|>Hello <b>.<|return|>"),
      "|I will look.Hello <b>.|0");
  EXPECT_EQ(golden("harmony", "Plain words"), "|Plain words|0");
  EXPECT_EQ(golden("harmony", " to=functions.weather<|message|>days 5<|call|>", 1),
            "| to=functions.weather<|message|>days 5|0");
}

TEST(Answers, Glm) {
  EXPECT_EQ(golden("glm",
                   "<think>x</think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bonn "
                   "</arg_value>!</arg_value>\n<arg_key>days</arg_key><arg_value>2</arg_value>\n"
                   "</tool_call><tool_call>weather</tool_call>"),
            "|~x|weather{\"city\": \"Bonn </arg_value>!\", \"days\": 2}.|weather{}.|2");
}

TEST(Answers, Kimi) {
  const std::string text =
      "<think>now <|tool_calls_section_begin|><|tool_call_begin|>functions.weather:3"
      "<|tool_call_argument_begin|>{\"days\": 1}<|tool_call_end|><|tool_calls_section_end|>";
  EXPECT_EQ(golden("kimi-k2", text), "|~now|weather{\"days\": 1}.|1");
  EXPECT_EQ(read("kimi-k2", text, 1000).events[1].id, "functions.weather:3");
  EXPECT_EQ(golden("kimi-k2", "<|tool_call_begin|>functions.a.b:0<|tool_call_argument_begin|>{}"),
            "|a.b{}.|1");
}

TEST(Answers, Gemma) {
  EXPECT_EQ(
      golden("gemma4",
             "<|channel>thought\nLook it up.<channel|>Sure.<|tool_call>call:weather{city:<|\"|>a "
             "\"b\"\n"
             "\\ <|'<|\"|>,days:-1.5e3,where:{a_b:[1,true,null,<|\"|><|\"|>]}}<tool_call|>"
             "<|tool_call>call:weather{}<tool_call|>"),
      "|~Look it up.|Sure.|weather{\"city\":\"a \\\"b\\\"\\n\\\\ <|'\",\"days\":-1.5e3,\"where\":"
      "{\"a_b\":[1,true,null,\"\"]}}.|weather{}.|2");
  EXPECT_EQ(golden("gemma4", "<|channel>thought\n<channel|>Hi"), "|Hi|0");
}

TEST(Answers, Others) {
  EXPECT_EQ(golden("granite",
                   "<think>a</think><response>b <|tool_call|>[{\"name\": \"weather\", "
                   "\"arguments\": {\"days\": 1}}]"),
            "|~a|b|weather{\"days\": 1}.|1");
  EXPECT_EQ(
      golden("minimax-m2",
             "<think>a <minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">x\n"
             "</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n"
             "<invoke name=\"weather\">\n</invoke>\n</minimax:tool_call></think>b"),
      "|~a|weather{\"city\": \"x\\n\", \"days\": 2}.|weather{}.|b|2");
  EXPECT_EQ(
      golden(
          "command",
          "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n {\"tool_call_id\": \"0\", "
          "\"tool_name\": \"weather\", \"parameters\": {\"days\": 1}},\n {\"tool_call_id\": \"1\", "
          "\"tool_name\": \"weather\", \"parameters\": {}}\n]<|END_ACTION|>"),
      "|~a|weather{\"days\": 1}.|weather{}.|2");
  EXPECT_EQ(golden("command", "<|START_RESPONSE|>Hi<|END_RESPONSE|>"), "|Hi|0");
  EXPECT_EQ(
      golden("seed-oss",
             "<seed:think>a</seed:think><seed:tool_call>\n<function=weather>\n<parameter=city>x"
             "</parameter>\n</function>\n</seed:tool_call>"),
      "|~a|weather{\"city\": \"x\"}.|1");
  EXPECT_EQ(golden("none", "<think>a</think>b <tool_call>"), "|~a|b <tool_call>|0");
}

TEST(Answers, ControlTokensAreKnownByTheirId) {
  const ByteTokens tokens({"[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]", "[OTHER]"});
  AnswerStream stream(tokens.tokenizer(), *find_answer_format("mistral"), {.tools = test_tools()});
  std::vector<AnswerEvent> events;
  const auto text = [&](std::string_view bytes) {
    for (const char c : bytes) stream.feed(ByteTokens::byte(c), events);
  };
  constexpr TokenId kCalls = ByteTokens::kFirstControl;
  text("[TOOL_CALLS]é\xFF");
  stream.feed(kCalls + 4, events);
  stream.feed(kCalls, events);
  text("weather");
  stream.feed(kCalls + 1, events);
  text("{\"city\": \"[TOOL_CALLS]\"}");
  stream.feed(kCalls, events);
  text("weather[ARGS] no");
  stream.feed(2, events);
  stream.finish(events);
  EXPECT_EQ(
      shown(events),
      "|[TOOL_CALLS]é\uFFFD|weather{\"city\": \"[TOOL_CALLS]\"}.|[TOOL_CALLS]weather[ARGS] no|1");
}

TEST(Answers, FormatsAreKnownByTheirTemplatesMarks) {
  EXPECT_EQ(answer_format_of("{{ '<function=' }}{{ '<parameter=' }}", "")->name, "qwen-xml");
  EXPECT_EQ(answer_format_of("{{ '<tool_call>' }}", "qwen35")->name, "hermes");
  EXPECT_EQ(answer_format_of("", "gpt-oss")->name, "harmony");
  EXPECT_EQ(answer_format_of("", "llama"), nullptr);
  EXPECT_EQ(find_answer_format("x"), nullptr);
}

}  // namespace
}  // namespace pumice
