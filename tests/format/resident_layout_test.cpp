#include "format/resident_layout.hpp"

#include <gtest/gtest.h>

#include "random_matrix.hpp"

namespace pumice {
namespace {

using test::RandomMatrix;

struct Shape {
  uint64_t n_rows;
  uint64_t n_blocks;  // of columns
};
constexpr Shape kShapes[] = {{1, 1}, {31, 2}, {32, 3}, {33, 1}, {100, 5}};

uint64_t n_cols_of(const WeightType& type, const Shape& shape) {
  return type.block_elements == 1 ? shape.n_blocks * 13 : shape.n_blocks * type.block_elements;
}

template <typename Check>
void for_each_type_and_shape(Check check) {
  for (const WeightType& type : weight_types()) {
    if (!type.has_codec()) continue;
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(std::string(type.name) + " rows " + std::to_string(shape.n_rows) + " blocks " +
                   std::to_string(shape.n_blocks));
      check(RandomMatrix(type, shape.n_rows, n_cols_of(type, shape)));
    }
  }
}

TEST(ResidentLayout, UnpackingWhatWasRepackedGivesTheDequantisedWeights) {
  for_each_type_and_shape([](const RandomMatrix& m) {
    const std::vector<float> expected = m.dequantized();
    const std::vector<std::byte> resident = m.resident();
    std::vector<float> found(expected.size());
    for (uint64_t row = 0; row < m.n_rows; ++row) {
      unpack_row(m.type, resident.data(), m.n_cols, row, found.data() + row * m.n_cols);
    }
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)), 0);
  });
}

TEST(ResidentLayout, RowsBeyondTheMatrixAreZero) {
  for_each_type_and_shape([](const RandomMatrix& m) {
    const std::vector<std::byte> resident = m.resident();
    std::vector<float> row(m.n_cols);
    for (uint64_t r = m.n_rows; r < n_row_groups(m.n_rows) * kRowGroup; ++r) {
      unpack_row(m.type, resident.data(), m.n_cols, r, row.data());
      EXPECT_EQ(row, std::vector<float>(m.n_cols, 0.0f));
    }
  });
}

TEST(ResidentLayout, RowGroupsRepackedApartAreTheSameBytes) {
  for_each_type_and_shape([](const RandomMatrix& m) {
    const std::vector<std::byte> whole = m.resident();
    std::vector<std::byte> pieces(whole.size());
    for (uint64_t group = n_row_groups(m.n_rows); group-- > 0;) {
      repack(m.type, m.blocks(), m.n_rows, m.n_cols, group, 1,
             pieces.data() + group * row_group_bytes(m.type, m.n_cols));
    }
    EXPECT_EQ(pieces, whole);
  });
}

TEST(ResidentLayout, SizesAreThoseOfTheDescription) {
  EXPECT_EQ(resident_bytes(weight_type("F32"), 32, 32), 32u * 32 * 4);
  EXPECT_EQ(resident_bytes(weight_type("F16"), 33, 33), 2u * 2 * 32 * 64);
  EXPECT_EQ(resident_bytes(weight_type("Q8_0"), 32, 64), 32u * 68);
  EXPECT_EQ(resident_bytes(weight_type("Q8_0"), 32, 32), 32u * 68);  // half a tile of zeros
  EXPECT_EQ(resident_bytes(weight_type("Q4_0"), 64, 128), 64u * 2 * 36);
  EXPECT_EQ(resident_bytes(weight_type("Q4_K"), 32, 512), 32u * 2 * 144);
  EXPECT_EQ(resident_bytes(weight_type("Q6_K"), 32, 256), 32u * 212);
  // An 8B model's output matrix: no overflow anywhere.
  EXPECT_EQ(resident_bytes(weight_type("F32"), 128256, 4096), uint64_t{128256} * 4096 * 4);
}

TEST(ResidentLayout, LanesOfARowGroupReadConsecutiveUnits) {
  // F32, 32 × 64: tile 1, unit 2, row 5 holds columns 32 + 8 … 32 + 11 of row 5.
  std::vector<float> matrix(32 * 64);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i);
  std::vector<float> resident(matrix.size());
  repack(weight_type("F32"), reinterpret_cast<const std::byte*>(matrix.data()), 32, 64, 0, 1,
         reinterpret_cast<std::byte*>(resident.data()));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(resident[1024 + (2 * 32 + 5) * 4 + i], matrix[5 * 64 + 32 + 8 + i]);
  }
}

}  // namespace
}  // namespace pumice
