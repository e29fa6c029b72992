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
constexpr std::string_view kTool = "tool";
constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kBlanks = " \t\r\n";

bool is_from(const ChatMessage& message, std::string_view role) { return message.role == role; }

std::vector<size_t> questions_of(const std::vector<ChatMessage>& messages) {
  std::vector<size_t> questions;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (is_from(messages[i], kUser)) questions.push_back(i);
  }
  return questions;
}

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
  format.named_tags_ = tags_named_in(source);
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

Result<RenderedPrompt> ChatFormat::render(std::span<const ChatMessage> messages,
                                          const Tokenizer& tokenizer) const {
  ContentMask mask(tokenizer.special_tokens(), named_tags_);
  std::vector<ChatMessage> hidden(messages.begin(), messages.end());
  for (ChatMessage& message : hidden) {
    if (message.special) continue;
    PUMICE_TRY(message.content, mask.hide(message.content));
  }
  const Result<std::string> text = render_hidden(hidden);
  // A template's own words may quote a message.
  if (!text.ok()) return Error{text.error().code, mask.reveal(text.error().message).text};
  return mask.reveal(*text);
}

/// The text of messages as they are given.
Result<std::string> ChatFormat::render_hidden(std::span<const ChatMessage> messages) const {
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

Result<std::vector<TokenId>> ChatFormat::encode(const Tokenizer& tokenizer,
                                                const RenderedPrompt& prompt) {
  PUMICE_TRY(
      std::vector<TokenId> tokens,
      tokenizer.encode(prompt.text,
                       {.add_special = false, .parse_special = true, .literal = prompt.literal}));
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const bool has_bos = !tokens.empty() && vocabulary.bos() == tokens.front();
  if (vocabulary.add_bos() && vocabulary.bos() && !has_bos) {
    tokens.insert(tokens.begin(), *vocabulary.bos());
  }
  return tokens;
}

Result<Conversation> Conversation::parse(std::string_view json, bool special) {
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
  for (const Json& json_message : root["messages"]) {
    Result<ChatMessage> message = read_message(json_message);
    if (!message.ok()) return bad(message.error().message);
    const std::string& role = message->role;
    const std::vector<ChatMessage>& so_far = conversation.messages_;
    const bool after_result = !so_far.empty() && is_from(so_far.back(), kTool);
    const bool after_calls = !so_far.empty() && !so_far.back().calls.empty();
    const bool after_user = !so_far.empty() && is_from(so_far.back(), kUser);
    const bool fits = role == kSystem      ? so_far.empty()
                      : role == kUser      ? !after_user
                      : role == kAssistant ? after_user || after_result
                      : role == kTool      ? after_calls || after_result
                                           : false;
    if (!fits) {
      return bad(
          fmt::format("message {} is from '{}'; expected the system's message first, then the "
                      "user's and the assistant's in turn",
                      so_far.size() + 1, printable(role, 40)));
    }
    message->special = special;
    conversation.add(*std::move(message));
  }
  return conversation;
}

std::string Conversation::to_json() const {
  Json messages = Json::array();
  for (const ChatMessage& message : messages_) messages.push_back(message_json(message));
  return Json{{"messages", messages}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Conversation::system() const {
  return !messages_.empty() && is_from(messages_.front(), kSystem) ? messages_.front().content : "";
}

void Conversation::set_system(std::string text, bool special) {
  if (!messages_.empty() && is_from(messages_.front(), kSystem)) messages_.erase(messages_.begin());
  if (!text.empty()) {
    messages_.insert(
        messages_.begin(),
        {.role = std::string(kSystem), .content = std::move(text), .special = special});
  }
}

bool Conversation::awaits_answer() const {
  return !messages_.empty() &&
         (is_from(messages_.back(), kUser) || is_from(messages_.back(), kTool));
}

bool Conversation::take_back_answer() {
  if (n_questions() == 0) return false;
  while (!awaits_answer()) messages_.pop_back();
  return true;
}

bool Conversation::undo() {
  if (n_questions() == 0) return false;
  while (!is_from(messages_.back(), kUser)) messages_.pop_back();
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

size_t Conversation::n_said() const {
  return static_cast<size_t>(std::ranges::count_if(
      messages_, [](const ChatMessage& message) { return !is_from(message, kSystem); }));
}

namespace {

/// Prompts of a conversation without its oldest exchanges.
class PromptMaker {
 public:
  PromptMaker(const Conversation& conversation, const RenderMessages& render,
              const Tokenizer& tokenizer)
      : messages_(conversation.messages()),
        render_(render),
        tokenizer_(tokenizer),
        questions_(questions_of(messages_)) {}

  /// The last question is never forgotten.
  size_t most_forgotten() const { return questions_.empty() ? 0 : questions_.size() - 1; }

  Result<FittedPrompt> make(size_t n_forgotten) {
    ++n_rendered_;
    const auto begin = messages_.begin();
    std::vector<ChatMessage> remembered;
    if (n_forgotten == 0) {
      remembered = messages_;
    } else {
      remembered.assign(begin, begin + static_cast<ptrdiff_t>(questions_.front()));
      remembered.insert(remembered.end(), begin + static_cast<ptrdiff_t>(questions_[n_forgotten]),
                        messages_.end());
    }
    PUMICE_TRY(RenderedPrompt rendered, render_(remembered));
    FittedPrompt prompt{.n_forgotten = n_forgotten, .n_rendered = n_rendered_};
    PUMICE_TRY(prompt.tokens, ChatFormat::encode(tokenizer_, rendered));
    prompt.text = std::move(rendered.text);
    return prompt;
  }

  /// How many are to be forgotten until what is left has at most that many bytes.
  size_t forgotten_for(size_t max_bytes) const {
    size_t n_bytes = 0;
    size_t n = most_forgotten();
    for (size_t i = messages_.size(); i-- > 0;) {
      n_bytes += messages_[i].content.size();
      if (n_bytes > max_bytes) return std::min(n + 1, most_forgotten());
      if (n > 0 && i == questions_[n]) --n;
    }
    return n;
  }
  size_t n_bytes(size_t n_forgotten) const {
    size_t n_bytes = 0;
    for (size_t i = n_forgotten == 0 ? 0 : questions_[n_forgotten]; i < messages_.size(); ++i) {
      n_bytes += messages_[i].content.size();
    }
    return n_bytes;
  }

  size_t n_rendered() const { return n_rendered_; }

 private:
  const std::vector<ChatMessage>& messages_;
  const RenderMessages& render_;
  const Tokenizer& tokenizer_;
  std::vector<size_t> questions_;
  size_t n_rendered_ = 0;
};

}  // namespace

// Searched from where the last turn ended, in steps that double, then between. Where a prompt is
// far too long, as the first of a long conversation may be, its size tells where to go on.
Result<FittedPrompt> fit_prompt(const Conversation& conversation, const ChatFormat& format,
                                const Tokenizer& tokenizer, const FitOptions& options) {
  return fit_prompt(
      conversation,
      [&](std::span<const ChatMessage> messages) { return format.render(messages, tokenizer); },
      tokenizer, options);
}

Result<FittedPrompt> fit_prompt(const Conversation& conversation, const RenderMessages& render,
                                const Tokenizer& tokenizer, const FitOptions& options) {
  constexpr size_t kMostBytesPerToken = 16;  // nearly
  PromptMaker maker(conversation, render, tokenizer);
  const size_t most = options.forget ? maker.most_forgotten() : 0;
  size_t guess =
      std::max(options.n_forgotten, maker.forgotten_for(kMostBytesPerToken * options.max_tokens));
  std::optional<FittedPrompt> best;
  // Fewer than `low` are too few, `high` are enough.
  size_t low = 0;
  size_t high = most + 1;
  size_t step = 1;
  bool grows = false;  // in steps, towards more
  while (low < high) {
    const size_t n = std::clamp(guess, low, std::min(high - 1, most));
    Result<FittedPrompt> prompt = maker.make(n);
    // One that is too long for the template or the tokenizer is for the context too.
    const bool is_too_long = !prompt.ok() && prompt.error().code == ErrorCode::kDoesNotFit;
    if (!prompt.ok() && (!is_too_long || n == most)) return prompt;
    const size_t n_tokens = is_too_long ? 0 : prompt->tokens.size();
    const bool fits = !is_too_long && n_tokens <= options.max_tokens;
    if (!fits && n == most) {
      return make_error(ErrorCode::kDoesNotFit,
                        "the {} has {} tokens, {} more than the context has room for",
                        most == maker.most_forgotten() ? "message" : "conversation", n_tokens,
                        n_tokens - options.max_tokens);
    }
    if (fits) {
      high = n;
      best = std::move(prompt).value();
    } else {
      low = n + 1;
    }
    if (!fits && step == 1 && n_tokens / 2 > options.max_tokens) {
      guess = maker.forgotten_for(maker.n_bytes(n) * options.max_tokens / n_tokens);
      continue;
    }
    if (step == 1) grows = !fits;
    if (step == 0 || (step > 1 && grows == fits)) {
      step = 0;  // the last step went too far
      guess = low + (high - low) / 2;
    } else {
      guess = grows ? low + step - 1 : high - std::min(step, high);
      step *= 2;
    }
  }
  best->n_rendered = maker.n_rendered();
  return *std::move(best);
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
