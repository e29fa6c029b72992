// One request on an engine that has nothing else to do, timed token by token.
#pragma once

#include <functional>
#include <vector>

#include "engine/engine.hpp"

namespace pumice::bench {

struct Generated {
  std::vector<TokenId> tokens;
  std::vector<double> ns;  ///< of each: since submission for the first, else since the one before

  double ttft_ns() const { return ns.front(); }
  /// Median time of a token after the first; 0 without any.
  double tpot_ns() const;
};

/// Greedily generate `n` tokens, at least 1. `stop` is asked between steps. Errors: those of
/// Engine; kCancelled.
Result<Generated> generate(Engine& engine, const std::vector<TokenId>& prompt, uint32_t n,
                           const std::function<bool()>& stop);

/// Tokens of a made-up prompt; the same for the same arguments.
std::vector<TokenId> random_prompt(uint32_t n_tokens, uint32_t n_vocab, uint32_t seed);

}  // namespace pumice::bench
