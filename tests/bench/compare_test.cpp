#include "bench/compare.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pumice::bench {
namespace {

ResultRow speed(const std::string& test, std::vector<double> samples,
                const std::string& model = "m", const std::string& device = "d") {
  ResultRow row;
  row.test = test;
  row.model = model;
  row.device = device;
  row.unit = "t/s";
  row.more_is_better = true;
  row.samples = std::move(samples);
  return row;
}

ResultFile file(const std::string& name, std::vector<ResultRow> rows) {
  return {.name = name, .rows = std::move(rows)};
}

TEST(SpeedRatio, IsOfMediansAndItsIntervalOfOppositeQuartiles) {
  const std::vector<double> base{100, 90, 110, 80, 120};  // quartiles 90 and 110
  const std::vector<double> other{200, 190, 210, 1, 1000};
  const SpeedRatio speeds = speed_ratio(base, other, true);
  EXPECT_DOUBLE_EQ(speeds.ratio, 2);
  EXPECT_DOUBLE_EQ(speeds.low, 190.0 / 110);
  EXPECT_DOUBLE_EQ(speeds.high, 210.0 / 90);
  const SpeedRatio times = speed_ratio(base, other, false);
  EXPECT_DOUBLE_EQ(times.ratio, 0.5) << "twice the time is half the speed";
  EXPECT_DOUBLE_EQ(times.low, 90.0 / 210);
  EXPECT_DOUBLE_EQ(times.high, 110.0 / 190);
}

TEST(Compare, MatchesRowsByTestAndNamesTheRest) {
  const ResultFile files[] = {file("base", {speed("pp512", {100}), speed("tg128", {10})}),
                              file("new", {speed("tg128", {20}), speed("pp64", {5})})};
  const Comparison comparison = compare(files);
  ASSERT_EQ(comparison.rows.size(), 3u);
  EXPECT_EQ(comparison.n_ratios(), 1u);
  EXPECT_DOUBLE_EQ(comparison.rows[1].cells[1].ratio->ratio, 2);
  const std::string text = to_markdown(comparison);
  EXPECT_NE(text.find("Only in base: pp512"), std::string::npos) << text;
  EXPECT_NE(text.find("Only in new: pp64"), std::string::npos) << text;
  EXPECT_NE(text.find("| tg128 | t/s | 10 | 20 | 2.000 (2.000 – 2.000) |"), std::string::npos)
      << text;
}

TEST(Compare, AModelThatDiffersBetweenFilesIsComparedAndShownInTheHead) {
  const ResultFile files[] = {file("base", {speed("pp512", {100}, "q4")}),
                              file("new", {speed("pp512", {50}, "q8")})};
  const Comparison comparison = compare(files);
  EXPECT_EQ(comparison.n_ratios(), 1u);
  const std::string text = to_markdown(comparison);
  EXPECT_NE(text.find("| model | q4 | q8 | differs |"), std::string::npos) << text;
  EXPECT_NE(text.find("| device | d | d |  |"), std::string::npos) << text;
}

TEST(Compare, AModelThatVariesWithinAFileTellsItsRowsApart) {
  const ResultFile files[] = {
      file("base", {speed("pp512", {100}, "q4"), speed("pp512", {50}, "q8")}),
      file("new", {speed("pp512", {60}, "q8"), speed("pp512", {130}, "f16")})};
  const Comparison comparison = compare(files);
  ASSERT_EQ(comparison.rows.size(), 3u);
  EXPECT_EQ(comparison.n_ratios(), 1u);
  EXPECT_EQ(comparison.rows[1].name, "pp512, q8");
  EXPECT_DOUBLE_EQ(comparison.rows[1].cells[1].ratio->ratio, 1.2);
}

TEST(Compare, SettingsTellRowsApartWhereTheyVary) {
  ResultRow f16 = speed("tg8", {1});
  f16.settings = {{"type_k", "f16"}};
  ResultRow q8 = speed("tg8", {2});
  q8.settings = {{"type_k", "q8_0"}};
  const ResultFile varies[] = {file("base", {f16}), file("new", {q8, f16})};
  const Comparison comparison = compare(varies);
  EXPECT_EQ(comparison.n_ratios(), 1u);
  EXPECT_DOUBLE_EQ(comparison.rows[0].cells[1].ratio->ratio, 1);
  const ResultFile differs[] = {file("base", {f16}), file("new", {q8})};
  EXPECT_EQ(compare(differs).n_ratios(), 1u);
  EXPECT_EQ(to_json(compare(differs))["head"]["type_k"]["differs"], true);
}

TEST(Compare, EqualRowsOfAFileMatchInTheirOrder) {
  const ResultFile files[] = {file("base", {speed("pp8", {1}), speed("pp8", {10})}),
                              file("new", {speed("pp8", {2}), speed("pp8", {30})})};
  const Comparison comparison = compare(files);
  ASSERT_EQ(comparison.rows.size(), 2u);
  EXPECT_DOUBLE_EQ(comparison.rows[0].cells[1].ratio->ratio, 2);
  EXPECT_DOUBLE_EQ(comparison.rows[1].cells[1].ratio->ratio, 3);
  EXPECT_EQ(comparison.rows[1].name, "pp8 #2");
}

TEST(Compare, WhatHasNoScoreHasNoRatio) {
  ResultRow wrong = speed("pp8", {1000});
  wrong.problem = "wrong logits";
  const ResultFile base_wrong[] = {file("base", {wrong}), file("new", {speed("pp8", {1})})};
  EXPECT_EQ(compare(base_wrong).n_ratios(), 0u);
  const ResultFile new_wrong[] = {file("base", {speed("pp8", {1})}), file("new", {wrong})};
  const Comparison comparison = compare(new_wrong);
  EXPECT_EQ(comparison.n_ratios(), 0u);
  EXPECT_NE(to_markdown(comparison).find("no score: wrong logits"), std::string::npos);
  EXPECT_EQ(to_markdown(comparison).find("1000"), std::string::npos)
      << "a wrong result has no score";
  EXPECT_EQ(to_json(comparison)["rows"][0]["files"][1],
            (nlohmann::json{{"error", "wrong logits"}}));
}

TEST(Compare, SeveralFilesAreEachHeldAgainstTheFirst) {
  const ResultFile files[] = {file("base", {speed("pp8", {1})}), file("b", {}),
                              file("c", {speed("pp8", {3})})};
  const Comparison comparison = compare(files);
  EXPECT_DOUBLE_EQ(comparison.rows[0].cells[2].ratio->ratio, 3);
  EXPECT_NE(to_markdown(comparison).find("| pp8 | t/s | 1 | – |  | 3 | 3.000"), std::string::npos)
      << to_markdown(comparison);
}

TEST(Compare, NamesCannotBreakTheTable) {
  const ResultFile files[] = {file("a|b", {speed("pp8", {1}, "<b>|")}),
                              file("c", {speed("pp8", {1})})};
  const std::string text = to_markdown(compare(files));
  EXPECT_NE(text.find("a\\|b"), std::string::npos) << text;
  EXPECT_NE(text.find("&lt;b&gt;\\|"), std::string::npos) << text;
}

}  // namespace
}  // namespace pumice::bench
