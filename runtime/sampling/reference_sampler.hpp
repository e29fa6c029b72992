// Choosing a token on the CPU: the definition that a GPU sampler reproduces exactly.
//
// The definition, for constants c (SamplerConstants) and functions of fixed_point.hpp; every float
// is fp32 and every result of an addition, subtraction or multiplication in 1 to 3, and m - s in 6
// to 8, goes through canonical() at once:
//
//  1. score  s = canonical(logit); if the token has a bias, s = s + bias.
//  2. mask   a token that the mask forbids has key 0 (kKeyOfMasked) and skips 3; after 3, all
//            others have key score_key(s).
//  3. penalties, where counts are given, for the token's count n (its low 31 bits, at most 2^24):
//            in prompt or output (count word not 0): s = s · (s > 0 ? c.inverse_repeat : c.repeat);
//            n > 0: s = s - c.frequency · float(n), then s = s - c.presence.
//  4. order  tokens by falling key, equal keys by rising id. Every filter keeps a prefix of this
//            order. Let b be the first token and m its score. If c.inverse_temperature is 0
//            (greedy), or if b's key is at most kKeyOfMinusInfinity (nothing can be chosen), the
//            choice is b: the lowest id that the mask allows, or 0 if it allows none. From here on
//            tokens with such keys are out.
//  5. top-k  the first c.top_k, if it is not kOff.
//  6. top-p  if c.top_p_q32 is not kOff: weight w = fixed_exp(m - s), W = sum of w over the tokens
//            left. Kept: each token before which the sum of w (over its predecessors) is less than
//            scale_ceil(c.top_p_q32, W), and b. That is the smallest prefix with mass >= top_p · W.
//  7. min-p  tokens with fixed_exp(m - s) >= c.min_p_q24.
//  8. draw   v = fixed_exp((m - s) · c.inverse_temperature) of the tokens left, V = sum of v,
//            target = scale_floor(random_word(seed, token index), V). The choice is the first
//            token, by rising id, whose sum of v up to and including itself exceeds the target.
//
// Sums are exact: below 2^44, so two 32-bit words. Equal keys have equal weights, so a GPU may find
// where a prefix ends as (key, how many of the tokens with that key, lowest ids first). The 32
// random bits put at most 2^-32 of probability in the wrong place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "sampling/options.hpp"

namespace pumice {

struct SampleInput {
  std::span<const float> logits = {};  ///< n_vocab; any values
  /// n_vocab words as options.hpp says, or empty: no penalties
  std::span<const uint32_t> counts = {};
  /// bit id % 32 of word id / 32 allows the token, or empty: all
  std::span<const uint32_t> mask = {};
  uint64_t token_index = 0;  ///< of the token to choose, in its request's output, from 0
};

/// Keeps scratch memory of 20 bytes per token of the vocabulary; use from one thread at a time. The
/// choice depends on options and input only, never on earlier calls.
class ReferenceSampler {
 public:
  static Result<ReferenceSampler> create(const SamplerOptions& options, uint32_t n_vocab);

  /// The chosen token. Spans of the wrong size are a CheckFailure.
  uint32_t sample(const SampleInput& input);

  /// The v of step 8 of every token, 0 for those filtered out; the choice alone has kOneWeight
  /// where there is no draw. Valid until the next call.
  std::span<const uint32_t> weights(const SampleInput& input);

 private:
  struct Candidate {
    uint32_t key;
    uint32_t id;
    float distance;  // from the best score
  };
  /// Step 4's order.
  static bool before(const Candidate& a, const Candidate& b) {
    return a.key != b.key ? a.key > b.key : a.id < b.id;
  }

  ReferenceSampler(const SamplerOptions& options, uint32_t n_vocab);
  void score(const SampleInput& input);
  void filter();
  void keep_top_p();

  SamplerConstants constants_;
  uint64_t seed_;
  std::vector<std::pair<uint32_t, float>> bias_;
  std::vector<float> scores_;
  std::vector<Candidate> candidates_;  // by rising id until a filter sorts them
  std::vector<uint32_t> weights_;
  uint32_t best_ = 0;
  bool draws_ = false;  // false: the choice is best_
};

}  // namespace pumice
