#include "text/content_mask.hpp"

#include <algorithm>

#include "text/utf8.hpp"

namespace pumice {
namespace {

// Plane 15 but for its two noncharacters.
constexpr char32_t kFirstStandIn = 0xF0000;
constexpr size_t kStandIns = 0xFFFE;
constexpr size_t kMaxTagBytes = 64;

bool is_stand_in(std::string_view character) {
  if (character.size() != 4) return false;
  const char32_t code = decode_utf8(character);
  return code >= kFirstStandIn && code - kFirstStandIn < kStandIns;
}

bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

/// "</think>" of "</think>\n…"; empty where no tag begins.
std::string_view tag_at(std::string_view text) {
  const char closing = text.front() == '<' ? '>' : text.front() == '[' ? ']' : '\0';
  if (closing == '\0') return {};
  const std::string_view beginning = text.substr(0, kMaxTagBytes);
  return beginning.substr(0, beginning.find(closing) + 1);
}

/// The first character, or the first byte where that is not one.
std::string_view character_at(std::string_view text) {
  const Utf8Step step = utf8_step(text);
  return text.substr(0, step.kind == Utf8Kind::kComplete ? step.length : 1);
}

}  // namespace

std::set<std::string, std::less<>> tags_named_in(std::string_view source) {
  std::set<std::string, std::less<>> tags;
  for (size_t at = 0; at < source.size(); ++at) {
    if (const std::string_view tag = tag_at(source.substr(at)); !tag.empty()) tags.emplace(tag);
  }
  return tags;
}

/// A spelling may also come about as the template cuts or joins: therefore any punctuation that
/// begins one. Of letters and the like only whole spellings count: texts are full of them.
bool ContentMask::is_hidden(std::string_view rest) const {
  if (special_.control_at(rest)) return true;
  const char c = rest.front();
  return is_punctuation(c) && special_.control_begins_with(c) &&
         !named_tags_.contains(tag_at(rest));
}

Result<std::string> ContentMask::hide(std::string_view content) {
  std::string hidden;
  hidden.reserve(content.size());
  for (std::string_view rest = content; !rest.empty();) {
    const std::string_view character = character_at(rest);
    if (!is_hidden(rest) && !is_stand_in(character)) {
      hidden += character;
    } else {
      const auto [entry, is_new] = numbers_.try_emplace(std::string(character), numbers_.size());
      if (is_new) characters_.push_back(entry->first);
      if (entry->second >= kStandIns) {
        return make_error(ErrorCode::kInvalidArgument,
                          "the messages have more than {} different characters of private use",
                          kStandIns - 1);
      }
      append_utf8(kFirstStandIn + static_cast<char32_t>(entry->second), hidden);
    }
    rest.remove_prefix(character.size());
  }
  return hidden;
}

RenderedPrompt ContentMask::reveal(std::string_view text) const {
  RenderedPrompt prompt;
  prompt.text.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view character = character_at(rest);
    const size_t number =
        is_stand_in(character) ? decode_utf8(character) - kFirstStandIn : characters_.size();
    if (number < characters_.size()) {
      prompt.literal.push_back(prompt.text.size());
      prompt.text += characters_[number];
    } else {
      prompt.text += character;
    }
    rest.remove_prefix(character.size());
  }
  return prompt;
}

}  // namespace pumice
