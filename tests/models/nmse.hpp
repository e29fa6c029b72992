// How far numbers are from those expected: the mean squared error over the mean square.
#pragma once

#include <cstddef>
#include <span>

namespace pumice::test {

inline double nmse(std::span<const double> got, std::span<const float> expected) {
  double error = 0;
  double power = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    power += double{expected[i]} * expected[i];
  }
  return error / power;
}

}  // namespace pumice::test
