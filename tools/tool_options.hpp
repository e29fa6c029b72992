// The flags that make an answer more than text: tools, the template's variables, how calls are
// written.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "answers/answer_machine.hpp"
#include "base/result.hpp"
#include "host/host.hpp"

namespace pumice::tools {

/// What is used in place of a model's own template and of how that has calls written.
struct TextOptions {
  std::string template_file;
  std::string format;

  void add_template_to(CLI::App& app);
  void add_format_to(CLI::App& app);
  bool is_used() const { return !template_file.empty() || !format.empty(); }
  /// Nothing: the model's own is used. Errors: those of read_text_file.
  Result<std::optional<std::string>> read_template() const;
  /// A model's, with these. Errors: those of read_text_file and ModelTexts::read; what is wrong with
  /// the template.
  Result<host::ModelTexts> read(const GgufFile& model) const;
};

struct ToolOptions {
  TextOptions texts;
  std::string file;
  std::string choice = "auto";
  std::vector<std::string> variables;

  /// Also those of `texts`.
  void add_to(CLI::App& app);
  bool is_used() const;
  /// What can be told before there is a model. Errors: kInvalidArgument.
  Status validate() const;
  /// Errors: those of read_text_file; kBadFile for tools that are none.
  Result<host::AnswerInput> read() const;
  /// Whether the model has to call.
  bool needs_call() const { return choice != "auto" && choice != "none"; }
  /// What --tool-choice says of tools that were read, and of what an answer is held to. Errors: kInvalidArgument.
  Status choose(host::AnswerInput& answer, AnswerWish& wish) const;
  /// A model's. Errors: those of TextOptions::read; kInvalidArgument for a model without a template, if
  /// any of this is given.
  Result<host::ModelTexts> read_texts(const GgufFile& model) const;
};

/// A file of OpenAI's `messages`: a list of them, or an object with that. Errors: those of
/// read_text_file; kBadFile.
Result<std::vector<ChatMessage>> read_messages_file(const std::string& file);
/// How many tokens a prompt of messages has. Errors: those of ChatPrompt.
Result<size_t> n_prompt_tokens(const host::ModelTexts& texts,
                               const std::vector<ChatMessage>& messages,
                               const host::AnswerInput& answer);

/// Puts what an answer is into `json`: "text" alone, "reasoning", "tool_calls" as OpenAI has them,
/// "events" [{"type": "text", "text": …}, {"type": "call_begun", "call", "name", "id"}, …].
void add_answer(std::span<const AnswerEvent> events, nlohmann::json& json);

}  // namespace pumice::tools
