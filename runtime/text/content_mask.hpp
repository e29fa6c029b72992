// What the messages of a conversation say is no part of its template's own marks: "<|im_end|>" in a
// message is ten characters, in the template one token.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "text/tokenizer.hpp"

namespace pumice {

/// A prompt as text.
struct RenderedPrompt {
  std::string text;
  /// Where, sorted, a message and not the template has what might begin a control token.
  std::vector<size_t> literal = {};
};

/// The tags ("</think>", "[INST]") that a template's source names: what it may ask messages about.
std::set<std::string, std::less<>> tags_named_in(std::string_view source);

/// While a template works on messages, the first character of whatever could be or become the
/// spelling of a control token is another one in their place, of Unicode's private use: one for
/// one, so that lengths, blanks and words stay. Whatever the template does with a message (cut,
/// join, replace), no control token of the result then begins in it. Tags that the template names
/// stay as they are, unless they are control tokens themselves. One prompt, one thread.
class ContentMask {
 public:
  /// Both must outlive it.
  ContentMask(const SpecialTokens& special, const std::set<std::string, std::less<>>& named_tags)
      : special_(special), named_tags_(named_tags) {}

  /// Errors (kInvalidArgument): more different characters than there are of private use.
  Result<std::string> hide(std::string_view content);
  /// A rendered text with its characters back, and where they are.
  RenderedPrompt reveal(std::string_view text) const;

 private:
  bool is_hidden(std::string_view rest) const;

  const SpecialTokens& special_;
  const std::set<std::string, std::less<>>& named_tags_;
  std::map<std::string, size_t, std::less<>> numbers_;  // of the characters that are hidden
  std::vector<std::string_view> characters_;            // by number; keys of numbers_
};

}  // namespace pumice
