// The shaders' description of the resident layout is the table's. (That both decode to the same
// bits is for the tests of the ops that read weights.)
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "test_files.hpp"

namespace pumice {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(PUMICE_SOURCE_DIR) / "shaders/common";

TEST(WeightsGlsl, EveryTypeWithACodecHasShadersAndNoOther) {
  const std::string list = test::read_file(kFolder / "weight_types.cmake");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(list, match, std::regex(R"(set\(PUMICE_WEIGHT_TYPES ([^)]*)\))")));
  std::istringstream words(match[1]);
  const std::set<std::string> named(std::istream_iterator<std::string>(words), {});
  std::set<std::string> expected;
  for (const WeightType& type : weight_types()) {
    if (type.has_codec()) expected.emplace(type.name);
  }
  EXPECT_EQ(named, expected);
}

TEST(WeightsGlsl, TilesHaveTheShapeTheTableSays) {
  const std::string source = test::read_file(kFolder / "weights.glsl");
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    const std::regex shape("defined\\(WEIGHT_" + std::string(type.name) +
                           R"(\)[^\n]*\nconst uint kTileCols = (\d+), kTileUnits = (\d+), )"
                           R"(kTileWords = (\d+);)");
    std::smatch match;
    ASSERT_TRUE(std::regex_search(source, match, shape)) << type.name;
    EXPECT_EQ(match[1], std::to_string(type.layout.tile_cols)) << type.name;
    EXPECT_EQ(match[2], std::to_string(type.layout.n_units)) << type.name;
    EXPECT_EQ(match[3], std::to_string(type.layout.n_words)) << type.name;
  }
}

}  // namespace
}  // namespace pumice
