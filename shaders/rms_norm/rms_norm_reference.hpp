// rms_norm in fp64, for its cases.
#pragma once

#include <cmath>
#include <span>

namespace pumice::ops {

/// One row: x += residual (if not null), y = x / sqrt(mean(x^2) + eps) * weight. `bound` receives
/// what a kernel in fp32 may miss each y by.
inline void rms_norm_row(std::span<double> x, const float* residual, const float* weight, float eps,
                         double* y, double* bound) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (residual != nullptr) x[i] += residual[i];
    sum += x[i] * x[i];
  }
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] * scale * weight[i];
    // Relative error of the scale (a sum of squares, so no cancellation) and of x + residual, which
    // does cancel: hence the absolute part.
    bound[i] = 2e-6 * std::abs(y[i]) + 1e-6 * scale * std::abs(weight[i]);
  }
}

}  // namespace pumice::ops
