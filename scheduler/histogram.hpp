// Counts of positive values in logarithmic buckets: percentiles within 1.6 % for any number of
// values, in fixed memory. Units are the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace pumice {

class Histogram {
 public:
  void add(double value, uint64_t count = 1);

  uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  double max() const { return max_; }
  /// The value below which the fraction `p` of all values lies; 0 when empty.
  double percentile(double p) const;

 private:
  static constexpr int kSteps = 64;         // buckets in a factor of two
  static constexpr int kMinExponent = -30;  // 1e-9
  static constexpr int kMaxExponent = 34;   // 1.7e10
  static constexpr size_t kBuckets = size_t{kMaxExponent - kMinExponent} * kSteps;

  static size_t bucket_of(double value);

  std::vector<uint64_t> buckets_;  // empty until the first value
  uint64_t count_ = 0;
  double sum_ = 0;
  double max_ = 0;
};

/// {"count", "mean", "p50", "p90", "p99", "max"}
void to_json(nlohmann::json& json, const Histogram& histogram);

}  // namespace pumice
