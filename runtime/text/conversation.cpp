#include "text/conversation.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.hpp"
#include "base/printable.hpp"

namespace pumice {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxSavedBytes = 64 << 20;  // far beyond what any model reads
constexpr std::string_view kSystem = "system";
constexpr std::string_view kUser = "user";
constexpr std::string_view kAssistant = "assistant";
constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kBlanks = " \t\r\n";

bool is_from(const ChatMessage& message, std::string_view role) { return message.role == role; }

/// How much of the end of `text` is a start of `tag`, less than all of it.
size_t n_started(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.ends_with(tag.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

Result<ChatFormat> ChatFormat::create(std::string_view source, const Vocabulary& vocabulary) {
  ChatFormat format;
  PUMICE_TRY(format.template_, ChatTemplate::parse(source));
  if (vocabulary.bos()) format.bos_ = vocabulary.text(*vocabulary.bos());
  if (vocabulary.eos()) format.eos_ = vocabulary.text(*vocabulary.eos());
  return format;
}

Result<std::string> ChatFormat::render_by_template(std::span<const ChatMessage> messages) const {
  Json context = {{"messages", Json::array()},
                  {"add_generation_prompt", true},
                  {"bos_token", bos_},
                  {"eos_token", eos_}};
  for (const ChatMessage& message : messages) {
    context["messages"].push_back({{"role", message.role}, {"content", message.content}});
  }
  return template_->render(context);
}

Result<std::string> ChatFormat::render(std::span<const ChatMessage> messages) const {
  if (is_plain()) {
    std::string text;
    for (const ChatMessage& message : messages) {
      const bool needs_blank = !text.empty() && kBlanks.find(text.back()) == std::string_view::npos;
      if (needs_blank && !is_from(message, kAssistant)) text += '\n';
      text += message.content;
    }
    return text;
  }
  Result<std::string> text = render_by_template(messages);
  const bool has_system = !messages.empty() && is_from(messages.front(), kSystem);
  if (text.ok() || !has_system || messages.size() < 2) return text;
  std::vector<ChatMessage> merged(messages.begin() + 1, messages.end());
  merged.front().content = messages.front().content + "\n\n" + merged.front().content;
  Result<std::string> without = render_by_template(merged);
  return without.ok() ? without : text;
}

Result<std::vector<TokenId>> ChatFormat::encode(const Tokenizer& tokenizer, std::string_view text) {
  PUMICE_TRY(std::vector<TokenId> tokens,
             tokenizer.encode(text, {.add_special = false, .parse_special = true}));
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const bool has_bos = !tokens.empty() && vocabulary.bos() == tokens.front();
  if (vocabulary.add_bos() && vocabulary.bos() && !has_bos) {
    tokens.insert(tokens.begin(), *vocabulary.bos());
  }
  return tokens;
}

Result<Conversation> Conversation::parse(std::string_view json) {
  const auto bad = [](std::string_view what) {
    return make_error(ErrorCode::kBadFile, "no conversation: {}", what);
  };
  const Result<Json> read = read_ordered_json(json, kMaxSavedBytes);
  if (!read.ok()) return bad(read.error().message);
  const Json& root = *read;
  if (!root.is_object() || !root.contains("messages") || !root["messages"].is_array()) {
    return bad("it is not a JSON object with an array \"messages\"");
  }
  Conversation conversation;
  for (const Json& message : root["messages"]) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        !message.contains("content") || !message["content"].is_string()) {
      return bad("a message is not an object with texts \"role\" and \"content\"");
    }
    const auto role = message["role"].get<std::string>();
    const std::vector<ChatMessage>& so_far = conversation.messages_;
    const bool after_user = !so_far.empty() && is_from(so_far.back(), kUser);
    const bool fits = role == kSystem      ? so_far.empty()
                      : role == kUser      ? !after_user
                      : role == kAssistant ? after_user
                                           : false;
    if (!fits) {
      return bad(
          fmt::format("message {} is from '{}'; the system's comes first, then the user's "
                      "and the assistant's in turns",
                      so_far.size() + 1, printable(role, 40)));
    }
    conversation.messages_.push_back({role, message["content"].get<std::string>()});
  }
  return conversation;
}

std::string Conversation::to_json() const {
  Json messages = Json::array();
  for (const ChatMessage& message : messages_) {
    messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  return Json{{"messages", messages}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Conversation::system() const {
  return !messages_.empty() && is_from(messages_.front(), kSystem) ? messages_.front().content : "";
}

void Conversation::set_system(std::string text) {
  if (!messages_.empty() && is_from(messages_.front(), kSystem)) messages_.erase(messages_.begin());
  if (!text.empty()) {
    messages_.insert(messages_.begin(), {std::string(kSystem), std::move(text)});
  }
}

bool Conversation::take_back_answer() {
  if (n_questions() == 0) return false;
  while (!is_from(messages_.back(), kUser)) messages_.pop_back();
  return true;
}

bool Conversation::undo() {
  if (!take_back_answer()) return false;
  messages_.pop_back();
  return true;
}

void Conversation::clear() {
  std::erase_if(messages_, [](const ChatMessage& message) { return !is_from(message, kSystem); });
}

size_t Conversation::n_questions() const {
  return static_cast<size_t>(std::ranges::count_if(
      messages_, [](const ChatMessage& message) { return is_from(message, kUser); }));
}

bool Conversation::forget_oldest() {
  if (n_questions() < 2) return false;
  const auto is_question = [](const ChatMessage& message) { return is_from(message, kUser); };
  const auto first = std::ranges::find_if(messages_, is_question);
  messages_.erase(first, std::find_if(first + 1, messages_.end(), is_question));
  return true;
}

Result<FittedPrompt> fit_prompt(const Conversation& conversation, const ChatFormat& format,
                                const Tokenizer& tokenizer, size_t max_tokens, bool forget) {
  Conversation remembered = conversation;
  FittedPrompt prompt;
  for (;;) {
    PUMICE_TRY(prompt.text, format.render(remembered.messages()));
    PUMICE_TRY(prompt.tokens, ChatFormat::encode(tokenizer, prompt.text));
    if (prompt.tokens.size() <= max_tokens) return prompt;
    if (!forget || !remembered.forget_oldest()) {
      return make_error(ErrorCode::kDoesNotFit,
                        "the {} has {} tokens, {} more than the context has room for",
                        remembered.n_questions() > 1 ? "conversation" : "message",
                        prompt.tokens.size(), prompt.tokens.size() - max_tokens);
    }
    ++prompt.n_forgotten;
  }
}

bool ReasoningSplitter::is_open(std::string_view prompt) {
  const size_t last = prompt.find_last_not_of(kBlanks);
  return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(kOpen);
}

std::vector<ReasoningSplitter::Piece> ReasoningSplitter::feed(std::string_view text) {
  std::vector<Piece> pieces;
  const auto give = [&](size_t n, bool is_reasoning) {
    if (n > 0) pieces.push_back({held_.substr(0, n), is_reasoning});
    held_.erase(0, n);
  };
  held_ += text;
  for (;;) {
    if (state_ == State::kStart || state_ == State::kGap) {
      // Blanks before a tag, and behind one, are nobody's; before an answer that has none they are.
      const size_t first = held_.find_first_not_of(kBlanks);
      if (first == std::string::npos) return pieces;
      const std::string_view rest = std::string_view(held_).substr(first);
      if (state_ == State::kStart && kOpen.starts_with(rest.substr(0, kOpen.size()))) {
        if (rest.size() < kOpen.size()) return pieces;
        held_.erase(0, first + kOpen.size());
        state_ = State::kReasoning;
        continue;
      }
      if (state_ == State::kGap) held_.erase(0, first);
      state_ = State::kAnswer;
    }
    if (state_ == State::kAnswer) {
      give(held_.size(), false);
      return pieces;
    }
    const size_t close = held_.find(kClose);
    if (close == std::string::npos) {
      give(held_.size() - n_started(held_, kClose), true);
      return pieces;
    }
    give(close, true);
    held_.erase(0, kClose.size());
    state_ = State::kGap;
  }
}

std::vector<ReasoningSplitter::Piece> ReasoningSplitter::flush() {
  if (held_.empty() || state_ == State::kGap) return {};
  return {{std::exchange(held_, {}), state_ == State::kReasoning}};
}

}  // namespace pumice
