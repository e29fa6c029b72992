// EngineHost: from a caller's words to a request.
#include <algorithm>
#include <utility>

#include "api/engine_host.hpp"
#include "base/printable.hpp"

namespace pumice::api {
namespace {

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
    return make_error(ErrorCode::kInvalidArgument, "the last message must be the user's");
  }
  return conversation;
}

}  // namespace

Result<EngineHost::Prepared> EngineHost::prepare(RequestInput input,
                                                 const OpenSession& session) const {
  Prepared prepared;
  prepared.record.submitted = Clock::now();
  GenerationRequest& request = prepared.request;
  request.sampling = input.sampling ? std::move(*input.sampling) : session.defaults.sampling;
  request.tokenizer = model_.tokenizer;
  request.ignore_end = input.ignore_end;
  request.stop_strings = std::move(input.stops);
  request.service_class = session.defaults.service_class;
  request.priority = session.defaults.priority;
  request.timeout_s = input.timeout_s;
  request.salt = session.defaults.salt;
  request.max_tokens_per_s = session.defaults.max_tokens_per_s;
  request.delivery = session.defaults.delivery;
  PUMICE_TRY_STATUS(input.messages.empty() ? add_text(input, session, prepared)
                                           : add_messages(input, session, prepared));
  if (request.prompt.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "the prompt is empty");
  }
  PUMICE_TRY(request.max_new_tokens, new_tokens(input.max_new_tokens, request.prompt.size()));
  PUMICE_TRY_STATUS(engine_->check(request));
  prepared.record.tokens = request.prompt;
  return prepared;
}

Status EngineHost::add_text(const RequestInput& input, const OpenSession& session,
                            Prepared& prepared) const {
  const bool goes_on = input.text.empty() && input.tokens.empty();
  if (goes_on && session.tokens.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "there is no prompt: text, tokens or messages");
  }
  if (!goes_on && !session.conversation.messages().empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this session is one of messages, which text or tokens cannot go on with");
  }
  std::vector<TokenId>& prompt = prepared.request.prompt;
  prompt = session.tokens;
  if (!input.tokens.empty()) {
    prompt.insert(prompt.end(), input.tokens.begin(), input.tokens.end());
  } else if (!goes_on) {
    PUMICE_TRY(const std::vector<TokenId> tokens,
               model_.tokenizer->encode(input.text, {.add_special = session.tokens.empty(),
                                                     .parse_special = input.special}));
    prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  }
  if (!session.tokens.empty()) make_room(input.max_new_tokens, prompt);
  if (goes_on) go_on(session, prepared);
  return {};
}

/// The prompt is the session's: what comes is more of its last answer.
void EngineHost::go_on(const OpenSession& session, Prepared& prepared) const {
  GenerationRequest& request = prepared.request;
  OpenRequest& record = prepared.record;
  record.last = session.last;
  record.last.n_tokens =
      static_cast<uint32_t>(std::min<size_t>(session.last.n_tokens, request.prompt.size()));
  request.n_output_in_prompt = record.last.n_tokens;
  request.first_output_index = record.last.next_output_index;
  const size_t n_held = std::exchange(record.last.held_bytes, 0);
  request.prompt_text_given = n_held == 0;
  if (n_held > 0) {
    record.n_streamed = record.last.n_tokens;
    const size_t n_bytes = text_of(std::span(request.prompt).last(record.n_streamed)).size();
    record.given_bytes = n_bytes - std::min(n_held, n_bytes);
  }
  if (session.conversation.messages().empty()) return;
  record.answer = session.conversation.messages().back().content;
  record.answer.resize(record.answer.size() - std::min(n_held, record.answer.size()));
  record.conversation = session.conversation;
  record.conversation->take_back_answer();
}

Status EngineHost::add_messages(const RequestInput& input, const OpenSession& session,
                                Prepared& prepared) const {
  if (session.conversation.messages().empty() && !session.tokens.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this session is one of text, which messages cannot go on with");
  }
  if (!model_.format->ok()) return model_.format->error();
  PUMICE_TRY(Conversation conversation,
             with_messages(session.conversation, input.messages, input.special));
  // Without a number a quarter of the context is the answer's.
  const uint32_t wanted = input.max_new_tokens != 0 ? input.max_new_tokens : window_ / 4;
  const uint32_t room = window_ - std::clamp(wanted, 1u, std::max(window_ / 2, 1u));
  PUMICE_TRY(FittedPrompt fitted, fit_prompt(conversation, **model_.format, *model_.tokenizer,
                                             {.max_tokens = room,
                                              .forget = overflow_ != OverflowPolicy::kStop,
                                              .n_forgotten = session.n_forgotten}));
  prepared.request.prompt = std::move(fitted.tokens);
  prepared.record.n_forgotten = static_cast<uint32_t>(fitted.n_forgotten);
  if (ReasoningSplitter::is_open(fitted.text)) prepared.record.answer = "<think>\n";
  prepared.record.conversation = std::move(conversation);
  return {};
}

/// A session whose text outgrew a context that shifts loses older text, as a request would.
void EngineHost::make_room(uint32_t max_new_tokens, std::vector<TokenId>& prompt) const {
  if (overflow_ != OverflowPolicy::kShift) return;
  const uint32_t wanted = std::clamp(max_new_tokens, 1u, std::max(window_ / 2, 1u));
  const size_t most = window_ - wanted;
  if (prompt.size() <= most) return;
  const size_t n_kept = std::min<size_t>(keep_tokens_, most);
  const auto first = prompt.begin() + static_cast<ptrdiff_t>(n_kept);
  prompt.erase(first, first + static_cast<ptrdiff_t>(prompt.size() - most));
}

Result<uint32_t> EngineHost::new_tokens(uint32_t wanted, size_t prompt_tokens) const {
  if (wanted != 0) return wanted;
  if (overflow_ != OverflowPolicy::kStop) return window_;
  if (prompt_tokens < window_) return window_ - static_cast<uint32_t>(prompt_tokens);
  return make_error(ErrorCode::kDoesNotFit,
                    "a prompt of {} tokens leaves no room for an answer in a context of {}",
                    prompt_tokens, window_);
}

}  // namespace pumice::api
