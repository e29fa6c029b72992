// A conversation with a model: messages, and how they become the text that a model reads.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "text/chat_template.hpp"
#include "text/content_mask.hpp"
#include "text/tokenizer.hpp"

namespace pumice {

/// That the assistant wants a function to be called.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  ///< a JSON object

  bool operator==(const ToolCall&) const = default;
};

struct ChatMessage {
  std::string role;  ///< "system", "developer", "user", "assistant" or "tool"
  std::string content = {};
  std::string reasoning = {};        ///< of the assistant, where it is known apart from the content
  std::vector<ToolCall> calls = {};  ///< likewise
  /// Of a tool's result: which call it answers; empty: the first that has none yet.
  std::string call_id = {};
  /// Spellings of control tokens ("<|im_end|>") in it are these tokens. Only for texts of whom you
  /// trust to write the template's own marks; otherwise they stay text.
  bool special = false;

  bool operator==(const ChatMessage&) const = default;
};

/// As OpenAI's `messages` are: {"role", "content", "reasoning_content", "tool_calls",
/// "tool_call_id"}. A content may be null beside calls, or a list of texts; `reasoning` is read too.
/// Errors (kInvalidArgument): what is wrong with it; roles are not checked.
Result<ChatMessage> read_message(const nlohmann::ordered_json& json);
/// A list of them, or an object with that as "messages". Errors: also kInvalidArgument for anything else, and for none.
Result<std::vector<ChatMessage>> read_messages(const nlohmann::ordered_json& json);
nlohmann::ordered_json message_json(const ChatMessage& message);
/// [{"id", "type": "function", "function": {"name", "arguments"}}, …]
nlohmann::ordered_json calls_json(std::span<const ToolCall> calls);

/// How messages become tokens: by a chat template or, plainly, one after the other, which a model
/// that is no chat model continues. Copyable; any number of threads may encode.
class ChatFormat {
 public:
  /// The plain one.
  ChatFormat() = default;
  /// `source`: a template; it sees the texts of the vocabulary's BOS and EOS. Errors: those of
  /// ChatTemplate::parse.
  static Result<ChatFormat> create(std::string_view source, const Vocabulary& vocabulary);

  bool is_plain() const { return !template_; }

  /// The text up to where the assistant's answer begins. The system's message comes first if there
  /// is one; where a template refuses it, it stands at the start of the first message of the user.
  /// Errors: those of ChatTemplate::render and ContentMask::hide.
  Result<RenderedPrompt> render(std::span<const ChatMessage> messages,
                                const Tokenizer& tokenizer) const;

  /// With one BOS where the vocabulary asks for it, whether or not the template wrote it. Errors:
  /// those of Tokenizer::encode.
  static Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer,
                                             const RenderedPrompt& prompt);

 private:
  Result<std::string> render_hidden(std::span<const ChatMessage> messages) const;
  Result<std::string> render_by_template(std::span<const ChatMessage> messages) const;

  std::optional<ChatTemplate> template_;
  std::set<std::string, std::less<>> named_tags_;  // in the template
  std::string bos_;
  std::string eos_;
};

/// Messages in turns: perhaps one of the system's, then the user's and the assistant's, and behind
/// calls of the assistant's the tools' results. One thread.
class Conversation {
 public:
  /// As the file of `to_json` has it; `special` of every message as given. Errors (kBadFile): what
  /// is wrong with it.
  static Result<Conversation> parse(std::string_view json, bool special = false);
  std::string to_json() const;

  const std::vector<ChatMessage>& messages() const { return messages_; }
  /// The system's message; empty: none.
  std::string system() const;
  void set_system(std::string text, bool special = false);

  void ask(std::string text, bool special = false) {
    add({.role = "user", .content = std::move(text), .special = special});
  }
  void answer(std::string text, bool special = false) {
    add({.role = "assistant", .content = std::move(text), .special = special});
  }
  void add(ChatMessage message) { messages_.push_back(std::move(message)); }
  void remove_last() { messages_.pop_back(); }
  /// Whether the last message is a question, or a tool's result.
  bool awaits_answer() const;
  /// Without the last question and what followed it. False: there is none.
  bool undo();
  /// Without the last answer: what is left awaits one. False: there is no question.
  bool take_back_answer();
  void clear();
  size_t n_questions() const;
  /// Messages but for the system's.
  size_t n_said() const;

 private:
  std::vector<ChatMessage> messages_;
};

/// What `conversation` is to a model whose prompts have `max_tokens` at most: all of it or, with
/// `forget`, without as many of its oldest exchanges as do not fit, which the conversation itself
/// keeps.
struct FittedPrompt {
  std::string text;
  std::vector<TokenId> tokens;
  size_t n_forgotten = 0;  ///< questions left out
  size_t n_rendered = 0;   ///< prompts that were made to find that number
};
struct FitOptions {
  size_t max_tokens = 0;
  bool forget = false;
  /// Of the conversation's last prompt, where the search begins: with the right number a prompt is
  /// rendered once or twice, with any other a number of times that grows as its logarithm.
  size_t n_forgotten = 0;
};
using RenderMessages = std::function<Result<RenderedPrompt>(std::span<const ChatMessage>)>;
/// Errors: kDoesNotFit, with the numbers; those of `render` and `encode`.
Result<FittedPrompt> fit_prompt(const Conversation& conversation, const RenderMessages& render,
                                const Tokenizer& tokenizer, const FitOptions& options);
Result<FittedPrompt> fit_prompt(const Conversation& conversation, const ChatFormat& format,
                                const Tokenizer& tokenizer, const FitOptions& options);

/// Tells the reasoning that some models begin with, between <think> and </think>, from the answer,
/// as text comes. One thread.
class ReasoningSplitter {
 public:
  struct Piece {
    std::string text;
    bool is_reasoning = false;
  };

  /// `open`: the prompt ended with <think> already.
  explicit ReasoningSplitter(bool open) : state_(open ? State::kReasoning : State::kStart) {}
  /// Whether a rendered prompt ends so.
  static bool is_open(std::string_view prompt);

  /// What is known of the text so far; the tags and blanks around them belong to nothing.
  std::vector<Piece> feed(std::string_view text);
  /// What was held back, at the end.
  std::vector<Piece> flush();

 private:
  enum class State { kStart, kReasoning, kGap, kAnswer };

  std::string held_;  // may be the start of a tag
  State state_;
};

}  // namespace pumice
