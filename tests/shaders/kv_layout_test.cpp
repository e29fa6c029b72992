// Types of cached keys and values: their names, their sizes, and rows as the host stores them.
#include "shaders/common/kv_layout.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "shaders/common/kv_row.hpp"

namespace pumice {
namespace {

TEST(KvTypes, HaveNamesThatAreReadBack) {
  for (size_t k = 0; k < kKvTypeNames.size(); ++k) {
    for (size_t v = 0; v < kKvTypeNames.size(); ++v) {
      const KvTypes types(static_cast<KvType>(k), static_cast<KvType>(v));
      EXPECT_EQ(KvTypes::parse(types.name()), types) << types.name();
    }
  }
  EXPECT_EQ(KvTypes(KvType::kQ8_0).name(), "q8_0");
  EXPECT_EQ(KvTypes(KvType::kQ8_0, KvType::kF16).name(), "q8_0-f16");
  for (const char* text : {"", "q8", "-", "f16-", "-f16", "f16-q9", "f16-f16-f16"}) {
    EXPECT_FALSE(KvTypes::parse(text)) << text;
  }
}

TEST(KvTypes, TakeTheBytesOfTheirElementsAndScales) {
  EXPECT_EQ(kv_row_bytes(KvType::kF32, 24), 96u);
  EXPECT_EQ(kv_row_bytes(KvType::kBF16, 24), 48u);
  EXPECT_EQ(kv_row_bytes(KvType::kQ8_0, 128), 128u / 32 * 34);
  EXPECT_EQ(kv_row_bytes(KvType::kQ4_0, 128), 128u / 32 * 18);
  EXPECT_EQ(kv_row_bytes(KvType::kQ8_0, 96), 96u + 8);  // whole words of scales
  const KvLayout layout{
      .type = {KvType::kQ8_0, KvType::kF16}, .n_layers = 3, .n_kv_heads = 2, .head_dim = 64};
  EXPECT_EQ(layout.layer_offset_bytes(1), 16u * 2 * (68 + 128));
  EXPECT_EQ(layout.block_bytes(), 3u * 16 * 2 * (68 + 128));
}

TEST(KvTypes, ThatScaleRefuseHeadsOfNoWholeScalesByName) {
  EXPECT_TRUE(check_kv_types("x", {KvType::kQ8_0, KvType::kQ4_0}, 96).ok());
  EXPECT_TRUE(check_kv_types("x", {KvType::kF16, KvType::kBF16}, 80).ok());
  const Status values = check_kv_types("attention", {KvType::kF16, KvType::kQ4_0}, 80);
  ASSERT_FALSE(values.ok());
  EXPECT_EQ(values.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(values.error().message,
            "attention: values of 80 elements a head cannot be cached in q4_0, which scales 32 at "
            "a time; use -ctk f16 -ctv f16");
  EXPECT_NE(
      check_kv_types("x", {KvType::kQ8_0, KvType::kF16}, 80).error().message.find("keys of 80"),
      std::string::npos);
}

/// Rows of a head are stored apart to the last byte, and read back as `values` became.
TEST(KvRows, ShareNoByteAndComeBack) {
  constexpr uint32_t kHeadDim = 96;
  for (size_t t = 0; t < kKvTypeNames.size(); ++t) {
    const auto type = static_cast<KvType>(t);
    for (const bool is_v : {false, true}) {
      std::vector<std::byte> head(kKvBlockTokens * kv_row_bytes(type, kHeadDim), std::byte{0xFF});
      std::vector<std::vector<float>> rows;
      for (uint32_t token = 0; token < kKvBlockTokens; ++token) {
        for (const double value : ops::load_kv_row(head, type, is_v, token, kHeadDim)) {
          ASSERT_TRUE(std::isnan(value)) << kKvTypeNames[t] << ": token " << token << " is written";
        }
        auto& row = rows.emplace_back(kHeadDim);
        for (uint32_t d = 0; d < kHeadDim; ++d) {
          row[d] = std::sin(static_cast<float>(7 * token + d)) * static_cast<float>(1 + token);
        }
        ops::store_kv_row(head, type, is_v, token, row);
      }
      for (uint32_t token = 0; token < kKvBlockTokens; ++token) {
        const auto got = ops::load_kv_row(head, type, is_v, token, kHeadDim);
        for (uint32_t d = 0; d < kHeadDim; ++d) ASSERT_EQ(got[d], rows[token][d]) << token;
      }
    }
  }
}

TEST(KvRows, AreRoundedToTheNearestMultipleOfTheScale) {
  std::vector<float> row(32, 0.0f);
  row[0] = 127.0f;
  row[1] = -3.4f;
  row[2] = 3.6f;
  std::vector<std::byte> head(kKvBlockTokens * kv_row_bytes(KvType::kQ8_0, 32));
  std::vector<float> q8 = row;
  ops::store_kv_row(head, KvType::kQ8_0, true, 3, q8);
  EXPECT_EQ(q8[0], 127);
  EXPECT_EQ(q8[1], -3);
  EXPECT_EQ(q8[2], 4);
  // -8 d is the largest: values of the other sign reach 7 d only.
  row = std::vector<float>(32, 0.0f);
  row[5] = -16.0f;
  row[6] = 16.0f;
  row[7] = -2.9f;
  ops::store_kv_row(head, KvType::kQ4_0, false, 3, row);
  EXPECT_EQ(row[5], -16);
  EXPECT_EQ(row[6], 14);
  EXPECT_EQ(row[7], -2);
}

}  // namespace
}  // namespace pumice
