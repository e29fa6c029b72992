// What answers are held to: reasoning first, then a schema's text or calls as the model's family writes them.
#include "answers/answer_constraint.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "answers/answer_stream.hpp"
#include "base/json.hpp"
#include "constraints/matcher.hpp"
#include "tests/answers/byte_tokens.hpp"
#include "tests/answers/schema_check.hpp"

namespace pumice {
namespace {

constexpr std::string_view kHeldTools = R"([
  {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "additionalProperties": false, "required": ["city"],
    "$defs": {"code": {"type": "string", "maxLength": 4}},
    "properties": {
      "city": {"type": "string", "maxLength": 6},
      "days": {"type": "integer", "minimum": 1, "maximum": 14},
      "hourly": {"type": "boolean"},
      "unit": {"enum": ["C", "F", 5, null]},
      "note": {"type": ["string", "null"], "maxLength": 6},
      "code": {"$ref": "#/$defs/code"},
      "any": {"maxLength": 3, "maxItems": 1, "maxProperties": 0, "maximum": 9, "minimum": 0, "multipleOf": 1,
              "items": {"type": "null"}},
      "where": {"type": "object", "additionalProperties": false, "properties": {
        "a b": {"type": "string", "maxLength": 3}, "deep": {"type": "array", "maxItems": 2, "items": {
          "type": ["boolean", "null"]}}}}}}}},
  {"type": "function", "function": {"name": "now", "parameters": {
    "type": "object", "properties": {}, "additionalProperties": false}}}])";

struct Held {
  Held(std::string_view format_name, AnswerWish wish, const std::vector<std::string>& control = {},
       bool begins_reasoning = false, bool may_reason = false,
       std::string_view tools_json = kHeldTools)
      : tokens(control), format(*find_answer_format(format_name)) {
    tools = std::make_shared<const Tools>(Tools::parse(tools_json).value());
    const AnswerFrame frame{.format = &format,
                            .tools = tools.get(),
                            .begins_reasoning = begins_reasoning,
                            .may_reason = may_reason};
    Result<Grammar> grammar = answer_constraint(wish, frame, *tokens.tokenizer());
    if (!grammar.ok()) {
      error = grammar.error().message;
      return;
    }
    Result<std::shared_ptr<const Constraint>> made =
        ConstraintCompiler(tokens.tokenizer()).compile(*std::move(grammar));
    if (made.ok()) constraint = *made;
    if (!made.ok()) error = made.error().message;
  }

  /// Whether an answer may be this text, and end there.
  bool allows(std::string_view text) const {
    if (constraint == nullptr) {
      ADD_FAILURE() << error;
      return false;
    }
    Matcher matcher(constraint);
    for (const Fragment& fragment : tokens.tokenizer()->special_tokens().split(text, true)) {
      if (fragment.token) {
        if (!matcher.accept(*fragment.token).ok()) return false;
        continue;
      }
      for (const char c : fragment.text) {
        if (!matcher.accept(ByteTokens::byte(c)).ok()) return false;
      }
    }
    return matcher.can_end().value();
  }

  ByteTokens tokens;
  AnswerFormat format;
  std::shared_ptr<const Tools> tools;
  std::shared_ptr<const Constraint> constraint;
  std::string error;
};

AnswerWish held_schema(std::string_view text) {
  return {.kind = ConstraintKind::kJsonSchema, .text = std::string(text)};
}
constexpr std::string_view kFlag =
    R"({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false})";

TEST(AnswerConstraint, BeginsBehindTheReasoningThatMayComeFirst) {
  for (const std::vector<std::string>& control :
       {std::vector<std::string>(), {"<think>", "</think>"}}) {
    const Held may("hermes", held_schema(kFlag), control, false, true);
    EXPECT_TRUE(may.allows("{\"ok\": true}"));
    EXPECT_TRUE(may.allows("<think>\nLet me {see}. é\n</think>\n\n{\"ok\": true}"));
    EXPECT_TRUE(may.allows("<think></think>{\"ok\": true}"));
    EXPECT_FALSE(may.allows("<think>so</think>yes"));
    EXPECT_FALSE(may.allows("<think>so {\"ok\": true}"));
    EXPECT_FALSE(may.allows("so</think>{\"ok\": true}"));
    EXPECT_FALSE(may.allows("<think>a</think>b</think>{\"ok\": true}"));
    const Held begun("hermes", held_schema(kFlag), control, true, true);
    EXPECT_TRUE(begun.allows("so\n</think>\n\n{\"ok\": false}"));
    EXPECT_FALSE(begun.allows("{\"ok\": false}"));
    const Held off("hermes", held_schema(kFlag), control);
    EXPECT_TRUE(off.allows("{\"ok\": false}"));
    EXPECT_FALSE(off.allows("<think>so</think>{\"ok\": false}"));
  }
}

TEST(AnswerConstraint, HoldsGrammarsExpressionsAndChoicesBehindReasoning) {
  const AnswerWish gbnf{.kind = ConstraintKind::kGbnf, .text = "root ::= \"a\" [0-9]+"};
  const AnswerWish regex{.kind = ConstraintKind::kRegex, .text = "a\\d+"};
  const AnswerWish choice{.choices = {"a1", "b"}};
  for (const AnswerWish& wish : {gbnf, regex, choice}) {
    const Held held("hermes", wish, {}, false, true);
    EXPECT_TRUE(held.allows("<think>b</think>\na1"));
    EXPECT_FALSE(held.allows("<think>b</think>\nc"));
  }
}

TEST(AnswerConstraint, KnowsEachFormatsReasoning) {
  const std::vector<std::string> harmony = {"<|channel|>", "<|message|>",   "<|end|>",
                                            "<|start|>",   "<|constrain|>", "<|call|>",
                                            "<|return|>"};
  for (const std::vector<std::string>& control : {std::vector<std::string>(), harmony}) {
    const Held held("harmony", held_schema(kFlag), control, false, true);
    EXPECT_TRUE(held.allows("<|channel|>final<|message|>{\"ok\": true}"));
    EXPECT_TRUE(
        held.allows("<|channel|>analysis<|message|>Hm {\n<|end|><|start|>assistant<|channel|>"
                    "final<|message|>{\"ok\": true}"));
    EXPECT_TRUE(held.allows("<|channel|>final <|constrain|>json<|message|>{\"ok\": true}"));
    EXPECT_FALSE(held.allows("{\"ok\": true}"));
    EXPECT_FALSE(held.allows("<|channel|>final<|message|>yes"));
  }
  const Held gemma("gemma4", held_schema(kFlag), {"<|channel>", "<channel|>"}, false, true);
  EXPECT_TRUE(gemma.allows("<|channel>thought\nSo.\n<channel|>{\"ok\": true}"));
  const Held command("command", held_schema(kFlag), {"<|START_THINKING|>", "<|END_THINKING|>"},
                     false, true);
  EXPECT_TRUE(command.allows(
      "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>{\"ok\": true}<|END_RESPONSE|>"));
  EXPECT_TRUE(command.allows("{\"ok\": true}"));
  const Held mistral("mistral", held_schema(kFlag), {"[THINK]", "[/THINK]"}, false, true);
  EXPECT_TRUE(mistral.allows("[THINK]a[/THINK]{\"ok\": true}"));
}

struct Written {
  std::string_view format;
  std::string_view call;  ///< of the tool weather, {"city": "Rome", "days": 3}
};
constexpr Written kWritten[] = {
    {"hermes",
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
     "3}}\n</tool_call>"},
    {"apriel",
     "<tool_calls>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
     "3}}]</tool_calls>"},
    {"qwen-xml",
     "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</"
     "parameter>\n<parameter=days>\n3\n</parameter>\n"
     "</function>\n</tool_call>"},
    {"seed-oss",
     "<seed:tool_call>\n<function=weather>\n<parameter=city>\nRome\n</"
     "parameter>\n<parameter=days>\n3\n"
     "</parameter>\n</function>\n</seed:tool_call>"},
    {"llama3", "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\", \"days\": 3}}"},
    {"llama4", "<|python_start|>[weather(city=\"Rome\", days=3)]<|python_end|>"},
    {"mistral-old",
     "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}]"},
    {"mistral", "[TOOL_CALLS]weather[CALL_ID]abcDEF123[ARGS]{\"city\": \"Rome\", \"days\": 3}"},
    {"deepseek-v3",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\":"
     " \"Rome\", \"days\": "
     "3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"deepseek-v3.1",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Rome\", "
     "\"days\": "
     "3}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"deepseek-v3.2",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter "
     "name=\"city\" "
     "string=\"true\">Rome</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
     "string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
    {"harmony",
     "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Rome\", "
     "\"days\": 3}<|call|>"},
    {"glm",
     "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</"
     "arg_key>\n"
     "<arg_value>3</arg_value>\n</tool_call>"},
    {"kimi-k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|"
     ">{\"city\": "
     "\"Rome\", \"days\": 3}<|tool_call_end|><|tool_calls_section_end|>"},
    {"gemma4", "<|tool_call>call:weather{city:<|\"|>Rome<|\"|>,days:3}<tool_call|>"},
    {"granite",
     "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}]"},
    {"lfm2", "<|tool_call_start|>[weather(city=\"Rome\", days=3)]<|tool_call_end|>"},
    {"minimax-m2",
     "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Rome</parameter>\n"
     "<parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>"},
    {"command",
     "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"weather\", \"parameters\": "
     "{\"city\": \"Rome\", "
     "\"days\": 3}}]<|END_ACTION|>"},
};

/// What a format's literals may be tokens of.
std::vector<std::string> control_tokens(const AnswerFormat& format) {
  std::vector<std::string> all = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};
  const auto add = [&](std::string_view literal) {
    const bool is_mark = literal.size() > 2 && (literal.front() == '<' || literal.front() == '[') &&
                         (literal.back() == '>' || literal.back() == ']');
    if (is_mark && std::ranges::find(all, literal) == all.end()) all.emplace_back(literal);
  };
  for (const auto* list : {&format.think_open, &format.dropped, &format.section_open,
                           &format.section_close, &format.name_end, &format.key_end}) {
    for (const std::string& literal : *list) add(literal);
  }
  for (const auto* literal :
       {&format.think_close, &format.call_open, &format.call_close, &format.id_open,
        &format.type_end, &format.args_close, &format.key_open, &format.value_open,
        &format.value_close, &format.quote}) {
    add(*literal);
  }
  return all;
}

TEST(AnswerConstraint, CallsAreWrittenAsTheFamilyWritesThem) {
  for (const AnswerFormat& format : answer_formats()) {
    if (format.shape == CallShape::kNone) continue;
    const auto* const row = std::ranges::find(kWritten, format.name, &Written::format);
    ASSERT_NE(row, std::end(kWritten)) << format.name;
    for (const bool are_tokens : {false, true}) {
      const std::vector<std::string> control =
          are_tokens ? control_tokens(format) : std::vector<std::string>();
      const Held any(format.name, {.needs_call = true}, control);
      EXPECT_TRUE(any.allows(row->call)) << format.name << any.error;
      EXPECT_FALSE(any.allows("Rome")) << format.name;
      std::string other(row->call);
      other.replace(other.rfind("3"), 1, "99");
      EXPECT_FALSE(any.allows(other)) << other;
      const Held now(format.name, {.needs_call = true, .tools = {"now"}, .one_call = true},
                     control);
      EXPECT_FALSE(now.allows(row->call)) << format.name;
      const Held text(format.name, held_schema(kFlag), control, false, true);
      EXPECT_TRUE(text.allows(row->call)) << format.name;  // instead of the text
    }
  }
}

/// Tokens that the mask allows, at random, until the answer may end.
std::vector<TokenId> held_walk(const Held& held, std::mt19937& random) {
  constexpr size_t kMostTokens = 6000;
  Matcher matcher(held.constraint);
  TokenMask mask(held.constraint->vocabulary().mask_words());
  std::vector<TokenId> tokens;
  while (tokens.size() < kMostTokens) {
    if (matcher.can_end().value() && random() % 2 == 0) return tokens;
    EXPECT_TRUE(matcher.mask(mask).ok());
    std::vector<TokenId> allowed;
    for (TokenId id = 3; id < held.constraint->vocabulary().n_tokens(); ++id) {
      if (has_bit(mask, id)) allowed.push_back(id);
    }
    if (allowed.empty()) {
      EXPECT_TRUE(matcher.can_end().value());
      return tokens;
    }
    tokens.push_back(allowed[random() % allowed.size()]);
    EXPECT_TRUE(matcher.accept(tokens.back()).ok());
  }
  ADD_FAILURE() << "a walk without an end";
  return tokens;
}

TEST(AnswerConstraint, WalksByTheMaskAreCallsWhoseArgumentsTheSchemaAccepts) {
  std::mt19937 random(7);
  for (const AnswerFormat& format : answer_formats()) {
    if (format.shape == CallShape::kNone) continue;
    for (const bool are_tokens : {false, true}) {
      const Held held(format.name, {.needs_call = true},
                      are_tokens ? control_tokens(format) : std::vector<std::string>());
      ASSERT_NE(held.constraint, nullptr) << format.name << ": " << held.error;
      for (int i = 0; i < 60; ++i) {
        const std::vector<TokenId> tokens = held_walk(held, random);
        AnswerStream stream(held.tokens.tokenizer(), format, {.tools = held.tools});
        std::vector<AnswerEvent> events;
        for (const TokenId token : tokens) stream.feed(token, events);
        stream.finish(events);
        std::string written;
        for (const TokenId token : tokens) written += held.tokens.spelled(token);
        std::string name;
        size_t n_calls = 0;
        for (const AnswerEvent& event : events) {
          EXPECT_NE(event.kind, AnswerEvent::Kind::kText) << format.name << "\n" << written;
          if (event.kind == AnswerEvent::Kind::kCallBegun) name = event.text;
          if (event.kind == AnswerEvent::Kind::kCallEnded) {
            EXPECT_TRUE(event.complete) << format.name << "\n" << written;
            ++n_calls;
          }
          if (event.kind != AnswerEvent::Kind::kArguments) continue;
          for (const auto& tool : held.tools->json()) {
            const auto& function = tool["function"];
            if (function["name"] != name) continue;
            EXPECT_EQ(test::schema_problem(function["parameters"].dump(), event.text), "")
                << format.name << "\n"
                << written;
          }
        }
        EXPECT_GT(n_calls, 0u) << format.name << "\n" << written;
        EXPECT_EQ(stream.machine().n_unparsed(), 0u) << format.name << "\n" << written;
        if (HasFailure()) return;
      }
    }
  }
}

TEST(AnswerConstraint, TextsBetweenTagsAreThoseThatAreReadBack) {
  constexpr std::string_view kOpen = R"([{"name": "f", "parameters": {"type": "object",
      "properties": {"text": {"type": "string"}, "list": {"type": "array"}}, "additionalProperties": false,
      "patternProperties": {"^x": {"type": "string"}}}}])";
  const auto call = [](std::string_view name, std::string_view value) {
    return "<tool_call>\n<function=f>\n<parameter=" + std::string(name) + ">\n" +
           std::string(value) + "\n</parameter>\n</function>\n</tool_call>";
  };
  const Held held("qwen-xml", {.needs_call = true}, {}, false, false, kOpen);
  for (const char* const text :
       {"", "5", "\"a\"", "null", "\n<x> </parameter \n", "\xC3\xA9 {[", "</function>"}) {
    EXPECT_TRUE(held.allows(call("text", text))) << text;
  }
  EXPECT_FALSE(held.allows(call("text", "a</parameter>b")));
  EXPECT_FALSE(held.allows(call("text", "\xFF")));
  EXPECT_TRUE(held.allows(call("list", "[\"</param>\"]")));
  EXPECT_FALSE(held.allows(call("list", "[\"</parameter>\"]")));
  // Nobody knows that it is a text, by its name.
  EXPECT_TRUE(held.allows(call("xa", "so")));
  for (const char* const text : {"5", "-1", " \"a\"", "null", "{}", "[1]"}) {
    EXPECT_FALSE(held.allows(call("xa", text))) << text;
  }
  EXPECT_FALSE(held.allows(call("ya", "so")));
  const Held dsml("deepseek-v3.2", {.needs_call = true}, {}, false, false, kOpen);
  EXPECT_TRUE(dsml.allows(
      "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"xa\" "
      "string=\"true\">5</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>"));
}

TEST(AnswerConstraint, SaysWhatCannotBeAskedFor) {
  EXPECT_EQ(Held("none", {.needs_call = true}).error,
            "a call cannot be asked for: answers of this format have no calls");
  EXPECT_EQ(Held("hermes", {.needs_call = true}, {}, false, false, "[]").error,
            "a call cannot be asked for: there are no tools to call");
  const std::string name =
      R"([{"name": "f", "parameters": {"type": "object", "properties": {"a<b": {}}}}])";
  EXPECT_NE(Held("qwen-xml", {.needs_call = true}, {}, false, false, name)
                .error.find("\"a<b\" cannot be written"),
            std::string::npos);
  const std::string bad =
      R"([{"name": "f", "parameters": {"type": "object", "properties": {"a": {"format": "never"}}}}])";
  EXPECT_EQ(Held("glm", {.needs_call = true}, {}, false, false, bad).error.substr(0, 8),
            "tool f: ");
  AnswerWish wish;
  const Tools tools = Tools::parse(kHeldTools).value();
  EXPECT_FALSE(need_call({"never"}, tools, wish).ok());
  EXPECT_FALSE(need_call({}, Tools(), wish).ok());
  EXPECT_FALSE(wish.given());
  EXPECT_TRUE(need_call({"now"}, tools, wish).ok());
  EXPECT_TRUE(wish.given());
}

}  // namespace
}  // namespace pumice
