#include "text/detokenizer.hpp"

#include "text/utf8.hpp"

namespace pumice {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool strips_space(const Tokenizer& tokenizer, const DetokenizeOptions& options) {
  return options.start == TextStart::kBeginning && tokenizer.vocabulary().add_space_prefix();
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, const DetokenizeOptions& options)
    : tokenizer_(tokenizer), options_(options), strip_space_(strips_space(tokenizer, options)) {}

std::string Detokenizer::feed(TokenId id) {
  const size_t held = pending_.size();
  tokenizer_.append_bytes(id, options_.show_control, pending_);
  if (pending_.size() == held) return {};
  if (strip_space_ && pending_[0] == ' ') pending_.erase(0, 1);
  strip_space_ = false;
  return take_complete();
}

std::string Detokenizer::take_complete() {
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Kind::kIncomplete) break;
    text += step.kind == Utf8Kind::kComplete ? rest.substr(0, step.length) : kReplacement;
    rest.remove_prefix(step.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string Detokenizer::flush() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  strip_space_ = strips_space(tokenizer_, options_);
  return std::string(unfinished ? kReplacement : std::string_view());
}

std::string detokenize(const Tokenizer& tokenizer, std::span<const TokenId> ids,
                       const DetokenizeOptions& options) {
  Detokenizer detokenizer(tokenizer, options);
  std::string text;
  for (TokenId id : ids) text += detokenizer.feed(id);
  return text + detokenizer.flush();
}

}  // namespace pumice
