// Rows of tuning: what their text means, which of them hold, and which text is refused.
#include "vk/tuning_rows.hpp"

#include <gtest/gtest.h>

#include "tests/vk/snapshots.hpp"

namespace pumice::vk {
namespace {

constexpr std::string_view kDeclared =
    "table gemm\n"
    "choices shared i8\n"
    "word math auto i8\n"
    "word any\n"
    "size head_dim\n"
    "number tile_rows of i8: 8 16 32\n"
    "number tile_rows of shared: 4 8\n"
    "number lane_cols: 1 2\n";

Result<std::vector<TuningRow>> rows_of(std::string_view text) {
  const auto tables = parse_tuning_tables("gemm.tune", kDeclared);
  PUMICE_CHECK(tables.ok(), tables.error().message);
  return parse_tuning_rows("mine.tune", text, *tables);
}

/// What is said of a file with that line behind a good one.
std::string refusal(const std::string& line) {
  const auto rows = rows_of("gemm shared use tile_rows=4 lane_cols=1\n" + line + "\n");
  if (rows.ok()) return "";
  EXPECT_EQ(rows.error().code, ErrorCode::kBadFile);
  EXPECT_TRUE(rows.error().message.starts_with("mine.tune:2: ")) << rows.error().message;
  return rows.error().message.substr(13);
}

/// Whether a row with such conditions holds.
bool holds(const std::string& conditions, const TuningFacts& facts) {
  const auto rows = rows_of("gemm shared if " + conditions + " use tile_rows=4 lane_cols=1");
  EXPECT_TRUE(rows.ok()) << (rows.ok() ? "" : rows.error().message);
  return rows.ok() && rows->front().holds(facts);
}

TEST(TuningRows, SayWhatToChooseWhenAndWithWhichNumbers) {
  const auto rows = rows_of("gemm i8 if math=i8 class=gpu use tile_rows=16 lane_cols=2");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), 1u);
  const TuningRow& row = rows->front();
  EXPECT_EQ(row.table, "gemm");
  EXPECT_EQ(row.choice, "i8");
  EXPECT_EQ(row.conditions.size(), 2u);
  EXPECT_EQ(row.number("tile_rows"), 16u);
  EXPECT_EQ(row.number("lane_cols"), 2u);
  EXPECT_EQ(row.origin, "mine.tune:1");
}

TEST(TuningRows, WithSeveralValuesOfANumberAreOneRowForEachInThatOrder) {
  const auto rows = rows_of("gemm i8 use tile_rows=32,8 lane_cols=2,1");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  std::vector<std::pair<uint32_t, uint32_t>> made;
  for (const TuningRow& row : *rows) {
    made.emplace_back(row.number("tile_rows"), row.number("lane_cols"));
  }
  const std::vector<std::pair<uint32_t, uint32_t>> expected = {{32, 2}, {32, 1}, {8, 2}, {8, 1}};
  EXPECT_EQ(made, expected);
}

TEST(TuningRows, AreFromWhatTheCommentsAboveThemSayUpToABlankLine) {
  const auto rows = rows_of(
      "# of another\n"
      "\n"
      "# RADV 25,\n"
      "#   2026-05-01\n"
      "gemm shared use tile_rows=4 lane_cols=1  # 231 us\n"
      "gemm shared use tile_rows=8 lane_cols=1\n"
      "\n"
      "gemm i8 use tile_rows=8 lane_cols=1\n");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ((*rows)[0].provenance, "RADV 25, 2026-05-01 231 us");
  EXPECT_EQ((*rows)[1].provenance, "RADV 25, 2026-05-01");
  EXPECT_EQ((*rows)[2].provenance, "");
}

TEST(TuningRows, HoldWhereEveryConditionDoes) {
  const TuningFacts facts = TuningFacts().set("class", "gpu").set("head_dim", 64);
  EXPECT_TRUE(holds("class=gpu head_dim=64", facts));
  EXPECT_FALSE(holds("class=gpu head_dim=65", facts));
  EXPECT_FALSE(holds("class!=gpu", facts));
  EXPECT_TRUE(holds("head_dim<=64 head_dim>=64 head_dim<65 head_dim>63", facts));
  EXPECT_FALSE(holds("head_dim<64", facts));
  EXPECT_FALSE(holds("head_dim>64", facts));
  EXPECT_TRUE(holds("head_dim=32|64", facts));
  EXPECT_FALSE(holds("head_dim=32|128", facts));
}

TEST(TuningRows, CompareVersionsNumberByNumber) {
  const TuningFacts facts = TuningFacts().set("driver_version", TuningSize{25, 0, 7});
  EXPECT_TRUE(holds("driver_version>=25", facts));
  EXPECT_TRUE(holds("driver_version<25.1", facts));
  EXPECT_TRUE(holds("driver_version>25.0.6", facts));
  EXPECT_FALSE(holds("driver_version>=25.0.10", facts));
  EXPECT_FALSE(holds("driver_version=25", facts));
}

TEST(TuningRows, DoNotHoldWhereAFactIsNotKnownWhateverIsSaidOfIt) {
  for (const char* condition : {"driver_version<25", "driver_version>=25", "driver_version!=25"}) {
    EXPECT_FALSE(holds(condition, TuningFacts())) << condition;
  }
}

TEST(TuningRows, ThatAreMalformedAreRefusedByTheirLine) {
  EXPECT_EQ(refusal("conv use lane_cols=1"), "unknown table \"conv\"");
  EXPECT_EQ(refusal("gemm"), "gemm chooses one of shared, i8");
  EXPECT_EQ(refusal("gemm matrix use lane_cols=1"), "gemm chooses one of shared, i8");
  EXPECT_EQ(refusal("gemm shared when class=gpu"), "expected \"if\" or \"use\", not \"when\"");
  EXPECT_NE(refusal("gemm shared if colour=red use tile_rows=4 lane_cols=1")
                .find("unknown fact \"colour\""),
            std::string::npos);
  EXPECT_EQ(refusal("gemm shared if class=tpu use tile_rows=4 lane_cols=1"),
            "class is one of gpu, cpu, not \"tpu\"");
  EXPECT_EQ(refusal("gemm shared if math=f64 use tile_rows=4 lane_cols=1"),
            "math is one of auto, i8, not \"f64\"");
  EXPECT_EQ(refusal("gemm shared if any<x use tile_rows=4 lane_cols=1"),
            "\"any<x\": any is a word, and no word is less than another");
  EXPECT_EQ(refusal("gemm shared if head_dim<=wide use tile_rows=4 lane_cols=1"),
            "\"head_dim<=wide\": \"wide\" is not a number");
  EXPECT_EQ(refusal("gemm shared if head_dim<=1|2 use tile_rows=4 lane_cols=1"),
            "\"head_dim<=1|2\": only = has alternatives");
  EXPECT_EQ(refusal("gemm shared use tile_rows=5 lane_cols=1"),
            "tile_rows is one of 4, 8, not \"5\"");
  EXPECT_EQ(refusal("gemm shared use tile_rows=4,x lane_cols=1"),
            "tile_rows is one of 4, 8, not \"x\"");
  EXPECT_EQ(refusal("gemm shared use tile_rows=4 lane_cols=1 depth=3"),
            "gemm shared has no number depth");
  EXPECT_EQ(refusal("gemm shared use tile_rows=4"), "the row lacks lane_cols, one of 1, 2");
  EXPECT_EQ(refusal("gemm shared use tile_rows=4 tile_rows=8 lane_cols=1"),
            "tile_rows is given twice");
  EXPECT_EQ(refusal("table other"), "unknown table \"table\"");
}

TEST(TuningRows, OfAnyBytesAreReadOrRefused) {
  const std::string good = "gemm i8 if math=i8|auto head_dim>=1.2.3 use tile_rows=8,16 lane_cols=1";
  for (size_t at = 0; at < good.size(); ++at) {
    for (const char byte : {'\0', '=', ',', '|', '<', ' ', '\n', '#', '.', '9', '\xff'}) {
      std::string text = good;
      text[at] = byte;
      const auto rows = rows_of(text);
      EXPECT_TRUE(rows.ok() || rows.error().message.starts_with("mine.tune:")) << text;
    }
    const auto cut = rows_of(good.substr(0, at));
    EXPECT_TRUE(cut.ok() || cut.error().message.starts_with("mine.tune:1: ")) << at;
  }
}

TEST(TuningRows, ThatWouldBeTooManyAreRefused) {
  std::string values = "8";
  for (int i = 0; i < 20'000; ++i) values += ",8";
  EXPECT_EQ(refusal("gemm i8 use tile_rows=" + values + " lane_cols=1"), "more than 10000 rows");
}

TEST(TuningTables, AreDeclaredOnceAndBeforeTheirRows) {
  const auto refused = [](const std::string& text) {
    const auto tables = parse_tuning_tables("a.tune", text);
    return tables.ok() ? "" : tables.error().message;
  };
  EXPECT_EQ(refused("table a\nnumber n: 1\na use n=1\n"), "");
  EXPECT_EQ(refused("table a\ntable a\n"), "a.tune:2: table a is declared twice");
  EXPECT_EQ(refused("word x\n"), "a.tune:1: a declaration before the first table");
  EXPECT_EQ(refused("table a\nnumber n: 1\na use n=1\nsize s\n"),
            "a.tune:4: a declaration behind its table's rows");
  EXPECT_EQ(refused("table a\nnumber n: one\n"), "a.tune:2: \"one\" is not a number");
  EXPECT_EQ(refused("table a\nchoices x y\nnumber n of z: 1\n"), "a.tune:3: unknown choice \"z\"");
}

TEST(DeviceFacts, AreOfTheDeviceAndItsDriverAndNameNoVendor) {
  const auto facts_of = [](const char* name) {
    return device_facts(*plan_device(test::snapshot(name)));
  };
  const auto word = [](const TuningFacts& facts, std::string_view name) {
    return std::get<std::string>(*facts.find(name));
  };
  EXPECT_EQ(word(facts_of("lavapipe_22"), "class"), "cpu");
  EXPECT_EQ(word(facts_of("lavapipe_22"), "driver"), "mesa_llvmpipe");
  EXPECT_EQ(word(facts_of("nvidia_rtx_4090"), "driver"), "nvidia_proprietary");
  const auto version = [&](const char* name) {
    const auto facts = facts_of(name);
    const auto* known = facts.find("driver_version");
    return known == nullptr ? TuningSize() : std::get<TuningSize>(*known);
  };
  EXPECT_EQ(version("lavapipe_22"), (TuningSize{22, 3, 6}));
  EXPECT_EQ(version("lavapipe_26"), (TuningSize{26, 1, 6}));
  EXPECT_EQ(version("amd_rx_6700_xt_radv"), (TuningSize{25, 0, 5}));
  EXPECT_EQ(version("nvidia_rtx_4090"), (TuningSize{576, 40, 0}));
  EXPECT_EQ(version("arm_mali_g715"), TuningSize()) << "v1.r50p0 is no version with dots";
  for (const std::string& name : facts_of("nvidia_rtx_4090").names()) {
    EXPECT_EQ(name.find("vendor"), std::string::npos);
  }
}

}  // namespace
}  // namespace pumice::vk
