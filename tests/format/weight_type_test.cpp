#include "format/weight_type.hpp"

#include <random>
#include <set>

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
  EXPECT_GE(check_against_reference(folder, ""), 6u);
}

TEST(WeightType, RandomBlocksDequantiseBitForBitLikeTheReference) {
  PUMICE_REQUIRE_SHARED(folder, "reference/quants");
  EXPECT_GE(check_against_reference(folder, "fuzz-"), 4u);
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
