#include "engine/draft_policy.hpp"

#include <algorithm>

namespace pumice {
namespace {

constexpr double kLearning = 0.15;  // of what came last
constexpr double kLikely = 0.5;

}  // namespace

void DraftPolicy::learn(uint32_t kind, std::span<const TokenId> guess,
                        std::span<const TokenId> text) {
  Places& right = right_[std::min(kind, kKinds - 1)];
  for (size_t i = 0; i < std::min(guess.size(), text.size()); ++i) {
    double& one = right[std::min<size_t>(i, kPlaces - 1)];
    const bool agrees = guess[i] == text[i];
    one += kLearning * ((agrees ? 1 : 0) - one);
    if (!agrees) return;
  }
}

uint32_t DraftPolicy::choose(uint32_t kind, uint32_t n_guessed, uint32_t n_requests,
                             uint32_t most_measured, const StepSeconds& seconds) {
  const Places& right = right_[std::min(kind, kKinds - 1)];
  const double plain_s = seconds(0);
  const auto price = [&](uint32_t n) { return n_requests * (seconds(n) / plain_s - 1 + kWait); };
  balance_ = std::min(balance_ + kPerToken, kMost);
  uint32_t best = 0;
  if (n_requests <= kMostRequests && plain_s > 0) {
    double best_rate = kWorthwhile * n_requests / plain_s;
    double tokens = n_requests;
    double all_right = 1;
    for (uint32_t n = 1; n <= std::min(n_guessed, std::max(1u, 2 * most_measured)); ++n) {
      all_right *= right[std::min(n, kPlaces) - 1];
      tokens += all_right;
      if (price(n) > balance_) break;
      if (tokens / seconds(n) > best_rate) {
        best_rate = tokens / seconds(n);
        best = n;
      }
    }
    const bool probes = n_without_ >= kProbeTokens && n_guessed > 0 && right[0] >= kLikely;
    if (best == 0 && probes && price(1) <= balance_) best = 1;
    price_ = price(best);
  }
  ++n_without_;
  return best;
}

void DraftPolicy::verified(uint32_t n_right) {
  n_without_ = 0;
  balance_ = std::min(balance_ + n_right - price_, kMost);
}

}  // namespace pumice
