// Any text as a chat template, rendered with a conversation if it is one: within its steps and
// memory, the same text twice, and errors as promised.
#include "tests/fuzz/fuzz.hpp"

#include <nlohmann/json.hpp>
#include "text/chat_template.hpp"

namespace pumice::fuzz {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
// What the budget gives, the text that is returned, what sorting takes, and the parsed template.
constexpr size_t kMaxHeapBytes = size_t{8} << 20;

const nlohmann::ordered_json& conversation() {
  static const nlohmann::ordered_json kContext = {
      {"messages",
       {{{"role", "system"}, {"content", "Be \xC3\xA4\xE4\xB8\x96 brief."}},
        {{"role", "user"}, {"content", nullptr}},
        {{"role", "assistant"},
         {"tool_calls", {{{"name", "f"}, {"arguments", {{"x", 1}, {"y", 2.5}}}}}}}}},
      {"tools", nlohmann::ordered_json::array()},
      {"add_generation_prompt", true},
      {"bos_token", "<s>"},
      {"n", 3}};
  return kContext;
}

void run(std::string_view source) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return check_error(parsed.error());
  RenderOptions options{.now = std::tm{}, .max_steps = 20'000, .max_bytes = kMaxBytes};
  options.now->tm_mday = 1;
  const Result<std::string> text = parsed->render(conversation(), options);
  if (!text.ok()) return check_error(text.error());
  promise(text->size() <= kMaxBytes, "no text beyond the limit");
  const Result<std::string> again = parsed->render(conversation(), options);
  promise(again.ok() && *again == *text, "a template renders the same text again");
}

}  // namespace
}  // namespace pumice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const pumice::fuzz::MemoryMeter meter;
  pumice::fuzz::run({reinterpret_cast<const char*>(data), size});
  pumice::fuzz::promise(meter.peak_bytes() < pumice::fuzz::kMaxHeapBytes, "memory is bounded");
  return 0;
}
