#include "constraints/lexer.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace pumice {
namespace {

/// Where a byte stands in a plain character: UTF-8 as an automaton (Unicode 15, table 3-7).
enum Utf8State : uint8_t {
  kBegin,
  kOneMore,
  kTwoMore,
  kThreeMore,
  kAfterE0,
  kAfterE2,
  kAfterE280,
  kAfterEd,
  kAfterF0,
  kAfterF4,
  kRefused
};

Utf8State after(Utf8State state, uint32_t byte) {
  const auto in = [byte](uint32_t first, uint32_t last) { return byte >= first && byte <= last; };
  switch (state) {
    case kBegin:
      if (byte < 0x80) return is_plain_character(byte) ? kBegin : kRefused;
      if (in(0xC2, 0xDF)) return kOneMore;
      if (byte == 0xE0) return kAfterE0;
      if (byte == 0xE2) return kAfterE2;
      if (byte == 0xED) return kAfterEd;
      if (in(0xE1, 0xEF)) return kTwoMore;
      if (byte == 0xF0) return kAfterF0;
      if (in(0xF1, 0xF3)) return kThreeMore;
      return byte == 0xF4 ? kAfterF4 : kRefused;
    case kOneMore:
      return in(0x80, 0xBF) ? kBegin : kRefused;
    case kTwoMore:
      return in(0x80, 0xBF) ? kOneMore : kRefused;
    case kThreeMore:
      return in(0x80, 0xBF) ? kTwoMore : kRefused;
    case kAfterE0:
      return in(0xA0, 0xBF) ? kOneMore : kRefused;
    case kAfterE2:
      if (byte == 0x80) return kAfterE280;
      return in(0x81, 0xBF) ? kOneMore : kRefused;
    case kAfterE280:
      return in(0x80, 0xA7) || in(0xAA, 0xBF) ? kBegin : kRefused;
    case kAfterEd:
      return in(0x80, 0x9F) ? kOneMore : kRefused;
    case kAfterF0:
      return in(0x90, 0xBF) ? kTwoMore : kRefused;
    case kAfterF4:
      return in(0x80, 0x8F) ? kTwoMore : kRefused;
    case kRefused:
      break;
  }
  return kRefused;
}

}  // namespace

Lexer::Lexer(ExpressionSet& expressions, std::span<const Expression> lexemes)
    : expressions_(expressions), lexemes_(lexemes) {
  // Before classes are counted: what is made later has no new ones.
  plain_ = expressions.code_points(
      {{{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}, {0x80, 0x2027}, {0x202A, 0x10FFFF}}});
  n_classes_ = expressions.representatives().size();
  for (uint8_t state = kBegin; state < kRefused; ++state) {
    for (uint32_t c = 0; c < n_classes_; ++c) {
      const Utf8State next = after(Utf8State{state}, expressions.representatives()[c]);
      if (next != kRefused) plain_steps_[state].push_back({static_cast<uint8_t>(c), next});
    }
  }
  intern({});  // kDead
}

uint32_t Lexer::intern(std::span<const uint32_t> words) {
  expressions_.fuel().spend(2 + words.size());
  const WordInterner::Interned state = states_.intern(words);
  if (state.is_new) {
    expressions_.fuel().spend(n_classes_);
    transitions_.resize(transitions_.size() + n_classes_, words.empty() ? kDead : kUnknown);
    plain_depths_.push_back(words.empty() ? 0 : kUnknown);
  }
  return state.number;
}

uint32_t Lexer::start(std::span<const uint32_t> lexemes) {
  std::vector<uint32_t> words;
  for (const uint32_t lexeme : lexemes) {
    words.push_back(lexeme);
    words.push_back(static_cast<uint32_t>(lexemes_[lexeme]));
  }
  return intern(words);
}

uint32_t Lexer::make_next(uint32_t state, uint8_t byte_class) {
  const uint8_t byte = expressions_.representatives()[byte_class];
  const std::span<const uint32_t> from = states_[state];
  std::vector<uint32_t> words;
  for (size_t i = 0; i < from.size(); i += 2) {
    const Expression next = expressions_.derivative(Expression{from[i + 1]}, byte);
    if (expressions_.is_nothing(next)) continue;
    words.push_back(from[i]);
    words.push_back(static_cast<uint32_t>(next));
  }
  return transitions_[state * n_classes_ + byte_class] = intern(words);
}

bool Lexer::can_continue(uint32_t state) const {
  const std::span<const uint32_t> words = states_[state];
  for (size_t i = 1; i < words.size(); i += 2) {
    if (Expression{words[i]} != expressions_.empty()) return true;
  }
  return false;
}

uint32_t Lexer::plain_depth(uint32_t state, uint32_t limit) {
  if (plain_depths_[state] != kUnknown) return plain_depths_[state];
  // Breadth first by characters; a state that begins with a repetition of characters needs no look.
  uint32_t depth = limit;
  std::vector<uint32_t> level{state}, seen{state}, next;
  for (uint32_t n = 0; n < depth && !level.empty(); ++n, level.swap(next)) {
    next.clear();
    for (const uint32_t at : level) {
      const uint32_t known = plain_depths_[at] != kUnknown ? plain_depths_[at] : plain_run(at);
      if (known > 0) {
        depth = std::min(depth, n + known);
      } else if (!add_next_plain(at, next)) {
        depth = n;
      }
      if (depth <= n) break;
    }
    std::ranges::sort(next);
    next.erase(std::unique(next.begin(), next.end()), next.end());
    std::erase_if(next, [&](uint32_t at) { return std::ranges::find(seen, at) != seen.end(); });
    seen.insert(seen.end(), next.begin(), next.end());
    expressions_.fuel().spend(seen.size());
  }
  return plain_depths_[state] = depth;
}

/// As plain_depth, by the form of the expressions alone: 0 where it does not tell.
uint32_t Lexer::plain_run(uint32_t state) {
  const std::span<const uint32_t> words = states_[state];
  uint32_t longest = 0;
  for (size_t i = 1; i < words.size(); i += 2) {
    longest = std::max(longest, plain_run_of(Expression{words[i]}));
  }
  return longest;
}

/// For an expression that begins with repetitions of what every plain character is, all at once and but for some texts
/// (the names of an object's other members are so): behind n of at most `max` characters there is always the text of
/// max - n more, which makes all longer than any text that is left out.
uint32_t Lexer::plain_run_of(Expression e) {
  uint32_t min = 0, max = kUnbounded, shortest = 0;  // shortest: that no left out text has
  for (const Expression condition : expressions_.conditions_of(expressions_.first_of(e))) {
    if (const std::optional<uint32_t> longest = expressions_.longest_excluded(condition)) {
      shortest = std::max(shortest, *longest + 1);
      continue;
    }
    const ExpressionSet::Head head = expressions_.head_of(condition);
    // What repeats for ever need not be characters: they may be of several of it, as of bytes.
    const bool endless = head.min == 0 && head.max == kUnbounded;
    if (head.rest != expressions_.empty() || !covers_plain(endless ? condition : head.body))
      return 0;
    min = std::max(min, head.min);
    max = std::min(max, head.max);
  }
  return max >= std::max(min, shortest) ? max : 0;
}

/// Whether every plain character is of it.
bool Lexer::covers_plain(Expression e) {
  const auto [covers, is_new] = covers_plain_.emplace(e, false);
  if (is_new) {
    covers->second = expressions_.is_nothing(expressions_.both(plain_, expressions_.complement(e)));
  }
  return covers->second;
}

/// The states behind each plain character; false if there is a character behind which there is none.
bool Lexer::add_next_plain(uint32_t state, std::vector<uint32_t>& to) {
  struct Place {
    uint32_t state;
    uint8_t utf8;
    bool operator==(const Place&) const = default;
  };
  std::vector<Place> places{{state, kBegin}};
  for (size_t i = 0; i < places.size(); ++i) {
    const Place at = places[i];
    for (const PlainStep& step : plain_steps_[at.utf8]) {
      expressions_.fuel().spend(1);
      const Place reached{next(at.state, step.byte_class), step.utf8};
      if (reached.state == kDead) return false;
      if (reached.utf8 == kBegin) {
        if (to.empty() || to.back() != reached.state) to.push_back(reached.state);
      } else if (std::ranges::find(places, reached) == places.end()) {
        places.push_back(reached);
      }
    }
  }
  return true;
}

}  // namespace pumice
