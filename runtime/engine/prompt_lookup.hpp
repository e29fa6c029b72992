// Guesses by looking up: what followed the last words where the text had them before.
//
// A suffix automaton of the text (Blumer et al., "The smallest automaton recognizing the subwords of
// a text", 1985) grows by a token at a time: the state of the whole text links to that of its longest
// end that occurs elsewhere in it. Memory and time are linear in the text, at most about 100 bytes a
// token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/drafter.hpp"
#include "text/vocabulary.hpp"

namespace pumice {

/// Of one text. Not thread-safe.
class PromptLookup {
 public:
  /// So many last tokens must have occurred before. How often the token that followed is the next
  /// one too, by tokens that match (2, 3, 6 to 7, 12 to 23), in texts of 10,000 tokens of
  /// Qwen 3's vocabulary, 2026-11-25: this project's code 39, 42, 64, 74 %; a file and an edited copy
  /// of it 43, 48, 81, 96 %; its prose 10, 15, 75 %.
  static constexpr uint32_t kLeastMatch = 3;
  /// Tokens that one call adds at most: of a longer text there is no guess yet.
  static constexpr size_t kMostAtOnce = 4096;

  /// What may follow `tokens`, at most `most`: what followed the last occurrence known of the
  /// longest end that occurs twice, over and over if that is the end itself. The text of the last
  /// call and more, or another one. Kinds by length of the match: see Guess::kind.
  Guess operator()(std::span<const TokenId> tokens, uint32_t most);

  /// Of the last tokens of the text so far, how many occurred before.
  uint32_t n_matched() const {
    const uint32_t repeated = states_[whole_].link;
    return repeated != kNone ? states_[repeated].length : 0;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  /// Ends of the text that occur at the same places. Of its transitions one is here, as most have no
  /// other; others are in a list, and in `index_`.
  struct State {
    uint32_t length = 0;  // of the longest
    uint32_t link = kNone;
    uint32_t end = 0;  // of an occurrence
    TokenId token = 0;
    uint32_t target = kNone;
    uint32_t more = kNone;
  };
  struct Transition {
    TokenId token = 0;
    uint32_t target = 0;
    uint32_t next = kNone;
  };

  void begin();
  void add(TokenId token);
  uint32_t* target_of(uint32_t state, TokenId token);
  void add_transition(uint32_t from, TokenId token, uint32_t to);
  uint32_t clone_of(uint32_t state, uint32_t length);

  std::vector<State> states_;
  std::vector<Transition> transitions_;
  std::unordered_map<uint64_t, uint32_t> index_;  // of transitions_, by state and token
  uint32_t whole_ = 0;                            // state of the text so far
  size_t n_tokens_ = 0;                           // in it
  TokenId last_ = 0;                              // of them
  bool consistent_ = false;                       // no exception has left it in the middle
};

/// A drafter that looks up, for one request. `expected`: what its answer, the text behind its first
/// `n_prompt` tokens, may repeat from its beginning on, or in parts.
Drafter prompt_lookup_drafter(std::vector<TokenId> expected = {}, size_t n_prompt = 0);

}  // namespace pumice
