#include "base/checked.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace pumice {
namespace {

/// Every pair of an 8-bit type against arithmetic that has room.
template <typename T>
void expect_exact() {
  constexpr int kLeast = std::numeric_limits<T>::min();
  constexpr int kMost = std::numeric_limits<T>::max();
  const auto held = [](int value) {
    return value < kLeast || value > kMost ? std::nullopt : std::optional(static_cast<T>(value));
  };
  for (int a = kLeast; a <= kMost; ++a) {
    for (int b = kLeast; b <= kMost; ++b) {
      const T x = static_cast<T>(a), y = static_cast<T>(b);
      ASSERT_EQ(checked_add(x, y), held(a + b)) << a << " + " << b;
      ASSERT_EQ(checked_subtract(x, y), held(a - b)) << a << " - " << b;
      ASSERT_EQ(checked_multiply(x, y), held(a * b)) << a << " * " << b;
    }
  }
}

TEST(Checked, EveryOverflowIsNoticedAndNothingElse) {
  expect_exact<int8_t>();
  expect_exact<uint8_t>();
}

TEST(Checked, NothingOverflowsOnTheWayIn64Bits) {
  constexpr int64_t kLeast = INT64_MIN, kMost = INT64_MAX;
  EXPECT_EQ(checked_multiply<int64_t>(kLeast, -1), std::nullopt);
  EXPECT_EQ(checked_multiply<int64_t>(-1, kLeast), std::nullopt);
  EXPECT_EQ(checked_multiply<int64_t>(kLeast, 1), kLeast);
  EXPECT_EQ(checked_multiply<int64_t>(kMost, -1), -kMost);
  EXPECT_EQ(checked_subtract<int64_t>(0, kLeast), std::nullopt);
  EXPECT_EQ(checked_subtract<int64_t>(-1, kLeast), kMost);
  EXPECT_EQ(checked_add<int64_t>(kLeast, kMost), -1);
  EXPECT_EQ(checked_multiply<uint64_t>(uint64_t{1} << 32, uint64_t{1} << 32), std::nullopt);
  EXPECT_EQ(checked_multiply<uint64_t>(UINT64_MAX, 1), UINT64_MAX);
}

}  // namespace
}  // namespace pumice
