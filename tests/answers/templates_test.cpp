// Calls as real templates write them come back as they went.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "answers/answer_machine.hpp"
#include "base/json.hpp"
#include "tests/shared_data.hpp"
#include "text/chat_template.hpp"

namespace pumice {
namespace {

using Json = nlohmann::ordered_json;

struct Row {
  std::string file;
  std::string format;
  bool string_arguments = false;  // as the template wants them
  bool several = true;            // it can write more than one call
  Json content = "";              // beside calls
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Json call_of(const std::string& name, const Json& arguments, bool as_string) {
  return {{"type", "function"},
          {"id", "abcdefghi"},
          {"function",
           {{"name", name}, {"arguments", as_string ? Json(arguments.dump()) : arguments}}}};
}

class Templates : public testing::TestWithParam<Row> {};

TEST_P(Templates, WriteCallsThatComeBack) {
  const Row& row = GetParam();
  PUMICE_REQUIRE_SHARED(path, "templates/jinja/" + row.file + ".jinja");
  const std::string source = read_file(path);
  const AnswerFormat* const format = answer_format_of(source, "");
  ASSERT_NE(format, nullptr);
  EXPECT_EQ(format->name, row.format);
  const ChatTemplate chat_template = ChatTemplate::parse(source).value();
  auto tools = std::make_shared<const Tools>(
      Tools::parse(R"([{"name": "weather", "description": "d", "parameters": {"type": "object",
        "properties": {"city": {"type": "string", "description": "c"},
                       "days": {"type": "integer", "description": "n"},
                       "where": {"type": "object", "description": "w"}}, "required": []}}])")
          .value());
  const Json first = {
      {"city", "Say \"Åre\"\n</b>"}, {"days", 3}, {"where", {{"a", {1, true, nullptr}}}}};
  const Json second = {{"city", "x"}};
  Json calls = Json::array({call_of("weather", first, row.string_arguments)});
  if (row.several) calls.push_back(call_of("weather", second, row.string_arguments));
  Json context = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
                  {"tools", tools->json()},
                  {"bos_token", "<s>"},
                  {"eos_token", ""},
                  {"add_generation_prompt", true}};
  const std::string prompt = chat_template.render(context).value();
  context["messages"].push_back(
      {{"role", "assistant"}, {"content", row.content}, {"tool_calls", calls}});
  context["add_generation_prompt"] = false;
  const auto rendered = chat_template.render(context);
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  // Prompts end with more (an open <think>) than histories have.
  const auto [end, rest] = std::ranges::mismatch(prompt, *rendered);
  const auto n_same = static_cast<size_t>(rest - rendered->begin());
  const size_t tag = rendered->substr(0, n_same).find_last_of("<>");
  const bool begin_alike = tag != std::string::npos && (*rendered)[tag] == '<';
  std::string answer = rendered->substr(begin_alike ? tag : n_same);
  for (const char* const last : {"<|im_end|>", "<|eot_id|>", "<|end_of_text|>"}) {
    if (const size_t at = answer.find(last); at != std::string::npos) answer.resize(at);
  }

  AnswerMachine machine(AnswerGrammar::create(*format, nullptr), {.tools = tools});
  std::vector<AnswerEvent> events;
  machine.feed(answer, events);
  machine.finish(events);
  std::vector<Json> seen;
  for (const AnswerEvent& event : events) {
    if (event.kind == AnswerEvent::Kind::kCallBegun) {
      EXPECT_EQ(event.text, "weather");
    }
    if (event.kind != AnswerEvent::Kind::kArguments) continue;
    const auto json = read_ordered_json(event.text, event.text.size());
    ASSERT_TRUE(json.ok()) << event.text;
    seen.push_back(*json);
  }
  EXPECT_EQ(machine.n_unparsed(), 0u) << answer;
  ASSERT_EQ(seen.size(), row.several ? 2u : 1u) << answer;
  EXPECT_EQ(seen[0].dump(), first.dump()) << answer;
  if (row.several) {
    EXPECT_EQ(seen[1].dump(), second.dump()) << answer;
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Templates,
    testing::Values(Row{"Qwen-Qwen2.5-7B-Instruct", "hermes"}, Row{"Qwen-Qwen3-0.6B", "hermes"},
                    Row{"Qwen-QwQ-32B", "hermes"}, Row{"MiMo-VL", "hermes"},
                    Row{"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"},
                    Row{"Qwen3-Coder", "qwen-xml"}, Row{"Qwen3.5-4B", "qwen-xml"},
                    Row{"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen-xml"},
                    Row{"meta-llama-Llama-3.1-8B-Instruct", "llama3", false, false},
                    Row{"meta-llama-Llama-3.2-3B-Instruct", "llama3", false, false},
                    Row{"mistralai-Mistral-Nemo-Instruct-2407", "mistral-old"},
                    Row{"mistralai-Ministral-3-14B-Reasoning-2512", "mistral"},
                    Row{"unsloth-mistral-Devstral-Small-2507", "mistral"},
                    Row{"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek-v3", true, true,
                        nullptr},
                    Row{"deepseek-ai-DeepSeek-V3.1", "deepseek-v3.1"},
                    Row{"openai-gpt-oss-120b", "harmony", false, false},
                    Row{"LFM2.5-8B-A1B", "lfm2"}, Row{"unsloth-Apriel-1.5", "apriel"}),
    [](const auto& row) {
      std::string name = row.param.file;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

}  // namespace
}  // namespace pumice
