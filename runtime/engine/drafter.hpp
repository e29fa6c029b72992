// Who guesses what a text goes on with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "text/vocabulary.hpp"

namespace pumice {

/// What may come next. Nothing is a guess too.
struct Guess {
  Guess(std::vector<TokenId> guessed = {}, uint32_t of_kind = 0)
      : tokens(std::move(guessed)), kind(of_kind) {}

  std::vector<TokenId> tokens;
  /// Below DraftPolicy::kKinds: how sure the drafter is, so that guesses are told apart whose odds
  /// differ.
  uint32_t kind = 0;
};

/// Guesses what follows `tokens`, a request's prompt and what it has generated: `most` tokens are of
/// use.
using Drafter = std::function<Guess(std::span<const TokenId> tokens, uint32_t most)>;

}  // namespace pumice
