#include "base/result.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace pumice {
namespace {

Result<int> half_of(int value) {
  if (value % 2 != 0) return make_error(ErrorCode::kInvalidArgument, "{} is odd", value);
  return value / 2;
}

Result<int> quarter_of(int value) {
  PUMICE_TRY(const int half, half_of(value));
  return half_of(half);
}

TEST(Result, TryPassesValuesAndStopsAtTheFirstError) {
  EXPECT_EQ(*quarter_of(12), 3);
  ASSERT_FALSE(quarter_of(6).ok());
  EXPECT_EQ(quarter_of(6).error().message, "3 is odd");
}

TEST(Result, CarriesMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 7);
}

TEST(Result, TakingTheWrongSideIsACheckFailureNotAnAbort) {
  Result<int> failed = half_of(1);
  EXPECT_THROW(failed.value(), CheckFailure);
  EXPECT_THROW(half_of(2).error(), CheckFailure);
}

TEST(ExitCode, IsWhatTheManualSays) {
  EXPECT_EQ(exit_code(ErrorCode::kInvalidArgument), 2);
  EXPECT_EQ(exit_code(ErrorCode::kNoDevice), 3);
  EXPECT_EQ(exit_code(ErrorCode::kBadFile), 4);
  EXPECT_EQ(exit_code(ErrorCode::kDoesNotFit), 5);
  EXPECT_EQ(exit_code(ErrorCode::kSelfTestFailed), 6);
  EXPECT_EQ(exit_code(ErrorCode::kDeviceLost), 75);
}

}  // namespace
}  // namespace pumice
