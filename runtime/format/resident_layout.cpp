#include "format/resident_layout.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.hpp"

namespace pumice {
namespace {

/// Interleave one row of a tile into `tile`, or gather it back.
struct TileAddress {
  const ResidentLayout& layout;
  size_t unit(uint32_t index, uint32_t row) const { return (size_t{index} * kRowGroup + row) * 16; }
  size_t word(uint32_t index, uint32_t row) const {
    return size_t{layout.n_units} * kRowGroup * 16 + (size_t{index} * kRowGroup + row) * 4;
  }
};

void check_arguments(const WeightType& type, uint64_t n_cols) {
  PUMICE_CHECK(type.has_codec(), "this type has no resident layout");
  PUMICE_CHECK(n_cols % type.block_elements == 0, "rows must hold whole blocks");
}

}  // namespace

void repack(const WeightType& type, const std::byte* blocks, uint64_t n_rows, uint64_t n_cols,
            uint64_t first_row_group, uint64_t count, std::byte* dst) {
  check_arguments(type, n_cols);
  const ResidentLayout& layout = type.layout;
  const TileAddress at{layout};
  const uint64_t row_bytes = type.file_bytes(n_cols);
  std::vector<std::byte> tile(layout.tile_bytes());  // interleaved here, then copied out in order
  for (uint64_t group = first_row_group; group < first_row_group + count; ++group) {
    for (uint64_t first_col = 0; first_col < n_cols; first_col += layout.tile_cols) {
      const auto tile_cols =
          static_cast<uint32_t>(std::min<uint64_t>(layout.tile_cols, n_cols - first_col));
      for (uint32_t row = 0; row < kRowGroup; ++row) {
        TileRow packed;
        const uint64_t matrix_row = group * kRowGroup + row;
        if (matrix_row < n_rows) {
          type.pack(blocks + matrix_row * row_bytes + type.file_bytes(first_col), tile_cols,
                    packed);
        }
        for (uint32_t unit = 0; unit < layout.n_units; ++unit) {
          std::memcpy(tile.data() + at.unit(unit, row), packed.units[unit], 16);
        }
        for (uint32_t word = 0; word < layout.n_words; ++word) {
          std::memcpy(tile.data() + at.word(word, row), &packed.words[word], 4);
        }
      }
      std::memcpy(dst, tile.data(), tile.size());
      dst += tile.size();
    }
  }
}

void unpack_row(const WeightType& type, const std::byte* resident, uint64_t n_cols, uint64_t row,
                float* out) {
  check_arguments(type, n_cols);
  const ResidentLayout& layout = type.layout;
  const TileAddress at{layout};
  const auto lane = static_cast<uint32_t>(row % kRowGroup);
  const std::byte* tile = resident + row / kRowGroup * row_group_bytes(type, n_cols);
  for (uint64_t col = 0; col < n_cols; col += kWeightBlockCols) {
    const auto block = static_cast<uint32_t>(col % layout.tile_cols / kWeightBlockCols);
    if (col != 0 && block == 0) tile += layout.tile_bytes();
    TileRow packed;
    for (uint32_t unit = 0; unit < layout.n_units; ++unit) {
      std::memcpy(packed.units[unit], tile + at.unit(unit, lane), 16);
    }
    for (uint32_t word = 0; word < layout.n_words; ++word) {
      std::memcpy(&packed.words[word], tile + at.word(word, lane), 4);
    }
    float values[kWeightBlockCols];
    type.unpack(packed, block, values);
    const uint64_t valid = std::min<uint64_t>(kWeightBlockCols, n_cols - col);
    std::memcpy(out + col, values, valid * sizeof(float));
  }
}

}  // namespace pumice
