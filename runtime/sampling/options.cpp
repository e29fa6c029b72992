#include "sampling/options.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/fixed_point.hpp"

namespace pumice {
namespace {

template <typename... Args>
Error invalid(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

Status validate_bias(std::vector<std::pair<uint32_t, float>> bias, size_t n_vocab) {
  std::ranges::sort(bias, [](auto a, auto b) { return a.first < b.first; });
  for (size_t i = 0; i < bias.size(); ++i) {
    const auto [id, value] = bias[i];
    if (id >= n_vocab) {
      return invalid("logit_bias names token {}, the vocabulary has {}", id, n_vocab);
    }
    if (i > 0 && bias[i - 1].first == id) return invalid("logit_bias names token {} twice", id);
    if (std::isnan(value) || value == std::numeric_limits<float>::infinity()) {
      return invalid("logit_bias of token {} is {}, expected a finite number or -inf", id, value);
    }
  }
  return {};
}

}  // namespace

Status SamplerOptions::validate(size_t n_vocab) const {
  if (n_vocab == 0 || n_vocab > kMaxSampledVocabulary) {
    return make_error(ErrorCode::kBadFile, "the vocabulary has {} tokens, sampling handles 1 to {}",
                      n_vocab, kMaxSampledVocabulary);
  }
  // Written so that NaN fails.
  if (!(temperature >= 0) || std::isinf(temperature)) {
    return invalid("temperature is {}, expected 0 (greedy) or more", temperature);
  }
  if (!(top_p >= 0 && top_p <= 1)) return invalid("top_p is {}, expected 0 to 1", top_p);
  if (!(min_p >= 0 && min_p <= 1)) return invalid("min_p is {}, expected 0 to 1", min_p);
  if (!(repeat_penalty >= 0.001f && repeat_penalty <= 1000)) {
    return invalid("repeat_penalty is {}, expected 0.001 to 1000 (1 is off)", repeat_penalty);
  }
  if (!std::isfinite(frequency_penalty)) {
    return invalid("frequency_penalty is {}, expected a finite number", frequency_penalty);
  }
  if (!std::isfinite(presence_penalty)) {
    return invalid("presence_penalty is {}, expected a finite number", presence_penalty);
  }
  return validate_bias(logit_bias, n_vocab);
}

SamplerConstants sampler_constants(const SamplerOptions& options) {
  SamplerConstants constants;
  constants.repeat = options.repeat_penalty;
  constants.inverse_repeat = 1.0f / options.repeat_penalty;
  constants.frequency = canonical(options.frequency_penalty);
  constants.presence = canonical(options.presence_penalty);
  // A temperature too small to invert is greedy in effect.
  const float inverse = 1.0f / options.temperature;
  if (std::isfinite(inverse)) {
    constants.inverse_temperature = std::max(inverse, std::numeric_limits<float>::min());
  }
  if (options.top_k > 0) constants.top_k = options.top_k;
  if (options.top_p < 1) {  // the largest float below 1 gives 2^32 - 2^8
    constants.top_p_q32 = static_cast<uint32_t>(std::ceil(double{options.top_p} * 0x1p32));
  }
  constants.min_p_q24 = static_cast<uint32_t>(std::ceil(double{options.min_p} * kOneWeight));
  constants.seed_low = static_cast<uint32_t>(options.seed);
  constants.seed_high = static_cast<uint32_t>(options.seed >> 32);
  return constants;
}

bool has_penalties(const SamplerOptions& options) {
  return options.repeat_penalty != 1 || options.frequency_penalty != 0 ||
         options.presence_penalty != 0;
}

bool is_plain_greedy(const SamplerOptions& options) {
  return options.temperature == 0 && !has_penalties(options) && options.logit_bias.empty();
}

}  // namespace pumice
