// What is printed of repeated measurements.
#pragma once

#include <span>

namespace pumice::bench {

/// In the samples' unit.
struct Summary {
  double median = 0;
  double mean = 0;
  double stddev = 0;  ///< of the sample (n - 1); 0 for one
  double low = 0;     ///< first quartile
  double high = 0;    ///< third quartile

  /// Distance of the quartiles in percent of the median: half of the samples lie within.
  double spread_percent() const { return median > 0 ? 100 * (high - low) / median : 0; }
};

/// The value below which a share `q` of the samples is, which are in order and not none; between
/// two of them it is interpolated.
double quantile(std::span<const double> sorted, double q);

/// Quantiles between two samples are interpolated. All zero without samples.
Summary summarize(std::span<const double> samples);

}  // namespace pumice::bench
