// The text of generated tokens as it becomes final: what a user may be shown.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "text/detokenizer.hpp"

namespace pumice {

/// Text is held back as long as it may become a stop string, so neither they nor their number are
/// without bound.
constexpr size_t kMaxStopStrings = 64;
constexpr size_t kMaxStopBytes = 4096;  ///< of one stop string

/// Errors (kInvalidArgument): an empty stop string, one that is not UTF-8 (text never has it), too
/// long a one, too many.
Status validate_stop_strings(std::span<const std::string> stop_strings);

/// Text of a token stream as it becomes final: whole UTF-8 characters, as of a Detokenizer, and
/// nothing that may still turn out to be the start of a stop string. Which text that is does not
/// depend on how it was cut into tokens: the stop string that is complete first ends the stream,
/// the longest one of those that end with the same byte. Feed it from one thread. Time
/// O(stop strings) a byte, memory of the longest one.
class TextStream {
 public:
  /// `stop_strings`: valid ones, or it is a bug.
  TextStream(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stop_strings);

  /// What became final; may be empty. Nothing after a stop.
  std::string feed(TokenId token);

  /// The rest, when the stream ends; an unfinished character is U+FFFD. Nothing is fed afterwards.
  std::string flush();

  /// A stop string was found: the text before it was given, it and what follows never is.
  bool stopped() const { return stopped_; }

 private:
  /// A stop string and how much of it the end of the text so far is (Knuth, Morris, Pratt 1977).
  struct Stop {
    std::string text;
    std::vector<size_t> borders;  ///< of each prefix but the empty one: its longest proper border
    size_t n_matched = 0;

    void step(char c);
  };

  std::string add(std::string_view text);

  std::shared_ptr<const Tokenizer> tokenizer_;
  Detokenizer detokenizer_;
  std::vector<Stop> stops_;
  std::string held_;  ///< the end of the text that is the start of a stop string
  bool stopped_ = false;
};

}  // namespace pumice
