// Host: conversations as bytes.
#include <algorithm>
#include <utility>

#include "host/conversation_note.hpp"
#include "host/host.hpp"
#include "text/text_stream.hpp"

namespace pumice::host {

std::string Host::text_of(std::span<const TokenId> tokens) const {
  TextStream stream(model_->texts().tokenizer, {});
  std::string text;
  for (const TokenId token : tokens) text += stream.feed(token);
  return text + stream.flush();
}

Result<SavedSequence> Host::sequence_of(ConversationId id) const {
  OpenConversation conversation;
  std::optional<OpenRequest> request;
  {
    const std::lock_guard lock(mutex_);
    const auto it = conversations_.find(id);
    if (it == conversations_.end()) return no_conversation(id);
    conversation = it->second;
    if (conversation.request != RequestId::kNone) request = requests_.at(conversation.request);
  }
  if (request) {
    const std::string text = text_of(std::span(request->tokens).last(request->n_streamed));
    const std::string held = text.substr(std::min(request->given_bytes, text.size()));
    request->answer += held;
    request->last.held_bytes = held.size();
    keep_what_was_said(*std::move(request), conversation);
  }
  const auto n_tokens = static_cast<uint32_t>(conversation.tokens.size());
  ConversationDefaults& defaults = conversation.defaults;
  return SavedSequence{
      .tokens = std::move(conversation.tokens),
      .n_prompt = n_tokens - conversation.last.n_tokens,
      .sampling = std::move(defaults.sampling),
      .next_output_index = conversation.last.next_output_index,
      .salt = std::move(defaults.salt),
      .adapter = defaults.adapter,
      .note = write_conversation_note({.service_class = defaults.service_class,
                                       .priority = defaults.priority,
                                       .max_tokens_per_s = defaults.max_tokens_per_s,
                                       .delivery = defaults.delivery,
                                       .held_bytes = conversation.last.held_bytes,
                                       .conversation = std::move(conversation.said)})};
}

Result<std::span<const std::byte>> Host::save(ConversationId id) {
  PUMICE_TRY(SavedSequence sequence, sequence_of(id));
  PUMICE_TRY_STATUS(with_engine([&]() -> Status {
    saved_ = {};
    PUMICE_TRY(saved_, engine_->save(std::move(sequence)));
    return {};
  }));
  return std::span<const std::byte>(saved_);
}

Result<Restored> Host::restore(std::span<const std::byte> bytes, const RestoreOptions& options) {
  SavedSequence sequence;
  PUMICE_TRY_STATUS(with_engine([&]() -> Status {
    PUMICE_TRY(sequence, engine_->restore(bytes, options));
    return {};
  }));
  PUMICE_TRY(ConversationNote note, read_conversation_note(sequence.note));
  OpenConversation conversation{.defaults = {.sampling = std::move(sequence.sampling),
                                             .service_class = note.service_class,
                                             .priority = note.priority,
                                             .salt = std::move(sequence.salt),
                                             .adapter = sequence.adapter,
                                             .max_tokens_per_s = note.max_tokens_per_s,
                                             .delivery = note.delivery},
                                .tokens = std::move(sequence.tokens),
                                .last = {.next_output_index = sequence.next_output_index,
                                         .held_bytes = static_cast<size_t>(note.held_bytes)},
                                .said = std::move(note.conversation)};
  conversation.last.n_tokens =
      static_cast<uint32_t>(conversation.tokens.size()) - sequence.n_prompt;
  // Of text, what was said before the last answer is one prompt.
  if (!conversation.tokens.empty() && conversation.said.messages().empty()) {
    conversation.turns.push_back({.prompt_end = sequence.n_prompt, .last = conversation.last});
  }
  Restored restored{.state_tokens = sequence.state_tokens};
  PUMICE_TRY(restored.id, add_conversation(std::move(conversation)));
  return restored;
}

}  // namespace pumice::host
