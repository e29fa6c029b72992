// Any words as a command line, and any text as what flags take: limits, lists of tokens, prompts.
// The first byte chooses; words are separated by newlines.
#include "tests/fuzz/fuzz.hpp"
#include "tools/command.hpp"
#include "tools/session.hpp"
#include "vk/device_choice.hpp"
#include "vk/plan_options.hpp"

namespace pumice::fuzz {
namespace {

void parse_command_line(std::string_view text) {
  CLI::App app("fuzzed", "pumice");
  app.require_subcommand(1);
  tools::add_run(app);
  tools::add_info(app);
  tools::add_tokenize(app);
  tools::add_logits(app);
  tools::add_synth(app);
  tools::add_sim(app);
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::reverse(words.begin(), words.end());  // CLI11 takes them in reverse
  try {
    app.parse(words);
  } catch (const CLI::ParseError&) {
  }
}

void parse_limit(std::string_view text) {
  const Result<PlanOptions> options = parse_plan_options(text);
  if (!options.ok()) return check_error(options.error());
  const Result<PlanOptions> again = parse_plan_options(format_plan_options(*options));
  promise(again.ok() && *again == *options, "limits written are limits read");
}

void parse_tokens(std::string_view text) {
  const Result<std::vector<TokenId>> tokens = tools::parse_token_list(std::string(text));
  if (!tokens.ok()) return check_error(tokens.error());
  promise(tokens->size() <= text.size() / 2 + 1, "a token is a digit and a comma at least");
}

void choose(std::string_view text) {
  std::vector<DeviceSnapshot> devices(2);
  devices[0].name = "Fuzzed 4090";
  const Result<size_t> chosen = choose_device(devices, text);
  promise(!chosen.ok(), "a device that lacks everything is never chosen");
}

void run(uint8_t choice, std::string_view text) {
  switch (choice % 4) {
    case 0:
      return parse_command_line(text);
    case 1:
      return parse_limit(text);
    case 2:
      return parse_tokens(text);
    default:
      return choose(text);
  }
}

}  // namespace
}  // namespace pumice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) {
    pumice::fuzz::run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  }
  return 0;
}
