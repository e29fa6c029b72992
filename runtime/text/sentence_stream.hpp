// Text given sentence by sentence: for speech, subtitles and speech bubbles.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pumice {

/// Holds text back until a sentence ends:
///   - at a line break, which belongs to it;
///   - behind . ! ? … and what closes quotes, brackets and emphasis there, if white space follows:
///     "3.14" and "example.com" go on, and so do an initial ("J. Smith"), a word with a full stop
///     in it ("e.g."), a usual abbreviation ("Mr."), and a number that begins ("1. Milk");
///   - behind 。！？ and the full stops and question marks of other scripts, whatever follows.
/// What is certain only with the next character waits for it. What is given, one after the other,
/// is the text; each piece but the last has more than white space. Where it is in doubt it waits,
/// so pieces may be two sentences long. Feed it from one thread.
class SentenceStream {
 public:
  /// The sentences that end in `text`, whole UTF-8 characters; may be empty.
  std::string feed(std::string_view text);
  /// The rest.
  std::string flush();

 private:
  /// Of the text before a character.
  enum class At {
    kInside,  ///< in a sentence
    kStop,    ///< behind a full stop that may end one, and what closes it
    kMark,    ///< behind ! ? …, likewise
    kEnd,     ///< behind what ends one for certain, likewise
  };

  void take(char32_t character, size_t begin, size_t end);
  bool ends_at(size_t stop) const;

  std::string held_;
  size_t end_ = 0;       ///< of the last whole sentence of it
  size_t begin_ = 0;     ///< of the one after that
  size_t may_end_ = 0;   ///< where it ends, if it does
  bool speaks_ = false;  ///< it has more than white space
  At at_ = At::kInside;
};

}  // namespace pumice
