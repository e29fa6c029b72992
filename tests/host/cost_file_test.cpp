// What steps cost, remembered: written, read again, and not believed when it is not ours.
#include "host/cost_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

namespace pumice::host {
namespace {

constexpr StepCost kKnown{.fixed = 1e-3,
                          .per_row = 2e-4,
                          .per_row_context = 3e-8,
                          .per_token = 4e-5,
                          .per_token_context = 5e-9};
constexpr PaceRates kPace{
    .per_segment = 80e3, .per_command = 30e3, .per_byte = 0.125, .per_flop = 0.0625};

class CostFile : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::temp_directory_path() / ("pumice-cost-test-" + std::to_string(::getpid()));
    device_.device_uuid = {1, 2, 3};
    device_.driver_version = 7;
  }
  void TearDown() override {
    std::error_code error;
    std::filesystem::remove_all(directory_, error);
  }

  std::filesystem::path path() const { return cost_file(directory_, device_, {11, 12}, {}); }
  LearnedCosts read() {
    said_.clear();
    return read_costs(path(), logger());
  }
  void write(const LearnedCosts& costs) {
    said_.clear();
    write_costs(path(), costs, logger());
  }
  Logger logger() {
    return Logger([this](LogLevel, std::string_view line) { said_ += line; }, LogLevel::kWarning);
  }

  std::filesystem::path directory_;
  vk::DeviceSnapshot device_;
  std::string said_;
};

TEST_F(CostFile, WhatWasLearnedIsReadAgain) {
  write({CostModel(kKnown), kPace});
  const LearnedCosts again = read();
  EXPECT_TRUE(again.steps.calibrated());
  const StepShape shape{
      .decode_rows = 3, .decode_context = 700, .prefill_tokens = 100, .prefill_context = 5000};
  EXPECT_DOUBLE_EQ(again.steps.predict(shape), kKnown.seconds(shape));
  EXPECT_EQ(again.pace, kPace);
  EXPECT_EQ(said_, "");
}

TEST_F(CostFile, MayHaveNoPace) {
  write({.steps = CostModel(kKnown)});
  const LearnedCosts again = read();
  EXPECT_TRUE(again.steps.calibrated());
  EXPECT_FALSE(again.pace);
  EXPECT_EQ(said_, "");
}

TEST_F(CostFile, NoFileIsNoReasonForAWord) {
  EXPECT_FALSE(read().steps.calibrated());
  EXPECT_FALSE(read_costs("", logger()).steps.calibrated());
  EXPECT_EQ(said_, "");
}

TEST_F(CostFile, WhatKnowsNothingIsNotWrittenNorAnythingToNoPlace) {
  write({.pace = kPace});
  EXPECT_FALSE(std::filesystem::exists(directory_));
  write_costs("", {CostModel(kKnown), kPace}, logger());
  EXPECT_EQ(said_, "");
}

TEST_F(CostFile, ADamagedFileIsIgnoredWithAWord) {
  write({CostModel(kKnown), kPace});
  std::ifstream file(path());
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  std::string negative = whole;
  negative.replace(negative.find("0.001"), 5, "-1.00");
  const auto with_rate = [&](const std::string& rate) {
    std::string text = whole;
    return text.replace(text.find("0.125"), 5, rate);
  };
  for (const std::string& text :
       {std::string(), whole.substr(0, whole.size() / 2), negative, with_rate("0"),
        with_rate("-0.1"), with_rate("1e13"), with_rate("1e999"), with_rate("null"),
        std::string("[1, 2]"), std::string("{}"), std::string("null"), std::string(100, '\0'),
        whole + std::string(1 << 20, ' '), std::string(1 << 20, '[')}) {
    std::ofstream(path(), std::ios::trunc) << text;
    EXPECT_FALSE(read().steps.calibrated()) << text.substr(0, 80);
    EXPECT_NE(said_.find("is not used"), std::string::npos) << text.substr(0, 80);
  }
  std::ofstream(path(), std::ios::trunc) << whole;
  EXPECT_TRUE(read().steps.calibrated());
}

TEST_F(CostFile, AFolderInItsPlaceIsAWordWhenReadAndWhenWritten) {
  std::filesystem::create_directories(path());
  EXPECT_FALSE(read().steps.calibrated());
  EXPECT_NE(said_.find("is a directory"), std::string::npos) << said_;
  write({CostModel(kKnown), kPace});
  EXPECT_NE(said_.find("not saved"), std::string::npos) << said_;
}

TEST_F(CostFile, EachDeviceDriverModelKvTypeAndArithmeticHasItsOwn) {
  std::set<std::filesystem::path> paths = {path()};
  vk::DeviceSnapshot other = device_;
  other.device_uuid[0] = 9;
  paths.insert(cost_file(directory_, other, {11, 12}, {}));
  other = device_;
  other.driver_version = 8;
  paths.insert(cost_file(directory_, other, {11, 12}, {}));
  paths.insert(cost_file(directory_, device_, {13, 12}, {}));
  paths.insert(cost_file(directory_, device_, {11, 12}, {.kv_type = KvType::kF32}));
  paths.insert(cost_file(directory_, device_, {11, 12}, {.kv_type = {KvType::kF32, KvType::kF16}}));
  paths.insert(cost_file(directory_, device_, {11, 12}, {.math = ops::Math::kF32}));
  EXPECT_EQ(paths.size(), 7u);
  EXPECT_EQ(cost_file("", device_, {11, 12}, {}), "");
}

}  // namespace
}  // namespace pumice::host
