// Any answer, in any format and cut anywhere: the same events, calls whose arguments are JSON, and
// no text that was not written.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "answers/answer_machine.hpp"
#include "base/utf8.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "text/utf8.hpp"

namespace pumice::fuzz {
namespace {

using Kind = AnswerEvent::Kind;

std::shared_ptr<const Tools> tools() {
  static const auto kTools = std::make_shared<const Tools>(
      Tools::parse(R"([{"name": "f", "parameters": {"properties": {"a": {"type": "string"},
        "b": {"type": ["integer", "null"]}, "c": {"type": ["string", "object"]}}}}, {"name": "g"}])")
          .value());
  return kTools;
}

/// What a Detokenizer makes of bytes.
std::string characters(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    text += step.kind == Utf8Kind::kComplete ? bytes.substr(0, step.length) : "\uFFFD";
    bytes.remove_prefix(step.length);
  }
  return text;
}

struct Answer {
  std::vector<AnswerEvent> events;
  uint32_t n_calls = 0;
};

Answer read(const AnswerFormat& format, std::string_view text, size_t most_bytes, bool reasons) {
  AnswerMachine machine(AnswerGrammar::create(format, nullptr),
                        {.tools = tools(), .begins_reasoning = reasons});
  Answer answer;
  const auto merge = [&](std::vector<AnswerEvent> events) {
    for (AnswerEvent& event : events) append_event(std::move(event), answer.events);
  };
  size_t n = 1;
  for (size_t at = 0; at < text.size(); at += n) {
    n = 1 + (at * 7 + text.size()) % most_bytes;
    std::vector<AnswerEvent> events;
    machine.feed(text.substr(at, n), events);
    merge(std::move(events));
  }
  std::vector<AnswerEvent> events;
  machine.finish(events);
  merge(std::move(events));
  answer.n_calls = machine.n_calls();
  return answer;
}

/// Whether `part` is `whole` without some of its bytes.
bool is_part(std::string_view part, std::string_view whole) {
  size_t n = 0;
  for (const char c : whole) {
    if (n < part.size() && part[n] == c) ++n;
  }
  return n == part.size();
}

void run(uint8_t choice, std::string_view bytes) {
  const auto formats = answer_formats();
  const AnswerFormat& format = formats[(choice & 0x3F) % formats.size()];
  const bool reasons = (choice & 0x40) != 0;
  const std::string text = characters(bytes);
  const Answer answer = read(format, text, 1, reasons);
  promise(read(format, text, 13, reasons).events == answer.events, "cuts change nothing");
  promise(read(format, text, text.size() + 1, reasons).events == answer.events, "nor does none");
  std::string written;
  uint32_t n_begun = 0;
  uint32_t n_ended = 0;
  for (const AnswerEvent& event : answer.events) {
    if (event.kind == Kind::kText || event.kind == Kind::kReasoning) written += event.text;
    if (event.kind == Kind::kCallBegun) {
      promise(event.call == n_begun++ && n_ended == event.call, "calls come one after the other");
      promise(!event.text.empty() && !event.id.empty(), "calls have names and ids");
    }
    if (event.kind == Kind::kArguments) {
      promise(nlohmann::json::accept(event.text) && event.text.starts_with('{'),
              "arguments are JSON: " + event.text);
    }
    if (event.kind == Kind::kCallEnded) promise(event.call == n_ended++, "calls end");
  }
  promise(n_begun == n_ended && n_begun == answer.n_calls, "calls that begin end");
  promise(!answer.events.empty() && answer.events.back().kind == Kind::kFinish, "answers finish");
  promise(is_part(written, text), "what is text was written: " + written);
  // Without a bracket or tag nothing is a call, nor reasoning but what the prompt began.
  const bool is_plain = text.find_first_of("<[{") == text.npos && text.find(" to=") == text.npos;
  if (is_plain && !reasons) promise(written == text, "text is kept");
}

}  // namespace
}  // namespace pumice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) {
    pumice::fuzz::run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  }
  return 0;
}
