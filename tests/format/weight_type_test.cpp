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
  EXPECT_EQ(check_against_reference(folder, ""), 12u);  // all but F32 and Q3_K
}

TEST(WeightType, RandomBlocksDequantiseBitForBitLikeTheReference) {
  PUMICE_REQUIRE_SHARED(folder, "reference/quants");
  EXPECT_EQ(check_against_reference(folder, "fuzz-"),
            11u);  // the K types, Q3_K too, and the older ones
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

TEST(WeightType, MisuseIsACheckFailure) {
  float out[32];
  std::byte blocks[64] = {};
  EXPECT_THROW(weight_type("Q9_9"), CheckFailure);
  EXPECT_THROW(dequantize(weight_type("Q4_0"), blocks, 31, out), CheckFailure);
  EXPECT_THROW(dequantize(weight_type("F64"), blocks, 1, out), CheckFailure);
}

}  // namespace
}  // namespace pumice
