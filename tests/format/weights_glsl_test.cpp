// The shaders' description of the resident layout is the table's. (That both decode to the same
// bits is for the tests of the ops that read weights.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <set>
#include <sstream>

#include "test_files.hpp"
#include "tests/paths.hpp"

namespace pumice {
namespace {

const std::filesystem::path kFolder = test::source_path("shaders");

TEST(WeightsGlsl, EveryTypeWithACodecHasShadersAndNoOther) {
  const std::string list = test::read_file(kFolder / "common/weight_types.cmake");
  const std::string_view opening = "set(PUMICE_WEIGHT_TYPES ";
  const size_t first = list.find(opening);
  ASSERT_NE(first, std::string::npos);
  const size_t begin = first + opening.size();
  std::istringstream words(list.substr(begin, list.find(')', begin) - begin));
  const std::set<std::string> named(std::istream_iterator<std::string>(words), {});
  std::set<std::string> expected;
  for (const WeightType& type : weight_types()) {
    if (type.has_codec()) expected.emplace(type.shaders);
  }
  EXPECT_EQ(named, expected);
}

TEST(WeightsGlsl, TilesHaveTheShapeTheTableSays) {
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    std::string name(type.shaders);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::string source = test::read_file(kFolder / "weights" / (name + ".glsl"));
    const size_t line = source.find("const uint kTileCols");
    ASSERT_NE(line, std::string::npos) << type.name;
    ResidentLayout found;
    ASSERT_EQ(std::sscanf(source.c_str() + line,
                          "const uint kTileCols = %u, kTileUnits = %u, kTileWords = %u;",
                          &found.tile_cols, &found.n_units, &found.n_words),
              3)
        << type.name;
    EXPECT_EQ(found.tile_cols, type.layout.tile_cols) << type.name;
    EXPECT_EQ(found.n_units, type.layout.n_units) << type.name;
    EXPECT_EQ(found.n_words, type.layout.n_words) << type.name;
  }
}

}  // namespace
}  // namespace pumice
