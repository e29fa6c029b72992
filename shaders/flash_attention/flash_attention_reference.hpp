// Attention in fp64, for its cases.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "shaders/common/kv_layout.hpp"
#include "shaders/common/math.hpp"
#include "shaders/op_case.hpp"

namespace pumice::ops {

/// What an fp16 input is rounded to differs by at most this: to nearest or toward zero, subnormals
/// kept or flushed.
inline double half_error(double value) {
  const double magnitude = std::abs(value);
  return magnitude < 0x1p-14 ? magnitude : magnitude * 0x1p-10;
}

/// The same of an element of KV memory, which in fp16 can only be flushed.
inline double kv_half_error(double value, KvType kv_type) {
  return kv_type == KvType::kF16 && std::abs(value) >= 0x1p-14 ? 0 : half_error(value);
}

inline double capped(double score, double soft_cap) {
  return soft_cap == 0 ? score : soft_cap * std::tanh(score / soft_cap);
}

/// The most that a capped score moves when the score errs by at most `error`.
inline double capped_error(double score, double error, double soft_cap) {
  if (soft_cap == 0) return error;
  const double value = capped(score, soft_cap);
  return std::max(capped(score + error, soft_cap) - value, value - capped(score - error, soft_cap));
}

/// What rounding to fp16 changes of one row and head, added to the bounds of the last elements of
/// `expected`, which hold its reference. Errors of at most c_i that have nothing to do with each
/// other add up to no more than 6 sqrt(sum c_i^2) (Hoeffding). A weight that errs by a factor 1 + e
/// moves y by e w (v - y), since the weights are divided by their `sum`. `scores` are not capped
/// yet.
inline void allow_halves(const float* q, const std::vector<const float*>& k,
                         const std::vector<const float*>& v, uint32_t head_dim, uint32_t value_dim,
                         double scale, double soft_cap, KvTypes kv_type,
                         const std::vector<double>& scores, const std::vector<double>& weights,
                         double sum, Expectation& expected) {
  std::vector<double> error(weights.size(), 0);
  for (size_t j = 0; j < weights.size(); ++j) {
    double squares = 0;
    for (uint32_t d = 0; d < head_dim; ++d) {
      squares += std::pow(scale * (std::abs(k[j][d]) * half_error(q[d]) +
                                   std::abs(q[d]) * kv_half_error(k[j][d], kv_type.k)),
                          2);
    }
    if (weights[j] == 0) continue;
    error[j] = std::expm1(capped_error(scores[j], 6 * std::sqrt(squares), soft_cap)) +
               half_error(weights[j]) / weights[j];
  }
  const size_t first = expected.reference.size() - value_dim;
  for (uint32_t d = 0; d < value_dim; ++d) {
    double squares = 0;
    for (size_t j = 0; j < weights.size(); ++j) {
      const double weight = weights[j] / sum;
      const double moved = weight * error[j] * (v[j][d] - expected.reference[first + d]);
      const double rounded = weight * kv_half_error(v[j][d], kv_type.v);
      squares += moved * moved + rounded * rounded;
    }
    expected.bound[first + d] += 6 * std::sqrt(squares);
  }
}

/// Attention of one row and head in fp64, added to `expected` at its end: the first value_dim
/// numbers of values.
///
/// The bound: an error of a score in fp32 (a sum of head_dim products and the scaling of q, then a
/// difference to the maximum) is a relative error of its weight; exp2 adds its own, of at most
/// 3 + 2|x| ulp by Vulkan's rules; the sums over keys add theirs. Sums of n terms are taken to err
/// by 6 sqrt(n) roundings rather than n (Higham and Mary, 2019). With Math::kF16, on matrix cores,
/// q, K, V and weights are rounded to fp16, and sums may cut off bits where an addition would
/// round. A soft cap never widens the error of a score; it adds 20 roundings of its result: where
/// tanh is taken from e = exp2(-a), a of three roundings and exp2 move e by (6 + 6a) roundings and
/// the quotient by 2 e / (1 + e)^2 of that, at most 6 (11 of a tanh above 5/8's), and the quotient
/// adds 7, the product with the cap 2.
inline void expect_attention_row(const float* q, const std::vector<const float*>& k,
                                 const std::vector<const float*>& v, uint32_t head_dim,
                                 uint32_t value_dim, double scale, double soft_cap,
                                 std::optional<double> sink, Math math, KvTypes kv_type,
                                 Expectation& expected) {
  constexpr double kEpsilon = 0x1p-24;  // half an ulp of a float, relative
  const double sum_epsilon = math == Math::kF16 ? 4 * kEpsilon : kEpsilon;
  const size_t n = k.size();
  std::vector<double> score(n, 0);
  std::vector<double> weight_of(n, 0);  // not yet divided by their sum
  std::vector<double> magnitude(n, 0);
  double maximum = -1e300;
  for (size_t j = 0; j < n; ++j) {
    for (uint32_t d = 0; d < head_dim; ++d) {
      const double product = double{q[d]} * k[j][d] * scale;
      score[j] += product;
      magnitude[j] += std::abs(product);
    }
    maximum = std::max(maximum, capped(score[j], soft_cap));
  }
  std::vector<double> weight_error(n);
  double sum = 0;
  for (size_t j = 0; j < n; ++j) {
    const double value = capped(score[j], soft_cap);
    const double below = maximum - value;
    const double score_error = sum_epsilon * 6 * std::sqrt(head_dim + 2.0) * magnitude[j];
    weight_error[j] = capped_error(score[j], score_error, soft_cap) +
                      (soft_cap == 0 ? 0 : 20 * kEpsilon * (std::abs(value) + std::abs(maximum))) +
                      kEpsilon * (2 * std::abs(maximum) + 2 * (3 + 2 * below / std::log(2.0)));
    weight_of[j] = std::exp(-below);
    sum += weight_of[j];
  }
  double sink_weight = 0;
  if (sink) sum += sink_weight = std::exp(*sink - maximum);
  const double sum_error = 6 * std::sqrt(static_cast<double>(n) + 8) * sum_epsilon;
  double mean_error = 0;
  if (sink) {
    mean_error = sink_weight / sum * kEpsilon *
                 (2 * std::abs(maximum) + 2 * (3 + 2 * std::abs(*sink - maximum) / std::log(2.0)));
  }
  for (size_t j = 0; j < n; ++j) mean_error += weight_of[j] / sum * (weight_error[j] + sum_error);
  for (uint32_t d = 0; d < value_dim; ++d) {
    double y = 0;
    double bound = 0;
    for (size_t j = 0; j < n; ++j) {
      const double weight = weight_of[j] / sum;
      y += weight * v[j][d];
      bound += weight * std::abs(v[j][d]) * (weight_error[j] + sum_error);
    }
    expected.reference.push_back(y);
    expected.bound.push_back(bound + std::abs(y) * (mean_error + 4 * kEpsilon) + 1e-30);
  }
  if (math == Math::kF16) {
    allow_halves(q, k, v, head_dim, value_dim, scale, soft_cap, kv_type, score, weight_of, sum,
                 expected);
  }
}

}  // namespace pumice::ops
