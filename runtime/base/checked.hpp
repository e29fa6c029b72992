// Whole numbers that say where they would overflow.
#pragma once

#include <concepts>
#include <limits>
#include <optional>

namespace pumice {

/// a + b, or nothing where T cannot hold it; likewise below.
template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  constexpr T kLeast = std::numeric_limits<T>::min();
  constexpr T kMost = std::numeric_limits<T>::max();
  if (b >= 0 ? a > kMost - b : a < kLeast - b) return std::nullopt;
  return static_cast<T>(a + b);
}

template <std::integral T>
constexpr std::optional<T> checked_subtract(T a, T b) {
  constexpr T kLeast = std::numeric_limits<T>::min();
  constexpr T kMost = std::numeric_limits<T>::max();
  if (b >= 0 ? a < kLeast + b : a > kMost + b) return std::nullopt;
  return static_cast<T>(a - b);
}

template <std::integral T>
constexpr std::optional<T> checked_multiply(T a, T b) {
  constexpr T kLeast = std::numeric_limits<T>::min();
  constexpr T kMost = std::numeric_limits<T>::max();
  if (a == 0 || b == 0) return T{0};
  const bool positive = (a > 0) == (b > 0);
  // Each quotient is taken of the side that its sign reaches, so that none overflows itself.
  const bool fits = positive ? (a > 0 ? a <= kMost / b : b >= kMost / a)
                             : (a > 0 ? b >= kLeast / a : a >= kLeast / b);
  if (!fits) return std::nullopt;
  return static_cast<T>(a * b);
}

}  // namespace pumice
