#include "shaders/rope_kv/rope_table.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pumice::ops {
namespace {

Status check(const RopeConfig& config) {
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  if (config.dims % 2 != 0) {
    return make_error(ErrorCode::kInvalidArgument, "rope: {} dimensions cannot form pairs",
                      config.dims);
  }
  if (!positive(config.base) || !positive(config.factor) || !positive(config.attn_factor)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rope: base {}, factor {} and attention factor {} must be positive",
                      config.base, config.factor, config.attn_factor);
  }
  if (!config.long_divisors.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "rope: angles depend on the context");
  }
  if (!config.freq_divisors.empty() && config.freq_divisors.size() != config.dims / 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rope: {} frequency divisors for {} pairs of dimensions",
                      config.freq_divisors.size(), config.dims / 2);
  }
  for (const float divisor : config.freq_divisors) {
    if (!positive(divisor)) {
      return make_error(ErrorCode::kInvalidArgument, "rope: a frequency divisor is {}", divisor);
    }
  }
  if (config.scaling == RopeScaling::kYarn &&
      (config.original_context == 0 || !positive(config.beta_fast) || !positive(config.beta_slow) ||
       config.base == 1.0 || !std::isfinite(config.ext_factor))) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rope: yarn needs the original context ({}), beta_fast ({}) and beta_slow "
                      "({}) above 0 and a base other than 1",
                      config.original_context, config.beta_fast, config.beta_slow);
  }
  if (config.temperature != 0 && (!std::isfinite(config.temperature) || config.temperature < 0 ||
                                  config.temperature_tokens == 0)) {
    return make_error(ErrorCode::kInvalidArgument, "rope: a temperature of {} every {} tokens",
                      config.temperature, config.temperature_tokens);
  }
  return {};
}

/// The pair, as a real number, that turns `turns` times over the original context.
double pair_turning(const RopeConfig& config, double turns) {
  return config.dims * std::log(config.original_context / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(config.base));
}

}  // namespace

RopeConfig RopeConfig::for_context(uint32_t context_tokens) const {
  RopeConfig config = *this;
  if (!long_divisors.empty() && context_tokens > original_context) {
    config.freq_divisors = long_divisors;
  }
  config.long_divisors.clear();
  return config;
}

Result<RopeFrequencies> rope_frequencies(const RopeConfig& config) {
  PUMICE_TRY_STATUS(check(config));
  RopeFrequencies frequencies;
  frequencies.magnitude = config.attn_factor;
  frequencies.temperature = config.temperature;
  frequencies.temperature_tokens = config.temperature_tokens;
  const double slowed = config.scaling == RopeScaling::kNone ? 1.0 : 1.0 / config.factor;
  const bool yarn = config.scaling == RopeScaling::kYarn && config.ext_factor != 0.0;
  double ramp_begin = 0;
  double ramp_end = 0;
  if (yarn) {
    frequencies.magnitude *= 1.0 + 0.1 * std::log(config.factor);
    ramp_begin = std::max(0.0, std::floor(pair_turning(config, config.beta_fast)));
    ramp_end = std::min(config.dims - 1.0, std::ceil(pair_turning(config, config.beta_slow)));
  }
  for (uint32_t pair = 0; pair < config.dims / 2; ++pair) {
    double frequency = std::pow(config.base, -2.0 * pair / config.dims);
    if (!config.freq_divisors.empty()) frequency /= config.freq_divisors[pair];
    double share_kept = 0.0;  // of the unscaled frequency
    if (yarn) {
      const double along = (pair - ramp_begin) / std::max(0.001, ramp_end - ramp_begin);
      share_kept = (1.0 - std::clamp(along, 0.0, 1.0)) * config.ext_factor;
    }
    frequencies.radians_per_position.push_back(frequency *
                                               (slowed * (1.0 - share_kept) + share_kept));
  }
  return frequencies;
}

double RopeFrequencies::magnitude_at(uint64_t position) const {
  if (temperature == 0) return magnitude;
  const auto periods = static_cast<double>(position / temperature_tokens);
  return magnitude * (1 + temperature * std::log(1 + periods));
}

void fill_rope_table(const RopeFrequencies& frequencies, uint32_t first_position,
                     std::span<float> table) {
  const auto& radians = frequencies.radians_per_position;
  uint32_t position = first_position;
  for (size_t at = 0; at + 2 * radians.size() <= table.size() && !radians.empty(); ++position) {
    const double magnitude = frequencies.magnitude_at(position);
    for (const double per_position : radians) {
      const double angle = per_position * position;
      table[at++] = static_cast<float>(std::cos(angle) * magnitude);
      table[at++] = static_cast<float>(std::sin(angle) * magnitude);
    }
  }
}

}  // namespace pumice::ops
