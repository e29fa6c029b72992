// What a session is besides tokens and sampling, as the note of its saved sequence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "engine/requests.hpp"
#include "scheduler/request.hpp"
#include "text/conversation.hpp"

namespace pumice::host {

struct ConversationNote {
  ServiceClass service_class = ServiceClass::kNormal;
  int32_t priority = 0;
  double max_tokens_per_s = 0;
  GenerationRequest::Delivery delivery = GenerationRequest::Delivery::kToken;
  /// Bytes at the end of the last answer's text that no event has brought.
  uint64_t held_bytes = 0;
  Conversation conversation = {};
};

/// Little-endian, with a version of its own.
std::string write_conversation_note(const ConversationNote& note);
/// Errors (kBadFile): not a note, or one of another version.
Result<ConversationNote> read_conversation_note(std::string_view bytes);

}  // namespace pumice::host
