#include "bench/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace pumice::bench {

double quantile(std::span<const double> sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Summary summarize(std::span<const double> samples) {
  if (samples.empty()) return {};
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const auto n = static_cast<double>(sorted.size());
  Summary summary{.median = quantile(sorted, 0.5),
                  .mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / n,
                  .low = quantile(sorted, 0.25),
                  .high = quantile(sorted, 0.75)};
  if (sorted.size() > 1) {
    double squares = 0;
    for (const double sample : sorted) squares += (sample - summary.mean) * (sample - summary.mean);
    summary.stddev = std::sqrt(squares / (n - 1));
  }
  return summary;
}

}  // namespace pumice::bench
