#include "format/weight_type.hpp"

#include <random>
#include <set>

#include "base/float16.hpp"
#include "test_files.hpp"
#include "tests/shared_data.hpp"

namespace pumice {
namespace {

void expect_same_bits(const std::vector<float>& found, const std::vector<float>& expected,
                      std::string_view what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  size_t n_different = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::bit_cast<uint32_t>(found[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    if (n_different++ < 3)
      ADD_FAILURE() << what << "[" << i << "]: " << found[i] << " not " << expected[i];
  }
  EXPECT_EQ(n_different, 0u) << what;
}

/// `prefix`NAME.blocks.bin against `prefix`NAME.f32.bin for every type with a codec that has both.
size_t check_against_reference(const std::filesystem::path& folder, const std::string& prefix) {
  size_t n_types = 0;
  for (const WeightType& type : weight_types()) {
    const std::string name = prefix + std::string(type.name);
    if (!type.has_codec() || !std::filesystem::exists(folder / (name + ".blocks.bin"))) continue;
    const std::string blocks = test::read_file(folder / (name + ".blocks.bin"));
    const auto expected = test::read_values<float>(folder / (name + ".f32.bin"));
    std::vector<float> found(blocks.size() / type.block_bytes * type.block_elements);
    dequantize(type, reinterpret_cast<const std::byte*>(blocks.data()), found.size(), found.data());
    expect_same_bits(found, expected, name);
    ++n_types;
  }
  return n_types;
}

TEST(WeightType, RealWeightsDequantiseBitForBitLikeTheReference) {
  PUMICE_REQUIRE_SHARED(folder, "reference/quants");
  EXPECT_EQ(check_against_reference(folder, ""), 16u);  // those that have a file
}

TEST(WeightType, RandomBlocksDequantiseBitForBitLikeTheReference) {
  PUMICE_REQUIRE_SHARED(folder, "reference/quants");
  EXPECT_EQ(check_against_reference(folder, "fuzz-"), 22u);  // all but floats
}

/// Q3_K has no reference of real weights: its definition, a value at a time. The value at column c
/// takes bit pair (c % 128) / 32 of byte c % 32 of its half's quants, and bit c / 32 of hmask byte
/// c % 32.
float q3_k_value(const uint8_t* block, uint32_t c) {
  const uint8_t* hmask = block;
  const uint8_t* quants = block + 32 + c / 128 * 32;
  const uint8_t* scales = block + 96;
  const int pair = quants[c % 32] >> (c % 128 / 32 * 2) & 3;
  const int value = pair - ((hmask[c % 32] >> (c / 32) & 1) != 0 ? 0 : 4);
  const uint32_t s = c / 16;
  const int low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
  const int high = scales[8 + s % 4] >> (s / 4 * 2) & 3;
  uint16_t half;
  std::memcpy(&half, block + 108, 2);
  const float scale = half_to_float(half) * static_cast<float>((high << 4 | low) - 32);
  return scale * static_cast<float>(value);
}

TEST(WeightType, Q3_KFollowsItsDefinition) {
  std::minstd_rand random(3);
  std::vector<uint8_t> blocks(110 * 64);
  for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random() >> 8 & 0xBB);
  std::vector<float> expected;
  for (size_t block = 0; block < 64; ++block) {
    for (uint32_t c = 0; c < 256; ++c) {
      expected.push_back(q3_k_value(blocks.data() + 110 * block, c));
    }
  }
  std::vector<float> found(expected.size());
  dequantize(weight_type("Q3_K"), reinterpret_cast<const std::byte*>(blocks.data()), found.size(),
             found.data());
  expect_same_bits(found, expected, "Q3_K");
}

TEST(WeightType, PlainFloatsAreThemselves) {
  const std::vector<float> values = {0.0f, -0.0f, 1e-42f, 3.5f, -7.25f};  // not a whole tile
  std::vector<float> out(values.size());
  dequantize(weight_type("F32"), reinterpret_cast<const std::byte*>(values.data()), values.size(),
             out.data());
  expect_same_bits(out, values, "F32");
}

TEST(WeightType, TheTableIsOrderedAndItsNamesAreUnique) {
  std::set<std::string_view> names;
  uint32_t previous = 0;
  for (const WeightType& type : weight_types()) {
    EXPECT_TRUE(type.ggml_id > previous || type.ggml_id == 0);
    previous = type.ggml_id;
    names.insert(type.name);
    EXPECT_EQ(find_weight_type(type.ggml_id), &type);
    EXPECT_EQ(find_weight_type(type.name), &type);
  }
  EXPECT_EQ(names.size(), weight_types().size());
  EXPECT_EQ(find_weight_type(5), nullptr);
  EXPECT_EQ(find_weight_type("Q9_9"), nullptr);
}

TEST(WeightType, ZeroPaddingIsZeroWeights) {
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    const TileRow nothing;
    for (uint32_t block = 0; block < type.layout.tile_cols / kWeightBlockCols; ++block) {
      std::vector<float> out(kWeightBlockCols, 9.0f);
      type.unpack(nothing, block, out.data());
      EXPECT_EQ(out, std::vector<float>(kWeightBlockCols, 0.0f)) << type.name;
    }
  }
}

/// Blocks of random bits meet only some points. What all of them obey: rising order of their codes
/// and values of the type's own; and a digest of the words, which held the file format's authors'
/// points.
struct Grid {
  std::string_view type;
  size_t n_points;
  uint32_t bits;  ///< of a value's code
  uint32_t n_levels;
  uint64_t digest;
};

/// A point's codes, value 0 in the lowest bits.
uint32_t code_of(uint32_t point, const Grid& grid) {
  uint32_t code = 0;
  const uint32_t n = grid.bits == 2 ? 8 : 4;
  for (uint32_t j = n; j-- > 0;) {
    uint32_t level = point >> (8 * (j % 4) + 4 * (j / 4)) & 15u;
    if (grid.bits == 3) {
      const uint32_t value = point >> (8 * j) & 0xFFu;
      level = grid.type == "IQ3_S" ? (value - 1) / 2 : value / 8;  // 4, 12 … 52, 62
    }
    EXPECT_LT(level, grid.n_levels) << grid.type;
    code = code << grid.bits | level;
  }
  return code;
}

TEST(WeightType, GridsAreThoseOfTheFormat) {
  constexpr Grid kGrids[] = {
      {"IQ1_S", 2048, 2, 3, 0x357649A86E5E3C41u},  {"IQ1_M", 2048, 2, 3, 0x357649A86E5E3C41u},
      {"IQ2_XXS", 256, 2, 3, 0x451C41035E19149Eu}, {"IQ2_XS", 512, 2, 3, 0x4593780AFFDE22CEu},
      {"IQ2_S", 1024, 2, 3, 0xD90FE478077A7E6Au},  {"IQ3_XXS", 256, 3, 8, 0x2AFD47C26BA238E9u},
      {"IQ3_S", 512, 3, 8, 0xC95200D5A9732494u},
  };
  for (const Grid& grid : kGrids) {
    const std::span<const uint32_t> points = weight_type(grid.type).grid;
    ASSERT_EQ(points.size(), grid.n_points) << grid.type;
    uint64_t digest = 0xCBF29CE484222325u;
    for (size_t i = 0; i < points.size(); ++i) {
      const uint32_t code = code_of(points[i], grid);
      EXPECT_TRUE(i == 0 || code > code_of(points[i - 1], grid)) << grid.type << " point " << i;
      digest = (digest ^ code) * 0x100000001B3u;
    }
    EXPECT_EQ(digest, grid.digest) << grid.type;
  }
  EXPECT_TRUE(weight_type("IQ4_XS").grid.empty());
}

TEST(WeightType, MisuseIsACheckFailure) {
  float out[32];
  std::byte blocks[64] = {};
  EXPECT_THROW(weight_type("Q9_9"), CheckFailure);
  EXPECT_THROW(dequantize(weight_type("Q4_0"), blocks, 31, out), CheckFailure);
  EXPECT_THROW(dequantize(weight_type("F64"), blocks, 1, out), CheckFailure);
}

}  // namespace
}  // namespace pumice
