#include "bench/ratio.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.hpp"

namespace pumice::bench {
namespace {

constexpr double kTail = 0.025;  // on either side

/// P(T = t) of Wilcoxon's signed-rank statistic of n pairs.
std::vector<double> signed_rank_probabilities(size_t n) {
  const size_t most = n * (n + 1) / 2;
  std::vector<double> probability(most + 1, 0);
  probability[0] = 1;
  size_t reached = 0;
  for (size_t rank = 1; rank <= n; ++rank) {
    reached += rank;
    for (size_t t = reached + 1; t-- > 0;) {  // each rank counts with probability 1/2
      probability[t] = 0.5 * (probability[t] + (t >= rank ? probability[t - rank] : 0));
    }
  }
  return probability;
}

/// The means of all pairs, each value with itself included, sorted.
std::vector<double> walsh_averages(std::span<const double> values) {
  std::vector<double> averages;
  averages.reserve(values.size() * (values.size() + 1) / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = i; j < values.size(); ++j) averages.push_back((values[i] + values[j]) / 2);
  }
  std::ranges::sort(averages);
  return averages;
}

}  // namespace

RatioInterval paired_ratio(std::span<const double> numerator, std::span<const double> denominator) {
  PUMICE_CHECK(numerator.size() == denominator.size(), "pairs need two samples each");
  if (numerator.empty()) return {};
  std::vector<double> logs;
  for (size_t i = 0; i < numerator.size(); ++i) {
    logs.push_back(std::log(numerator[i] / denominator[i]));
  }
  const std::vector<double> averages = walsh_averages(logs);
  // The interval leaves out `outside` averages at each end: as many as T is less than, with a
  // probability of at most kTail.
  const std::vector<double> probability = signed_rank_probabilities(logs.size());
  size_t outside = 0;
  double below = probability[0];
  while (outside + 1 < averages.size() / 2 && below + probability[outside + 1] <= kTail) {
    below += probability[++outside];
  }
  const size_t middle = averages.size() / 2;
  const double median =
      averages.size() % 2 == 1 ? averages[middle] : (averages[middle - 1] + averages[middle]) / 2;
  return {.ratio = std::exp(median),
          .low = std::exp(averages[outside]),
          .high = std::exp(averages[averages.size() - 1 - outside]),
          .confidence = 1 - 2 * below};
}

}  // namespace pumice::bench
