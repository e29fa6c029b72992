#include "scheduler/histogram.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace pumice {

size_t Histogram::bucket_of(double value) {
  if (!(value > 0)) return 0;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // in [0.5, 1)
  const int step = std::min(kSteps - 1, static_cast<int>((fraction - 0.5) * 2 * kSteps));
  const int bucket = (exponent - 1 - kMinExponent) * kSteps + step;
  return static_cast<size_t>(std::clamp(bucket, 0, static_cast<int>(kBuckets) - 1));
}

void Histogram::add(double value, uint64_t count) {
  if (buckets_.empty()) buckets_.resize(kBuckets);
  buckets_[bucket_of(value)] += count;
  count_ += count;
  sum_ += value * static_cast<double>(count);
  max_ = std::max(max_, value);
}

double Histogram::percentile(double p) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<uint64_t>(std::ceil(p * static_cast<double>(count_)));
  uint64_t below = 0;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    below += buckets_[bucket];
    if (below < std::max<uint64_t>(rank, 1)) continue;
    if (bucket == 0) return 0;
    const int exponent = static_cast<int>(bucket) / kSteps + kMinExponent;
    const double middle = 0.5 + (static_cast<double>(bucket % kSteps) + 0.5) / (2 * kSteps);
    return std::min(max_, std::ldexp(middle, exponent + 1));
  }
  return max_;
}

void to_json(nlohmann::json& json, const Histogram& histogram) {
  json = {{"count", histogram.count()},        {"mean", histogram.mean()},
          {"p50", histogram.percentile(0.50)}, {"p90", histogram.percentile(0.90)},
          {"p99", histogram.percentile(0.99)}, {"max", histogram.max()}};
}

}  // namespace pumice
