// Races of rows of tuning on devices that exist only here.
#include "bench/tuner.hpp"

#include <gtest/gtest.h>

#include <map>

namespace pumice::bench {
namespace {

constexpr std::string_view kTable = R"(table product
choices plain wide
word type
number lanes: 1 2 4 8
number depth of wide: 1 2

# A row.
product wide use lanes=2 depth=1
# Another.
product plain use lanes=1
)";

class RaceTest : public testing::Test {
 protected:
  RaceTest() {
    auto tables = vk::parse_tuning_tables("product.tune", kTable);
    EXPECT_TRUE(tables.ok()) << tables.error().message;
    table_ = tables->front();
  }

  Race race() const { return {table_, "type=q4_k", table_.rows[0], table_.rows}; }

  /// What a device takes for a row; every call is a little slower or faster than that.
  Result<RaceResult> run(const std::function<double(const vk::TuningRow&)>& ns_of) {
    const auto time = [&](const vk::TuningRow& row, uint32_t) -> Result<std::optional<double>> {
      ++n_timed_[row.text];
      const double ns = ns_of(row);
      if (ns < 0) return make_error(ErrorCode::kSelfTestFailed, "wrong");
      if (ns == 0) return std::optional<double>();
      noise_ = -noise_;
      return std::optional(ns * (1 + noise_));
    };
    return run_race(race(), time, [&] { return n_timed_.size() >= most_rows_; });
  }

  vk::TuningTable table_;
  std::map<std::string, int> n_timed_;
  size_t most_rows_ = 1000;
  double noise_ = 0.01;
};

TEST_F(RaceTest, FindsTheFastestNumbersFromTheRowThatIsThere) {
  const auto result = run([](const vk::TuningRow& row) {
    if (row.choice == "plain") return 200.0;
    return 100.0 - 5 * row.number("lanes") - 10 * row.number("depth");
  });
  ASSERT_TRUE(result.ok());
  ASSERT_TRUE(result->winner);
  EXPECT_EQ(result->winner->text, "product wide if type=q4_k use lanes=8 depth=2");
  EXPECT_NEAR(result->gain, 80.0 / 40, 0.1);
}

TEST_F(RaceTest, DropsARowThatThisDeviceIsSlowWith) {
  const auto result = run([](const vk::TuningRow& row) {
    return row.choice == "wide" ? 1000.0 : 100.0;  // what is chosen now is slow here
  });
  ASSERT_TRUE(result.ok());
  ASSERT_TRUE(result->winner);
  EXPECT_EQ(result->winner->choice, "plain");
}

TEST_F(RaceTest, KeepsWhatIsThereWhereNothingIsFasterByMoreThanNoise) {
  const auto result =
      run([](const vk::TuningRow& row) { return 100.0 - 0.2 * row.number("lanes"); });
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->winner);
  EXPECT_EQ(result->gain, 1);
  EXPECT_GT(result->n_raced, 4u);
}

TEST_F(RaceTest, RefusesWhatComputesSomethingElse) {
  const auto result = run([](const vk::TuningRow& row) {
    return row.number("lanes") == 8 ? -1 : 100.0;  // fast, and wrong
  });
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->winner);
  EXPECT_GE(result->n_wrong, 1u);
}

TEST_F(RaceTest, RefusesWhatWonOnceOnly) {
  const auto result = run([&](const vk::TuningRow& row) {
    const bool first = n_timed_[row.text] == 1;
    return row.number("lanes") == 4 && first ? 50.0 : 100.0;
  });
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->winner);
}

TEST_F(RaceTest, LeavesOutWhatCannotBeTaken) {
  const auto result =
      run([](const vk::TuningRow& row) { return row.choice == "wide" ? 100.0 : 0.0; });
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->winner);
  EXPECT_EQ(n_timed_["product plain if type=q4_k use lanes=1"], 1);
}

TEST_F(RaceTest, EndsWhenItsTimeIsOverWithWhatHasWon) {
  most_rows_ = 2;
  const auto result =
      run([](const vk::TuningRow& row) { return row.choice == "wide" ? 100.0 : 50.0; });
  ASSERT_TRUE(result.ok());
  ASSERT_TRUE(result->winner);
  EXPECT_EQ(result->winner->text, "product plain if type=q4_k use lanes=1");
  EXPECT_LE(n_timed_.size(), 3u);
}

}  // namespace
}  // namespace pumice::bench
