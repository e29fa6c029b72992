#include "answers/answer_format.hpp"

#include <algorithm>
#include <array>

namespace pumice {
namespace {

/// Whose templates have one of these texts (and all of `also`) write so; the first row that fits
/// counts, so that what is particular stands before what many have.
struct Sign {
  std::string_view format;
  std::string_view text;
  std::string_view also = {};
};
constexpr Sign kSigns[] = {
    {"harmony", "<|channel|>"},
    {"gemma4", "<|tool_call>call:"},
    {"gemma4", "<|channel>thought"},
    {"deepseek-v3.2", "DSML｜"},
    {"deepseek-v3", "<｜tool▁sep｜>", "```json"},
    {"deepseek-v3.1", "<｜tool▁sep｜>"},
    {"kimi-k2", "<|tool_call_argument_begin|>"},
    {"mistral", "[TOOL_CALLS]", "[ARGS]"},
    {"mistral-old", "[TOOL_CALLS]"},
    {"minimax-m2", "<minimax:tool_call>"},
    {"seed-oss", "<seed:tool_call>"},
    {"glm", "<arg_key>"},
    {"qwen-xml", "<function=", "<parameter="},
    {"command", "<|START_ACTION|>"},
    {"granite", "<|tool_call|>"},
    {"lfm2", "<|tool_call_start|>"},
    {"lfm2", "List of tools: ["},
    {"apriel", "<tool_calls>["},
    {"hermes", "<tool_call>"},
    {"llama4", "<|header_start|>"},
    {"llama3", "<|python_tag|>"},
    {"llama3", "{\"name\": function name, \"parameters\""},
    {"deepseek-v3", "<｜Assistant｜>"},
};

struct Architecture {
  std::string_view format;
  std::string_view name;
};
constexpr Architecture kArchitectures[] = {
    {"harmony", "gpt-oss"},       {"gemma4", "gemma4"},   {"glm", "glm4moe"},
    {"minimax-m2", "minimax-m2"}, {"lfm2", "lfm2"},       {"lfm2", "lfm2moe"},
    {"llama4", "llama4"},         {"qwen-xml", "qwen35"}, {"qwen-xml", "qwen35moe"},
    {"hermes", "qwen2"},          {"hermes", "qwen3"},    {"hermes", "qwen3moe"},
    {"seed-oss", "seed_oss"},     {"command", "cohere2"},
};

std::vector<AnswerFormat> make_formats() {
  std::vector<AnswerFormat> rows;
  // Qwen 2.5 and 3, QwQ, Hermes, Granite 4, SmolLM3, MiMo.
  rows.push_back({.name = "hermes",
                  .shape = CallShape::kJson,
                  .call_open = "<tool_call>",
                  .call_close = "</tool_call>"});
  rows.push_back({.name = "apriel",
                  .shape = CallShape::kJson,
                  .call_open = "<tool_calls>",
                  .call_close = "</tool_calls>",
                  .members = {.in_list = true}});
  // Qwen 3 Coder, 3.5 and later, Nemotron 3 Nano, Step 3.5.
  AnswerFormat qwen_xml = {.name = "qwen-xml",
                           .shape = CallShape::kTagged,
                           .section_open = {"<tool_call>"},
                           .section_close = {"</tool_call>"},
                           .section_per_call = true,
                           .call_open = "<function=",
                           .call_close = "</function>",
                           .name_end = {">"},
                           .key_open = "<parameter=",
                           .key_end = {">"},
                           .value_close = "</parameter>",
                           .value_lines = true};
  AnswerFormat seed = qwen_xml;
  rows.push_back(std::move(qwen_xml));
  seed.name = "seed-oss";
  seed.think_open = {"<seed:think>"};
  seed.think_close = "</seed:think>";
  seed.section_open = {"<seed:tool_call>"};
  seed.section_close = {"</seed:tool_call>"};
  rows.push_back(std::move(seed));
  rows.push_back({.name = "llama3",
                  .shape = CallShape::kJson,
                  .call_open = "<|python_tag|>",
                  .bare = true,
                  .members = {.arguments = "parameters"}});
  rows.push_back({.name = "llama4",
                  .shape = CallShape::kPython,
                  .call_open = "<|python_start|>",
                  .call_close = "<|python_end|>",
                  .bare = true});
  rows.push_back({.name = "mistral-old",
                  .shape = CallShape::kJson,
                  .think_open = {"[THINK]"},
                  .think_close = "[/THINK]",
                  .call_open = "[TOOL_CALLS]",
                  .members = {.in_list = true}});
  // Tekken v11 (with ids) and v13.
  rows.push_back({.name = "mistral",
                  .shape = CallShape::kNamed,
                  .think_open = {"[THINK]"},
                  .think_close = "[/THINK]",
                  .call_open = "[TOOL_CALLS]",
                  .name_end = {"[ARGS]"},
                  .id_open = "[CALL_ID]"});
  AnswerFormat deepseek = {.name = "deepseek-v3.1",
                           .shape = CallShape::kNamed,
                           .section_open = {"<｜tool▁calls▁begin｜>"},
                           .section_close = {"<｜tool▁calls▁end｜>"},
                           .call_open = "<｜tool▁call▁begin｜>",
                           .call_close = "<｜tool▁call▁end｜>",
                           .name_end = {"<｜tool▁sep｜>"}};
  rows.push_back(deepseek);
  // V3 and R1.
  deepseek.name = "deepseek-v3";
  deepseek.type_end = "<｜tool▁sep｜>";
  deepseek.name_end = {"\n```json"};
  deepseek.args_close = "```";
  rows.push_back(std::move(deepseek));
  rows.push_back({.name = "deepseek-v3.2",
                  .shape = CallShape::kTagged,
                  .section_open = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
                  .section_close = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
                  .call_open = "<｜DSML｜invoke name=\"",
                  .call_close = "</｜DSML｜invoke>",
                  .name_end = {"\">"},
                  .key_open = "<｜DSML｜parameter name=\"",
                  .key_end = {"\" string=\"true\">", "\" string=\"false\">"},
                  .value_close = "</｜DSML｜parameter>",
                  .key_end_has_kind = true});
  rows.push_back({.name = "harmony",
                  .shape = CallShape::kHarmony,
                  .think_open = {},
                  .think_close = {},
                  .dropped = {"<|end|>", "<|return|>", "<|call|>"}});
  // GLM 4.5 to 5.
  rows.push_back({.name = "glm",
                  .shape = CallShape::kTagged,
                  .call_open = "<tool_call>",
                  .call_close = "</tool_call>",
                  .name_end = {},
                  .key_open = "<arg_key>",
                  .key_end = {"</arg_key>"},
                  .value_open = "<arg_value>",
                  .value_close = "</arg_value>"});
  rows.push_back({.name = "kimi-k2",
                  .shape = CallShape::kNamed,
                  .calls_in_thoughts = true,
                  .section_open = {"<|tool_calls_section_begin|>"},
                  .section_close = {"<|tool_calls_section_end|>"},
                  .call_open = "<|tool_call_begin|>",
                  .call_close = "<|tool_call_end|>",
                  .name_end = {"<|tool_call_argument_begin|>"},
                  .name_is_id = true});
  rows.push_back({.name = "gemma4",
                  .shape = CallShape::kNamed,
                  .think_open = {"<|channel>thought"},
                  .think_close = "<channel|>",
                  .thinks_anywhere = true,
                  .call_open = "<|tool_call>call:",
                  .call_close = "<tool_call|>",
                  .quote = "<|\"|>"});
  rows.push_back({.name = "granite",
                  .shape = CallShape::kJson,
                  .dropped = {"<response>", "</response>"},
                  .call_open = "<|tool_call|>",
                  .members = {.in_list = true}});
  rows.push_back({.name = "lfm2",
                  .shape = CallShape::kPython,
                  .call_open = "<|tool_call_start|>",
                  .call_close = "<|tool_call_end|>",
                  .bare = true});
  rows.push_back({.name = "minimax-m2",
                  .shape = CallShape::kTagged,
                  .calls_in_thoughts = true,
                  .section_open = {"<minimax:tool_call>"},
                  .section_close = {"</minimax:tool_call>"},
                  .call_open = "<invoke name=\"",
                  .call_close = "</invoke>",
                  .name_end = {"\">"},
                  .key_open = "<parameter name=\"",
                  .key_end = {"\">"},
                  .value_close = "</parameter>"});
  rows.push_back(
      {.name = "command",
       .shape = CallShape::kJson,
       .think_open = {"<|START_THINKING|>"},
       .think_close = "<|END_THINKING|>",
       .dropped = {"<|START_TEXT|>", "<|END_TEXT|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"},
       .call_open = "<|START_ACTION|>",
       .call_close = "<|END_ACTION|>",
       .members = {.name = "tool_name",
                   .arguments = "parameters",
                   .number = "tool_call_id",
                   .in_list = true}});
  rows.push_back({.name = "none", .shape = CallShape::kNone});
  return rows;
}

}  // namespace

std::span<const AnswerFormat> answer_formats() {
  static const std::vector<AnswerFormat> kRows = make_formats();
  return kRows;
}

const AnswerFormat* find_answer_format(std::string_view name) {
  const std::span<const AnswerFormat> rows = answer_formats();
  const auto found = std::ranges::find(rows, name, &AnswerFormat::name);
  return found == rows.end() ? nullptr : &*found;
}

const AnswerFormat* answer_format_of(std::string_view template_source,
                                     std::string_view architecture) {
  const auto has = [&](std::string_view text) {
    return template_source.find(text) != std::string_view::npos;
  };
  for (const Sign& sign : kSigns) {
    if (has(sign.text) && has(sign.also)) return find_answer_format(sign.format);
  }
  for (const Architecture& known : kArchitectures) {
    if (known.name == architecture) return find_answer_format(known.format);
  }
  return nullptr;
}

}  // namespace pumice
