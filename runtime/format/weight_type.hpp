// The one table of GGUF tensor types. A type that models may use has a codec (weight_codecs.hpp):
// how its blocks are packed into the resident layout (resident_layout.hpp) and read back. Every
// other type is listed by name and size only, so that a file holding it can still be described.
//
// Adding a type: a codec, a row in weight_type.cpp, its twin shaders/weights/TYPE.glsl and its name
// in shaders/common/weights.glsl and weight_types.cmake, and a row in random_weights.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pumice {

inline constexpr uint32_t kRowGroup = 32;         ///< rows interleaved in a resident tile
inline constexpr uint32_t kWeightBlockCols = 32;  ///< columns a kernel dequantises together

/// Shape of a resident tile: `tile_cols` columns of 32 rows. See resident_layout.hpp.
struct ResidentLayout {
  uint32_t tile_cols = 0;
  uint32_t n_units = 0;  ///< 16-byte units a row
  uint32_t n_words = 0;  ///< 4-byte words a row, after the units

  uint32_t tile_bytes() const { return kRowGroup * (16 * n_units + 4 * n_words); }
};

/// One row of one resident tile, not interleaved. All zero decodes to zero weights.
struct TileRow {
  static constexpr uint32_t kMaxUnits = 16;
  static constexpr uint32_t kMaxWords = 4;
  uint32_t units[kMaxUnits][4] = {};
  uint32_t words[kMaxWords] = {};
};

struct WeightType {
  uint32_t ggml_id;
  std::string_view name;    ///< "Q4_K"
  uint32_t block_elements;  ///< consecutive columns stored together in a file
  uint32_t block_bytes;
  ResidentLayout layout;  ///< all zero without a codec

  /// Pack the file blocks of columns [0, n_cols) of one tile into `row`, which is all zero on
  /// entry. n_cols is at most tile_cols and a multiple of block_elements.
  void (*pack)(const std::byte* blocks, uint32_t n_cols, TileRow& row);
  /// The 32 weights of columns [32 * block, 32 * block + 32) of the tile. The GLSL function
  /// load_weights32 does the same arithmetic in the same order.
  void (*unpack)(const TileRow& row, uint32_t block, float* out);

  /// The points that blocks hold the numbers of (weight_grids.hpp), which shaders read too; else
  /// empty.
  std::span<const uint32_t> grid;
  /// The type whose shaders read this one: its own name unless it is laid out like another.
  std::string_view shaders;
  uint32_t file_type;  ///< llama.cpp's general.file_type of files mostly of it
  /// What llama.cpp's quantiser takes for rows that its blocks do not divide; empty: F16.
  std::string_view fallback;

  /// Whether models may use it: it can be dequantised, repacked and read by the shaders.
  bool has_codec() const { return pack != nullptr; }
  /// Whether weights are integers with scales of blocks; otherwise they are floats.
  bool has_integers() const { return block_elements > 1; }
  /// Bytes of `n_elements` (a multiple of block_elements) in a file.
  uint64_t file_bytes(uint64_t n_elements) const {
    return n_elements / block_elements * block_bytes;
  }
};

/// All types, ordered by ggml_id.
std::span<const WeightType> weight_types();
/// Null if there is no such type.
const WeightType* find_weight_type(uint32_t ggml_id);
const WeightType* find_weight_type(std::string_view name);
/// The type of that name, which must exist.
const WeightType& weight_type(std::string_view name);

/// Bit-equal to ggml's own dequantisation on a CPU. The type must have a codec; `n_elements` is a
/// multiple of block_elements; `blocks` needs no alignment.
void dequantize(const WeightType& type, const std::byte* blocks, size_t n_elements, float* out);

}  // namespace pumice
