#include "host/conversation_note.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.hpp"

namespace pumice::host {
namespace {

static_assert(std::endian::native == std::endian::little, "bytes are written as memory is");

using Delivery = GenerationRequest::Delivery;

constexpr uint32_t kVersion = 1;
/// Where messages have more than content: then each is JSON.
constexpr uint32_t kVersionWithCalls = 2;
constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

struct Header {
  uint32_t version = kVersion;
  uint32_t service_class = 0;
  int32_t priority = 0;
  uint32_t n_messages = 0;
  uint64_t held_bytes = 0;
  uint64_t max_tokens_per_s = 0;  // a double's bits
  uint32_t by_sentences = 0;
  uint32_t reserved = 0;
};
struct MessageHeader {
  uint16_t role = 0;     // of kRoles; of JSON 0
  uint16_t special = 0;  // 1: its control tokens are tokens
  uint32_t n_bytes = 0;
};

template <typename T>
void append(std::string& bytes, const T& value) {
  static_assert(std::has_unique_object_representations_v<T>, "no padding is written");
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// False: there are not as many bytes left.
template <typename T>
bool take(std::string_view& bytes, T& value) {
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return true;
}

Error refused(std::string_view reason) {
  return make_error(ErrorCode::kBadFile, "saved session: {}", reason);
}

bool is_plain(const ChatMessage& message) {
  return std::ranges::find(kRoles, message.role) != kRoles.end() && message.reasoning.empty() &&
         message.calls.empty() && message.call_id.empty();
}

Result<ChatMessage> message_of(std::string_view bytes, const MessageHeader& header,
                               uint32_t version) {
  ChatMessage message;
  if (version == kVersion) {
    message = {.role = std::string(kRoles[header.role]), .content = std::string(bytes)};
  } else {
    PUMICE_TRY(const nlohmann::ordered_json json, read_ordered_json(bytes, bytes.size()));
    PUMICE_TRY(message, read_message(json));
  }
  message.special = header.special == 1;
  return message;
}

Result<Conversation> take_conversation(std::string_view& bytes, uint32_t n_messages,
                                       uint32_t version) {
  Conversation conversation;
  for (uint32_t i = 0; i < n_messages; ++i) {
    MessageHeader header;
    if (!take(bytes, header) || header.role >= kRoles.size() || header.special > 1 ||
        header.n_bytes > bytes.size()) {
      return refused("its messages are malformed");
    }
    Result<ChatMessage> message = message_of(bytes.substr(0, header.n_bytes), header, version);
    if (!message.ok()) return refused("its messages are malformed");
    bytes.remove_prefix(header.n_bytes);
    if (message->role == kRoles[0] && version == kVersion) {
      conversation.set_system(std::move(message->content), message->special);
    } else {
      conversation.add(*std::move(message));
    }
  }
  if (n_messages > 0 && (conversation.messages().size() != n_messages ||
                         conversation.messages().back().role != kRoles[2])) {
    return refused("its messages do not end with an answer");
  }
  return conversation;
}

}  // namespace

std::string write_conversation_note(const ConversationNote& note) {
  const std::vector<ChatMessage>& messages = note.conversation.messages();
  const bool plain = std::ranges::all_of(messages, is_plain);
  std::string bytes;
  append(bytes, Header{.version = plain ? kVersion : kVersionWithCalls,
                       .service_class = static_cast<uint32_t>(note.service_class),
                       .priority = note.priority,
                       .n_messages = static_cast<uint32_t>(messages.size()),
                       .held_bytes = note.held_bytes,
                       .max_tokens_per_s = std::bit_cast<uint64_t>(note.max_tokens_per_s),
                       .by_sentences = note.delivery == Delivery::kSentence});
  for (const ChatMessage& message : messages) {
    const auto role = plain ? std::ranges::find(kRoles, message.role) - kRoles.begin() : 0;
    const std::string text =
        plain ? message.content
              : message_json(message).dump(-1, ' ', false,
                                           nlohmann::ordered_json::error_handler_t::replace);
    append(bytes, MessageHeader{.role = static_cast<uint16_t>(role),
                                .special = message.special,
                                .n_bytes = static_cast<uint32_t>(text.size())});
    bytes += text;
  }
  return bytes;
}

Result<ConversationNote> read_conversation_note(std::string_view bytes) {
  Header header;
  if (!take(bytes, header)) return refused("it has no note");
  if (header.version != kVersion && header.version != kVersionWithCalls) {
    return make_error(ErrorCode::kBadFile,
                      "saved session: version {}, this program reads {} and {}", header.version,
                      kVersion, kVersionWithCalls);
  }
  const double rate = std::bit_cast<double>(header.max_tokens_per_s);
  if (header.service_class >= kServiceClasses || !(rate >= 0) || std::isinf(rate)) {
    return refused("its service class or rate is out of range");
  }
  ConversationNote note{
      .service_class = static_cast<ServiceClass>(header.service_class),
      .priority = header.priority,
      .max_tokens_per_s = rate,
      .delivery = header.by_sentences != 0 ? Delivery::kSentence : Delivery::kToken,
      .held_bytes = header.held_bytes};
  PUMICE_TRY(note.conversation, take_conversation(bytes, header.n_messages, header.version));
  if (!bytes.empty()) return refused("it is longer than its contents");
  return note;
}

}  // namespace pumice::host
