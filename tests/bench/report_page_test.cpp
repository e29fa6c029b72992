#include "bench/report_page.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pumice::bench {
namespace {

ResultFile one_row(const std::string& text) {
  ResultRow row;
  row.test = text;
  row.samples = {1};
  return {.name = text, .rows = {row}};
}

constexpr ReportParts kParts{
    .page = "a<!-- pumice:licence -->b<!-- pumice:data -->c<!-- pumice:script -->",
    .style = "s",
    .script = "<!-- pumice:data -->",
    .chart_library = "l",
    .chart_licence = "<MIT> & more"};

TEST(ReportPage, PutsEachPartInItsPlaceAndLooksForNoMarksInIt) {
  const ResultFile files[] = {one_row("t")};
  const Result<std::string> page = report_page(files, kParts, "today");
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->find("a&lt;MIT&gt; &amp; moreb{"), 0u) << *page;
  EXPECT_TRUE(page->ends_with("}c<!-- pumice:data -->")) << *page;
}

TEST(ReportPage, DataHasNothingThatCouldEndItsElement) {
  const ResultFile files[] = {one_row("</script><!-- pumice:script -->&\xff\xe2\x80\xa8")};
  const Result<std::string> page = report_page(files, kParts, "<");
  ASSERT_TRUE(page.ok());
  const size_t begin = page->find('{');
  const std::string data = page->substr(begin, page->rfind('}') + 1 - begin);
  EXPECT_EQ(data.find_first_of("<>&\xe2\xff"), std::string::npos) << data;
  const auto json = nlohmann::json::parse(data);
  EXPECT_EQ(json["made"], "<");
  EXPECT_TRUE(json["rows"][0]["test"].get<std::string>().starts_with("</script><!-- pumice"));
}

TEST(ReportPage, WithoutTheChartLibraryItSaysWhatToInstall) {
  ReportParts parts = kParts;
  parts.chart_library = "";
  const ResultFile files[] = {one_row("t")};
  const Result<std::string> page = report_page(files, parts, "today");
  ASSERT_FALSE(page.ok());
  EXPECT_NE(page.error().message.find("libjs-chart.js"), std::string::npos);
}

}  // namespace
}  // namespace pumice::bench
