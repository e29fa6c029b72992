#include "sampling/reference_sampler.hpp"

#include <algorithm>

#include "sampling/fixed_point.hpp"
#include "sampling/philox.hpp"

namespace pumice {
namespace {

float penalised(float score, uint32_t count, const SamplerConstants& constants) {
  if (count == 0) return score;
  score = canonical(score * (score > 0 ? constants.inverse_repeat : constants.repeat));
  const uint32_t in_output = std::min(count & ~kInPrompt, 1u << 24);
  if (in_output == 0) return score;
  const float frequency = canonical(constants.frequency * static_cast<float>(in_output));
  score = canonical(score - frequency);
  return canonical(score - constants.presence);
}

bool allowed(std::span<const uint32_t> mask, size_t id) {
  return mask.empty() || (mask[id / 32] >> (id % 32) & 1) != 0;
}

}  // namespace

Result<ReferenceSampler> ReferenceSampler::create(const SamplerOptions& options, uint32_t n_vocab) {
  PUMICE_TRY_STATUS(options.validate(n_vocab));
  return ReferenceSampler(options, n_vocab);
}

ReferenceSampler::ReferenceSampler(const SamplerOptions& options, uint32_t n_vocab)
    : constants_(sampler_constants(options)),
      seed_(options.seed),
      bias_(options.logit_bias),
      scores_(n_vocab),
      weights_(n_vocab) {
  candidates_.reserve(n_vocab);
}

void ReferenceSampler::score(const SampleInput& input) {
  const size_t n_vocab = scores_.size();
  PUMICE_CHECK(input.logits.size() == n_vocab, "one logit per token");
  PUMICE_CHECK(input.counts.empty() || input.counts.size() == n_vocab, "one count per token");
  PUMICE_CHECK(input.mask.empty() || input.mask.size() * 32 >= n_vocab, "one mask bit per token");

  std::ranges::transform(input.logits, scores_.begin(), canonical);
  for (const auto& [id, bias] : bias_) scores_[id] = canonical(scores_[id] + bias);

  candidates_.clear();
  best_ = 0;
  uint32_t best_key = kKeyOfMasked;
  for (uint32_t id = 0; id < n_vocab; ++id) {
    if (!allowed(input.mask, id)) continue;
    if (!input.counts.empty()) scores_[id] = penalised(scores_[id], input.counts[id], constants_);
    const uint32_t key = score_key(scores_[id]);
    if (key > best_key) {
      best_key = key;
      best_ = id;
    }
    if (key > kKeyOfMinusInfinity) candidates_.push_back({key, id, 0});
  }
  draws_ = constants_.inverse_temperature != 0 && best_key > kKeyOfMinusInfinity;
}

void ReferenceSampler::filter() {
  for (Candidate& candidate : candidates_) {
    candidate.distance = canonical(scores_[best_] - scores_[candidate.id]);
  }
  if (constants_.top_k < candidates_.size()) {
    const auto cut = candidates_.begin() + constants_.top_k;
    std::nth_element(candidates_.begin(), cut, candidates_.end(), before);
    candidates_.erase(cut, candidates_.end());
  }
  if (constants_.top_p_q32 != SamplerConstants::kOff) keep_top_p();
  if (constants_.min_p_q24 > 0) {
    std::erase_if(candidates_, [this](const Candidate& candidate) {
      return fixed_exp(candidate.distance) < constants_.min_p_q24;
    });
  }
}

void ReferenceSampler::keep_top_p() {
  // The prefix ends before the first weight of 0, so those need no sorting.
  std::erase_if(candidates_, [](const Candidate& c) { return fixed_exp(c.distance) == 0; });
  std::ranges::sort(candidates_, before);
  uint64_t total = 0;
  for (const Candidate& candidate : candidates_) total += fixed_exp(candidate.distance);
  const uint64_t wanted = scale_ceil(constants_.top_p_q32, total);
  size_t kept = 0;
  for (uint64_t sum = 0; kept < candidates_.size() && (kept == 0 || sum < wanted); ++kept) {
    sum += fixed_exp(candidates_[kept].distance);
  }
  candidates_.resize(kept);
}

std::span<const uint32_t> ReferenceSampler::weights(const SampleInput& input) {
  score(input);
  std::ranges::fill(weights_, 0);
  if (!draws_) {
    weights_[best_] = kOneWeight;
    return weights_;
  }
  filter();
  for (const Candidate& candidate : candidates_) {
    weights_[candidate.id] = fixed_exp(candidate.distance * constants_.inverse_temperature);
  }
  return weights_;
}

uint32_t ReferenceSampler::sample(const SampleInput& input) {
  weights(input);
  if (!draws_) return best_;
  uint64_t total = 0;
  for (uint32_t weight : weights_) total += weight;
  const uint64_t target = scale_floor(random_word(seed_, input.token_index), total);
  uint64_t sum = 0;
  uint32_t id = 0;
  while ((sum += weights_[id]) <= target) ++id;
  return id;
}

}  // namespace pumice
