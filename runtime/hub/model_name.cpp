#include "hub/model_name.hpp"

#include <algorithm>

#include "base/printable.hpp"
#include "base/utf8.hpp"

namespace pumice {
namespace {

constexpr size_t kMaxPartBytes = 96;  // as Hugging Face
constexpr size_t kMaxTagBytes = 300;
constexpr size_t kMaxPathBytes = 1024;
constexpr size_t kMaxSegmentBytes = 200;  // names end at 255 on most systems, and ours get suffixes

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_safe_segment(std::string_view segment) {
  if (segment.empty() || segment.size() > kMaxSegmentBytes || segment.front() == '.') return false;
  return std::ranges::none_of(segment, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7F || c == '\\' || c == ':';
  });
}

}  // namespace

bool is_repository_part(std::string_view part) {
  if (part.empty() || part.size() > kMaxPartBytes || !is_letter_or_digit(part.front())) {
    return false;
  }
  return std::ranges::all_of(
      part, [](char c) { return is_letter_or_digit(c) || c == '.' || c == '-' || c == '_'; });
}

bool is_safe_path(std::string_view path) {
  if (path.size() > kMaxPathBytes || !is_valid_utf8(path)) return false;
  for (;;) {
    const size_t slash = path.find('/');
    if (!is_safe_segment(path.substr(0, slash))) return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

Result<ModelName> ModelName::parse(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view repository = text.substr(0, colon);
  const size_t slash = repository.find('/');
  ModelName name;
  name.user = repository.substr(0, slash);
  if (slash != repository.npos) name.repo = repository.substr(slash + 1);
  if (colon != text.npos) name.tag = text.substr(colon + 1);
  const bool tag_ok =
      colon == text.npos || (name.tag.size() <= kMaxTagBytes && is_safe_path(name.tag));
  if (is_repository_part(name.user) && is_repository_part(name.repo) && tag_ok) return name;
  return make_error(ErrorCode::kInvalidArgument,
                    "'{}' names no model: give user/repo or user/repo:quant, as in "
                    "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M",
                    printable(text));
}

}  // namespace pumice
