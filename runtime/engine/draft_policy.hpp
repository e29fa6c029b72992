// How many tokens of a guess are worth a row each: arithmetic, which no device is needed to test.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "text/vocabulary.hpp"

namespace pumice {

/// Of one request's guesses: how often they were right, by their kind and by place, each place given
/// that those before it were right. Not thread-safe.
class DraftPolicy {
 public:
  static constexpr uint32_t kKinds = 3;   ///< Guess::kind
  static constexpr uint32_t kPlaces = 8;  ///< later ones count as the last of these
  /// So many requests that decode at once fill a step's rows better than guesses do.
  static constexpr uint32_t kMostRequests = 3;
  /// A step with guesses must be expected to bring so many times the tokens a second.
  static constexpr double kWorthwhile = 1.1;
  /// What it costs beyond its rows, in steps: it cannot be planned while the step before it runs.
  static constexpr double kWait = 0.05;
  /// Expectations err. What guesses have brought less what they have cost, in steps, must cover the
  /// next one, should it be wrong. A token adds so much, which is what a text may become slower.
  static constexpr double kPerToken = 0.01;
  static constexpr double kAtFirst = 1;
  static constexpr double kMost = 8;
  /// At first, and where none was verified for so many tokens, one is, if it is likely to be right,
  /// whatever steps seem to cost: what a row more costs is known from steps that had one.
  static constexpr uint32_t kProbeTokens = 64;

  /// What was guessed and what came instead, both from the same place on: nothing is learned of what
  /// lies behind the first difference, or behind the shorter one.
  void learn(uint32_t kind, std::span<const TokenId> guess, std::span<const TokenId> text);

  /// Seconds of a step with so many rows of guesses; 0: not known.
  using StepSeconds = std::function<double(uint32_t n_guessed)>;
  /// Of a guess of up to `n_guessed` tokens, how many make for the most tokens a second of all
  /// `n_requests` that decode; 0: none. At most twice as many as `most_measured`, rows of guesses in
  /// a step whose time is known: what costs are beyond is a guess too.
  uint32_t choose(uint32_t kind, uint32_t n_guessed, uint32_t n_requests, uint32_t most_measured,
                  const StepSeconds& seconds);
  /// Of those that were chosen last, how many were right. What is chosen may not come to be verified,
  /// as a request that runs ahead has its next step under way: then there is no such call.
  void verified(uint32_t n_right);

 private:
  using Places = std::array<double, kPlaces>;
  static constexpr Places prior() {
    Places half{};
    half.fill(0.5);
    return half;
  }

  std::array<Places, kKinds> right_ = {prior(), prior(), prior()};
  uint32_t n_without_ = kProbeTokens;  // tokens since one was verified
  double balance_ = kAtFirst;
  double price_ = 0;  // of what was chosen last
};

}  // namespace pumice
