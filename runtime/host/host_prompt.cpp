// Host: from a caller's words to a request.
#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/printable.hpp"
#include "engine/prompt_lookup.hpp"
#include "host/host.hpp"

namespace pumice::host {
namespace {

bool has_calls(const Conversation& conversation) {
  return std::ranges::any_of(conversation.messages(), [](const ChatMessage& message) {
    return !message.calls.empty() || message.role == "tool";
  });
}

Result<Conversation> with_messages(Conversation conversation,
                                   const std::vector<ChatMessage>& messages, bool special) {
  for (const ChatMessage& message : messages) {
    if (message.role == "system") {
      conversation.set_system(message.content, special);
    } else if (message.role == "user") {
      conversation.ask(message.content, special);
    } else if (message.role == "assistant") {
      conversation.answer(message.content, special);
    } else {
      return make_error(ErrorCode::kInvalidArgument,
                        "a message's role is \"{}\", expected system, user or assistant",
                        printable(message.role));
    }
  }
  if (!conversation.awaits_answer()) {
    return make_error(ErrorCode::kInvalidArgument, "the last message must be from the user");
  }
  if (has_calls(conversation)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this session has calls of tools: its answers must be asked for as events");
  }
  return conversation;
}

/// As they are: ChatPrompt evens them out.
Result<Conversation> with_any_messages(Conversation conversation,
                                       const std::vector<ChatMessage>& messages, bool special) {
  for (ChatMessage message : messages) {
    message.special = message.special || special;
    conversation.add(std::move(message));
  }
  const std::vector<ChatMessage>& all = conversation.messages();
  const bool goes_on = !all.empty() && all.back().role == "assistant" && all.back().calls.empty();
  if (goes_on || conversation.awaits_answer()) return conversation;
  return make_error(ErrorCode::kInvalidArgument,
                    "the last message must be from the user or a tool, or an answer of the "
                    "assistant's that goes on");
}

}  // namespace

Result<Host::Prepared> Host::prepare(RequestInput input,
                                     const OpenConversation& conversation) const {
  Prepared prepared;
  prepared.record.submitted = Clock::now();
  const ConversationDefaults& defaults = conversation.defaults;
  GenerationRequest& request = prepared.request;
  request.sampling = input.sampling ? std::move(*input.sampling) : defaults.sampling;
  request.tokenizer = model_->texts().tokenizer;
  request.ignore_end = input.ignore_end;
  request.stop_strings = std::move(input.stops);
  request.service_class = defaults.service_class;
  request.priority = defaults.priority;
  request.client = defaults.client;
  request.timeout_s = input.timeout_s;
  request.salt = defaults.salt;
  request.adapter = defaults.adapter;
  request.max_tokens_per_s = defaults.max_tokens_per_s;
  request.delivery = defaults.delivery;
  request.log_probs = input.log_probs;
  request.most_draft_tokens = input.speculation.most_tokens;
  request.adapts_drafts = input.speculation.guesses == Speculation::Guesses::kAuto;
  const bool answers =
      input.text.empty() && input.tokens.empty() && conversation.said.awaits_answer();
  const bool has_messages = !input.messages.empty() || answers;
  if (input.answer && !has_messages) {
    return make_error(ErrorCode::kInvalidArgument,
                      "only the answer to messages can be told apart into events");
  }
  PUMICE_TRY_STATUS(!has_messages   ? add_text(input, conversation, prepared)
                    : !input.answer ? add_messages(input, conversation, prepared)
                                    : add_reply(input, conversation, prepared));
  if (request.prompt.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "the prompt is empty");
  }
  PUMICE_TRY_STATUS(have_drafted(input.speculation, request));
  PUMICE_TRY_STATUS(hold(input, prepared));
  PUMICE_TRY(request.max_new_tokens, new_tokens(input, request.prompt.size()));
  PUMICE_TRY_STATUS(engine_->check(request));
  prepared.record.tokens = request.prompt;
  return prepared;
}

/// What was compiled already holds a whole text; an answer that has more than that gets its own.
Status Host::hold(const RequestInput& input, Prepared& prepared) const {
  prepared.request.constraint = input.constraint;
  const AnswerFrame& frame = prepared.frame;
  const bool is_compiled = input.constraint != nullptr && frame.is_text_alone();
  if (!input.wish.given() || is_compiled) return {};
  const ModelTexts& texts = model_->texts();
  PUMICE_TRY(prepared.request.constraint,
             texts.constraint_cache->get(answer_constraint_key(input.wish, frame), [&] {
               return answer_constraint(input.wish, frame, *texts.tokenizer);
             }));
  return {};
}

Status Host::have_drafted(const Speculation& speculation, GenerationRequest& request) const {
  switch (speculation.guesses) {
    case Speculation::Guesses::kNone:
      return {};
    case Speculation::Guesses::kLookup:
    case Speculation::Guesses::kAuto:
      request.drafter = prompt_lookup_drafter(speculation.expected, request.prompt.size());
      return {};
    case Speculation::Guesses::kModel:
      if (draft_model_ == nullptr) {
        return make_error(ErrorCode::kInvalidArgument,
                          "this engine was made without a draft model");
      }
      request.drafter = [model = draft_model_](std::span<const TokenId> tokens, uint32_t most) {
        return model->guess(tokens, most);
      };
      return {};
    case Speculation::Guesses::kBlock:
      if (prediction_ == nullptr) {
        return make_error(ErrorCode::kInvalidArgument,
                          "this engine was made without the model's block that predicts");
      }
      PredictionDrafter::draft(prediction_, request);
      return {};
  }
  PUMICE_CHECK(false, "no such guesses");
}

Status Host::add_text(const RequestInput& input, const OpenConversation& conversation,
                      Prepared& prepared) const {
  const bool goes_on = input.text.empty() && input.tokens.empty();
  if (goes_on && conversation.tokens.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "there is no prompt: give text, tokens or messages");
  }
  if (!goes_on && !conversation.said.messages().empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this session began with messages and cannot continue with text or tokens");
  }
  std::vector<TokenId>& prompt = prepared.request.prompt;
  prompt = conversation.tokens;
  if (!input.tokens.empty()) {
    prompt.insert(prompt.end(), input.tokens.begin(), input.tokens.end());
  } else if (!goes_on) {
    PUMICE_TRY(
        const std::vector<TokenId> tokens,
        model_->texts().tokenizer->encode(input.text, {.add_special = conversation.tokens.empty(),
                                                       .parse_special = input.special}));
    prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  }
  const size_t n_new = prompt.size() - conversation.tokens.size();
  if (!conversation.tokens.empty()) {
    const size_t n_before = prompt.size();
    make_room(input.max_new_tokens, prompt);
    prepared.record.shifted = prompt.size() < n_before;
  }
  if (!goes_on) {
    prepared.record.turn =
        Turn{.begin = prompt.size() - std::min(n_new, prompt.size()), .prompt_end = prompt.size()};
  }
  return goes_on ? go_on(input, conversation, prepared) : Status();
}

/// The prompt is the conversation's: what comes is more of its last answer.
Status Host::go_on(const RequestInput& input, const OpenConversation& conversation,
                   Prepared& prepared) const {
  const std::vector<ChatMessage>& said = conversation.said.messages();
  if (!said.empty() && (!said.back().calls.empty() || !said.back().reasoning.empty())) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the last answer was told apart into reasoning and calls and cannot go on");
  }
  GenerationRequest& request = prepared.request;
  OpenRequest& record = prepared.record;
  record.last = conversation.last;
  record.last.n_tokens =
      static_cast<uint32_t>(std::min<size_t>(conversation.last.n_tokens, request.prompt.size()));
  request.n_output_in_prompt = record.last.n_tokens;
  request.first_output_index = record.last.next_output_index;
  const size_t n_held = std::exchange(record.last.held_bytes, 0);
  request.prompt_text_given = n_held == 0;
  if (n_held > 0) {
    record.n_streamed = record.last.n_tokens;
    const size_t n_bytes = text_of(std::span(request.prompt).last(record.n_streamed)).size();
    record.given_bytes = n_bytes - std::min(n_held, n_bytes);
  }
  if (said.empty()) return {};
  record.answer = said.back().content;
  record.answer.resize(record.answer.size() - std::min(n_held, record.answer.size()));
  record.said = conversation.said;
  record.said->take_back_answer();
  if (!input.wish.given()) return {};
  // What was said of it already is held to the same.
  PUMICE_TRY(const FittedPrompt fitted, fit_said(*record.said, input, conversation));
  frame_text(fitted.text, *record.said, prepared);
  return {};
}

Status Host::add_messages(const RequestInput& input, const OpenConversation& conversation,
                          Prepared& prepared) const {
  if (conversation.said.messages().empty() && !conversation.tokens.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this session began with text or tokens and cannot continue with messages");
  }
  PUMICE_TRY(Conversation said, with_messages(conversation.said, input.messages, input.special));
  PUMICE_TRY(FittedPrompt fitted, fit_said(said, input, conversation));
  prepared.request.prompt = std::move(fitted.tokens);
  prepared.record.n_forgotten = static_cast<uint32_t>(fitted.n_forgotten);
  prepared.begins_reasoning = ReasoningSplitter::is_open(fitted.text);
  if (prepared.begins_reasoning) prepared.record.answer = "<think>\n";
  if (input.wish.given()) frame_text(fitted.text, said, prepared);
  prepared.record.said = std::move(said);
  return {};
}

Result<FittedPrompt> Host::fit_said(const Conversation& said, const RequestInput& input,
                                    const OpenConversation& conversation) const {
  const ModelTexts& texts = model_->texts();
  if (!texts.format->ok()) return texts.format->error();
  return fit_prompt(said, **texts.format, *texts.tokenizer, fit_options(input, conversation));
}

/// Of a model without a template an answer is text alone.
void Host::frame_text(std::string_view prompt, const Conversation& said, Prepared& prepared) const {
  const Result<ChatPrompt>& chat = model_->texts().prompt->get();
  if (chat.ok()) prepared.frame = chat->frame(prompt, {.messages = said.messages()});
}

/// Messages with tools, whose answer is told apart.
Status Host::add_reply(const RequestInput& input, const OpenConversation& conversation,
                       Prepared& prepared) const {
  if (conversation.said.messages().empty() && !conversation.tokens.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this session began with text or tokens and cannot continue with messages");
  }
  const std::shared_ptr<const Tokenizer>& tokenizer = model_->texts().tokenizer;
  const Result<ChatPrompt>& prompt = model_->texts().prompt->get();
  if (!prompt.ok()) return prompt.error();
  PUMICE_TRY(Conversation said,
             with_any_messages(conversation.said, input.messages, input.special));
  const auto render = [&](std::span<const ChatMessage> messages) {
    return prompt->render({.messages = {messages.begin(), messages.end()},
                           .tools = input.answer->tools.get(),
                           .variables = input.answer->variables},
                          *tokenizer);
  };
  PUMICE_TRY(FittedPrompt fitted,
             fit_prompt(said, render, *tokenizer, fit_options(input, conversation)));
  OpenRequest& record = prepared.record;
  prepared.request.prompt = std::move(fitted.tokens);
  record.n_forgotten = static_cast<uint32_t>(fitted.n_forgotten);
  prepared.frame = prompt->frame(
      fitted.text, {.messages = said.messages(), .variables = input.answer->variables});
  prepared.frame.tools = input.answer->tools.get();
  prepared.begins_reasoning = prepared.frame.begins_reasoning;
  // Ids differ between a conversation's answers, and are the same when it is asked again.
  constexpr uint64_t kOdd = 0xD1342543DE82EF95u;
  AnswerOptions options{
      .begins_reasoning = prepared.begins_reasoning,
      .id_seed = prepared.request.sampling.seed + kOdd * prepared.request.prompt.size()};
  if (input.answer->tools != nullptr) options.tools = input.answer->tools;
  const ChatMessage last = said.messages().back();
  const bool goes_on = last.role == "assistant";
  record.reply = std::make_shared<Reply>(tokenizer, prompt->answers(), options,
                                         goes_on ? last : ChatMessage());
  if (goes_on) said.remove_last();
  record.said = std::move(said);
  return {};
}

FitOptions Host::fit_options(const RequestInput& input,
                             const OpenConversation& conversation) const {
  // Without a number a quarter of the context is the answer's.
  const uint32_t wanted = input.answer_room_tokens != 0 ? input.answer_room_tokens
                          : input.max_new_tokens != 0   ? input.max_new_tokens
                                                        : window_ / 4;
  const uint32_t room = window_ - std::clamp(wanted, 1u, std::max(window_ / 2, 1u));
  return {.max_tokens = room, .forget = forgets_messages_, .n_forgotten = conversation.n_forgotten};
}

/// A conversation whose text outgrew a context that shifts loses older text, as a request would.
void Host::make_room(uint32_t max_new_tokens, std::vector<TokenId>& prompt) const {
  if (overflow_ != OverflowPolicy::kShift) return;
  const uint32_t wanted = std::clamp(max_new_tokens, 1u, std::max(window_ / 2, 1u));
  const size_t most = window_ - wanted;
  if (prompt.size() <= most) return;
  const size_t n_kept = std::min<size_t>(keep_tokens_, most);
  const auto first = prompt.begin() + static_cast<ptrdiff_t>(n_kept);
  prompt.erase(first, first + static_cast<ptrdiff_t>(prompt.size() - most));
}

Result<uint32_t> Host::new_tokens(const RequestInput& input, size_t prompt_tokens) const {
  const bool stops = overflow_ == OverflowPolicy::kStop;
  const auto left = static_cast<uint32_t>(window_ - std::min<size_t>(window_, prompt_tokens));
  if (input.max_new_tokens != 0) {
    if (!input.within_window) return input.max_new_tokens;
    // At least one, so that the engine says what is wrong with a prompt that leaves none.
    return std::min(input.max_new_tokens, std::max(left, 1u));
  }
  if (!stops) return window_;
  if (left > 0) return left;
  return make_error(ErrorCode::kDoesNotFit,
                    "a prompt of {} tokens leaves no room for an answer in a context of {}",
                    prompt_tokens, window_);
}

}  // namespace pumice::host
