// pumice tokenize: text to token ids.

#include <nlohmann/json.hpp>

#include "base/path.hpp"
#include "format/gguf.hpp"
#include "models/vocabulary_loader.hpp"
#include "tools/command.hpp"
#include "tools/hub_options.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

struct TokenizeOptions {
  std::string model;
  HubModelFlags hub;
  std::string prompt;
  std::string file;
  bool ids = false;
  bool no_bos = false;
  bool parse_special = false;
  CLI::Option* prompt_option = nullptr;
};

Status tokenize(TokenizeOptions options) {
  PUMICE_TRY_STATUS(options.hub.resolve(options.model));
  if (options.model.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "no model: give one with --model FILE or -hf user/repo");
  }
  PUMICE_TRY(const GgufFile file, GgufFile::open(from_utf8(options.model)));
  PUMICE_TRY(const Tokenizer tokenizer, load_tokenizer(file));
  PUMICE_TRY(
      const std::string text,
      read_prompt(options.prompt_option->count() > 0 ? &options.prompt : nullptr, options.file));
  PUMICE_TRY(const std::vector<TokenId> tokens,
             tokenizer.encode(
                 text, {.add_special = !options.no_bos, .parse_special = options.parse_special}));
  if (options.ids) {
    print_text("{}\n", nlohmann::json(tokens).dump());
    return {};
  }
  for (const TokenId token : tokens) {
    const std::string piece(tokenizer.vocabulary().text(token));
    print_text(
        "{:>7}  {}\n", token,
        nlohmann::json(piece).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return {};
}

}  // namespace

Command add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Show the tokens of a text");
  command->add_option("-m,--model", options->model, "GGUF file; a vocabulary-only one will do")
      ->envname("PUMICE_MODEL");
  options->hub.add_to(*command);
  options->prompt_option = command->add_option("-p,--prompt", options->prompt, "The text");
  command->add_option("-f,--file", options->file, "Read the text from a file")
      ->excludes(options->prompt_option);
  command->add_flag("--ids", options->ids, "Print only the ids, as a JSON array");
  command->add_flag("--no-bos", options->no_bos, "Do not add the beginning-of-sequence token");
  command->add_flag("--parse-special", options->parse_special,
                    "Read special tokens such as </s> in the text as themselves");
  command->footer("Example: pumice tokenize -m model.gguf -p \"Once upon a time\" --ids");
  return {command, [options] { return tokenize(*options); }};
}

}  // namespace pumice::tools
