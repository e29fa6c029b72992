// Attention in fp64, for its cases.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "shaders/op_case.hpp"

namespace pumice::ops {

/// Attention of one row and head in fp64, added to `expected` at its end.
///
/// The bound: an error of a score in fp32 (a sum of head_dim products and the scaling of q, then a
/// difference to the maximum) is a relative error of its weight; exp2 adds its own, of at most
/// 3 + 2|x| ulp by Vulkan's rules; the sums over keys add theirs. Sums of n terms are taken to err
/// by 6 sqrt(n) roundings rather than n (Higham and Mary, 2019).
inline void expect_attention_row(const float* q, const std::vector<const float*>& k,
                                 const std::vector<const float*>& v, uint32_t head_dim,
                                 double scale, Expectation& expected) {
  constexpr double kEpsilon = 0x1p-24;  // half an ulp of a float, relative
  const size_t n = k.size();
  std::vector<double> score(n, 0);
  std::vector<double> magnitude(n, 0);
  double maximum = -1e300;
  for (size_t j = 0; j < n; ++j) {
    for (uint32_t d = 0; d < head_dim; ++d) {
      const double product = double{q[d]} * k[j][d] * scale;
      score[j] += product;
      magnitude[j] += std::abs(product);
    }
    maximum = std::max(maximum, score[j]);
  }
  std::vector<double> weight_error(n);
  double sum = 0;
  for (size_t j = 0; j < n; ++j) {
    const double below = maximum - score[j];
    weight_error[j] = kEpsilon * (6 * std::sqrt(head_dim + 2.0) * magnitude[j] +
                                  2 * std::abs(maximum) + 2 * (3 + 2 * below / std::log(2.0)));
    score[j] = std::exp(-below);
    sum += score[j];
  }
  const double sum_error = 6 * std::sqrt(static_cast<double>(n) + 8) * kEpsilon;
  double mean_error = 0;
  for (size_t j = 0; j < n; ++j) mean_error += score[j] / sum * (weight_error[j] + sum_error);
  for (uint32_t d = 0; d < head_dim; ++d) {
    double y = 0;
    double bound = 0;
    for (size_t j = 0; j < n; ++j) {
      const double weight = score[j] / sum;
      y += weight * v[j][d];
      bound += weight * std::abs(v[j][d]) * (weight_error[j] + sum_error);
    }
    expected.reference.push_back(y);
    expected.bound.push_back(bound + std::abs(y) * (mean_error + 4 * kEpsilon) + 1e-30);
  }
}

}  // namespace pumice::ops
