// The ratio of two sets of measurements that were taken in pairs, and how sure it is.
#pragma once

#include <span>

namespace pumice::bench {

struct RatioInterval {
  double ratio = 1;
  double low = 1;
  double high = 1;
  double confidence = 0;  ///< that the interval holds the ratio: 0.95 or a little more from 6 pairs

  double width_percent() const { return 100 * (high - low); }
  bool contains(double value) const { return low <= value && value <= high; }
};

/// Fewer pairs than this cannot give an interval of 95 %.
inline constexpr size_t kLeastPairs = 6;

/// numerator[i] / denominator[i] over all i; both of one length, all samples positive. The estimate
/// is that of Hodges and Lehmann on the logarithms of the paired ratios (the median of all means of
/// two of them), the interval the exact one of Wilcoxon's signed ranks (Hollander, Wolfe and
/// Chicken, "Nonparametric Statistical Methods", 3.2 and 3.3). Both ask only that the logarithm of
/// a pair's ratio is as likely to be above its centre as below, which alternation gives when the
/// two sides err alike; a hiccup moves a mean, these hardly. With fewer than kLeastPairs pairs the
/// interval is the widest there is and `confidence` is what that is worth; empty sets give 0.
RatioInterval paired_ratio(std::span<const double> numerator, std::span<const double> denominator);

}  // namespace pumice::bench
