// Token ids to text, as they come.
#pragma once

#include <span>
#include <string>

#include "text/tokenizer.hpp"

namespace pumice {

/// Where the tokens fed to a Detokenizer come from.
enum class TextStart {
  kBeginning,  ///< the first token begins a text: the space that the tokenizer put before it goes
  kContinuation,  ///< they continue a text that is already there, as a model's output its prompt:
                  ///< a leading space is part of what was said
};

struct DetokenizeOptions {
  TextStart start = TextStart::kContinuation;
  bool show_control = false;  ///< control and unknown tokens appear by name
};

/// One stream of text; feed it from one thread. What feed() and flush() return is valid UTF-8 and
/// never ends inside a character: bytes of an unfinished one are held back (at most three), and a
/// malformed sequence becomes U+FFFD, once per maximal subpart. `tokenizer` must outlive it.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, const DetokenizeOptions& options = {});

  /// The text that `id` completes; may be empty.
  std::string feed(TokenId id);

  /// Ends the stream: what was held back, as U+FFFD. The next feed() begins another stream.
  std::string flush();

 private:
  std::string take_complete();

  const Tokenizer& tokenizer_;
  DetokenizeOptions options_;
  bool strip_space_;     // the next bytes begin a text
  std::string pending_;  // an unfinished character
};

/// The text of all of `ids`; by default a whole text, not a continuation.
std::string detokenize(const Tokenizer& tokenizer, std::span<const TokenId> ids,
                       const DetokenizeOptions& options = {.start = TextStart::kBeginning});

}  // namespace pumice
